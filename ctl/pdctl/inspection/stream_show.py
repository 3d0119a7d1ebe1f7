"""The output of `pdctl stream show` for one stream: from the placement driver, the proved end, and the last range's replicas.

What holds: a value without an answer is unknown (None), never 0 or "no".
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from pdctl.inspection.calls import Servers, inspected_ranges, list_servers
from pdctl.inspection.totals import StreamTotals
from pdctl.session import Session
from pdctl.views import stream_view
from rangelog_core.errors import RangelogError
from rangelog_proto.v1 import common_pb2, pd_pb2, range_server_pb2

if TYPE_CHECKING:
    from rangelog import Client
    from rangelog_core.net.pd_client import PdClient


async def describe(session: Session, client: Client, name: str) -> dict[str, Any]:
    """Return all of it, with stable keys. Raises StreamNotFound."""
    pd, totals, stream = client.metadata.pd, StreamTotals(), None
    async for page in inspected_ranges(pd, name, session.timeout_s):
        stream = page.stream
        for each in page.ranges:
            totals.add(each)
    assert stream is not None, "there is at least one page"
    end_offset, problem = await _end(session, client, name)
    first = max(stream.trim_offset, totals.start_offset or 0)
    async with Servers(session, await list_servers(pd, session.timeout_s)) as servers:
        last_write_ms, connected = await _last(session, pd, servers, stream, totals)
    return stream_view(stream) | {
        "end_offset": end_offset,
        "end_problem": problem,
        "record_count": None if end_offset is None else max(0, end_offset - first),
        "hot_bytes": totals.hot_bytes,
        "hot_bytes_all_copies": totals.hot_bytes_all_copies,
        "tiered_bytes": totals.tiered_bytes,
        "last_write_ms": last_write_ms,
        "writer_connected": connected,
        "health": totals.health,
        "reasons": totals.reasons(),
        "copies": totals.copies,
        "problem_range_count": totals.problem_count,
        "problem_ranges": totals.problems,
    }


async def _end(session: Session, client: Client, name: str) -> tuple[int | None, str]:
    """Return one past the last acked record, or why it is not known."""
    try:
        async with asyncio.timeout(session.timeout_s):
            return await client.end_offset(name), ""
    except RangelogError as error:
        return None, error.message
    except TimeoutError:
        return None, f"the replicas of the open range do not answer within {session.timeout_s:g} s"


async def _last(
    session: Session, pd: PdClient, servers: Servers, stream: common_pb2.Stream, totals: StreamTotals
) -> tuple[int | None, bool | None]:
    """Return when the last record was written, by its own timestamp, and whether the writer is connected."""
    last, connected = totals.last, None
    if last is None:
        return None, None
    last_write_ms = None
    if last.state == common_pb2.RANGE_STATE_OPEN:
        answers = await _last_batches(session, servers, last)
        if answers:
            connected = any(each.writer_connected for each in answers)
        last_write_ms = _latest(answers)
    else:
        connected = False  # it has sealed the range, or was fenced: a writer that goes on has an open range
    if last_write_ms is None:
        last_write_ms = await _earlier_write(session, pd, servers, stream, last)
    return last_write_ms, connected


async def _earlier_write(
    session: Session,
    pd: PdClient,
    servers: Servers,
    stream: common_pb2.Stream,
    last: common_pb2.Range,
) -> int | None:
    """Return the time of the last sealed record: from its replicas, otherwise from the object that holds it."""
    end = last.start_offset if last.state == common_pb2.RANGE_STATE_OPEN else last.end_offset
    if not end or end <= stream.trim_offset:
        return None
    request = pd_pb2.ListRangesRequest(stream_id=stream.stream_id, from_offset=end - 1, page_size=1)
    page = await pd.call(request, pd_pb2.ListRangesResponse, timeout_s=session.timeout_s)
    for each in page.ranges:
        found = _latest(await _last_batches(session, servers, each))
        if found is not None:
            return found
    objects = pd_pb2.ListObjectsRequest(
        knows_encryption=True, stream_id=stream.stream_id, from_offset=end - 1, page_size=1
    )
    for described in (await pd.call(objects, pd_pb2.ListObjectsResponse, timeout_s=session.timeout_s)).objects:
        return described.timestamp_ms_max
    return None


async def _last_batches(
    session: Session, servers: Servers, of: common_pb2.Range
) -> list[range_server_pb2.LocateBatchResponse]:
    request = range_server_pb2.LocateBatchRequest(stream_id=of.stream_id, range_index=of.index, last=True)
    told = await servers.ask_all(of.replicas, lambda peer: peer.locate_batch(request, timeout_s=session.timeout_s))
    return [each for each in told if not isinstance(each, RangelogError)]


def _latest(answers: list[range_server_pb2.LocateBatchResponse]) -> int | None:
    return max((each.batch.timestamp_ms_max for each in answers if each.HasField("batch")), default=None)
