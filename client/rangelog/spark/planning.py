"""The plan of one read of a stream: where it begins and ends, and the spans of Spark's tasks.

What holds: all records of a plan were acked when it was made, so a task that runs twice returns the same rows.
"""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from rangelog._client import Client
from rangelog._read.stream_view import StreamView, confirmed_end
from rangelog.protocol.reading import trimmed
from rangelog.spark.dividing import Limits, divide
from rangelog.spark.filters import Selection
from rangelog.spark.options import Options, Position
from rangelog.spark.reading import client_for, stream_reader
from rangelog_core.errors import InvalidArgument


class Plan(NamedTuple):
    """Spans [start, end) of one stream, which is identified by its id."""

    stream_id: int
    spans: list[tuple[int, int]]


def limits_of(options: Options) -> Limits:
    """Return the most that one span of a read has."""
    return Limits(options.records_per_partition, options.bytes_per_partition)


async def plan(client: Client, options: Options, selection: Selection) -> Plan:
    """Return the spans to read: one per range, or a part of one.

    Raises StreamNotFound, OffsetTrimmed, OffsetOutOfRange, InvalidArgument, Unavailable.
    """
    view = StreamView(client.metadata, options.stream, connections=client.connections)
    proved = await confirmed_end(view, client.connections)
    tail = proved.offset
    await view.refresh(options.start if isinstance(options.start, int) else 0)
    first = view.stream.trim_offset
    stream_id = view.stream.stream_id
    start = await offset_of(client, options, options.stream, stream_id, options.start, first, tail)
    end = await offset_of(client, options, options.stream, stream_id, options.end, first, tail)
    if start < first:
        raise trimmed(start, first)
    for asked in (start, end):
        proved.check_reached(asked)
    if start > end:
        if not isinstance(options.end, datetime) and not isinstance(options.start, datetime):
            raise InvalidArgument(f"start {start} is beyond end {end}")
        start = end
    return Plan(view.stream.stream_id, await divide(client, view, start, end, selection, limits_of(options)))


def plan_spans(options: Options, selection: Selection) -> Plan:
    """Run `plan` on this process's client."""
    client = client_for(options)
    return client.run(plan(client.asynchronous, options, selection))


async def offset_of(
    client: Client, options: Options, name: str, stream_id: int, position: Position, first: int, tail: int
) -> int:
    """Return the offset of a position in a stream; of a time that of the first record at or after it, at most the tail."""
    if isinstance(position, str):
        return first if position == "earliest" else tail
    if isinstance(position, int):
        return position
    assert isinstance(position, datetime)
    reader = stream_reader(client, options, stream_id, position, name=name)
    return min(tail, await reader.find_start())
