"""A replica with its places on the disk: the pure core, and for each of its batches where the bytes lie."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable
from typing import Protocol

from rangelog_core.batch import BatchHeader
from rangelog_server.ranges.replica import DiskTrust, Replica
from rangelog_server.wal.entry import split_lsn


class Writing(Protocol):
    """Who writes to a range."""

    def ask_confirm(self, hosted: HostedReplica) -> None:
        """Have the writer say what is acked."""


def _nobody() -> None:
    return None


class HostedReplica:
    """One replica on this server. The location arrays run in step with the core's batches."""

    __slots__ = (
        "__weakref__",
        "born_lsn",
        "core",
        "dropped",
        "lengths",
        "lsns",
        "max_timestamps_ms",
        "segments",
        "skips",
        "state_lsn",
        "strict_end",
        "unwritten",
        "waiters",
        "writing",
        "written_trust",
    )

    def __init__(self, core: Replica) -> None:
        self.core = core
        self.lsns = array("Q")  # of the entry that holds the batch
        self.skips = array("L")  # bytes before the batch in that entry's payload
        self.lengths = array("L")
        self.max_timestamps_ms = array("q")  # the highest up to here, so that it only rises
        self.segments: dict[int, int] = {}  # sequence → batches there
        self.born_lsn = 0
        self.state_lsn = 0  # of the latest STATE entry
        self.strict_end = core.start_offset  # one past the last append that waits for a flush
        self.written_trust = DiskTrust.SOUND
        self.dropped = False
        self.unwritten = False  # a change of metadata could not be written: the disk was full
        self.waiters: dict[Callable[[], None], None] = {}  # long polls
        self.writing: Callable[[], Writing | None] = _nobody  # who appended last, unless its connection is gone

    @property
    def key(self) -> tuple[int, int]:
        """(stream id, range index)."""
        return self.core.stream_id, self.core.range_index

    def __str__(self) -> str:
        return f"{self.core.stream_id}/{self.core.range_index}"

    def place(self, header: BatchHeader, lsn: int, skip: int) -> None:
        """Note where the batch lies that the core took last."""
        self.lsns.append(lsn)
        self.skips.append(skip)
        self.lengths.append(header.length)
        highest = self.max_timestamps_ms
        stamp = header.max_timestamp_ms
        highest.append(stamp if not highest or stamp > highest[-1] else highest[-1])
        sequence = split_lsn(lsn)[0]
        self.segments[sequence] = self.segments.get(sequence, 0) + 1

    def follow_cut(self) -> None:
        """The core may have cut batches: forget their places."""
        count = self.core.batch_count
        if len(self.lsns) == count:
            return
        for places in (self.lsns, self.skips, self.lengths, self.max_timestamps_ms):
            del places[count:]
        self.segments = {}
        for lsn in self.lsns:
            sequence = split_lsn(lsn)[0]
            self.segments[sequence] = self.segments.get(sequence, 0) + 1

    def wake(self) -> None:
        """Something readers wait for has moved."""
        if self.waiters:
            waiters, self.waiters = self.waiters, {}
            for call in waiters:
                call()

    def ask_confirm(self) -> None:
        """A reader waits for the confirm offset to move: ask the writer, if it ever was here."""
        writing = self.writing()
        if writing is not None:
            writing.ask_confirm(self)

    def plan(self, offset: int, readable_end: int, bytes_max: int) -> tuple[int, int]:
        """Return [first, last) batch numbers to serve from `offset` on: at least one where there is one."""
        core = self.core
        first = core.batch_number(offset)
        if first < 0:
            return 0, 0
        last, size = first, 0
        while last < core.batch_count and core.batch_span(last)[1] <= readable_end:
            size += self.lengths[last]
            if size > bytes_max and last > first:
                break
            last += 1
        return first, last

    def find_timestamp(self, timestamp_ms: int, readable_end: int) -> int | None:
        """Return the start of the first readable batch that has a record at or after the timestamp."""
        number = bisect_left(self.max_timestamps_ms, timestamp_ms)
        if number == self.core.batch_count:
            return None
        base, end = self.core.batch_span(number)
        return base if end <= readable_end else None
