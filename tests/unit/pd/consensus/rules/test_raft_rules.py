"""The rules that our Raft adds to pysyncobj's, one by one, on a member that is spoken to by hand."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rangelog_core.errors import Corruption, ProtocolViolation
from rangelog_pd.consensus.files import snapshot_file
from rangelog_pd.consensus.files.journal import JournalEntry
from rangelog_pd.consensus.files.snapshot_file import Snapshot
from rangelog_pd.consensus.network.connection import PeerConnection
from rangelog_pd.consensus.network.messages import (
    SNAPSHOT_CHUNK_BYTES,
    Append,
    Message,
    Position,
    SnapshotChunk,
    Vote,
    VoteRequest,
)
from rangelog_pd.consensus.network.transport import PeerTransport
from rangelog_pd.consensus.pysyncobj_consensus import initial_configuration
from rangelog_pd.consensus.rules import snapshots
from rangelog_pd.consensus.rules.raft import Raft
from rangelog_pd.consensus.rules.raft_log import RaftLog
from rangelog_pd.consensus.rules.snapshots import Snapshots
from rangelog_pd.consensus.rules.timings import Timings
from tests.support.tape import Tape

SLOW = replace(Timings.of_elections(100_000, 200_000), heartbeat_s=10, tick_s=0.001)


class Member:
    """Member "a" of three, without a network. It is its own driver."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(exist_ok=True)
        self.tape = Tape()
        self.sent: list[tuple[str, Message]] = []
        self.proposals: list[tuple[bytes, Callable[[Any, int], None]]] = []
        self.answers: list[tuple[Any, int]] = []
        store = Snapshots(directory / "snapshot", self.tape, threading.Lock())
        peers = {"b": "127.0.0.1:1", "c": "127.0.0.1:2"}
        initial = initial_configuration({"a": "127.0.0.1:3", **peers}, {})
        self.log = RaftLog(directory, "a", store.loaded, initial=initial)
        self.raft = Raft("a", self.log, store, self, timings=SLOW, snapshot_entries=1000)
        self.raft.peers.send = self._send  # type: ignore[method-assign]
        for peer in peers:
            self.raft._connected(peer)

    def _send(self, peer: str, message: Message) -> bool:
        self.sent.append((peer, message))
        return True

    def apply(self, index: int, command: bytes) -> bytes:
        """`Applier.apply`."""
        return self.tape.apply(index, command)

    def take_proposals(self, *, leads: bool, paused: bool) -> list[tuple[bytes, Callable[[Any, int], None]]]:
        """`Applier.take_proposals`."""
        if paused:
            return []
        taken, self.proposals = self.proposals, []
        return taken if leads else []

    def propose(self, command: bytes) -> None:
        """With the next tick."""
        self.proposals.append((b"\0" + command, lambda result, reason: self.answers.append((result, reason))))
        self.raft.tick()

    def hear(self, peer: str, message: Message) -> list[Message]:
        """Receive a message and tick; what was sent to `peer` in answer."""
        self.sent.clear()
        self.raft._receive(peer, message)
        self.raft.tick()
        return [said for to, said in self.sent if to == peer]

    def indexes(self) -> list[int]:
        """What the log holds."""
        return [entry.log_index for entry in self.log.journal.entries]

    def lead(self) -> int:
        """Win an election; the term."""
        self.raft._move_deadline(lambda _now, _then: 0.0, 0.0)
        self.raft.tick()
        term: int = self.raft.raftCurrentTerm
        self.hear("b", Vote(term))
        assert self.raft._isLeader()
        return term


@pytest.fixture
def member(tmp_path: Path) -> Member:
    """A fresh one."""
    made = Member(tmp_path / "a")
    made.raft.tick()
    return made


def append(term: int, previous: tuple[int, int], terms: list[int], commit: int = 1) -> Append:
    """Entries whose commands say their index and term."""
    entries = [JournalEntry(b"\0%d/%d" % (previous[0] + 1 + n, t), previous[0] + 1 + n, t) for n, t in enumerate(terms)]
    return Append(term, commit, *previous, tuple(entries))


def snapshot_to(index: int, term: int, state: bytes = b"from the leader") -> bytes:
    """An encoded snapshot up to `index`."""
    previous, last = (JournalEntry(b"\0%d/%d" % (i, term), i, term) for i in (index - 1, index))
    return b"".join(snapshot_file.encode(Snapshot(previous, last, state)))


def test_entries_are_appended_acknowledged_and_applied(member: Member) -> None:
    """The plain case: what the leader commits is applied, in order."""
    assert member.hear("b", append(1, (1, 0), [1, 1])) == [Position(1, 4, reset=False, success=True)]
    member.hear("b", append(1, (3, 1), [], commit=3))
    assert member.tape.commands == [b"2/1", b"3/1"]


