"""After damage that may have destroyed whole replicas: asks the placement driver for the ranges of this server.

Unknown ranges among them are hosted with an untrusted tail, so that the server never reports "no replica" for a range that
it may have held. Until that is done, all unknown ranges are untrusted.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import structlog

from rangelog_core.errors import RangelogError
from rangelog_core.limits import RANGE_PAGE_SIZE_MAX, STREAM_PAGE_SIZE_MAX
from rangelog_core.net.pages import goes_on
from rangelog_core.net.pd_client import PdClient
from rangelog_proto.v1 import common_pb2
from rangelog_proto.v1 import pd_pb2 as pb
from rangelog_server.identity import DirectoryIdentity
from rangelog_server.ranges.store import Store

CALL_TIMEOUT_S = 10.0
RETRY_S = 1.0

_log = structlog.get_logger("agent")


async def host_doubtful_ranges(pd: PdClient, identity: DirectoryIdentity, store: Store) -> None:
    """Host every range that the placement driver has placed on this server and that the store does not know."""
    while True:
        try:
            async for found in _ranges_here(pd, identity):
                if (found.stream_id, found.index) not in store.replicas:
                    core = store.new_core(
                        found.stream_id, found.index, found.start_offset, found.epoch, by_placement_driver=True
                    )
                    store.host(core)
                    store.wal.kick()
                    _log.warning(
                        "a range that may have been lost is in doubt", range=f"{found.stream_id}/{found.index}"
                    )
            store.unknown_ranges_settled()
            return
        except RangelogError as error:
            _log.warning("the ranges that may have been lost are not known yet", problem=error.message)
        await asyncio.sleep(RETRY_S)


async def _ranges_here(pd: PdClient, identity: DirectoryIdentity) -> AsyncIterator[common_pb2.Range]:
    token = ""
    while True:
        streams = await pd.call(
            pb.ListStreamsRequest(page_token=token, page_size=STREAM_PAGE_SIZE_MAX),
            pb.ListStreamsResponse,
            timeout_s=CALL_TIMEOUT_S,
        )
        for stream in streams.streams:
            async for found in _ranges_of(pd, identity, stream.stream_id):
                yield found
        token = streams.next_page_token
        if not token:
            return


async def _ranges_of(pd: PdClient, identity: DirectoryIdentity, stream_id: int) -> AsyncIterator[common_pb2.Range]:
    index = 0
    while True:
        request = pb.ListRangesRequest(stream_id=stream_id, from_index=index, page_size=RANGE_PAGE_SIZE_MAX)
        page = await pd.call(request, pb.ListRangesResponse, timeout_s=CALL_TIMEOUT_S)
        for found in page.ranges:
            index = found.index + 1
            members = [(replica.server, replica.incarnation) for replica in found.replicas]
            if (identity.name, identity.incarnation) in members:
                yield found
        if not goes_on(page.more, page.ranges):
            return
