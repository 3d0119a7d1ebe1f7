"""Three real placement drivers over gRPC: kills, repeats, restarts, a lost majority, and what a user gets to read."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from rangelog_core.errors import (
    InvalidArgument,
    NoPlacement,
    NotLeader,
    OffsetOutOfRange,
    OutcomeUnknown,
    RangelogError,
    RangeNotFound,
    StreamExists,
    StreamNotFound,
    Unavailable,
    WriterFenced,
)
from rangelog_core.net.grpc_errors import from_rpc_error
from rangelog_core.net.pd_client import PdClient
from rangelog_proto.v1 import common_pb2
from rangelog_proto.v1 import pd_pb2 as pb
from tests.integration.helpers.pd_group import CALL_S, FakeServers, Group, channel, new_stream, running_group
from tests.support.waiting import until

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]


@pytest.fixture
def group(tmp_path: Path) -> Iterator[Group]:
    """Three placement drivers, listening."""
    with running_group(tmp_path / "group") as made:
        yield made


@pytest.fixture
async def pd(group: Group) -> AsyncIterator[PdClient]:
    """A client that finds and follows the leader."""
    client = PdClient(group.cluster.pd_addresses)
    yield client
    await client.close()


@pytest.fixture
async def servers(pd: PdClient) -> AsyncIterator[FakeServers]:
    """Four fake range servers, registered and alive."""
    made = FakeServers(pd, "rs1", "rs2", "rs3", "rs4")
    await made.start()
    yield made
    await made.stop()


def create_range(stream_id: int, epoch: int, start: int, request_id: str = "") -> pb.CreateRangeRequest:
    """A request with an id of its own."""
    return pb.CreateRangeRequest(
        request_id=request_id or uuid.uuid4().hex, stream_id=stream_id, epoch=epoch, start_offset=start
    )


def seal_range(stream_id: int, index: int, epoch: int, end: int, *, create_next: bool = True) -> pb.SealRangeRequest:
    """A request with an id of its own."""
    return pb.SealRangeRequest(
        request_id=uuid.uuid4().hex,
        stream_id=stream_id,
        range_index=index,
        epoch=epoch,
        end_offset=end,
        create_next=create_next,
    )


async def test_a_leader_killed_in_between_changes_no_answer(group: Group, pd: PdClient, servers: FakeServers) -> None:
    """Each request id gets one answer for ever: from the leader, from the next one after kill -9, and after a restart."""
    stream_id, epoch = await new_stream(pd)
    await pd.call(create_range(stream_id, epoch, 0), pb.CreateRangeResponse, timeout_s=CALL_S, wait_for_placement=True)
    asked = [seal_range(stream_id, 0, epoch, 100)]
    answers = [await pd.call(asked[0], pb.SealRangeResponse, timeout_s=CALL_S)]
    for round_number in range(1, 4):
        leader = await group.leader()
        pending = seal_range(stream_id, round_number, epoch, 100 * (round_number + 1))
        sealing = asyncio.create_task(pd.call(pending, pb.SealRangeResponse, timeout_s=30))
        await asyncio.sleep(0)
        group.cluster.kill(leader)
        asked.append(pending)
        answers.append(await sealing)
        for request, answer in zip(asked, answers, strict=True):
            again = await pd.call(request, pb.SealRangeResponse, timeout_s=CALL_S)
            assert (again.range.end_offset, again.next_range.index) == (
                answer.range.end_offset,
                answer.next_range.index,
            )
        group.cluster.start_member(leader)
    listed = await pd.call(pb.ListRangesRequest(name="s"), pb.ListRangesResponse, timeout_s=CALL_S)
    assert [(each.index, each.start_offset) for each in listed.ranges] == [(i, 100 * i) for i in range(5)]


async def test_everything_is_back_after_all_were_killed(group: Group, pd: PdClient, servers: FakeServers) -> None:
    """kill -9 of all three at once, several times over snapshots: streams, epochs, ranges and answers are there."""
    stream_id, epoch = await new_stream(pd)
    await pd.call(create_range(stream_id, epoch, 0), pb.CreateRangeResponse, timeout_s=CALL_S, wait_for_placement=True)
    asked: list[pb.SealRangeRequest] = []
    for _ in range(3):
        for _ in range(40):
            asked.append(seal_range(stream_id, len(asked), epoch, 10 * (len(asked) + 1)))
            await pd.call(asked[-1], pb.SealRangeResponse, timeout_s=CALL_S)
        before = await pd.call(pb.ListRangesRequest(name="s"), pb.ListRangesResponse, timeout_s=CALL_S)
        for name in group.names:
            group.cluster.members[name].signal(signal.SIGKILL)
        group.cluster.kill_all()
        group.start()
        after = await pd.call(pb.ListRangesRequest(name="s"), pb.ListRangesResponse, timeout_s=CALL_S)
        assert [(each.index, each.start_offset, each.end_offset) for each in after.ranges] == [
            (each.index, each.start_offset, each.end_offset) for each in before.ranges
        ]
        repeated = await pd.call(asked[0], pb.SealRangeResponse, timeout_s=CALL_S)
        assert repeated.range.end_offset == 10
    opened = await pd.call(
        pb.OpenWriterRequest(request_id=uuid.uuid4().hex, name="s"), pb.OpenWriterResponse, timeout_s=CALL_S
    )
    assert opened.stream.epoch == epoch + 1


async def test_without_a_majority_opens_and_seals_are_unavailable(
    group: Group, pd: PdClient, servers: FakeServers
) -> None:
    """One of three left: a typed error by the call's deadline, nothing decided; with a second back everything goes on."""
    stream_id, epoch = await new_stream(pd)
    await pd.call(create_range(stream_id, epoch, 0), pb.CreateRangeResponse, timeout_s=CALL_S, wait_for_placement=True)
    leader = await group.leader()
    for name in group.names:
        if name != leader:
            group.cluster.kill(name)
    opening = pb.OpenWriterRequest(request_id=uuid.uuid4().hex, name="s")
    calls: list[Callable[[], Awaitable[Any]]] = [
        lambda: pd.call(opening, pb.OpenWriterResponse, timeout_s=4),
        lambda: pd.call(seal_range(stream_id, 0, epoch, 10), pb.SealRangeResponse, timeout_s=4),
        lambda: pd.call(pb.DescribeStreamRequest(name="s"), pb.DescribeStreamResponse, timeout_s=4),
    ]
    seen: list[RangelogError] = []
    for call in calls:
        with pytest.raises((Unavailable, OutcomeUnknown)) as caught:
            await call()
        seen.append(caught.value)
    assert isinstance(seen[0], OutcomeUnknown), "the leader had it in its journal: whether it counts is not decided"
    assert isinstance(seen[2], Unavailable), "reading changes nothing"
    async with channel(group.address(leader)) as stub:
        told = await stub.DescribeCluster(pb.DescribeClusterRequest(), timeout=5)
    assert (told.has_majority, told.stream_count) == (False, 1)
    for name in group.names:
        if name != leader:
            group.cluster.start_member(name, wait=False)
    opened = await pd.call(opening, pb.OpenWriterResponse, timeout_s=30)
    assert opened.stream.epoch == epoch + 1, "done once, whenever it was done"
    answer = await pd.call(seal_range(stream_id, 0, epoch + 1, 10), pb.SealRangeResponse, timeout_s=30)
    assert answer.range.end_offset == 10