def test_a_repeated_message_cuts_nothing_and_writes_nothing(member: Member) -> None:
    """An old message that arrives again is acknowledged for what it says, and the log stays as it is."""
    first = append(1, (1, 0), [1, 1, 1])
    member.hear("b", first)
    member.hear("b", append(1, (4, 1), [1, 1]))
    size_bytes = member.log.journal.size_bytes
    assert member.hear("b", first) == [Position(1, 5, reset=False, success=True)]
    assert member.hear("b", append(1, (2, 1), [])) == [Position(1, 3, reset=False, success=True)]
    assert member.indexes() == [1, 2, 3, 4, 5, 6]
    assert member.log.journal.size_bytes == size_bytes


def test_a_repeated_message_commits_only_what_it_covers(member: Member) -> None:
    """The tail behind the message may be an old leader's: its commit index does not reach there."""
    member.hear("b", append(1, (1, 0), [1, 1, 1]))
    member.hear("c", append(2, (1, 0), [1], commit=4))
    assert member.tape.commands == [b"2/1"]


def test_conflicting_entries_are_replaced(member: Member) -> None:
    """What lost an election is cut and the new leader's entries stand in its place."""
    member.hear("b", append(1, (1, 0), [1, 1, 1]))
    member.hear("c", append(2, (2, 1), [2], commit=3))
    assert [entry.term for entry in member.log.journal.entries] == [0, 1, 2]
    assert member.tape.commands == [b"2/1", b"3/2"]


def test_a_leader_that_contradicts_a_committed_entry_stops_the_member(member: Member) -> None:
    """Divergence is never papered over."""
    member.hear("b", append(1, (1, 0), [1, 1], commit=3))
    with pytest.raises(Corruption):
        member.hear("c", append(2, (1, 0), [2], commit=1))
    assert member.tape.commands == [b"2/1", b"3/1"]


def test_a_snapshot_on_its_way_commits_nothing(member: Member) -> None:
    """While chunks arrive, entries that the new leader may not share stay uncommitted."""
    member.hear("b", append(1, (1, 0), [1, 1]))
    data = snapshot_to(50, 3, bytes(SNAPSHOT_CHUNK_BYTES))
    member.hear("c", SnapshotChunk(3, 60, data[:SNAPSHOT_CHUNK_BYTES], first=True, last=False))
    assert member.tape.commands == [] and member.raft.raftCommitIndex == 1
    answers = member.hear("c", SnapshotChunk(3, 60, data[SNAPSHOT_CHUNK_BYTES:], first=False, last=True))
    assert Position(3, 51, reset=False, success=True) in answers
    assert member.indexes() == [49, 50] and member.raft.raftLastApplied == 50


def test_a_snapshot_of_what_is_here_is_not_installed(member: Member) -> None:
    """A longer log stays; the leader is told up to where it matches."""
    member.hear("b", append(1, (1, 0), [1] * 7, commit=3))
    answers = member.hear("b", SnapshotChunk(1, 5, snapshot_to(5, 1), first=True, last=True))
    assert answers[-1] == Position(1, 6, reset=False, success=True)
    answers = member.hear("b", SnapshotChunk(1, 5, snapshot_to(3, 9), first=True, last=True))
    assert answers[-1] == Position(1, 4, reset=False, success=True)
    assert member.indexes() == list(range(1, 9)) and member.tape.commands == [b"2/1", b"3/1"]


def test_a_damaged_snapshot_is_refused(member: Member) -> None:
    """A flipped bit in what the leader sends is a protocol violation; nothing changes."""
    data = bytearray(snapshot_to(50, 1))
    data[-1] ^= 1
    with pytest.raises(ProtocolViolation):
        member.hear("b", SnapshotChunk(1, 60, bytes(data), first=True, last=True))
    assert member.indexes() == [1] and member.tape.commands == []


def test_a_snapshot_that_cannot_be_restored_stops_the_member(member: Member) -> None:
    """The library swallows the error; we do not."""

    def refuse(data: bytes) -> None:
        raise Corruption("the state does not decode")

    member.tape.restore = refuse  # type: ignore[method-assign]
    with pytest.raises(Corruption):
        member.hear("b", SnapshotChunk(1, 60, snapshot_to(50, 1), first=True, last=True))


def test_a_position_counts_only_in_its_term(member: Member) -> None:
    """What a follower said to an earlier leader does not commit a later one's entries."""
    term = member.lead()
    member.propose(b"x")
    last = member.log.journal.last_index
    member.hear("b", Position(term - 1, last + 1, reset=False, success=True))
    assert member.raft.raftCommitIndex < last and member.answers == []
    member.hear("b", Position(term, last + 1, reset=False, success=True))
    assert member.raft.raftCommitIndex == last and member.answers == [(b"%d" % last, 0)]


