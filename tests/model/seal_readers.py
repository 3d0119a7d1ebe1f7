"""Readers of an open range, in the model of a seal: what they are served, and why they may believe it.

A reader believes a confirm offset that a replica tells it, which came from the writer. To go beyond that it asks the
replicas for their durable offsets and the placement driver to put a floor at the A-th largest of them; what the driver
answers it believes. A replica whose disk is gone or not trusted does not answer; one in doubt does: what is left is there.
Where all have answered and none is in doubt, no ack lies beyond what is proved: the end is exact.

A state has room for one round of answers, each of which may be older than the others; asked again, a replica answers
anew. That is any number of readers: what one of them heard, and when, the others need not know.
"""

from __future__ import annotations

from collections.abc import Iterator

from rangelog.protocol.quorum import confirmed_offset, seal_end_offset, seal_quorum
from tests.model.seal_state import (
    AT_ONCE,
    DAMAGED,
    DISK,
    DURABLE,
    END,
    FLOOR,
    GHOST,
    HEARD,
    LOG,
    LOST,
    NONE,
    SERVED,
    SHORT,
    TORN,
    WIDTH,
    Seal,
    replaced,
)

Step = tuple[str, bytearray]


class Readers:
    """The steps of readers, and of the placement driver as it answers them."""

    def __init__(self, instance: Seal) -> None:
        self.instance = instance
        self.wrong = instance.wrong
        self.at = instance.scalars_at
        self.columns = list(range(0, self.at, WIDTH))

    def steps(self, state: bytes) -> Iterator[Step]:
        """Every step of a reader from here."""
        for number, column in enumerate(self.columns):
            if state[column + DISK] not in (LOST, DAMAGED):
                yield from self._served_confirmed(state, column, f"r{number}")
                if self.instance.reader != AT_ONCE:
                    yield from self._asks(state, column, f"r{number}")
        proofs = self._proofs_at_once(state) if self.instance.reader == AT_ONCE else self._proofs_heard(state)
        for offset in proofs:
            yield from self._proves(state, offset)
        if self.instance.reader == AT_ONCE:
            yield from self._all_answer(state)
        if self.wrong == "floor-forgotten" and state[self.at + FLOOR]:
            yield "the placement driver's leader changes", replaced(state, (self.at + FLOOR, 0))

    def _served_confirmed(self, state: bytes, column: int, name: str) -> Iterator[Step]:
        """What the replica holds of what it was told is confirmed. It may have been told less: then less is served."""
        offset = min(state[column + DURABLE].bit_length(), self.instance.told_to_replicas(state))
        if offset > state[self.at + SERVED]:
            yield f"{name}, told what is confirmed, serves up to {offset}", replaced(state, (self.at + SERVED, offset))

    def _asks(self, state: bytes, column: int, name: str) -> Iterator[Step]:
        held = state[column + (LOG if self.wrong == "proof-of-unflushed" else DURABLE)].bit_length()
        if state[column + HEARD] != held + 1:
            yield f"{name} tells a reader that it holds {held}", replaced(state, (column + HEARD, held + 1))

    def _proofs_heard(self, state: bytes) -> Iterator[int]:
        """What the answers prove that are in."""
        offset = self._proved([state[column + HEARD] - 1 for column in self.columns if state[column + HEARD]])
        if offset is not None:
            yield offset

    def _proofs_at_once(self, state: bytes) -> Iterator[int]:
        """What is proved by any A replicas or more that answer at this moment."""
        answering = [column for column in self.columns if state[column + DISK] not in (LOST, DAMAGED)]
        held = sorted((state[column + DURABLE].bit_length() for column in answering), reverse=True)
        yield from sorted(set(held[self.instance.acks - 1 :]))

    def _all_answer(self, state: bytes) -> Iterator[Step]:
        """A reader that takes the end for exact must not be told less than is acked."""
        excluded = (LOST, DAMAGED) if self.wrong == "doubtful-is-complete" else (LOST, DAMAGED, TORN)
        if state[self.at + END] != NONE or any(state[column + DISK] in excluded for column in self.columns):
            return
        offset = confirmed_offset((state[at + DURABLE].bit_length() for at in self.columns), self.instance.acks)
        if max(offset, state[self.at + FLOOR]) < self.instance.confirmed(state):
            ghost = state[self.at + GHOST] | SHORT
            yield (
                f"all have answered, and a reader takes {offset} for the end",
                replaced(state, (self.at + GHOST, ghost)),
            )

    def _proved(self, held: list[int]) -> int | None:
        """Return what these answers prove, or None where they are too few."""
        acks, replicas = self.instance.acks, self.instance.replicas
        if self.wrong == "proof-like-a-seal":
            return seal_end_offset(held, replicas, acks) if len(held) >= seal_quorum(replicas, acks) else None
        if self.wrong == "proof-by-who-answers":
            return min(sorted(held)[-acks:]) if held else None
        if len(held) < acks:
            return None
        return max(held) if self.wrong == "proof-by-one" else confirmed_offset(held, acks)

    def _proves(self, state: bytes, offset: int) -> Iterator[Step]:
        """The placement driver arbitrates, and the reader is served up to the answer. It may not come: nothing changes then."""
        end, floor = state[self.at + END], state[self.at + FLOOR]
        changed = bytearray(state)
        if self.wrong == "proof-without-arbitration":
            answer = offset
        elif end != NONE:
            answer = offset if self.wrong == "floor-after-seal" else end
        else:
            answer = changed[self.at + FLOOR] = offset if self.wrong == "floor-goes-down" else max(floor, offset)
        changed[self.at + SERVED] = max(changed[self.at + SERVED], answer)
        if changed != state:
            yield f"a reader proves {offset} and is answered {answer}", changed
