"""A replica with its places on the disk: the pure core, and the place of each of its batches."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import Protocol

from rangelog_core.batch import BatchHeader
from rangelog_core.errors import RangelogError
from rangelog_server.ranges.replica import DiskTrust, Replica
from rangelog_server.wal.entry import ENTRY_HEADER_BYTES

RangeKey = tuple[int, int]
"""Stream id and range index."""

LOOK_BACK_MAX = 100_000
"""Batches that one lookup by time passes over at the end of a range."""
_POSITION_BITS = 32


class Writing(Protocol):
    """The writer of a range."""

    client: str
    """The name that it gave, for people."""

    @property
    def closed(self) -> bool:
        """Whether its connection is closed."""

    def ask_confirm(self, hosted: HostedReplica) -> None:
        """Request the confirm offset from the writer."""

    def ask_idle(self, key: RangeKey, epoch: int, start_offset: int) -> None:
        """The same for a range of which there is no replica."""

    def ask_to_leave(self, key: RangeKey, epoch: int, durable_offset: int) -> None:
        """Say to the writer that another range can have more replicas."""

    def refuse(self, key: RangeKey, error: RangelogError) -> None:
        """Say to the writer that its appends to this range are refused from now on."""


def nobody() -> None:
    """No writer."""


class HostedReplica:
    """One replica on this server. The location arrays run in step with the core's batches."""

    __slots__ = (
        "__weakref__",
        "born_lsn",
        "confirm_count",
        "core",
        "dropped",
        "key",
        "leaving",
        "lengths",
        "max_timestamps_ms",
        "min_timestamps_ms",
        "places",
        "runs",
        "segments",
        "state_lsn",
        "strict_end",
        "unwritten",
        "waiters",
        "writing",
        "written_trust",
    )

    def __init__(self, core: Replica) -> None:
        self.core = core
        self.key = (core.stream_id, core.range_index)
        self.places = array(
            "Q"
        )  # of each batch's first byte in the log; replaced as a whole, so any thread may read it
        self.lengths = array("L")
        self.max_timestamps_ms = array("q")  # the highest so far, so that it only rises
        self.min_timestamps_ms = array("q")
        self.segments: dict[int, int] = {}  # each one with an entry of this replica → bytes of the batches placed there
        self.runs = array("Q")  # (first batch, segment) of each stretch of batches that lie in one segment, flat
        self.born_lsn = 0
        self.state_lsn = 0  # of the latest STATE entry
        self.strict_end = core.start_offset  # one past the last append that waits for a flush
        self.written_trust = DiskTrust.SOUND
        self.dropped = False
        self.unwritten = False  # metadata that could not be written: the disk was full
        self.leaving = ""  # why its writer's appends are refused; empty: they are not
        self.confirm_count = 0  # of messages with the writer's confirm offset, new or not: then it is alive
        self.waiters: dict[Callable[[], None], None] = {}  # long polls
        self.writing: Callable[[], Writing | None] = (
            nobody  # the latest to append or connect, until its connection ends
        )

    def __str__(self) -> str:
        return f"{self.core.stream_id}/{self.core.range_index}"

    def place(self, header: BatchHeader, lsn: int, skip: int) -> None:
        """Note the place of the core's latest batch: `skip` bytes into the payload of the entry at `lsn`."""
        number = len(self.places)
        self.places.append(lsn + ENTRY_HEADER_BYTES + skip)
        self.lengths.append(header.length)
        highest = self.max_timestamps_ms
        stamp = header.max_timestamp_ms
        highest.append(stamp if not number or stamp > highest[-1] else highest[-1])
        self.min_timestamps_ms.append(header.min_timestamp_ms)
        runs, sequence = self.runs, lsn >> _POSITION_BITS
        if not runs or runs[-1] != sequence:
            runs.append(number)
            runs.append(sequence)

    def weigh(self, sequence: int, size_bytes: int) -> bool:
        """Count bytes of batches placed in a segment (or none: other entries); return whether it is new to the replica."""
        held = self.segments.get(sequence)
        self.segments[sequence] = size_bytes + (held or 0)
        return held is None

    def follow_cut(self) -> dict[int, int]:
        """Remove the places of batches that the core has cut. Returns the freed bytes by segment."""
        count, freed = self.core.batch_count, dict[int, int]()
        for number in range(count, len(self.places)):
            sequence = self.places[number] >> _POSITION_BITS
            freed[sequence] = freed.get(sequence, 0) + self.lengths[number]
        for sequence, size_bytes in freed.items():
            self.segments[sequence] -= size_bytes
        for column in (self.places, self.lengths, self.max_timestamps_ms, self.min_timestamps_ms):
            del column[count:]
        while self.runs and self.runs[-2] >= count:
            del self.runs[-2:]
        return freed

    def batches_in(self, sequence: int) -> list[tuple[int, int]]:
        """Return the stretches [first, last) of batches that lie in a segment."""
        edges = [*self.runs[2::2], len(self.places)]
        found = zip(self.runs[::2], edges, self.runs[1::2], strict=True)
        return [(first, last) for first, last, where in found if where == sequence]

    def move(self, first: int, places: Sequence[int]) -> int:
        """Read the batches from `first` on from new places, all in one segment; return their bytes."""
        last = first + len(places)
        size_bytes = sum(self.lengths[first:last])
        old, new = self.places[first] >> _POSITION_BITS, places[0] >> _POSITION_BITS
        for number, place in enumerate(places, first):
            self.places[number] = place
        self.segments[old] -= size_bytes
        self.segments[new] = self.segments.get(new, 0) + size_bytes
        edges = [*self.runs[2::2], len(self.places)]
        runs = array("Q")
        for begin, end, where in zip(self.runs[::2], edges, self.runs[1::2], strict=True):
            pieces = (
                (begin, min(end, first), where),
                (max(begin, first), min(end, last), new),
                (max(begin, last), end, where),
            )
            for start, stop, sequence in pieces:
                if start < stop and (not runs or runs[-1] != sequence):
                    runs.extend((start, sequence))
        self.runs = runs
        return size_bytes

    def wake(self) -> None:
        """Wake waiting readers: the readable end or the state has changed."""
        if self.waiters:
            waiters, self.waiters = self.waiters, {}
            for call in waiters:
                call()

    def connected_writer(self) -> Writing | None:
        """Return the latest appender, if it is still connected and may append."""
        writing = self.writing()
        may_append = self.core.sealed_end_offset is None and not self.core.fenced
        return writing if writing is not None and may_append and not writing.closed else None

    def ask_confirm(self) -> None:
        """Request the confirm offset for a waiting reader, if the writer is connected to this server."""
        writing = self.writing()
        if writing is not None:
            writing.ask_confirm(self)

    def plan(self, offset: int, readable_end: int, bytes_max: int) -> tuple[int, int]:
        """Return the batch numbers [first, last) to serve from `offset` on: at least one batch where there is one."""
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

    def find_until(self, before_ms: int, readable_end: int) -> int:
        """Return an offset from which on no readable batch has a record before a time; it looks back at so many at most."""
        until = readable_end
        for number in range(self.core.batch_count - 1, max(-1, self.core.batch_count - 1 - LOOK_BACK_MAX), -1):
            base, end = self.core.batch_span(number)
            if end <= readable_end:
                if self.min_timestamps_ms[number] < before_ms:
                    return end
                until = base
        return until
