"""A journal under a machine: the cores of its owner and of its replay, over a stream that is a list.

Each command is acked when the call returns. Now and then the owner is deposed: what it had in flight never lands, and the next
owner begins with what is left of the stream, a snapshot and the entries behind it.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Generic

from rangelog_broker.journal.entry import Command
from rangelog_broker.journal.fold import Fold
from rangelog_broker.journal.machine import M
from rangelog_broker.journal.owner import Owner, Proposed
from rangelog_broker.journal.replay import JournalReplay
from rangelog_broker.journal.sessions import Result


class JournalSide(Generic[M]):
    """One journal. Its machine may be another object after each call."""

    def __init__(self, make_machine: Callable[[], M], random: Random) -> None:
        self._make_machine = make_machine
        self._random = random
        self._values: list[bytes] = []
        self._start = 0  # of the stream: what is before it is trimmed
        self._owner = Owner(Fold(make_machine()), 1)
        self._append(self._owner.open_session(0, 1 << 63))
        self._session = int.from_bytes(self._ack()[-1].value, "little")
        self._sequence = 0
        self.takeovers = 0
        self.snapshots = 0

    @property
    def machine(self) -> M:
        """The machine as it is."""
        return self._owner.fold.machine

    def apply(self, command: bytes) -> bytes:
        """Apply one command, perhaps by way of a takeover, perhaps proposed twice. Raises the machine's refusal."""
        entry = Command(0, self._session, self._sequence, self._sequence, command)
        self._sequence += 1
        if self._random.random() < 0.2:
            self._owner.propose(entry)  # it is in flight when the owner is deposed, and never lands
            self._take_over()
        result = self._propose(entry)
        if self._random.random() < 0.2:
            self._take_over()
            again = self._owner.propose(entry)  # a retry, since the answer was lost
            assert again == result, "a retry has the first result"
        if self._random.random() < 0.2:
            self._snapshot()
        return result.unwrap()

    def _propose(self, entry: Command) -> Result:
        proposed = self._owner.propose(entry)
        assert isinstance(proposed, Proposed)
        self._append(proposed)
        return self._ack()[-1]

    def _append(self, proposed: Proposed) -> None:
        assert proposed.value is not None
        assert proposed.offset == self._start + len(self._values)
        self._values.append(proposed.value)

    def _ack(self) -> list[Result]:
        return [each.result for each in self._owner.confirmed(self._start + len(self._values))]

    def _take_over(self) -> None:
        replay = JournalReplay(self._make_machine(), self._start)
        end_offset = self._start + len(self._values)
        while replay.next_offset < end_offset:
            replay.feed(replay.next_offset, self._values[replay.next_offset - self._start])
        self._owner = Owner(replay.finish(end_offset), self._owner.epoch + 1)
        self.takeovers += 1

    def _snapshot(self) -> None:
        self._owner.start_snapshot()
        while (piece := self._owner.next_piece()) is not None:
            self._append(piece)
        self._ack()
        trim_offset = self._owner.take_trim()
        del self._values[: trim_offset - self._start]
        self._start = trim_offset
        self.snapshots += 1
