"""Calls on the placement driver: finds the leader, follows it, retries until the deadline.

What holds: a call ends by its deadline with a reply or a RangelogError; a command that may be retried carries its request
id, so a retry has no second effect; a command that may have been carried out never ends with an error that excludes it
(see pd_tries). A client is bound to the event loop that it is first used on. When a leader is named that is none of the given
placement drivers, the client learns the members from it, so it finds the group after those were replaced.
"""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

import grpc

from rangelog_core.errors import (
    ClientClosed,
    HandshakeFailed,
    InvalidArgument,
    NoPlacement,
    NotLeader,
    RangelogError,
    RequestTimeout,
    Unavailable,
)
from rangelog_core.net.acting import with_principal
from rangelog_core.net.addresses import split_address
from rangelog_core.net.channels import Channels
from rangelog_core.net.fork_guard import note_call
from rangelog_core.net.home_loop import HomeLoop
from rangelog_core.net.pd_tries import Contact, Tries
from rangelog_core.net.principals import Role
from rangelog_core.net.tls import TlsConfig
from rangelog_core.net.token_sources import Token, check_token, metadata_for
from rangelog_core.tracing import with_context
from rangelog_proto.v1 import members_pb2
from rangelog_proto.v1 import pd_pb2 as pb
from rangelog_proto.v1.members_pb2_grpc import MembersStub
from rangelog_proto.v1.pd_pb2_grpc import PlacementDriverStub

TRY_TIMEOUT_S = 3.0
"""The limit of one try at one member: an isolated leader must not use up the whole deadline."""

REFUSED_ROUNDS_MAX = 3
"""A call ends when all members were tried so often and none has agreed on TLS."""

ENDPOINTS_MAX = 32
"""Addresses are learned up to so many."""

_BACKOFF_S = 0.05
_BACKOFF_S_MAX = 0.5

_Request = TypeVar("_Request")
_Response = TypeVar("_Response")
_Method = Callable[..., Awaitable[_Response]]