async def test_a_paused_leader_is_replaced_and_answers_nothing_stale(
    group: Group, pd: PdClient, servers: FakeServers
) -> None:
    """SIGSTOP the leader, let the others go on, SIGCONT it: what it then answers is the newer state, or a refusal."""
    _, epoch = await new_stream(pd)
    leader = await group.leader()
    group.cluster.pause(leader)
    others = PdClient([group.address(name) for name in group.names if name != leader])
    try:
        request = pb.OpenWriterRequest(request_id=uuid.uuid4().hex, name="s")
        assert (await others.call(request, pb.OpenWriterResponse, timeout_s=30)).stream.epoch == epoch + 1
        async with channel(group.address(leader)) as stub:
            reads = [
                asyncio.ensure_future(stub.DescribeStream(pb.DescribeStreamRequest(name="s"), timeout=10))
                for _ in range(20)
            ]
            await asyncio.sleep(0)
            group.cluster.resume(leader)
            for outcome in await asyncio.gather(*reads, return_exceptions=True):
                if isinstance(outcome, BaseException):
                    assert isinstance(outcome, grpc.RpcError)
                    assert from_rpc_error(outcome, leader).retriable
                else:
                    assert outcome.stream.epoch == epoch + 1
    finally:
        group.cluster.resume(leader)
        await others.close()


