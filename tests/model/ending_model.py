"""After a range's end is committed: replicas learn it late, while late appends arrive and they are read, repaired, uploaded.

After an active seal nobody fenced the replicas: until one hears of the end it takes what its writer still has under way,
and these offsets are another range's by then. Each step is carried out by the product's own Replica.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from itertools import product

from rangelog_core.batch import batch_crc, check_batch
from rangelog_core.errors import PreconditionFailed, ProtocolViolation, RangelogError, WriterFenced
from rangelog_server.ranges.replica import NewBatch, Replica
from tests.model.conformance_servers import record

RECORDS, REPLICAS, ACKS = 3, 3, 2
UNKNOWN = -1


@dataclass(frozen=True, slots=True, order=True)
class Copy:
    """One replica: how much it holds, the end it knows, the confirm offset it knows."""

    held: int = 0
    end: int = UNKNOWN
    confirmed: int = 0

    def __str__(self) -> str:
        return f"a replica with {self.held}" + (f" of {self.end}" if self.end != UNKNOWN else "")


@dataclass(frozen=True, slots=True)
class State:
    """The replicas, the committed end, what the object holds, and the furthest offset that a reader was given."""

    copies: tuple[Copy, ...] = (Copy(),) * REPLICAS
    end: int = UNKNOWN
    object_end: int = UNKNOWN
    served: int = 0


@dataclass(frozen=True, slots=True)
class Ending:
    """One instance; replicas have no names."""

    wrong: str = ""

    def initial(self) -> State:
        """An open range."""
        return State()

    def invariant(self, state: State) -> str:
        """Name what is broken, or nothing."""
        if state.end == UNKNOWN:
            return ""
        if state.served > state.end:
            return "READ-BEYOND-THE-END"
        if state.object_end not in (UNKNOWN, state.end):
            return "OBJECT-IS-NOT-THE-RANGE"
        if sum(copy.held >= state.end for copy in state.copies) < ACKS:
            return "TOO-FEW-COPIES"
        return "HELD-BEYOND-THE-END" if any(copy.held > copy.end != UNKNOWN for copy in state.copies) else ""

    def goal(self, state: State) -> bool:
        """Every replica is whole, and the object is there."""
        whole = all(copy.held == copy.end == state.end for copy in state.copies)
        return state.end != UNKNOWN and whole and state.object_end == state.end

    def successors(self, state: State) -> Iterator[tuple[str, State]]:
        """Every step that can be taken from here."""
        acked = sorted((copy.held for copy in state.copies), reverse=True)[ACKS - 1]
        if state.end == UNKNOWN:
            for end in range(acked + 1):  # the writer may not have heard of every ack
                if all(copy.confirmed <= end for copy in state.copies):
                    yield f"the end {end} is committed", replace(state, end=end)
        for number, copy in enumerate(state.copies):
            yield from self._one(state, number, copy, acked)
        if state.end != UNKNOWN:
            for source, target in product(range(REPLICAS), repeat=2):
                if source != target:
                    yield from self._repair(state, source, target)

    def _one(self, state: State, number: int, copy: Copy, acked: int) -> Iterator[tuple[str, State]]:
        limit = acked if state.end == UNKNOWN else state.end
        for confirmed in range(copy.confirmed, min(limit, RECORDS) + 1):
            after = append(copy, confirmed, self.wrong)
            if after is not None:
                yield f"{copy} takes its next record, confirmed is {confirmed}", self._with(state, number, after)
        for known in {0, max(state.end, 0)}:
            upto = served(copy, known, self.wrong)
            if state.end == UNKNOWN:
                upto = min(upto, limit)
            if upto > state.served:
                yield f"{copy} serves up to {upto}", replace(state, served=upto)
        if state.end == UNKNOWN:
            return
        yield f"{copy} learns the end", self._with(state, number, learn(copy, state.end, self.wrong))
        if state.object_end == UNKNOWN and uploads(copy, state.end, self.wrong):
            yield f"{copy} uploads up to {copy.held}", replace(state, object_end=copy.held)

    def _repair(self, state: State, source: int, target: int) -> Iterator[tuple[str, State]]:
        giver, taker = state.copies[source], learn(state.copies[target], state.end, self.wrong)
        whoever = self.wrong == "repair-beyond-the-end"
        if not complete(giver) and not whoever:
            return
        after = repaired(taker, giver.held if whoever else served(giver, state.end, self.wrong), self.wrong)
        if after != taker:
            yield f"{state.copies[target]} takes its next record from {giver}", self._with(state, target, after)

    @staticmethod
    def _with(state: State, number: int, copy: Copy) -> State:
        copies = [copy if one == number else other for one, other in enumerate(state.copies)]
        return replace(state, copies=tuple(sorted(copies)))


@cache
def _batch(offset: int) -> NewBatch:
    data = record(offset)
    return NewBatch(check_batch(data), batch_crc(data), data)


def _replica(copy: Copy) -> Replica:
    core = Replica(1, 0, 0, 1)
    for offset in range(copy.held):
        core.replay_append(_batch(offset).header, _batch(offset).crc)
    core.confirm_offset = copy.confirmed
    if copy.end != UNKNOWN:
        core.commit_end(copy.end)
    core.validate()
    return core


def _copy(core: Replica) -> Copy:
    core.flushed(core.end_offset)
    core.validate()
    end = core.sealed_end_offset
    return Copy(core.durable_offset, UNKNOWN if end is None else end, core.confirm_offset)


@cache
def append(copy: Copy, confirmed: int, wrong: str) -> Copy | None:
    """The writer's next record arrives, and is flushed; None: it is refused, or there is none."""
    if copy.held >= RECORDS:
        return None
    if wrong == "append-after-the-end" and copy.end != UNKNOWN:
        return replace(copy, held=copy.held + 1)
    core = _replica(copy)
    try:
        core.append(1, [_batch(copy.held)], confirmed)
    except (WriterFenced, PreconditionFailed):
        return None
    return _copy(core)


@cache
def learn(copy: Copy, end: int, wrong: str) -> Copy:
    """The placement driver tells the end."""
    if wrong == "learn-without-a-cut":
        return replace(copy, end=end)
    core = _replica(copy)
    core.commit_end(end)
    return _copy(core)


@cache
def complete(copy: Copy) -> bool:
    """Whether the replica reports itself whole."""
    return _replica(copy).complete


@cache
def served(copy: Copy, known: int, wrong: str) -> int:
    """How far a reader is served that knows of this end (0: of none)."""
    if wrong == "serve-to-the-log-end":
        return copy.held
    if wrong == "learn-without-a-cut" and copy.end != UNKNOWN:
        return min(copy.held, copy.end)
    return _replica(copy).readable_end(known)


@cache
def repaired(copy: Copy, available: int, wrong: str) -> Copy:
    """Take one more record of a source that serves so many."""
    if copy.held >= available:
        return copy
    if wrong == "repair-beyond-the-end":
        return replace(copy, held=copy.held + 1)
    core = _replica(copy)
    try:
        core.repair([_batch(copy.held)])
    except (ProtocolViolation, PreconditionFailed):
        return copy
    return _copy(core)


@cache
def uploads(copy: Copy, end: int, wrong: str) -> bool:
    """Whether the server begins an upload: as Uploader.upload_range asks, of a replica that is whole by this very end."""
    if wrong == "upload-by-length":
        return copy.held >= end
    if wrong == "upload-in-part":
        return copy.end == end
    try:
        core = _replica(copy)
    except RangelogError:
        return False
    return core.complete and core.sealed_end_offset == end