class PdClient:
    """The calls of the placement driver's API. One instance per process is enough; `close` it."""

    def __init__(
        self,
        endpoints: Sequence[str],
        *,
        token: Token | None = None,
        tls: TlsConfig | None = None,
        first_contact_s: float = math.inf,
    ) -> None:
        """`first_contact_s`: while nothing has ever been reached, a call gives up after so long if nothing is there at all."""
        if not endpoints:
            raise InvalidArgument("no placement driver is given: pass host:port, or set RANGELOG_PD")
        for endpoint in endpoints:
            split_address(endpoint)
        check_token(token)
        self._endpoints = list(dict.fromkeys(endpoints))
        self._token = token
        self._channels = Channels(tls, Role.PD)
        self._leader: str | None = None
        self._learning: asyncio.Task[None] | None = None
        self._closed = False
        self.home = HomeLoop()
        self._first_contact_s = first_contact_s
        self._contact = Contact()

    @property
    def endpoints(self) -> tuple[str, ...]:
        """The configured addresses of placement drivers, and those that were learned since."""
        return tuple(self._endpoints)

    @property
    def was_reached(self) -> bool:
        """Whether a placement driver, or something that may be one, has ever been reached."""
        return self._contact.was_made

    async def close(self) -> None:
        """Close all channels; idempotent."""
        self._closed = True
        if self._learning is not None:
            self._learning.cancel()
            await asyncio.gather(self._learning, return_exceptions=True)
        await self._channels.close()

    async def create_stream(self, request: pb.CreateStreamRequest, *, timeout_s: float) -> pb.CreateStreamResponse:
        """Create a stream."""
        return await self._call(lambda stub: stub.CreateStream, request, timeout_s)

    async def describe_stream(
        self, request: pb.DescribeStreamRequest, *, timeout_s: float
    ) -> pb.DescribeStreamResponse:
        """Describe a stream."""
        return await self._call(lambda stub: stub.DescribeStream, request, timeout_s)

    async def list_streams(self, request: pb.ListStreamsRequest, *, timeout_s: float) -> pb.ListStreamsResponse:
        """List streams by page."""
        return await self._call(lambda stub: stub.ListStreams, request, timeout_s)

    async def update_stream(self, request: pb.UpdateStreamRequest, *, timeout_s: float) -> pb.UpdateStreamResponse:
        """Change a stream's configuration."""
        return await self._call(lambda stub: stub.UpdateStream, request, timeout_s)

    async def delete_stream(self, request: pb.DeleteStreamRequest, *, timeout_s: float) -> pb.DeleteStreamResponse:
        """Delete a stream."""
        return await self._call(lambda stub: stub.DeleteStream, request, timeout_s)

    async def trim_stream(self, request: pb.TrimStreamRequest, *, timeout_s: float) -> pb.TrimStreamResponse:
        """Trim a stream."""
        return await self._call(lambda stub: stub.TrimStream, request, timeout_s)

    async def open_writer(self, request: pb.OpenWriterRequest, *, timeout_s: float) -> pb.OpenWriterResponse:
        """Become a stream's writer."""
        return await self._call(lambda stub: stub.OpenWriter, request, timeout_s)

    async def create_range(self, request: pb.CreateRangeRequest, *, timeout_s: float) -> pb.CreateRangeResponse:
        """Create a range. NoPlacement is retried: servers may be coming up."""
        return await self._call(lambda stub: stub.CreateRange, request, timeout_s, wait_for_placement=True)

    async def seal_range(self, request: pb.SealRangeRequest, *, timeout_s: float) -> pb.SealRangeResponse:
        """Seal a range."""
        return await self._call(lambda stub: stub.SealRange, request, timeout_s)

    async def seal_ranges(self, request: pb.SealRangesRequest, *, timeout_s: float) -> pb.SealRangesResponse:
        """Seal many ranges; each result has its own error."""
        return await self._call(lambda stub: stub.SealRanges, request, timeout_s)

    async def open_writers(self, request: pb.OpenWritersRequest, *, timeout_s: float) -> pb.OpenWritersResponse:
        """Open many writers; each result has its own error."""
        return await self._call(lambda stub: stub.OpenWriters, request, timeout_s)

    async def watch(self, request: pb.WatchRequest, *, timeout_s: float) -> pb.WatchResponse:
        """Wait for changes of streams."""
        return await self._call(lambda stub: stub.Watch, request, timeout_s)

    async def prove_end(self, request: pb.ProveEndRequest, *, timeout_s: float) -> pb.ProveEndResponse:
        """Have the placement driver decide the proved end of an open range."""
        return await self._call(lambda stub: stub.ProveEnd, request, timeout_s)

    async def list_ranges(self, request: pb.ListRangesRequest, *, timeout_s: float) -> pb.ListRangesResponse:
        """List a stream's ranges by page."""
        return await self._call(lambda stub: stub.ListRanges, request, timeout_s)

    async def prepare_object(self, request: pb.PrepareObjectRequest, *, timeout_s: float) -> pb.PrepareObjectResponse:
        """Get a key to upload to."""
        return await self._call(lambda stub: stub.PrepareObject, request, timeout_s)

    async def commit_object(self, request: pb.CommitObjectRequest, *, timeout_s: float) -> pb.CommitObjectResponse:
        """Commit an uploaded and verified object."""
        return await self._call(lambda stub: stub.CommitObject, request, timeout_s)

    async def prepare_repack(self, request: pb.PrepareRepackRequest, *, timeout_s: float) -> pb.PrepareRepackResponse:
        """Get a key for the object that will replace others."""
        return await self._call(lambda stub: stub.PrepareRepack, request, timeout_s)

    async def commit_repack(self, request: pb.CommitRepackRequest, *, timeout_s: float) -> pb.CommitRepackResponse:
        """Put an uploaded and verified object in the place of others."""
        return await self._call(lambda stub: stub.CommitRepack, request, timeout_s)

    async def list_objects(self, request: pb.ListObjectsRequest, *, timeout_s: float) -> pb.ListObjectsResponse:
        """List a stream's objects by page. This program knows that some may be encrypted."""
        request.knows_encryption = True
        return await self._call(lambda stub: stub.ListObjects, request, timeout_s)

    async def register_server(
        self, request: pb.RegisterServerRequest, *, timeout_s: float
    ) -> pb.RegisterServerResponse:
        """Register a range server."""
        return await self._call(lambda stub: stub.RegisterServer, request, timeout_s)

    async def heartbeat(self, request: pb.HeartbeatRequest, *, timeout_s: float) -> pb.HeartbeatResponse:
        """Send a range server's heartbeat; the reply holds its directives."""
        return await self._call(lambda stub: stub.Heartbeat, request, timeout_s)

    async def list_servers(self, request: pb.ListServersRequest, *, timeout_s: float) -> pb.ListServersResponse:
        """List the range servers."""
        return await self._call(lambda stub: stub.ListServers, request, timeout_s)

    async def describe_cluster(
        self, request: pb.DescribeClusterRequest, *, timeout_s: float
    ) -> pb.DescribeClusterResponse:
        """Describe the cluster, as the member that answers sees it."""
        return await self._call(lambda stub: stub.DescribeCluster, request, timeout_s)

    async def list_tasks(self, request: pb.ListTasksRequest, *, timeout_s: float) -> pb.ListTasksResponse:
        """List the tasks in progress at the leader's reconcilers."""
        return await self._call(lambda stub: stub.ListTasks, request, timeout_s)

    async def call_service(
        self, stub_type: type[Any], method: Callable[[Any], _Method[_Response]], request: object, timeout_s: float
    ) -> _Response:
        """Call a method of another service on the same placement drivers; see `TopicClient`."""
        return await self._call(method, request, timeout_s, stub_type=stub_type)

    # ---- inside

    async def _call(
        self,
        method: Callable[[Any], _Method[_Response]],
        request: object,
        timeout_s: float,
        *,
        wait_for_placement: bool = False,
        stub_type: type[Any] = PlacementDriverStub,
    ) -> _Response:
        self.home.check()
        if self._closed:
            raise ClientClosed("the client is closed")
        note_call()
        deadline = time.monotonic() + timeout_s
        tries = Tries(request, Unavailable(self._nobody_answers(timeout_s)), self._contact, self._channels.tls)
        attempt, began = 0, time.monotonic()
        while time.monotonic() < deadline and not self._closed:
            for endpoint in self._order():
                left = deadline - time.monotonic()
                if left <= 0 or self._closed:
                    break
                try:
                    call = method(self._stub(endpoint, stub_type))
                    metadata = self._metadata(endpoint)
                    response = await call(request, timeout=min(left, TRY_TIMEOUT_S), metadata=metadata)
                    self._leader = endpoint
                    self._contact.answered()
                    if endpoint not in self._endpoints and self._learning is None:
                        self._learning = asyncio.create_task(self._learn(endpoint))
                    return response
                except grpc.RpcError as error:
                    last = self._judge(tries.failed(error, f"placement driver {endpoint}"), endpoint)
                except asyncio.CancelledError:
                    task = asyncio.current_task()
                    if not self._closed or (task is not None and task.cancelling()):
                        raise  # cancelled by the caller; otherwise by close(), which gRPC reports in the same way
                    tries.cut_off()
                    break
                if not last.retriable or (isinstance(last, NoPlacement) and not wait_for_placement):
                    raise tries.answer(last)
                if isinstance(last, NotLeader) and self._leader:
                    break  # retry at once at the leader that the error names
                if isinstance(last, NoPlacement):
                    break  # an error of the leader itself: retry there after a pause
            attempt += 1
            if attempt == REFUSED_ROUNDS_MAX and tries.only_refused:
                break  # certificates do not change while a call waits
            if not self._contact.was_made and time.monotonic() - began >= self._first_contact_s:
                break  # a wrong address, most likely: who waits for a cluster to start tries again
            if not self._closed and not (isinstance(tries.last, NotLeader) and self._leader and attempt == 1):
                await _pause(attempt, deadline)
        raise self._give_up(tries, timeout_s)

    def _metadata(self, endpoint: str) -> tuple[tuple[str, str], ...]:
        """Return what goes with a call. Without TLS a placement driver does not know a broker, and believes nobody."""
        tls = self._channels.tls
        metadata = with_context(metadata_for(self._token, tls, endpoint))
        return with_principal(metadata) if tls is not None else metadata

    async def _learn(self, endpoint: str) -> None:
        """Learn the members from a leader that was not among the given addresses: the group has changed since."""
        told = members_pb2.ListMembersResponse()
        try:
            call = self._stub(endpoint, MembersStub).ListMembers
            request = members_pb2.ListMembersRequest(own_view=True)
            metadata = metadata_for(self._token, self._channels.tls, endpoint)
            told = await call(request, timeout=TRY_TIMEOUT_S, metadata=metadata)
        except (grpc.RpcError, RangelogError):
            pass  # the leader itself is known now, and asked no more
        finally:
            self._learning = None
        for address in [endpoint, *(member.api_address for member in told.members)]:
            if _is_address(address) and address not in self._endpoints and len(self._endpoints) < ENDPOINTS_MAX:
                self._endpoints.append(address)

    def _give_up(self, tries: Tries, timeout_s: float) -> RangelogError:
        if self._closed:
            return tries.no_answer(ClientClosed("the client is closed"))
        last = tries.last
        if isinstance(last, NoPlacement):
            return tries.told_of(last)
        if isinstance(last, HandshakeFailed):
            return tries.no_answer(last)
        if not self._contact.was_made and self._first_contact_s < timeout_s:
            return tries.no_answer(Unavailable(f"no placement driver at {', '.join(self._endpoints)}: {last.message}"))
        if isinstance(last, RequestTimeout):
            return tries.no_answer(
                RequestTimeout(f"{last.message}; {self._nobody_answers(timeout_s)}{tries.refused_before}")
            )
        return tries.no_answer(Unavailable(f"{self._nobody_answers(timeout_s)} ({last.message})"))

    def _judge(self, error: RangelogError, endpoint: str) -> RangelogError:
        """Update the believed leader after a failed try."""
        if isinstance(error, NotLeader):
            self._leader = error.address if _is_address(error.address or "") else None
        elif self._leader == endpoint and error.retriable and not isinstance(error, NoPlacement):
            self._leader = None
        return error

    def _order(self) -> list[str]:
        """The believed leader first, the rest in turn."""
        leader = self._leader
        if leader is None:
            return list(self._endpoints)
        return [leader, *(endpoint for endpoint in self._endpoints if endpoint != leader)]

    def _stub(self, endpoint: str, stub_type: type[Any]) -> Any:
        return self._channels.stub(endpoint, stub_type)

    def _nobody_answers(self, timeout_s: float) -> str:
        listed = ", ".join(self._endpoints)
        return f"no placement driver leads within {timeout_s:g} s at {listed}: are a majority of them running?"


async def _pause(attempt: int, deadline: float) -> None:
    pause = min(_BACKOFF_S_MAX, _BACKOFF_S * 2.0 ** min(attempt, 5)) * random.uniform(0.5, 1.0)
    await asyncio.sleep(max(0.0, min(pause, deadline - time.monotonic())))


def _is_address(hint: str) -> bool:
    try:
        split_address(hint)
    except InvalidArgument:
        return False
    return hint.isprintable()
