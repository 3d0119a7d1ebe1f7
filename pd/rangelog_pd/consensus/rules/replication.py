"""The leader's sending of entries and snapshots: the part of `Raft` that replaces the library's.

What holds: all members of the configuration get the log, learners too; entries are sent once, in one message per follower and
tick, and wait while a connection does not take them; the log's head comes as a snapshot.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pysyncobj.monotonic import monotonic  # type: ignore[import-untyped, unused-ignore]

from rangelog_core.errors import ProtocolViolation
from rangelog_pd.consensus.network.messages import APPEND_BYTES_MAX, ENTRY_OVERHEAD_BYTES, Append, SnapshotChunk
from rangelog_pd.consensus.network.transport import PeerTransport
from rangelog_pd.consensus.rules.raft_log import RaftLog
from rangelog_pd.consensus.rules.snapshots import Snapshots

_SEND_BACKLOG_BYTES = 1024 * 1024
"""Entries and snapshots for a peer pause while this much waits to be sent."""


class Replication:
    """A part of `Raft`, whose attributes these are. Names that begin with `_SyncObj__` are the library's."""

    peers: PeerTransport
    snapshots: Snapshots
    raftCurrentTerm: int  # noqa: N815
    raftCommitIndex: int  # noqa: N815
    _log: RaftLog
    _nodes: dict[str, Any]
    _timings: Any
    _SyncObj__connectedNodes: set[Any]
    _SyncObj__raftNextIndex: dict[Any, int]

    if TYPE_CHECKING:

        def _send_check(self) -> None: ...

    def _SyncObj__sendAppendEntries(self) -> None:
        self._SyncObj__newAppendEntriesTime = monotonic() + self._timings.heartbeat_s
        for peer, node in self._nodes.items():
            if node in self._SyncObj__connectedNodes:
                self._send_entries(peer, node, heartbeat=True)
        self._send_check()  # again, should it have been lost with a connection

    def _send_what_waits(self) -> None:
        """Send to peers that are behind as soon as their connection accepts more."""
        last_index = self._log.journal.last_index
        for peer, node in self._nodes.items():
            if node in self._SyncObj__connectedNodes and self._SyncObj__raftNextIndex[node] <= last_index:
                self._send_entries(peer, node, heartbeat=False)

    def _send_entries(self, peer: str, node: Any, *, heartbeat: bool) -> None:
        journal = self._log.journal
        next_index: int = self._SyncObj__raftNextIndex[node]
        sent: int | None
        while heartbeat or next_index <= journal.last_index:
            if self.peers.backlog_bytes(peer) > _SEND_BACKLOG_BYTES:
                return
            if next_index > journal.first_index:
                sent = self._send_append(peer, next_index)
            else:
                sent = self._send_snapshot(peer)
                if sent is None:
                    return
            if node not in self._SyncObj__connectedNodes:
                return
            next_index = self._SyncObj__raftNextIndex[node] = sent if sent else next_index
            heartbeat = False

    def _send_append(self, peer: str, next_index: int) -> int:
        journal = self._log.journal
        size = 0
        entries = []
        for entry in journal.entries[next_index - journal.first_index :]:
            entries.append(entry)
            size += len(entry.command) + ENTRY_OVERHEAD_BYTES
            if size >= APPEND_BYTES_MAX:
                break
        previous_term = journal.term_at(next_index - 1)
        if previous_term is None:
            raise ProtocolViolation(f"{peer} is believed to be at {next_index}, beyond the log")
        self.peers.send(
            peer,
            Append(self.raftCurrentTerm, self.raftCommitIndex, next_index - 1, previous_term, tuple(entries)),
        )
        return next_index + len(entries)

    def _send_snapshot(self, peer: str) -> int | None:
        """Send the next chunk. Returns 0 before the last, the next index after it, None while there is no snapshot."""
        chunk = self.snapshots.next_chunk(peer)
        data, first, last, last_index = chunk or (b"", False, False, 0)
        self.peers.send(peer, SnapshotChunk(self.raftCurrentTerm, self.raftCommitIndex, data, first, last))
        if chunk is None:
            return None
        return last_index + 1 if last else 0