async def test_a_range_is_sealed_tiered_and_dropped(group: Group, pd: PdClient, servers: FakeServers) -> None:
    """The whole life of a range by real heartbeats, with the leader killed in the middle of the upload."""
    stream_id, epoch = await new_stream(pd)
    made = await pd.call(
        create_range(stream_id, epoch, 0), pb.CreateRangeResponse, timeout_s=CALL_S, wait_for_placement=True
    )
    members = [each.server for each in made.range.replicas]
    for name in members:
        servers.hold(name, stream_id, 0, pb.REPLICA_STATE_OPEN, 10)
    await pd.call(seal_range(stream_id, 0, epoch, 10), pb.SealRangeResponse, timeout_s=CALL_S)
    await until(lambda: set(servers.wanted("seal_replica")) == set(members), "all are told the end")
    for name in members:
        servers.hold(name, stream_id, 0, pb.REPLICA_STATE_SEALED, 10)
    uploader = next(iter(await until(lambda: servers.wanted("upload_range"), "one is told to upload")))
    prepare = pb.PrepareObjectRequest(
        request_id=uuid.uuid4().hex,
        stream_id=stream_id,
        start_offset=0,
        end_offset=10,
        server=uploader,
        incarnation=servers.incarnations[uploader],
    )
    prepared = (await pd.call(prepare, pb.PrepareObjectResponse, timeout_s=CALL_S)).object
    group.cluster.kill(await group.leader())
    commit = pb.CommitObjectRequest(
        request_id=uuid.uuid4().hex,
        object_id=prepared.object_id,
        server=uploader,
        incarnation=servers.incarnations[uploader],
        size_bytes=100,
        digest="sha256:" + "0" * 64,
        epoch=epoch,
    )
    assert (
        await pd.call(commit, pb.CommitObjectResponse, timeout_s=CALL_S)
    ).object.state == common_pb2.OBJECT_STATE_COMMITTED
    assert (await pd.call(commit, pb.CommitObjectResponse, timeout_s=CALL_S)).object.object_id == prepared.object_id
    update = pb.UpdateStreamRequest(
        request_id=uuid.uuid4().hex,
        name="s",
        config=common_pb2.StreamConfig(hot_retention_ms=0),
        fields=["hot_retention_ms"],
    )
    await pd.call(update, pb.UpdateStreamResponse, timeout_s=CALL_S)
    await until(lambda: set(servers.wanted("drop_replica")) == set(members), "all are told to drop it")
    for name in members:
        servers.replicas[name].clear()
    await until(lambda: not servers.wanted("drop_replica"), "nobody is told any more")
    listed = await pd.call(pb.ListRangesRequest(name="s"), pb.ListRangesResponse, timeout_s=CALL_S)
    assert (listed.ranges[0].hot_dropped, listed.ranges[0].tiered_end_offset) == (True, 10)


async def test_bad_requests_get_typed_errors(group: Group, pd: PdClient, servers: FakeServers) -> None:
    """Each wrong request ends in the error that says what is wrong, over the wire, and the driver lives on."""
    stream_id, epoch = await new_stream(pd)
    await pd.call(create_range(stream_id, epoch, 0), pb.CreateRangeResponse, timeout_s=CALL_S, wait_for_placement=True)
    new_id = uuid.uuid4
    cases: list[tuple[type[RangelogError], Any]] = [
        (StreamExists, pb.CreateStreamRequest(request_id=new_id().hex, name="s")),
        (InvalidArgument, pb.CreateStreamRequest(request_id=new_id().hex, name="a/b")),
        (InvalidArgument, pb.CreateStreamRequest(request_id=new_id().hex)),
        (InvalidArgument, pb.CreateStreamRequest(name="no-id")),
        (StreamNotFound, pb.DescribeStreamRequest(name="nobody")),
        (StreamNotFound, pb.OpenWriterRequest(request_id=new_id().hex, name="nobody")),
        (RangeNotFound, seal_range(stream_id, 9, epoch, 1, create_next=False)),
        (StreamNotFound, seal_range(77, 0, epoch, 1)),
        (WriterFenced, seal_range(stream_id, 0, epoch + 5, 1)),
        (OffsetOutOfRange, pb.TrimStreamRequest(request_id=new_id().hex, name="s", trim_offset=5)),
        (InvalidArgument, pb.UpdateStreamRequest(request_id=new_id().hex, name="s")),
        (InvalidArgument, pb.OpenWriterRequest(request_id=new_id().hex, name="s", writer="w" * 200000)),
        (InvalidArgument, pb.CreateStreamRequest(request_id=new_id().hex, name="x" * (17 << 20))),
    ]
    for expected, request in cases:
        response = getattr(pb, type(request).__name__.removesuffix("Request") + "Response")
        with pytest.raises(expected) as caught:
            await pd.call(request, response, timeout_s=10)
        assert "\n" not in str(caught.value)
        assert "Traceback" not in str(caught.value)
    assert (
        await pd.call(pb.DescribeStreamRequest(name="s"), pb.DescribeStreamResponse, timeout_s=5)
    ).stream.epoch == epoch


