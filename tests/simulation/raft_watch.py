"""What is watched while simulated members run: each rule is checked at the moment it could be broken.

- All members apply the same command at an index and give the same result, over restarts too.
- A term has one leader, which has all that was committed in earlier terms. A member's term never falls, and in a term it
  votes for one.
- What a leader commits is held by a majority of the voters of its configuration, by their own word.
- What a member told others (its term, its vote, which entries it holds) is on its disk when the bytes leave, and found
  again by its next process.
- What a leader applies first is on its own disk.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

from rangelog_pd.consensus.network.messages import Position, Vote, VoteRequest, decode
from tests.simulation.raft_network import VirtualSocket

if TYPE_CHECKING:
    from rangelog_pd.consensus.rules.raft import Raft
    from tests.simulation.raft_group import MachineLike
    from tests.simulation.raft_process import RaftProcess

_FRAME_HEAD_BYTES = 20
_LENGTH = struct.Struct("<I")
_WATCHED_TAGS = (1, 2, 5)  # VoteRequest, Vote, Position


class Promises:
    """What one member's disk must remember."""

    def __init__(self) -> None:
        self.term = 0
        self.voted_for: str | None = None
        self.entry = 0

    def raise_term(self, term: int) -> None:
        """It took part in this term."""
        if term > self.term:
            self.term = term
            self.voted_for = None


class Recorder:
    """The state machine of one process, between consensus and the machine that a test gave."""

    def __init__(self, process: RaftProcess, machine: MachineLike, watch: Watch) -> None:
        self.machine = machine
        self._process = process
        self._watch = watch

    def apply(self, index: int, command: bytes) -> bytes:
        result = self.machine.apply(index, command)
        self._watch.applied(self._process, index, command, result)
        return result

    def freeze(self) -> list[bytes]:
        self._process.count("snapshots taken")
        return list(self.machine.freeze())

    def restore(self, data: bytes) -> None:
        self._process.count("snapshots installed" if self._process.opened else "states read from a snapshot")
        self.machine.restore(data)


