"""The client of the placement drivers: finds the leader, repeats what may be repeated, ends by its deadline."""

from __future__ import annotations

import asyncio
import socket
import struct
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from rangelog_core import errors
from rangelog_core.errors import RangelogError
from rangelog_core.net import pd_client
from rangelog_core.net.pd_client import PdClient
from rangelog_proto.v1 import common_pb2, pd_pb2
from tests.support.call_clock import CallClock

Connect = Callable[..., PdClient]


@pytest.fixture
async def connect() -> AsyncIterator[Connect]:
    """`connect(address, …, token=…)`: a client that is closed in the end."""
    made: list[PdClient] = []

    def connect(*endpoints: str, **options: Any) -> PdClient:
        made.append(PdClient(endpoints, **options))
        return made[-1]

    yield connect
    for client in made:
        await client.close()


async def _answer(request: Any) -> pd_pb2.ListServersResponse:
    return pd_pb2.ListServersResponse(servers=[common_pb2.Server(name="rs1")])


def _raising(error: RangelogError) -> Any:
    async def handler(request: Any) -> Any:
        raise error

    return handler


def _in_turn(*steps: RangelogError | Any) -> Any:
    """Raises or returns the steps one after the other, the last one for ever."""
    left = list(steps)

    async def handler(request: Any) -> Any:
        step = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(step, RangelogError):
            raise step
        return step

    return handler


async def _servers(client: PdClient, timeout_s: float = 5.0) -> list[str]:
    response = await client.call(pd_pb2.ListServersRequest(), pd_pb2.ListServersResponse, timeout_s=timeout_s)
    return [each.name for each in response.servers]


@pytest.mark.parametrize(
    "endpoints", [[], ["nonsense"], ["host:"], [":7100"], ["host:0"], ["host:65536"], ["h:7x"], [""]]
)
def test_bad_endpoints(endpoints: list[str]) -> None:
    """An endpoint that is no host:port is refused at once."""
    with pytest.raises(errors.InvalidArgument):
        PdClient(endpoints)


async def test_follows_the_hint(start_pd: Any, connect: Connect) -> None:
    """A follower's hint is followed, also to a leader that was not among the endpoints, and the leader is remembered."""
    leader = await start_pd(ListServers=_answer)
    follower = await start_pd(ListServers=_raising(errors.NotLeader("not me", address=leader.address)))
    client = connect(follower.address)
    for _ in range(3):
        assert await _servers(client) == ["rs1"]
    assert (len(follower.calls), len(leader.calls)) == (1, 3)


async def test_leader_changes(start_pd: Any, connect: Connect) -> None:
    """When the leader steps down, the client goes on to the new one without an error."""
    first, second = await start_pd(ListServers=_answer), await start_pd()
    second.on("ListServers", _raising(errors.NotLeader("not me", address=first.address)))
    client = connect(first.address, second.address)
    await _servers(client)
    first.on("ListServers", _raising(errors.NotLeader("not me", address=second.address)))
    second.on("ListServers", _answer)
    assert await _servers(client) == ["rs1"]
    assert await _servers(client) == ["rs1"]
    assert len(first.calls) == 2


async def test_members_that_are_down(start_pd: Any, connect: Connect, dead_address: str) -> None:
    """A member that refuses connections is passed over, whether it is an endpoint or hinted at."""
    leader = await start_pd(ListServers=_answer)
    assert await _servers(connect(dead_address, leader.address)) == ["rs1"]
    stale = await start_pd(
        ListServers=_in_turn(errors.NotLeader("not me", address=dead_address), pd_pb2.ListServersResponse())
    )
    assert await _servers(connect(stale.address)) == []
    assert len(stale.calls) == 2