async def test_too_few_servers_place_nothing(group: Group, pd: PdClient) -> None:
    """Without range servers a range is refused with how many there are; when two come the request succeeds."""
    stream_id, epoch = await new_stream(pd)
    request = create_range(stream_id, epoch, 0)
    async with channel(group.address(await group.leader())) as stub:
        with pytest.raises(grpc.RpcError) as refused:
            await stub.CreateRange(request, timeout=5)
    error = from_rpc_error(refused.value, "the leader")
    assert isinstance(error, NoPlacement)
    assert "0 range servers are alive" in error.message
    servers = FakeServers(pd, "rs1", "rs2")
    await servers.start()
    try:
        assert (
            len(
                (
                    await pd.call(request, pb.CreateRangeResponse, timeout_s=CALL_S, wait_for_placement=True)
                ).range.replicas
            )
            == 2
        )
    finally:
        await servers.stop()


async def refusal_of(call: Callable[[], Awaitable[object]], member: str) -> RangelogError:
    """The error of a call on a member, once that has heard who leads."""

    async def refusal() -> RangelogError | None:
        with pytest.raises(grpc.RpcError) as refused:
            await call()
        error = from_rpc_error(refused.value, member)
        return error if type(error) is not Unavailable else None

    found: RangelogError = await until(refusal, f"{member} does not know who leads")
    return found


async def test_a_follower_names_the_leader_on_the_wire(group: Group, pd: PdClient) -> None:
    """NOT_LEADER carries the leader's address in its details, for reads and commands alike."""
    leader = await group.leader()
    follower = next(name for name in group.names if name != leader)
    async with channel(group.address(follower)) as stub:
        for call in (
            lambda: stub.DescribeStream(pb.DescribeStreamRequest(name="s"), timeout=5),
            lambda: stub.OpenWriter(pb.OpenWriterRequest(request_id="x", name="s"), timeout=5),
        ):
            error = await refusal_of(call, follower)
            assert isinstance(error, NotLeader)
            assert error.address == group.address(leader)


async def test_health_and_reflection_are_served(group: Group, pd: PdClient) -> None:
    """Standard tools can see that it serves, and what."""
    from grpc_health.v1 import health_pb2, health_pb2_grpc
    from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

    await group.leader()
    address = group.cluster.pd_addresses[0]
    async with grpc.aio.insecure_channel(address, options=[("grpc.enable_http_proxy", 0)]) as opened:
        health = health_pb2_grpc.HealthStub(opened)

        async def serving() -> bool:
            return bool((await health.Check(health_pb2.HealthCheckRequest(), timeout=5)).status == 1)

        await until(serving, "it does not serve")
        reflection = reflection_pb2_grpc.ServerReflectionStub(opened)
        question = reflection_pb2.ServerReflectionRequest(list_services="")
        async for answer in reflection.ServerReflectionInfo(iter([question]), timeout=5):
            names = [each.name for each in answer.list_services_response.service]
            assert "rangelog.v1.PlacementDriver" in names


async def test_garbage_on_the_port_harms_nobody(group: Group, pd: PdClient) -> None:
    """Bytes that are no protocol close one connection; the next call is served."""
    host, _, port = group.cluster.pd_addresses[0].rpartition(":")
    for garbage in (b"\x00" * 4096, b"GET / HTTP/1.1\r\n\r\n", os.urandom(65_536)):
        with socket.create_connection((host, int(port)), timeout=5) as connection, contextlib.suppress(OSError):
            connection.sendall(garbage)
            connection.settimeout(5)
            while connection.recv(65_536):
                pass
    await new_stream(pd, "after")
