"""The calls of one client's writers on the placement driver when they leave ranges; simultaneous calls are combined.

What holds: a writer gets the reply that a call of its own would have got. When a range server dies, all writers with a
replica there leave their ranges in the same turn of the loop: they share one request for the living servers, and their seals
are sent in few calls. A call of many seals is retried unchanged until there is a reply, since it may have been carried out;
an earlier placement driver, which does not know the call, gets its seals one by one under the ids they have in it. The number
of calls in progress is bounded.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from rangelog._metadata import SEAL_TRY_TIMEOUT_S, Metadata, backoff, new_request_id
from rangelog.protocol.appender import Probe, SealRange
from rangelog_core.errors import NoPlacement, RangelogError, UnsupportedVersion, error_from_code
from rangelog_core.ids import ReplicaId
from rangelog_core.net.data_connection import replica_id
from rangelog_proto.v1 import common_pb2, pd_pb2

LIST_TIMEOUT_S = 2.0
TURNS_MAX = 400
"""Ranges that are left at a time although they still work. The others go on acking until it is their turn: the placement driver
seals them one after the other, however many ask, and a range that waits for its seal is frozen."""
SEALS_PER_CALL = 200
CALLS_MAX = 4
"""Calls of many seals that are in progress at a time."""

_Asked = tuple[pd_pb2.SealRangeRequest, asyncio.Future[pd_pb2.SealRangeResponse]]


class PlacementCalls:
    """The combined calls of one client. All methods are for its event loop."""

    def __init__(self, metadata: Metadata) -> None:
        self._metadata = metadata
        self._listing: asyncio.Task[list[common_pb2.Server]] | None = None
        self._asked: list[_Asked] = []
        self._slots = asyncio.Semaphore(CALLS_MAX)
        self._turns = asyncio.Semaphore(TURNS_MAX)
        self._tasks: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def turn(self, *, urgent: bool) -> AsyncIterator[bool]:
        """Wait for one's turn to leave a range, and hold it while that lasts; give whether there was a wait.

        Urgent: the range does not work any more.
        """
        if urgent:
            yield False
            return
        waits = self._turns.locked()
        async with self._turns:
            yield waits

    async def probe(self, effect: Probe) -> bool:
        """Return whether the placement driver answers and has enough servers for the next range."""
        try:
            servers = await self._servers()
        except RangelogError:
            return False
        alive = [each.name for each in servers if each.health == common_pb2.SERVER_HEALTH_ALIVE]
        if effect.strictly:
            alive = [server for server in alive if server not in effect.exclude_servers]
        return len(alive) >= effect.servers_min

    async def addresses(self) -> dict[ReplicaId, str]:
        """Return the servers' current addresses; none when the placement driver does not answer."""
        try:
            servers = await self._servers()
        except RangelogError:
            return {}
        return {replica_id(each.name, each.incarnation): each.data_address for each in servers}

    async def seal_and_create(self, stream_id: int, epoch: int, effect: SealRange) -> pd_pb2.SealRangeResponse | None:
        """Seal and create the next range; None: nothing was changed, there is no better placement.

        The confirm offset is frozen meanwhile, and a try without a reply may have been applied: so the same command is
        retried until there is a reply. Raises WriterFenced, StreamNotFound and other final errors.
        """
        request = pd_pb2.SealRangeRequest(
            request_id=new_request_id(),
            stream_id=stream_id,
            range_index=effect.range_index,
            epoch=epoch,
            end_offset=effect.end_offset,
            create_next=True,
            exclude_servers=effect.exclude_servers,
            exclude_strictly=effect.strictly,
        )
        attempt = 0
        while True:
            try:
                return await self._seal(request)
            except NoPlacement:
                return None
            except RangelogError as error:
                if not error.retriable:
                    raise
            await backoff(attempt)
            attempt += 1

    def close(self) -> None:
        """Cancel the calls in progress."""
        for task in self._tasks:
            task.cancel()
        if self._listing is not None:
            self._listing.cancel()

    # ---- inside

    async def _servers(self) -> list[common_pb2.Server]:
        """List the range servers, in one call for all simultaneous callers."""
        if self._listing is None:
            self._listing = asyncio.create_task(self._metadata.servers(LIST_TIMEOUT_S))
            self._listing.add_done_callback(self._listed)
        return await asyncio.shield(self._listing)

    def _listed(self, task: asyncio.Task[list[common_pb2.Server]]) -> None:
        self._listing = None
        if not task.cancelled():
            task.exception()  # its callers have the result

    async def _seal(self, request: pd_pb2.SealRangeRequest) -> pd_pb2.SealRangeResponse:
        """Send a seal together with all others of this turn of the loop."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[pd_pb2.SealRangeResponse] = loop.create_future()
        self._asked.append((request, future))
        if len(self._asked) == 1:
            loop.call_soon(self._send)
        return await future

    def _send(self) -> None:
        asked, self._asked = [each for each in self._asked if not each[1].done()], []
        for first in range(0, len(asked), SEALS_PER_CALL):
            some = asked[first : first + SEALS_PER_CALL]
            task = asyncio.create_task(self._seal_one(*some[0]) if len(some) == 1 else self._seal_many(some))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _seal_one(
        self, request: pd_pb2.SealRangeRequest, future: asyncio.Future[pd_pb2.SealRangeResponse]
    ) -> None:
        try:
            response = await self._metadata.seal_range(request, SEAL_TRY_TIMEOUT_S)
        except RangelogError as error:
            _fail(future, error)
        else:
            _give(future, response)

    async def _seal_many(self, asked: Sequence[_Asked]) -> None:
        request = pd_pb2.SealRangesRequest(request_id=new_request_id(), seals=[each for each, _ in asked])
        async with self._slots:
            try:
                response = await self._until_answered(request)
            except UnsupportedVersion:
                await self._seal_each(request.request_id, asked)
                return
            except RangelogError as error:
                for _, future in asked:
                    _fail(future, error)
                return
        for (_, future), result in zip(asked, response.results, strict=True):
            told = result.error
            if told.code:
                offset = told.offset if told.has_offset else None
                _fail(future, error_from_code(told.code, told.message, epoch=told.epoch or None, offset=offset))
            else:
                _give(future, result.response)

    async def _seal_each(self, request_id: str, asked: Sequence[_Asked]) -> None:
        """Send the seals of a call one by one. A member that knows the call may have carried some out under these ids."""
        for number, (request, future) in enumerate(asked):
            request.request_id = f"{request_id}/{number}"
            if not future.done():
                await self._seal_one(request, future)

    async def _until_answered(self, request: pd_pb2.SealRangesRequest) -> pd_pb2.SealRangesResponse:
        attempt = 0
        while True:
            try:
                return await self._metadata.pd.seal_ranges(request, timeout_s=SEAL_TRY_TIMEOUT_S)
            except RangelogError as error:
                if not error.retriable:
                    raise
            await backoff(attempt)
            attempt += 1


def _give(future: asyncio.Future[pd_pb2.SealRangeResponse], response: pd_pb2.SealRangeResponse) -> None:
    if not future.done():
        future.set_result(response)


def _fail(future: asyncio.Future[pd_pb2.SealRangeResponse], error: RangelogError) -> None:
    if not future.done():
        future.set_exception(error)
