"""The head of the audit log's chain, and the entries that are not known to be in its stream yet.

What holds: entries have sequence numbers without a gap; the pending ones are the last, in order; the hash is that of the last.
"""

from __future__ import annotations

from collections.abc import Iterable

from rangelog_core.audit import FIRST_PREVIOUS, hash_line
from rangelog_core.errors import Corruption
from rangelog_pd.state.tables import Table
from rangelog_proto.v1 import audit_pb2 as pb


class AuditTable:
    """See the module."""

    def __init__(self) -> None:
        self.enabled = False
        self.stream_id = 0
        self.last_sequence = 0
        self.last_hash = FIRST_PREVIOUS
        self.written_sequence = 0
        self.pending: Table[int, pb.AuditEntry] = Table()

    def add(self, line: bytes) -> int:
        """Add the next line; return its sequence number."""
        self.last_sequence += 1
        self.last_hash = hash_line(line)
        self.pending.put(self.last_sequence, pb.AuditEntry(sequence=self.last_sequence, line=line))
        return self.last_sequence

    def written(self, sequence: int) -> None:
        """Forget the entries up to this one: they are in the stream."""
        while self.written_sequence < min(sequence, self.last_sequence):
            self.written_sequence += 1
            self.pending.remove(self.written_sequence)

    def row(self) -> pb.AuditState:
        """Return all but the pending entries."""
        return pb.AuditState(
            enabled=self.enabled,
            stream_id=self.stream_id,
            last_sequence=self.last_sequence,
            last_hash=self.last_hash,
            written_sequence=self.written_sequence,
        )

    def load(self, row: pb.AuditState, entries: Iterable[pb.AuditEntry]) -> None:
        """Take what a snapshot has. Raises Corruption."""
        pending = list(entries)
        expected = range(row.written_sequence + 1, row.last_sequence + 1)
        if [each.sequence for each in pending] != list(expected) or (row.last_sequence and len(row.last_hash) != 32):
            raise Corruption("the snapshot has entries of the audit log that do not fit the rest")
        if pending and hash_line(pending[-1].line) != row.last_hash:
            raise Corruption("the snapshot has a last entry of the audit log with another hash")
        self.enabled, self.stream_id = row.enabled, row.stream_id
        self.last_sequence, self.written_sequence = row.last_sequence, row.written_sequence
        self.last_hash = row.last_hash or FIRST_PREVIOUS
        for each in pending:
            self.pending.put(each.sequence, each)
