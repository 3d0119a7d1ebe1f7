"""What a broker counts of its own work, for metrics: plain numbers that only rise, kept where the work is done."""

from __future__ import annotations

from dataclasses import dataclass, field

from rangelog import AppendRecord, GroupRecord, TopicRecord
from rangelog_server_common.metrics.tally import DurationTally


@dataclass(slots=True)
class ProduceCounts:
    """The counters of the port of producers."""

    acked_batches: int = 0
    """Batches that were answered with an offset, repeated ones included."""
    refused: dict[str, int] = field(default_factory=dict)
    """Requests that were answered with an error, by its code."""
    received_records: int = 0
    """In checked batches, whatever became of them."""
    received_bytes: int = 0
    """Of batches, whatever became of them."""
    durations: DurationTally = field(default_factory=DurationTally)
    """From a request of a producer to its answer."""


@dataclass(slots=True)
class FetchCounts:
    """The counters of fetches."""

    fetches: int = 0
    """That were answered."""
    from_memory: int = 0
    """Answered from the tail of a shard that is owned here."""
    from_log: int = 0
    """Read from range servers or the tier."""
    sent_bytes: int = 0
    """Of batches."""


@dataclass(slots=True)
class SendCounts:
    """The counters of sends."""

    acked_records: int = 0
    """That were answered with their places."""
    refused_records: int = 0
    """That were answered with an error."""
    unacked_records: int = 0
    """That were answered before they were acked, as their senders asked."""


@dataclass(slots=True)
class ReadCounts:
    """The counters of reads."""

    reads: int = 0
    """That were answered."""
    read_records: int = 0
    read_bytes: int = 0
    """Of keys, values, and headers."""


@dataclass(slots=True)
class ConsumeCounts:
    """The counters of consumers."""

    dequeued_records: int = 0
    """In answers, repeated ones included."""
    dequeued_bytes: int = 0
    """Of keys, values, and headers."""
    commits: int = 0
    """Batches that were committed."""
    expired: int = 0
    """Consumers that ended by their silence."""


def size_of(record: AppendRecord | TopicRecord | GroupRecord) -> int:
    """Return the bytes of a record that limits and quotas count: value, key, and headers."""
    size_bytes = len(record.value) + len(record.key or b"")
    for name, value in (record.headers or {}).items():
        size_bytes += len(name) + len(value)
    return size_bytes
