"""The demo's calls on the placement driver: ranges, objects, the leader. Every call has a deadline."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from rangelog_core.errors import RequestTimeout, Unavailable
from rangelog_core.net.pages import goes_on
from rangelog_core.net.pd_client import PdClient
from rangelog_proto.v1 import common_pb2, pd_pb2

_CALL_TIMEOUT_S = 10.0
_PAGE_SIZE = 200
_POLL_S = 0.1


class StreamMetadata:
    """A small view of one stream's metadata. Bound to the running event loop; close it."""

    def __init__(self, pd_addresses: list[str], stream: str) -> None:
        self._pd = PdClient(pd_addresses)
        self._stream = stream

    async def close(self) -> None:
        """Close the connections."""
        await self._pd.close()

    async def ranges(self) -> list[common_pb2.Range]:
        """Every range of the stream, in order."""
        found: list[common_pb2.Range] = []
        while True:
            request = pd_pb2.ListRangesRequest(name=self._stream, from_index=len(found), page_size=_PAGE_SIZE)
            page = await self._pd.call(request, pd_pb2.ListRangesResponse, timeout_s=_CALL_TIMEOUT_S)
            found.extend(page.ranges)
            if not goes_on(page.more, page.ranges):
                return found

    async def objects(self) -> list[common_pb2.Object]:
        """Every committed object of the stream, in order."""
        found: list[common_pb2.Object] = []
        while True:
            start = found[-1].end_offset if found else 0
            request = pd_pb2.ListObjectsRequest(
                knows_encryption=True, name=self._stream, from_offset=start, page_size=_PAGE_SIZE
            )
            page = await self._pd.call(request, pd_pb2.ListObjectsResponse, timeout_s=_CALL_TIMEOUT_S)
            found.extend(page.objects)
            if not goes_on(page.more, page.objects):
                return found

    async def open_range(self) -> common_pb2.Range:
        """The range that is appended to; raises Unavailable when all are sealed."""
        ranges = await self.ranges()
        if not ranges or ranges[-1].state != common_pb2.RANGE_STATE_OPEN:
            raise Unavailable(f"stream {self._stream} has no open range: is its writer running?")
        return ranges[-1]

    async def leader(self) -> str:
        """Name of the placement driver that leads; raises Unavailable without a leader."""
        cluster = await self._describe()
        for member in cluster.members:
            if member.leader:
                return member.name
        raise Unavailable("no placement driver leads: wait for the election")

    async def alive_servers(self) -> set[str]:
        """Names of the range servers that report."""
        cluster = await self._describe()
        return {server.name for server in cluster.servers if server.health == common_pb2.SERVER_HEALTH_ALIVE}

    async def set_hot_retention(self, hot_retention_ms: int, request_id: str) -> None:
        """Set how long a tiered range's hot replicas stay after the commit; -1: for ever."""
        config = common_pb2.StreamConfig(hot_retention_ms=hot_retention_ms)
        request = pd_pb2.UpdateStreamRequest(
            request_id=request_id, name=self._stream, config=config, fields=["hot_retention_ms"]
        )
        await self._pd.call(request, pd_pb2.UpdateStreamResponse, timeout_s=_CALL_TIMEOUT_S)

    async def _describe(self) -> pd_pb2.DescribeClusterResponse:
        return await self._pd.call(
            pd_pb2.DescribeClusterRequest(), pd_pb2.DescribeClusterResponse, timeout_s=_CALL_TIMEOUT_S
        )


async def wait_for(condition: Callable[[], Awaitable[bool]], timeout_s: float, otherwise: str) -> None:
    """Poll until the condition holds; raises RequestTimeout with the text `otherwise`."""
    deadline = time.monotonic() + timeout_s
    while not await condition():
        if time.monotonic() > deadline:
            raise RequestTimeout(f"not within {timeout_s:g} s: {otherwise}")
        await asyncio.sleep(_POLL_S)