async def test_hung_member(start_pd: Any, connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    """A member that takes the call and never answers costs one try, not the whole deadline."""
    monkeypatch.setattr(pd_client, "TRY_TIMEOUT_S", 0.1)

    async def never(request: Any) -> Any:
        monkeypatch.setattr(pd_client, "TRY_TIMEOUT_S", 5.0)  # of the next tries, however busy the machine is
        await asyncio.Event().wait()

    async def once_the_other_hangs(request: Any) -> pd_pb2.ListServersResponse:
        if not hung.calls:
            raise errors.NotLeader("not yet")
        return await _answer(request)

    hung, leader = await start_pd(ListServers=never), await start_pd(ListServers=once_the_other_hangs)
    client = connect(hung.address, leader.address)
    assert await _servers(client) == ["rs1"]
    await _servers(client)
    assert len(hung.calls) == 1


async def test_election(start_pd: Any, connect: Connect) -> None:
    """While nobody leads the client waits and asks again, with the same request id."""
    no_leader = errors.NotLeader("no leader is known")
    pd = await start_pd(
        CreateStream=_in_turn(
            no_leader,
            errors.OutcomeUnknown("perhaps"),
            errors.Unavailable("not now"),
            errors.RequestTimeout("no answer"),
            pd_pb2.CreateStreamResponse(stream=common_pb2.Stream(name="s")),
        )
    )
    request = pd_pb2.CreateStreamRequest(request_id="r1", name="s")
    response = await connect(pd.address).call(request, pd_pb2.CreateStreamResponse, timeout_s=10)
    assert response.stream.name == "s"
    assert [each.request_id for _, each in pd.calls] == ["r1"] * 5


async def test_nobody_answers(connect: Connect, dead_address: str) -> None:
    """Without a majority the call ends, not before its deadline, in one line that names the endpoints and what to check."""
    begun = time.monotonic()
    with pytest.raises(errors.Unavailable, match=f"{dead_address}.*majority") as caught:
        await _servers(connect(dead_address), timeout_s=0.4)
    assert time.monotonic() - begun > 0.3
    assert "\n" not in caught.value.message


@pytest.mark.measure
async def test_a_deadline_is_kept(connect: Connect, dead_address: str) -> None:
    """A call of 0.4 s that nobody answers ends within two."""
    begun = time.monotonic()
    with pytest.raises(errors.Unavailable):
        await _servers(connect(dead_address), timeout_s=0.4)
    assert time.monotonic() - begun < 2.0


async def test_a_web_server_that_resets_is_another_program(connect: Connect) -> None:
    """A reset that overtakes the web server's reply is not taken for a placement driver that starts."""
    accepted = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal accepted
        accepted += 1
        await reader.read(4096)
        if accepted == 1:
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        else:
            writer.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        with pytest.raises(errors.Unavailable, match=f"no placement driver at {address}: .*another program"):
            await _servers(connect(address, first_contact_s=0.1), timeout_s=3_600.0)
        assert accepted > 1


async def test_members_that_send_us_round(start_pd: Any, connect: Connect) -> None:
    """Two members that name each other as leader do not make a storm: the tries are paced and end by the deadline."""
    one, two = await start_pd(), await start_pd()
    one.on("ListServers", _raising(errors.NotLeader("not me", address=two.address)))
    two.on("ListServers", _raising(errors.NotLeader("not me", address=one.address)))
    with pytest.raises(errors.Unavailable):
        await _servers(connect(one.address, two.address), timeout_s=0.6)
    assert 2 <= len(one.calls) + len(two.calls) < 20


@pytest.mark.parametrize("hint", ["", "nonsense", "no.such.host.invalid:7100", "127.0.0.1:99999", "\x00:1"])
async def test_useless_hints(start_pd: Any, connect: Connect, clock: CallClock, hint: str) -> None:
    """A hint that leads nowhere is an error of ours once the call's time is over; members that are known are asked again."""
    pd = await start_pd(ListServers=_raising(errors.NotLeader("not me", address=hint)))
    with pytest.raises(errors.Unavailable):
        clock.pauses_left = 3
        await _servers(connect(pd.address), timeout_s=60)
    assert len(pd.calls) >= 2


@pytest.mark.parametrize(
    "error",
    [
        errors.StreamNotFound("none"),
        errors.InvalidArgument("bad"),
        errors.WriterFenced("later", epoch=4),
        errors.PreconditionFailed("first"),
        errors.NoPlacement("no place"),
    ],
)
async def test_answers_are_not_repeated(start_pd: Any, connect: Connect, error: RangelogError) -> None:
    """An error that is an answer comes back at once, as itself, after one try."""
    pd = await start_pd(SealRange=_raising(error))
    with pytest.raises(type(error)) as caught:
        await connect(pd.address).call(pd_pb2.SealRangeRequest(), pd_pb2.SealRangeResponse, timeout_s=5)
    assert caught.value.epoch == error.epoch
    assert len(pd.calls) == 1


async def test_waits_for_a_place(start_pd: Any, connect: Connect) -> None:
    """Creating a range waits for range servers to come up; test_pd_client_outcomes.py has what it says if they do not."""
    found = pd_pb2.CreateRangeResponse(range=common_pb2.Range(index=3))
    pd = await start_pd(CreateRange=_in_turn(errors.NoPlacement("two needed"), found))
    assert (
        await connect(pd.address).call(
            pd_pb2.CreateRangeRequest(), pd_pb2.CreateRangeResponse, timeout_s=5, wait_for_placement=True
        )
    ).range.index == 3


async def test_token(start_pd: Any, connect: Connect) -> None:
    """The token is sent with every call; a wrong one is an answer, not a reason to try again."""
    pd = await start_pd(token="s3cret", ListServers=_answer)
    assert await _servers(connect(pd.address, token="s3cret")) == ["rs1"]
    with pytest.raises(errors.Unauthorized):
        await _servers(connect(pd.address, token="wrong"), timeout_s=3_600.0)


async def test_many_calls_at_once(start_pd: Any, connect: Connect) -> None:
    """Concurrent calls share one channel a member, and each gets its own answer."""

    async def describe(request: Any) -> Any:
        await asyncio.sleep(0)
        return pd_pb2.DescribeStreamResponse(stream=common_pb2.Stream(name=request.name))

    leader = await start_pd(DescribeStream=describe)
    follower = await start_pd(DescribeStream=_raising(errors.NotLeader("not me", address=leader.address)))
    client = connect(follower.address, leader.address)
    requests = [pd_pb2.DescribeStreamRequest(name=f"s{number}") for number in range(200)]
    answers = await asyncio.gather(
        *(client.call(each, pd_pb2.DescribeStreamResponse, timeout_s=10) for each in requests)
    )
    assert [each.stream.name for each in answers] == [each.name for each in requests]
    assert len(client._channels) == 2


async def test_closed_client(start_pd: Any, connect: Connect) -> None:
    """After close, and for a call that close meets under way, there is an error of ours at once."""
    reached = asyncio.Event()

    async def never(request: Any) -> Any:
        reached.set()
        await asyncio.Event().wait()

    pd = await start_pd(ListServers=never)
    client = connect(pd.address)
    call = asyncio.create_task(_servers(client, timeout_s=30))
    await reached.wait()
    await client.close()
    await client.close()
    async with asyncio.timeout(5):
        with pytest.raises(errors.ClientClosed, match="closed"):
            await call
        with pytest.raises(errors.ClientClosed, match="closed"):
            await _servers(client)


async def test_a_call_of_a_closed_client_is_not_retriable(start_pd: Any, connect: Connect) -> None:
    """A loop that repeats what is retriable ends."""
    pd = await start_pd(ListServers=_answer)
    client = connect(pd.address)
    assert await _servers(client) == ["rs1"]
    await client.close()
    with pytest.raises(errors.ClientClosed, match="the client is closed") as raised:
        await _servers(client)
    assert isinstance(raised.value, errors.Unavailable)
    assert (raised.value.retriable, raised.value.outcome_unknown) == (False, False)


async def test_cancelled_call(start_pd: Any, connect: Connect) -> None:
    """A caller that is cancelled is cancelled, and its call ends at the server; the client stays usable."""
    reached, ended = asyncio.Event(), asyncio.Event()

    async def never(request: Any) -> Any:
        reached.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    pd = await start_pd(ListServers=never)
    client = connect(pd.address)
    call = asyncio.create_task(_servers(client, timeout_s=30))
    await reached.wait()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    async with asyncio.timeout(5):
        await ended.wait()
    pd.on("ListServers", _answer)
    assert await _servers(client) == ["rs1"]


async def test_answer_over_the_limit(start_pd: Any, connect: Connect) -> None:
    """An answer above the message limit is an error of ours; nothing of gRPC comes through."""

    async def huge(request: Any) -> Any:
        return pd_pb2.ListServersResponse(servers=[common_pb2.Server(name="x" * 17 * 1024 * 1024)])

    pd = await start_pd(ListServers=huge)
    with pytest.raises(RangelogError):
        await _servers(connect(pd.address), timeout_s=5)