class Watch:
    """See the module."""

    def __init__(self) -> None:
        self.violations: list[str] = []
        self.history: dict[int, tuple[bytes, bytes]] = {}
        self.first_index: dict[bytes, int] = {}
        self.promises: dict[str, Promises] = {}
        self.counters: Counter[str] = Counter()
        self.on_vote: Callable[[str], None] = lambda member: None
        """A vote left: the member that gave it, or the one that stands."""
        self.leading: dict[str, bool] = {}
        """Who led after its last step."""
        self._leaders: dict[int, str] = {}
        self._committed: dict[int, int] = {}
        """By term of the leader that committed it: the last entry that was applied."""
        self._acknowledged: dict[tuple[int, str], int] = {}
        self._seen: dict[str, tuple[int, int, frozenset[str]]] = {}
        """By member: boots, and the configuration that it had after its last step: index and voters."""
        self._led: dict[str, tuple[int, int, frozenset[str]]] = {}
        """By leader: boots, commit index and voters after its last step."""
        self._parts: dict[VirtualSocket, bytearray] = {}

    def applied(self, process: RaftProcess, index: int, command: bytes, result: bytes) -> None:
        """A member applied an entry."""
        known = self.history.get(index)
        if known is None:
            self.history[index] = (command, result)
            self.first_index.setdefault(command, index)
            raft = process.raft
            if raft is not None and raft._isLeader():
                self._committed[raft.raftCurrentTerm] = index
                self._check_durable(process, index, "applied")
        elif known[0] != command:
            self.violations.append(f"{process.name} applied another command at {index} than was applied before")
        elif known[1] != result:
            self.violations.append(f"{process.name} came to another result at {index}: {result!r}, not {known[1]!r}")

    def after_step(self, process: RaftProcess) -> bool:
        """Whether the process began to lead in this step."""
        raft = process.raft
        if raft is None:
            return False
        self._see_configuration(process, raft)
        self.leading[process.name] = raft._isLeader()
        promised = self.promises[process.name]
        if raft.raftCurrentTerm < promised.term:
            self.violations.append(f"{process.name} fell from term {promised.term} to {raft.raftCurrentTerm}")
        if not raft._isLeader():
            return False
        leader = self._leaders.setdefault(raft.raftCurrentTerm, process.name)
        if leader != process.name:
            self.violations.append(f"term {raft.raftCurrentTerm} has two leaders: {leader} and {process.name}")
            return False
        key = f"{process.name} {process.boots} {raft.raftCurrentTerm}"
        self.counters[key] += 1
        if self.counters[key] == 1:
            self._check_complete(process, raft)
        else:
            self._check_majority(process, raft)
        self._led[process.name] = (process.boots, raft.raftCommitIndex, raft.configuration.voters)
        return self.counters[key] == 1

    def _see_configuration(self, process: RaftProcess, raft: Raft) -> None:
        """Count what becomes of configurations."""
        index, voters = raft.configuration_index, raft.configuration.voters
        boots, before, known = self._seen.get(process.name, (0, 0, frozenset()))
        if (boots, before) == (process.boots, index) and voters == known:
            return
        self._seen[process.name] = (process.boots, index, voters)
        process.count(f"a group of {len(voters)}")
        if boots == process.boots and index < before:
            process.count("configurations cut")
        if boots != process.boots and 0 < index < raft._log.journal.first_index:
            process.count("configurations read from a snapshot")
        if boots == process.boots and process.name in voters - known:
            process.count("learners became voters")

    def _check_complete(self, process: RaftProcess, raft: Raft) -> None:
        earlier = [index for term, index in self._committed.items() if term < raft.raftCurrentTerm]
        if max(earlier, default=0) > raft._log.journal.last_index:
            self.violations.append(
                f"{process.name} leads with {raft._log.journal.last_index} of {max(earlier)} entries"
            )

    def _check_majority(self, process: RaftProcess, raft: Raft) -> None:
        boots, before, voters = self._led.get(process.name, (0, 0, frozenset()))
        index = raft.raftCommitIndex
        if boots != process.boots or index <= before:
            return
        term = raft.raftCurrentTerm
        holding = [name for name in voters if name == process.name or self._acknowledged.get((term, name), 0) >= index]
        if 2 * len(holding) <= len(voters):
            held = ", ".join(sorted(holding)) or "nobody"
            self.violations.append(f"{process.name} committed {index}: of {', '.join(sorted(voters))} {held} had it")

    def opened(self, process: RaftProcess) -> None:
        """A new process has read what its disk holds."""
        raft, promised = process.raft, self.promises[process.name]
        assert raft is not None
        log = raft._log
        term = raft.raftCurrentTerm  # of the vote file, or of the last entry when that is later
        if term < promised.term:
            self.violations.append(f"{process.name} forgot its term: {term} after it spoke in {promised.term}")
        elif term == promised.term and promised.voted_for and log.getVotedForNodeId() != promised.voted_for:
            self.violations.append(f"{process.name} forgot its vote in term {promised.term}")
        if log.journal.last_index < promised.entry:
            self.violations.append(
                f"{process.name} lost entries: {log.journal.last_index} is the last, {promised.entry} was acknowledged"
            )

    def before_death(self, process: RaftProcess) -> None:
        """Entries that a new leader contradicted are not owed any more."""
        promised = self.promises[process.name]
        if process.raft is not None and process.raft.configuration_index > process.raft.raftCommitIndex:
            process.count("crashed with a change under way")
        if process.raft is not None:
            promised.entry = min(promised.entry, process.raft._log.journal.last_index)

    def leaves(self, process: RaftProcess, socket: VirtualSocket, data: bytes) -> None:
        """Take the frames apart that claim something durable."""
        part = self._parts.setdefault(socket, bytearray())
        part += data
        while len(part) >= _FRAME_HEAD_BYTES:
            end = _FRAME_HEAD_BYTES + _LENGTH.unpack_from(part)[0]
            if len(part) < end:
                return
            if part[_FRAME_HEAD_BYTES + 1] in _WATCHED_TAGS:
                self._said(process, socket.peer, bytes(part[_FRAME_HEAD_BYTES:end]))
            del part[:end]

    def _said(self, process: RaftProcess, peer: str, body: bytes) -> None:
        promised = self.promises[process.name]
        match decode(body):
            case VoteRequest(term=term):
                promised.raise_term(term)
                self._voted(process, promised, term, process.name)
            case Vote(term=term):
                promised.raise_term(term)
                self._voted(process, promised, term, peer)
            case Position(term=term, next_index=next_index, success=True):
                promised.raise_term(term)
                self._check_durable(process, next_index - 1, "acknowledged")
                promised.entry = next_index - 1
                key = (term, process.name)
                self._acknowledged[key] = max(self._acknowledged.get(key, 0), next_index - 1)

    def _voted(self, process: RaftProcess, promised: Promises, term: int, candidate: str) -> None:
        if term < promised.term:
            return
        if promised.voted_for not in (None, candidate):
            self.violations.append(f"{process.name} voted for {promised.voted_for} and {candidate} in term {term}")
        promised.voted_for = candidate
        self.on_vote(process.name)

    def _check_durable(self, process: RaftProcess, index: int, what: str) -> None:
        assert process.raft is not None
        journal = process.raft._log.journal
        position = index - journal.first_index
        if not 0 <= position < len(journal._positions):
            return  # a snapshot holds it
        end = journal._positions[position + 1] if position + 1 < len(journal._positions) else journal.size_bytes
        if not process.disk.directory.surely_holds("journal", end):
            self.violations.append(f"{process.name} {what} entry {index} before it was flushed")
