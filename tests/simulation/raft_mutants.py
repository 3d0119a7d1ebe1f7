"""Wrong choices in the placement drivers' consensus, to be put in place of the right ones: the simulation must see each.

`RAFT_MUTANTS[name]()` is a context manager; inside it `seeds_of(name)(seed)` says which promises the mutant broke. Those of
changes of the members are in `raft_member_mutants`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from rangelog_core.errors import Unavailable
from rangelog_pd.consensus.files import durable_file, hard_state, snapshot_file
from rangelog_pd.consensus.files.disk import Files
from rangelog_pd.consensus.files.durable_file import write_fully
from rangelog_pd.consensus.files.journal import JournalEntry, RaftJournal
from rangelog_pd.consensus.files.snapshot_file import Snapshot
from rangelog_pd.consensus.network.messages import Append, LeaderCheck, LeaderChecked
from rangelog_pd.consensus.network.transport import PeerTransport
from rangelog_pd.consensus.pysyncobj_consensus import PySyncObjConsensus
from rangelog_pd.consensus.rules import raft
from rangelog_pd.consensus.rules.follower_append import LogView, Settled
from rangelog_pd.consensus.rules.leader_checks import LeaderChecks
from rangelog_pd.consensus.rules.raft import Raft
from rangelog_pd.consensus.rules.raft_log import RaftLog
from rangelog_pd.state.machine import Machine
from rangelog_pd.state.results import Results
from rangelog_pd.state.snapshot import Frozen
from tests.simulation.raft_member_mutants import MEMBER_MUTANTS, run_members_seed
from tests.simulation.raft_plays import read_at_a_deposed_leader
from tests.simulation.raft_scenario import run_seed as run_drawn_seed

__all__ = ["RAFT_MUTANTS", "run_seed", "seeds_of"]

Chunks = Iterable[bytes | memoryview]
_RIGHT_RECOVER = RaftJournal._recover
_RIGHT_WRITE_WHOLE = RaftJournal._write_whole
_RIGHT_FREEZE = Machine.freeze


def _write_without_any_flush(files: Files, path: Path, chunks: Chunks) -> None:
    temporary = path.with_name(path.name + ".new")
    fd = files.create(temporary)
    write_fully(files, fd, b"".join(chunks), 0)
    files.close(fd)
    files.rename(temporary, path)


def _write_without_directory_flush(files: Files, path: Path, chunks: Chunks) -> None:
    temporary = path.with_name(path.name + ".new")
    files.close(durable_file.write_new_file(files, temporary, chunks))
    files.rename(temporary, path)


def _send_before_flush(self: PeerTransport, flush_log: Callable[[], None]) -> None:
    for connection in list(self._connections.values()):
        connection.needs_flush = False
        self._write(connection)
    flush_log()


def _compact_in_place(self: RaftJournal, entries: list[JournalEntry]) -> None:
    if self._fd < 0:
        _RIGHT_WRITE_WHOLE(self, entries)
        return
    kept, self._entries, self._positions = list(entries), [], []
    self._files.truncate(self._fd, 16)  # behind the head
    self.size_bytes = 16
    self.durable_index = 0
    for entry in kept:
        self.append(*entry)
    self._dirty = True
    self.sync()


async def _answer_from_local_state(self: PySyncObjConsensus, *, timeout_s: float) -> int:
    if not self.is_leader():
        raise Unavailable("no placement driver leads at the moment; try again")
    return self.applied_index


def _snapshot_without_request_ids(self: Machine) -> Frozen:
    kept, self._results = self._results, Results()
    try:
        return _RIGHT_FREEZE(self)
    finally:
        self._results = kept


def _win_alone(self: LeaderChecks) -> None:
    if self.round is not None:
        self.round.is_won = True


def _answer_in_any_term(self: Raft, peer: str, message: LeaderCheck) -> None:
    self.peers.send(peer, LeaderChecked(message.term, message.round))


def _drop_tail_behind_snapshot(journal: RaftJournal, snapshot: Snapshot | None) -> None:
    if snapshot is not None and list(journal.entries[:2]) != [snapshot.previous, snapshot.last]:
        journal.replace([snapshot.previous, snapshot.last])


def _cut_and_write_again(log: LogView, message: Append) -> Settled:
    return Settled(message.previous_index, message.previous_term, message.entries, keeps_tail=False)


def _trust_the_page_cache(self: RaftJournal, must_hold: int) -> None:
    with patch("rangelog_pd.consensus.files.journal.write_fully", lambda *_: None):
        _RIGHT_RECOVER(self, must_hold)


def _go_on_after_a_failed_flush(self: RaftJournal) -> None:
    if self._dirty:
        try:
            self._files.fdatasync(self._fd)
        except OSError:
            pass
        self._dirty = False
        self.durable_index = self.last_index


def run_seed(seed: int) -> list[str]:
    """The directed course, then those that are drawn; returns what was violated."""
    return (read_at_a_deposed_leader() if seed == 0 else []) or run_drawn_seed(seed)


def seeds_of(name: str) -> Callable[[int], list[str]]:
    """What runs a seed for this mutant."""
    return run_members_seed if name in MEMBER_MUTANTS else run_seed


@contextmanager
def _replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    with patch.object(owner, name, value):
        yield


RAFT_MUTANTS: dict[str, Callable[[], AbstractContextManager[None]]] = {
    "raft-vote-not-flushed": lambda: _replaced(hard_state, "write_atomically", _write_without_any_flush),
    "raft-reply-before-flush": lambda: _replaced(PeerTransport, "flush", _send_before_flush),
    "raft-compaction-in-place": lambda: _replaced(RaftJournal, "_write_whole", _compact_in_place),
    "raft-snapshot-without-directory-flush": lambda: _replaced(
        snapshot_file, "write_atomically", _write_without_directory_flush
    ),
    "raft-read-without-barrier": lambda: _replaced(PySyncObjConsensus, "barrier", _answer_from_local_state),
    "raft-read-without-majority": lambda: _replaced(LeaderChecks, "_count", _win_alone),
    "raft-read-in-any-term": lambda: _replaced(Raft, "_receive_check", _answer_in_any_term),
    "raft-request-ids-not-in-snapshots": lambda: _replaced(Machine, "freeze", _snapshot_without_request_ids),
    "raft-tail-behind-snapshot-dropped": lambda: _replaced(snapshot_file, "align", _drop_tail_behind_snapshot),
    "raft-follower-cuts-what-matches": lambda: _replaced(raft, "settle", _cut_and_write_again),
    "raft-page-cache-trusted": lambda: _replaced(RaftJournal, "_recover", _trust_the_page_cache),
    "raft-failed-flush-ignored": lambda: _replaced(RaftJournal, "sync", _go_on_after_a_failed_flush),
    "raft-empty-disk-votes": lambda: _replaced(RaftLog, "voter", property(lambda self: True)),
    **MEMBER_MUTANTS,
}