def test_refusals_of_several_messages_lead_back(member: Member) -> None:
    """A follower has another entry where the first begins, and lacks those before the second: the leader goes back."""
    term = member.lead()
    for number in range(6):
        member.propose(b"%d" % number)
    member.raft._receive("b", Position(term, 3, reset=True, success=False))
    member.raft._receive("b", Position(term, 4, reset=True, success=False))
    member.sent.clear()
    member.raft._SyncObj__sendAppendEntries()
    (again,) = [said for to, said in member.sent if to == "b" and isinstance(said, Append)]
    assert again.previous_index == 2


def test_a_position_beyond_the_log_is_refused(member: Member) -> None:
    """A follower cannot hold what the leader does not."""
    term = member.lead()
    with pytest.raises(ProtocolViolation):
        member.hear("b", Position(term, member.log.journal.last_index + 2, reset=False, success=True))


def test_a_lost_proposal_is_discarded_not_confirmed(member: Member) -> None:
    """A leader that is replaced answers "discarded" for what the new leader overwrote."""
    term = member.lead()
    member.propose(b"lost")
    index = member.log.journal.last_index
    member.hear("c", append(term + 1, (1, 0), [term + 1] * index, commit=index))
    assert member.answers == [(None, 3)]
    assert b"lost" not in member.tape.commands


def test_votes_are_durable_and_given_once(tmp_path: Path) -> None:
    """A restart in the same term does not vote again for somebody else."""
    member = Member(tmp_path / "a")
    member.raft.tick()
    assert member.hear("b", VoteRequest(5, 1, 0, 1)) == [Vote(5)]
    again = Member(tmp_path / "a")
    again.raft.tick()
    assert again.raft.raftCurrentTerm == 5
    assert again.hear("c", VoteRequest(5, 9, 4, 1)) == []


def test_a_new_disk_does_not_vote_where_something_was_committed(member: Member) -> None:
    """Until it holds what the leader had committed, then it does, and after a restart still."""
    assert member.hear("c", VoteRequest(7, 40, 6, 30)) == []
    member.hear("b", append(8, (1, 0), [8, 8, 8], commit=2))
    assert member.log.voter
    assert member.hear("c", VoteRequest(9, 4, 8, 2)) == [Vote(9)]


def test_what_claims_a_flush_leaves_after_it() -> None:
    """A leader's entries may leave before the flush; votes and acknowledgements never do."""
    events: list[str] = []

    class Poller:
        def subscribe(self, *_: Any) -> None:
            """Nobody polls."""

        unsubscribe = subscribe

    class Line(PeerConnection):
        def __init__(self, peer: str) -> None:
            self.peer = peer
            self.closed = False
            self.needs_flush = False
            self.event_mask = 0
            self._queued = bytearray()

        def fileno(self) -> int:
            return -1

        def queue(self, body: bytes, *, needs_flush: bool) -> None:
            self._queued += body
            self.needs_flush = self.needs_flush or needs_flush

        def write(self) -> None:
            events.append(f"sent to {self.peer}")
            self._queued.clear()

    transport = PeerTransport(Poller(), silent_s=1.0)
    transport._connections = {"b": Line("b"), "c": Line("c")}
    transport.send("b", append(1, (1, 0), [1]))
    transport.send("c", Position(1, 2, reset=False, success=True))
    transport.flush(lambda: events.append("flushed"))
    assert events == ["sent to b", "flushed", "sent to c"]
    events.clear()
    for message in (Vote(1), VoteRequest(1, 1, 1, 1), Position(1, 1, reset=True, success=False)):
        transport.send("b", message)
        transport.flush(lambda: events.append("flushed"))
    assert events == ["flushed", "sent to b"] * 3
    transport._connections = {}
    transport.close()


def test_the_journal_is_trimmed_only_behind_a_written_snapshot(member: Member, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the file is being written the library is told so; a failed one is tried again later."""
    gate = threading.Event()
    real = snapshot_file.write
    failing = [False]

    def slow(path: Path, snapshot: Snapshot, **more: Any) -> None:
        gate.wait(5)
        if failing[0]:
            raise OSError(28, "No space left on device")
        real(path, snapshot, **more)

    monkeypatch.setattr(snapshot_file, "write", slow)
    store = member.raft.snapshots
    entries = (None, JournalEntry(b"\0x", 2, 1), JournalEntry(b"\0w", 1, 0), None)
    store.serialize(entries, 1)
    assert store.checkSerializing()[0] == snapshots._RUNNING
    gate.set()
    store.wait()
    assert store.checkSerializing() == (snapshots._DONE, 1)
    assert store.checkSerializing()[0] == snapshots._NOT_RUNNING
    failing[0] = True
    store.serialize(entries, 1)
    store.wait()
    assert store.checkSerializing()[0] == snapshots._FAILED
    store.serialize(entries, 1)
    assert store.checkSerializing()[0] == snapshots._NOT_RUNNING
