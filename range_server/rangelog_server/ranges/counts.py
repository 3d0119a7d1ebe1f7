"""Counters of a range server's own work, for metrics: plain numbers that only rise, kept where the work is done. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class ServingCounts:
    """The counters of one process."""

    appends: int = 0
    """Frames of batches that were accepted, repeated ones included."""
    append_batches: int = 0
    """Batches that were written to the log; repeated ones are not written again."""
    append_bytes: int = 0
    append_records: int = 0
    append_errors: dict[str, int] = field(default_factory=dict)
    """Refused appends by the error's code."""
    copied_bytes: int = 0
    """Of batches copied from peers."""
    fetch_replies_memory: int = 0
    """Replies with records that were in memory."""
    fetch_replies_disk: int = 0
    fetch_bytes_memory: int = 0
    fetch_bytes_disk: int = 0
    fetch_errors: dict[str, int] = field(default_factory=dict)
    quarantines: int = 0
    """Replicas set aside as damaged."""
    refused_connections: int = 0
    """Because of the limit."""
    slow_readers: int = 0
    """Connections ended because the client did not read."""
    heartbeats: int = 0
    heartbeat_failures: int = 0
    directives: dict[str, dict[str, int]] = field(default_factory=dict)
    """Attempts by action, then by result: OK, or the error's code."""
    uploaded_bytes: int = 0
    uploaded_objects: int = 0
    scrubbed_bytes: int = 0

    def fetched(self, size_bytes: int, *, from_disk: bool) -> None:
        """Count a reply with records."""
        if from_disk:
            self.fetch_replies_disk += 1
            self.fetch_bytes_disk += size_bytes
        else:
            self.fetch_replies_memory += 1
            self.fetch_bytes_memory += size_bytes
