"""Divides a part of a stream into the spans of Spark's tasks: what a query cannot want is left out, the rest is cut to size.

What holds: the spans are disjoint and in order, and together have every record of [start, end) that the selection can want;
which of their records it wants is decided when they are read. Only what is known to be unwanted is left out: what no object is
listed for, and what no replica says anything about, is read. A span lies within one range unless there are plenty of spans:
then neighbours are joined as long as they fit. In a range that is in the object store spans begin with row groups, as far as
those fit, so that no group is fetched by two tasks.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple

from rangelog._client import Client
from rangelog._read.hot import HotRange
from rangelog._read.stream_view import StreamView
from rangelog.spark.filters import ALL_TIMES_MS, Interval, Selection
from rangelog_core.errors import RangelogError
from rangelog_core.limits import MIB
from rangelog_proto.v1 import common_pb2

PARTITIONS_PLENTY = 64
"""More spans than that are joined to larger ones where they are small: a task costs more than a small range."""
OBJECTS_PER_CALL = 500
ASKED_AT_ONCE = 16
SAMPLES_MAX = 16
"""Hot ranges of one stream whose records are measured; the others are taken to be like them."""


class Limits(NamedTuple):
    """The most that one span has."""

    records: int
    bytes: int = 64 * MIB


class PlannedPart(NamedTuple):
    """Offsets [start, end) that are read together or not at all. `bytes`: an estimate, as stored."""

    start: int
    end: int
    bytes: float


async def divide(
    client: Client, view: StreamView, start: int, end: int, selection: Selection, limits: Limits
) -> list[tuple[int, int]]:
    """Return the spans of [start, end). Raises Unavailable where the placement driver does not answer."""
    low, high = Interval(start, end).meet(selection.offsets)
    if low >= high:
        return []
    ranges = [each for each in view.ranges if each.start_offset < high and _end(each, end) > low]
    groups = await _row_groups(client, view.stream.stream_id, ranges, low, high)
    ends = [each.end for each in groups]
    turns = asyncio.Semaphore(ASKED_AT_ONCE)
    sampled = {each.index for each in ranges[:: max(1, len(ranges) // SAMPLES_MAX)][:SAMPLES_MAX]}

    async def of_range(source: common_pb2.Range) -> list[list[PlannedPart]]:
        window = Interval(source.start_offset, _end(source, end)).meet(Interval(low, high))
        tiered = window.meet(Interval(0, source.tiered_end_offset))
        cold = _cold_pieces(groups[bisect_right(ends, tiered.low) :], tiered, selection)
        async with turns:
            warm = await _hot_piece(
                client, source, window.meet(Interval(tiered.end, end)), selection, source.index in sampled
            )
        return [cold, warm]

    planned = await asyncio.gather(*(of_range(each) for each in ranges))
    known = [piece for of_one in planned for pieces in of_one for piece in pieces if piece.bytes]
    mean = sum(each.bytes for each in known) / max(1, sum(each.end - each.start for each in known))
    spans = [span for of_one in planned for pieces in of_one for span in cut(pieces, limits, mean)]
    return [(each.start, each.end) for each in (join(spans, limits) if len(spans) > PARTITIONS_PLENTY else spans)]


def cut(pieces: Sequence[PlannedPart], limits: Limits, mean: float = 0.0) -> list[PlannedPart]:
    """Return pieces of one range as spans: neighbours are joined while they fit, and what does not fit is cut.

    `mean`: bytes of a record, for pieces of unknown size.
    """
    sized = [each if each.bytes else each._replace(bytes=mean * (each.end - each.start)) for each in pieces]
    spans: list[PlannedPart] = []
    for piece in join(sized, limits):
        count = piece.end - piece.start
        parts = max(-(-count // limits.records), min(count, int(-(-piece.bytes // limits.bytes))), 1)
        step = max(1, -(-count // parts))
        for low in range(piece.start, piece.end, step):
            high = min(low + step, piece.end)
            spans.append(PlannedPart(low, high, piece.bytes * (high - low) / count))
    return spans


def join(pieces: Sequence[PlannedPart], limits: Limits) -> list[PlannedPart]:
    """Return pieces with neighbours joined while they fit into one span."""
    joined: list[PlannedPart] = []
    for piece in pieces:
        last = joined[-1] if joined else None
        if (
            last is not None
            and last.end == piece.start
            and piece.end - last.start <= limits.records
            and last.bytes + piece.bytes <= limits.bytes
        ):
            joined[-1] = PlannedPart(last.start, piece.end, last.bytes + piece.bytes)
        else:
            joined.append(piece)
    return joined


# ---- inside


class _Group(NamedTuple):
    """A row group in the object store. Its size is its share of the object's."""

    start: int
    end: int
    bytes: float
    times_ms: Interval


def _end(source: common_pb2.Range, end: int) -> int:
    return source.end_offset if source.state == common_pb2.RANGE_STATE_SEALED else end


def _cold_pieces(groups: Sequence[_Group], window: Interval, selection: Selection) -> list[PlannedPart]:
    """Return what is wanted of the part of a range that is in the object store."""
    pieces: list[PlannedPart] = []
    position = window.low
    for group in groups:
        if group.start >= window.end:
            break
        low, high = Interval(group.start, group.end).meet(Interval(position, window.end))
        if low >= high:
            continue
        if low > position:
            pieces.append(PlannedPart(position, low, 0.0))
        if not selection.is_of_time or not group.times_ms.meet(selection.times_ms).is_empty:
            pieces.append(PlannedPart(low, high, group.bytes * (high - low) / (group.end - group.start)))
        position = high
    if position < window.end:
        pieces.append(PlannedPart(position, window.end, 0.0))
    return pieces


async def _row_groups(
    client: Client, stream_id: int, ranges: Sequence[common_pb2.Range], low: int, high: int
) -> list[_Group]:
    """Return the row groups between two offsets, in order."""
    found: list[_Group] = []
    until = min(high, max((each.tiered_end_offset for each in ranges), default=0))
    position = low
    while position < until:
        objects = await client.metadata.objects(stream_id, position, page_size=OBJECTS_PER_CALL)
        for each in objects:
            found += [group for group in _groups_of(each) if group.end > position]
            position = max(position, each.end_offset)
        if not objects:
            break
    return found


def _groups_of(one: common_pb2.Object) -> list[_Group]:
    share = one.size_bytes / max(1, one.end_offset - one.start_offset)
    if not one.row_groups:
        is_told = one.timestamp_ms_min or one.timestamp_ms_max
        times_ms = Interval(one.timestamp_ms_min, one.timestamp_ms_max + 1) if is_told else ALL_TIMES_MS
        return [_Group(one.start_offset, one.end_offset, float(one.size_bytes), times_ms)]
    return [
        _Group(
            each.start_offset,
            each.start_offset + each.count,
            share * each.count,
            Interval(each.timestamp_ms_min, each.timestamp_ms_max + 1),
        )
        for each in one.row_groups
    ]


async def _hot_piece(
    client: Client, source: common_pb2.Range, window: Interval, selection: Selection, is_sampled: bool
) -> list[PlannedPart]:
    """Return what is wanted of the part of a range that only its replicas have."""
    if window.is_empty:
        return []
    hot = HotRange(client.connections, source)
    if selection.is_of_time:
        try:
            window = window.meet(Interval(*await hot.time_span(*selection.times_ms, window.end)))
        except RangelogError:
            pass
    if window.is_empty:
        return []
    record_bytes = await hot.record_bytes(window.low, window.end) if is_sampled else None
    return [PlannedPart(window.low, window.end, (record_bytes or 0.0) * (window.end - window.low))]
