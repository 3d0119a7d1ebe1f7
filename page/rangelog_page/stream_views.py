"""The views of streams: lists by page, one stream drawn on its offset axis, and its last records as they come.

What holds: a list costs no more than its page, a drawing no more than WINDOW ranges, a tail no more than LIMIT records of
which VALUE_LENGTH_MAX characters are shown.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import Any

from pdctl.views import object_view, range_view, stream_view
from rangelog_core.errors import Overloaded, RangelogError
from rangelog_core.ids import check_readable_name
from rangelog_core.net.principals import Principal
from rangelog_core.record import Record
from rangelog_page.asking import TIMEOUT_S, Asking, within
from rangelog_page.drawing import draw
from rangelog_page.page_query import PageQuery
from rangelog_page.texts import shown_bytes
from rangelog_proto.v1 import pd_pb2

LIST_AGE_S = 1.0
STREAM_AGE_S = 1.0
WINDOW = 40
"""Ranges that are drawn at once."""
OBJECTS_MAX = 200
TAIL_FIRST = 20
"""Records that a tail begins with."""
TAIL_MAX = 50
"""Records of one answer of a tail."""
TAIL_BYTES_MAX = 512 * 1024
TAIL_WAIT_S = 10.0
"""How long an answer of a tail waits for a record."""
HEADERS_SHOWN_MAX = 8


async def streams(asking: Asking, principal: Principal | None, query: PageQuery) -> dict[str, Any]:
    """Return a page of the streams by name."""

    async def ask() -> dict[str, Any]:
        request = pd_pb2.ListStreamsRequest(prefix=query.prefix, page_token=query.after, page_size=query.limit)
        page = await asking.pd.call(request, pd_pb2.ListStreamsResponse, timeout_s=TIMEOUT_S)
        return {"streams": [stream_view(each) for each in page.streams], "next": page.next_page_token}

    key = ("streams", query.prefix, query.after, query.limit)
    return await asking.share(key, LIST_AGE_S, ask) | {"query": query}  # type: ignore[no-any-return]


async def stream(asking: Asking, principal: Principal | None, query: PageQuery) -> dict[str, Any]:
    """Return a stream with a window of its ranges, drawn. Raises StreamNotFound."""
    name = check_readable_name(query.name)
    key = ("stream", name, query.first)
    return await asking.share(key, STREAM_AGE_S, lambda: _stream(asking, name, query.first))  # type: ignore[no-any-return]


async def tail(asking: Asking, principal: Principal | None, query: PageQuery) -> dict[str, Any]:
    """Return records of a stream from an offset on, once there are any, and where to go on.

    Without an offset: the last records at once. Raises Overloaded, StreamNotFound, and what a reader raises.
    """
    name = check_readable_name(query.name)
    if asking.tails.locked():
        raise Overloaded("too many live tails are open in browsers: close some, or follow with `pdctl stream tail -f`")
    async with asking.tails:
        end = await within(TIMEOUT_S, asking.client.end_offset(name), "finding the end of the stream")
        described = await asking.pd.call(
            pd_pb2.DescribeStreamRequest(name=name), pd_pb2.DescribeStreamResponse, timeout_s=TIMEOUT_S
        )
        trim = described.stream.trim_offset
        limit = min(query.limit, TAIL_MAX)
        first = max(trim, end - TAIL_FIRST) if query.offset is None else query.offset
        if first > end:  # the stream was deleted and made again: its offsets are others now
            first = max(trim, end - TAIL_FIRST)
        start = max(first, trim, end - limit)
        rows: list[Record] = []
        if start < end or query.offset is not None:
            rows = await _records(asking, name, start, limit, wait_s=TAIL_WAIT_S)
    return {
        "records": [_row(each) for each in rows],
        "next_offset": rows[-1].offset + 1 if rows else start,
        "skipped": start - first if query.offset is not None else 0,
    }


async def _records(asking: Asking, name: str, start: int, limit: int, *, wait_s: float) -> list[Record]:
    """Return up to `limit` records from `start` on; waits until there is one, or for `wait_s`."""
    rows: list[Record] = []
    size_bytes = 0
    reader = asking.client.reader(name, start=start, follow=True, timeout_s=TIMEOUT_S)
    try:
        async with asyncio.timeout(wait_s), aclosing(reader.chunks()) as chunks:
            async for chunk in chunks:
                for each in chunk[:limit]:
                    size_bytes += len(each.value) + len(each.key or b"")
                    if rows and size_bytes > TAIL_BYTES_MAX:
                        break
                    rows.append(each)
                return rows
    except TimeoutError:
        pass
    return rows


async def _stream(asking: Asking, name: str, first: int | None) -> dict[str, Any]:
    last = await asking.pd.call(
        pd_pb2.ListRangesRequest(name=name, last_only=True), pd_pb2.ListRangesResponse, timeout_s=TIMEOUT_S
    )
    found = last.stream
    last_index = last.ranges[-1].index if last.ranges else 0
    begin = max(0, last_index - WINDOW + 1) if first is None else min(first, last_index)
    request = pd_pb2.ListRangesRequest(stream_id=found.stream_id, from_index=begin, page_size=WINDOW)
    page = await asking.pd.call(request, pd_pb2.ListRangesResponse, timeout_s=TIMEOUT_S)
    ranges = [range_view(each) for each in page.ranges]
    objects: list[dict[str, Any]] = []
    objects_left_out = False
    if ranges:
        start = ranges[0]["start_offset"]
        wanted = pd_pb2.ListObjectsRequest(
            knows_encryption=True, stream_id=found.stream_id, from_offset=start, page_size=OBJECTS_MAX
        )
        listed = await asking.pd.call(wanted, pd_pb2.ListObjectsResponse, timeout_s=TIMEOUT_S)
        bound = ranges[-1]["end_offset"]
        objects = [object_view(each) for each in listed.objects if bound is None or each.start_offset < bound]
        objects_left_out = listed.more and len(objects) == len(listed.objects)
    end_offset, end_problem = await _end(asking, name, ranges)
    return {
        "stream": stream_view(page.stream) | {"sealed_for_good": page.stream.sealed_for_good},
        "ranges": ranges,
        "objects": objects,
        "objects_left_out": objects_left_out,
        "drawing": draw(ranges, objects, trim_offset=page.stream.trim_offset, end_offset=end_offset),
        "end_offset": end_offset,
        "end_problem": end_problem,
        "first": begin,
        "earlier": max(0, begin - WINDOW) if begin > 0 and ranges and ranges[0]["index"] > 0 else None,
        "later": begin + WINDOW if page.more else None,
    }


async def _end(asking: Asking, name: str, ranges: list[dict[str, Any]]) -> tuple[int | None, str]:
    """Return one past the last acked record, or why it is not known; not asked where the window ends before the last range."""
    if not ranges or ranges[-1]["end_offset"] is not None:
        return (ranges[-1]["end_offset"] if ranges else 0), ""
    try:
        return await within(TIMEOUT_S, asking.client.end_offset(name), "finding the end"), ""
    except RangelogError as error:
        return None, error.message


def _row(record: Record) -> dict[str, Any]:
    value, is_text = shown_bytes(record.value)
    key, _ = shown_bytes(record.key, 200)
    headers = [(name, shown_bytes(data, 200)[0]) for name, data in list(record.headers.items())[:HEADERS_SHOWN_MAX]]
    return {
        "offset": record.offset,
        "timestamp_ms": record.timestamp_ms,
        "key": None if record.key is None else key,
        "value": value,
        "is_text": is_text,
        "size_bytes": len(record.value),
        "headers": headers,
        "headers_left_out": max(0, len(record.headers) - HEADERS_SHOWN_MAX),
    }
