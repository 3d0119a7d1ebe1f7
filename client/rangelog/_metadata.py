"""The client's calls on the placement driver, with the client's own types.

Commands carry a request id made once per call, so the transport may retry them; every call has a deadline.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Callable, Sequence

from rangelog_core.errors import StreamNotFound
from rangelog_core.ids import ReplicaId
from rangelog_core.limits import OBJECT_PAGE_SIZE_MAX
from rangelog_core.net.pages import goes_on, pages_by_token
from rangelog_core.net.pd_client import PdClient
from rangelog_proto.v1 import common_pb2, pd_pb2

CALL_TIMEOUT_S = 15.0
SEAL_TRY_TIMEOUT_S = 5.0


def new_request_id() -> str:
    """Return an id that no other command has."""
    return uuid.uuid4().hex


class Metadata:
    """Typed calls on the placement driver. All raise the error in the reply, Unavailable or RequestTimeout.

    A command without a reply that may have been carried out raises OutcomeUnknown.
    """

    def __init__(self, pd: PdClient) -> None:
        self.pd = pd
        self.clock_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000
        """The wall clock, by which readers start so long ago."""

    async def create_stream(
        self, name: str, config: common_pb2.StreamConfig, timeout_s: float = CALL_TIMEOUT_S
    ) -> common_pb2.Stream:
        """Create a stream."""
        request = pd_pb2.CreateStreamRequest(request_id=new_request_id(), name=name, config=config)
        return (await self.pd.call(request, pd_pb2.CreateStreamResponse, timeout_s=timeout_s)).stream

    async def describe_stream(self, name: str, timeout_s: float = CALL_TIMEOUT_S) -> common_pb2.Stream:
        """Return the current state of a stream."""
        response = await self.pd.call(
            pd_pb2.DescribeStreamRequest(name=name), pd_pb2.DescribeStreamResponse, timeout_s=timeout_s
        )
        return response.stream

    async def list_streams(self, prefix: str, after: str = "") -> AsyncIterator[common_pb2.Stream]:
        """Yield the streams whose names start with `prefix` and come after `after`, by name."""
        request = pd_pb2.ListStreamsRequest(prefix=prefix, page_token=after)
        async for page in pages_by_token(self.pd, request, pd_pb2.ListStreamsResponse, CALL_TIMEOUT_S):
            for stream in page.streams:
                yield stream

    async def update_stream(
        self, name: str, config: common_pb2.StreamConfig, fields: Sequence[str], timeout_s: float = CALL_TIMEOUT_S
    ) -> common_pb2.Stream:
        """Change the named fields of a stream's configuration."""
        request = pd_pb2.UpdateStreamRequest(request_id=new_request_id(), name=name, config=config, fields=list(fields))
        return (await self.pd.call(request, pd_pb2.UpdateStreamResponse, timeout_s=timeout_s)).stream

    async def delete_stream(self, name: str, timeout_s: float = CALL_TIMEOUT_S) -> pd_pb2.DeleteStreamResponse:
        """Delete a stream and all its records; the reply holds its open range, to be fenced."""
        request = pd_pb2.DeleteStreamRequest(request_id=new_request_id(), name=name)
        return await self.pd.call(request, pd_pb2.DeleteStreamResponse, timeout_s=timeout_s)

    async def trim_stream(self, name: str, trim_offset: int, *, stream_id: int = 0) -> common_pb2.Stream:
        """Remove all records below an offset, of the stream with this id if one is given."""
        request = pd_pb2.TrimStreamRequest(
            request_id=new_request_id(), name=name, trim_offset=trim_offset, stream_id=stream_id
        )
        return (await self.pd.call(request, pd_pb2.TrimStreamResponse, timeout_s=CALL_TIMEOUT_S)).stream

    async def open_writer(self, name: str, writer: str, timeout_s: float) -> pd_pb2.OpenWriterResponse:
        """Become the writer: raises the stream's epoch."""
        request = pd_pb2.OpenWriterRequest(request_id=new_request_id(), name=name, writer=writer)
        return await self.pd.call(request, pd_pb2.OpenWriterResponse, timeout_s=timeout_s)

    async def create_range(self, stream_id: int, epoch: int, start_offset: int, timeout_s: float) -> common_pb2.Range:
        """Create the range that starts where the last one ended."""
        request = pd_pb2.CreateRangeRequest(
            request_id=new_request_id(), stream_id=stream_id, epoch=epoch, start_offset=start_offset
        )
        return (
            await self.pd.call(request, pd_pb2.CreateRangeResponse, timeout_s=timeout_s, wait_for_placement=True)
        ).range

    async def seal_range(self, request: pd_pb2.SealRangeRequest, timeout_s: float) -> pd_pb2.SealRangeResponse:
        """Seal a range, and create the next one if requested."""
        return await self.pd.call(request, pd_pb2.SealRangeResponse, timeout_s=timeout_s)

    async def prove_end(
        self, source: common_pb2.Range, end_offset: int, holders: Sequence[ReplicaId], timeout_s: float
    ) -> common_pb2.Range:
        """Ask the placement driver to put a floor under an open range at the records that `holders` hold durably."""
        request = pd_pb2.ProveEndRequest(
            request_id=new_request_id(),
            stream_id=source.stream_id,
            range_index=source.index,
            end_offset=end_offset,
            holders=[common_pb2.Replica(server=each.server, incarnation=each.incarnation) for each in holders],
        )
        return (await self.pd.call(request, pd_pb2.ProveEndResponse, timeout_s=timeout_s)).range

    async def ranges(
        self,
        name: str,
        from_offset: int,
        *,
        stream_id: int = 0,
        last_only: bool = False,
        timeout_s: float = CALL_TIMEOUT_S,
    ) -> tuple[common_pb2.Stream, list[common_pb2.Range]]:
        """Return a stream and all its ranges that end beyond `from_offset`, in order; with `last_only` the last one alone.

        `stream_id`: the id that the name was resolved to before; then the name is for messages only. Raises
        StreamNotFound.
        """
        ranges: list[common_pb2.Range] = []
        request = pd_pb2.ListRangesRequest(
            name="" if stream_id else name, stream_id=stream_id, from_offset=from_offset, last_only=last_only
        )
        while True:
            try:
                response = await self.pd.call(request, pd_pb2.ListRangesResponse, timeout_s=timeout_s)
            except StreamNotFound as error:
                raise StreamNotFound(f"stream {name!r} was deleted") if stream_id else error from error
            ranges += response.ranges
            if not goes_on(response.more, response.ranges):
                if not response.stream.stream_id:
                    raise StreamNotFound(f"no stream {name!r}")
                return response.stream, ranges
            request.stream_id, request.name = response.stream.stream_id, ""  # every page is of the same stream
            request.from_index = ranges[-1].index + 1

    async def objects(self, stream_id: int, from_offset: int, page_size: int = 0) -> list[common_pb2.Object]:
        """Return one page of the committed objects that end beyond `from_offset`, by offset."""
        request = pd_pb2.ListObjectsRequest(
            knows_encryption=True, stream_id=stream_id, from_offset=from_offset, page_size=page_size
        )
        return list((await self.pd.call(request, pd_pb2.ListObjectsResponse, timeout_s=CALL_TIMEOUT_S)).objects)

    async def all_objects(self, stream_id: int, from_offset: int) -> list[common_pb2.Object]:
        """Return the committed objects that end beyond an offset, by start offset, of which no two have the same records."""
        found: list[common_pb2.Object] = []
        position = from_offset
        while True:
            page = await self.objects(stream_id, position, page_size=OBJECT_PAGE_SIZE_MAX)
            if not page:
                return found
            while found and found[-1].end_offset > page[0].start_offset:
                found.pop()  # replaced by one with the records of several, since the last page
            found += page
            position = page[-1].end_offset

    async def servers(self, timeout_s: float) -> list[common_pb2.Server]:
        """Return the range servers and their health."""
        response = await self.pd.call(pd_pb2.ListServersRequest(), pd_pb2.ListServersResponse, timeout_s=timeout_s)
        return list(response.servers)

    async def tier_url(self) -> str:
        """Return the URL of the cluster's object store; empty when it has no tier."""
        response = await self.pd.call(
            pd_pb2.DescribeClusterRequest(), pd_pb2.DescribeClusterResponse, timeout_s=CALL_TIMEOUT_S
        )
        return response.tier_url


async def backoff(attempt: int) -> None:
    """Wait before try number `attempt` + 1: 50 ms, doubling up to 1 s."""
    await asyncio.sleep(backoff_s(attempt))


def backoff_s(attempt: int) -> float:
    """Return how long to wait before try number `attempt` + 1."""
    return min(1.0, 0.05 * 2.0 ** min(attempt, 5))
