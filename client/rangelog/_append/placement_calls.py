"""The calls of one client's writers on the placement driver as they take over or leave ranges; simultaneous ones are combined.

What holds: a writer gets the reply that a call of its own would have got. When a range server dies, all writers with a
replica there leave their ranges in the same turn of the loop: they share one request for the living servers, and their seals
are sent in few calls; so are the openings and seals of many takeovers. A call of many seals is retried unchanged until there
is a reply, since it may have been carried out; an earlier placement driver, which does not know the calls of many, gets them
one by one, seals under the ids they have in the call. The number of calls in progress is bounded.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from rangelog._metadata import SEAL_TRY_TIMEOUT_S, Metadata, backoff, new_request_id
from rangelog.protocol.appender import Probe, SealRange
from rangelog_core.errors import NoPlacement, RangelogError, UnsupportedVersion, error_from_code
from rangelog_core.ids import ReplicaId
from rangelog_core.net.combined_calls import CombinedCalls
from rangelog_core.net.data_connection import replica_id
from rangelog_proto.v1 import common_pb2, pd_pb2

LIST_TIMEOUT_S = 2.0
TURNS_MAX = 400
"""Ranges that are left at a time although they still work. The others go on acking until it is their turn: the placement driver
seals them one after the other, however many ask, and a range that waits for its seal is frozen."""
SEALS_PER_CALL = 200
CALLS_MAX = 4
"""Calls of seals that are in progress at a time."""
OPENINGS_PER_CALL = 200
OPENING_CALLS_MAX = 2

_Opening = tuple[pd_pb2.OpenWriterRequest, float]
"""A request and its limit in seconds."""


class PlacementCalls:
    """The combined calls of one client. All methods are for its event loop."""

    def __init__(self, metadata: Metadata) -> None:
        self._metadata = metadata
        self._listing: asyncio.Task[list[common_pb2.Server]] | None = None
        self._seals = CombinedCalls(self._seal, items_max=SEALS_PER_CALL, calls_max=CALLS_MAX)
        self._openings = CombinedCalls(self._open, items_max=OPENINGS_PER_CALL, calls_max=OPENING_CALLS_MAX)
        self._turns = asyncio.Semaphore(TURNS_MAX)

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
        try:
            return await self.seal(request)
        except NoPlacement:
            return None

    async def seal(self, request: pd_pb2.SealRangeRequest) -> pd_pb2.SealRangeResponse:
        """Seal a range; the same command is retried until there is a reply, however long that takes.

        Raises NoPlacement (nothing was changed), WriterFenced, StreamNotFound, SealBelowFloor and other final errors.
        """
        attempt = 0
        while True:
            try:
                return await self._seals.ask(request)
            except NoPlacement:
                raise
            except RangelogError as error:
                if not error.retriable:
                    raise
            await backoff(attempt)
            attempt += 1

    async def open_writer(self, name: str, writer: str, timeout_s: float) -> pd_pb2.OpenWriterResponse:
        """Become the writer of a stream: raises its epoch. Raises as Metadata.open_writer."""
        request = pd_pb2.OpenWriterRequest(request_id=new_request_id(), name=name, writer=writer)
        return await self._openings.ask((request, timeout_s))

    def close(self) -> None:
        """Cancel the calls in progress."""
        self._seals.close()
        self._openings.close()
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

    async def _seal(
        self, asked: Sequence[pd_pb2.SealRangeRequest]
    ) -> Sequence[pd_pb2.SealRangeResponse | RangelogError]:
        if len(asked) == 1:
            return [await self._metadata.seal_range(asked[0], SEAL_TRY_TIMEOUT_S)]
        request = pd_pb2.SealRangesRequest(request_id=new_request_id(), seals=asked)
        try:
            response = await self._until_answered(request)
        except UnsupportedVersion:
            return await self._seal_each(request.request_id, asked)
        return [_error(result.error) or result.response for result in response.results]

    async def _seal_each(
        self, request_id: str, asked: Sequence[pd_pb2.SealRangeRequest]
    ) -> Sequence[pd_pb2.SealRangeResponse | RangelogError]:
        """Send the seals of a call one by one. A member that knows the call may have carried some out under these ids."""
        answers: list[pd_pb2.SealRangeResponse | RangelogError] = []
        for number, request in enumerate(asked):
            request.request_id = f"{request_id}/{number}"
            try:
                answers.append(await self._metadata.seal_range(request, SEAL_TRY_TIMEOUT_S))
            except RangelogError as error:
                answers.append(error)
        return answers

    async def _until_answered(self, request: pd_pb2.SealRangesRequest) -> pd_pb2.SealRangesResponse:
        attempt = 0
        while True:
            try:
                return await self._metadata.pd.call(request, pd_pb2.SealRangesResponse, timeout_s=SEAL_TRY_TIMEOUT_S)
            except RangelogError as error:
                if not error.retriable:
                    raise
            await backoff(attempt)
            attempt += 1

    async def _open(self, asked: Sequence[_Opening]) -> Sequence[pd_pb2.OpenWriterResponse | RangelogError]:
        """Open writers; what has no reply may be opened, which the caller's next try replaces."""
        if len(asked) > 1:
            request = pd_pb2.OpenWritersRequest(request_id=new_request_id(), writers=[each for each, _ in asked])
            try:
                response = await self._metadata.pd.call(
                    request, pd_pb2.OpenWritersResponse, timeout_s=min(left for _, left in asked)
                )
            except UnsupportedVersion:
                pass
            else:
                return [_error(result.error) or result.response for result in response.results]
        return await asyncio.gather(*(self._open_one(*each) for each in asked))

    async def _open_one(
        self, request: pd_pb2.OpenWriterRequest, timeout_s: float
    ) -> pd_pb2.OpenWriterResponse | RangelogError:
        try:
            return await self._metadata.pd.call(request, pd_pb2.OpenWriterResponse, timeout_s=timeout_s)
        except RangelogError as error:
            return error


def _error(told: pd_pb2.CallError) -> RangelogError | None:
    """Return the error that is an item's answer, if it is one."""
    if not told.code:
        return None
    offset = told.offset if told.has_offset else None
    return error_from_code(told.code, told.message, epoch=told.epoch or None, offset=offset)
