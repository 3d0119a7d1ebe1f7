"""The server side: what leaves it is one of our errors, a token is needed where one is set, a taken port is an error."""

from __future__ import annotations

import asyncio
import logging
import socket
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from rangelog_core import errors
from rangelog_core.net.grpc_errors import from_rpc_error
from rangelog_core.net.grpc_options import CHANNEL_OPTIONS
from rangelog_core.tokens import TEXT_LENGTH_MAX
from rangelog_core.tracing import CONTEXT_LENGTH_MAX
from rangelog_proto.v1 import common_pb2, pd_pb2
from rangelog_proto.v1.pd_pb2_grpc import PlacementDriverStub
from rangelog_server_common import grpc_server
from rangelog_server_common.grpc_server import GrpcServer


async def _list_servers(address: str, *, token: str | bytes | None = None) -> Any:
    async with grpc.aio.insecure_channel(address, options=CHANNEL_OPTIONS) as channel:
        metadata = [("authorization", token)] if token is not None else []
        try:
            return await PlacementDriverStub(channel).ListServers(
                pd_pb2.ListServersRequest(), timeout=5, metadata=metadata
            )
        except grpc.RpcError as error:
            raise from_rpc_error(error, address) from error


async def _answer(request: Any) -> Any:
    return pd_pb2.ListServersResponse(servers=[common_pb2.Server(name="rs1")])


def _raising(error: BaseException) -> Any:
    async def handler(request: Any) -> Any:
        raise error

    return handler


async def test_our_errors_reach_the_client(start_pd: Any) -> None:
    """A typed error of a handler arrives with its class and details."""
    pd = await start_pd(ListServers=_raising(errors.WriterFenced("a later writer: stop", epoch=9)))
    with pytest.raises(errors.WriterFenced, match="a later writer: stop") as caught:
        await _list_servers(pd.address)
    assert caught.value.epoch == 9


@pytest.mark.parametrize("unknown", [False, True])
async def test_a_closed_client_of_the_server_is_none_of_the_callers(start_pd: Any, unknown: bool) -> None:
    """The server stops, and the same call may succeed at another one."""
    pd = await start_pd(ListServers=_raising(errors.ClientClosed("the client is closed", outcome_unknown=unknown)))
    with pytest.raises(errors.Unavailable, match="the server is stopping") as caught:
        await _list_servers(pd.address)
    assert (type(caught.value), caught.value.retriable) == (errors.Unavailable, True)


@pytest.mark.parametrize("error", [RuntimeError("/etc/secret of tenant A"), KeyError("secret"), OSError(5, "secret")])
async def test_other_exceptions_stay_in_the_log(start_pd: Any, caplog: Any, error: Exception) -> None:
    """The text of an unexpected exception is logged and never sent."""
    pd = await start_pd(ListServers=_raising(error))
    with caplog.at_level(logging.ERROR), pytest.raises(errors.InternalError) as caught:
        await _list_servers(pd.address)
    assert "secret" not in caught.value.message
    assert "secret" in caplog.text


async def test_error_with_a_huge_message(start_pd: Any) -> None:
    """An error that quotes a megabyte of the caller's words still arrives as itself."""
    pd = await start_pd(ListServers=_raising(errors.StreamNotFound("no stream " + "€" * 1_000_000)))
    with pytest.raises(errors.StreamNotFound):
        await _list_servers(pd.address)


async def test_slow_handler_is_cut_off(start_pd: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A handler that never ends is ended by the server, whatever the client allows it."""
    monkeypatch.setattr(grpc_server, "CALL_TIMEOUT_S", 0.05)
    ended = asyncio.Event()

    async def never(request: Any) -> Any:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    pd = await start_pd(ListServers=never)
    with pytest.raises(errors.RequestTimeout):
        await _list_servers(pd.address)
    assert ended.is_set()


@pytest.mark.parametrize("token", [None, "", "Bearer", "Bearer wrong", "Bearer s3cret2", "s3cret", "bearer s3cret"])
async def test_wrong_token(start_pd: Any, token: str | None) -> None:
    """Without the exact token nothing is served, and the handler does not run."""
    pd = await start_pd(token="s3cret", ListServers=_answer)
    with pytest.raises(errors.Unauthorized, match="RANGELOG_TOKEN"):
        await _list_servers(pd.address, token=token)
    assert pd.calls == []


async def test_right_token(start_pd: Any) -> None:
    """With the token calls are served; a server without a token takes any."""
    guarded, open_ = await start_pd(token="s3cret", ListServers=_answer), await start_pd(ListServers=_answer)
    assert len((await _list_servers(guarded.address, token="Bearer s3cret")).servers) == 1
    assert len((await _list_servers(open_.address, token="Bearer whatever")).servers) == 1


async def test_metadata_at_its_limits_is_always_taken(start_pd: Any) -> None:
    """The longest token with the longest trace, in each of many calls: gRPC refuses by chance what is over its own limit."""
    token = "x" * TEXT_LENGTH_MAX
    pd = await start_pd(token=token, ListServers=_answer)
    trace = [("traceparent", f"00-{'a' * 32}-{'b' * 16}-01"), ("tracestate", "k=" + "v" * (CONTEXT_LENGTH_MAX - 2))]
    metadata = [("authorization", f"Bearer {token}"), *trace]
    async with grpc.aio.insecure_channel(pd.address, options=CHANNEL_OPTIONS) as channel:
        for _ in range(100):
            await PlacementDriverStub(channel).ListServers(pd_pb2.ListServersRequest(), timeout=5, metadata=metadata)


async def test_what_clients_may_not_call_is_not_held(start_pd: Any) -> None:
    """Without certificates a server is nobody that is known: its calls would count as those of a client without a name."""
    held: list[str] = []

    async def hold(principal: object, method: str, *_: object) -> None:
        held.append(method)

    pd = await start_pd(ListServers=_answer, ListTasks=_answer_tasks)
    pd.server.hold_by(hold)
    async with grpc.aio.insecure_channel(pd.address, options=CHANNEL_OPTIONS) as channel:
        await PlacementDriverStub(channel).ListTasks(pd_pb2.ListTasksRequest(), timeout=5)
        await PlacementDriverStub(channel).ListServers(pd_pb2.ListServersRequest(), timeout=5)
    assert held == ["/rangelog.v1.PlacementDriver/ListServers"]


async def _answer_tasks(request: object) -> pd_pb2.ListTasksResponse:
    return pd_pb2.ListTasksResponse()


async def test_unknown_service() -> None:
    """A server that is no placement driver (a range server's port, say) is a typed error that says what may be wrong."""
    server = GrpcServer()
    try:
        port = await server.start("127.0.0.1:0", ())
        with pytest.raises(errors.UnsupportedVersion, match=r"an earlier version .*, or another port\?"):
            await _list_servers(f"127.0.0.1:{port}")
    finally:
        await server.stop(0)


async def test_message_over_the_limit(start_pd: Any) -> None:
    """A request above the limit is refused before a handler sees it, and the server goes on serving."""
    pd = await start_pd(ListServers=_answer, DescribeStream=_answer)
    huge = pd_pb2.DescribeStreamRequest(name="x" * 17 * 1024 * 1024)
    options = [("grpc.max_send_message_length", -1)]
    async with grpc.aio.insecure_channel(pd.address, options=options) as channel:
        with pytest.raises(grpc.RpcError) as caught:
            await PlacementDriverStub(channel).DescribeStream(huge, timeout=10)
    assert type(from_rpc_error(caught.value, "pd")) is errors.InvalidArgument
    assert pd.calls == []
    assert (await _list_servers(pd.address)).servers[0].name == "rs1"


async def test_garbage_on_the_port(start_pd: Any) -> None:
    """Bytes that are no HTTP/2 end that connection only."""
    pd = await start_pd(ListServers=_answer)
    host, port = pd.address.split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(b"\x00GET / HTTP/1.1\r\n\r\n" * 200)
    async with asyncio.timeout(10):
        while await reader.read(4096):
            pass
    writer.close()
    assert (await _list_servers(pd.address)).servers[0].name == "rs1"


async def test_a_slow_connection_is_waited_for(start_pd: Any) -> None:
    """A process that is far, or busy, takes its time for the handshake: a call that is tried once is answered all the same."""
    pd = await start_pd(ListServers=_answer)
    tasks: list[asyncio.Task[None]] = []

    async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65_536):
            writer.write(data)
        writer.close()

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        has_come = asyncio.Event()
        asyncio.get_running_loop().call_later(0.3, has_come.set)  # as over a long way
        await has_come.wait()
        behind_reader, behind_writer = await asyncio.open_connection(*pd.address.split(":"))
        tasks.extend(map(asyncio.create_task, (pass_on(reader, behind_writer), pass_on(behind_reader, writer))))

    async with await asyncio.start_server(relay, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        assert len((await _list_servers(f"127.0.0.1:{port}")).servers) == 1
    await asyncio.gather(*tasks)


async def test_taken_port() -> None:
    """A second listener on a port is refused in one line, be the first one gRPC or not."""
    first, second, third = GrpcServer(), GrpcServer(), GrpcServer()
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        try:
            port = await first.start("127.0.0.1:0", ())
            with pytest.raises(errors.Unavailable, match=f"127.0.0.1:{port}.*taken"):
                await second.start(f"127.0.0.1:{port}", ())
            with pytest.raises(errors.Unavailable, match="taken"):
                await third.start(f"127.0.0.1:{other.getsockname()[1]}", ())
        finally:
            for server in (first, second, third):
                await server.stop(0)


async def test_health_and_reflection(start_pd: Any) -> None:
    """Health follows set_serving, reflection lists the services; both without a token."""
    pd = await start_pd(token="s3cret")
    async with grpc.aio.insecure_channel(pd.address, options=CHANNEL_OPTIONS) as channel:
        health = health_pb2_grpc.HealthStub(channel)
        for serving in (True, False):
            await pd.server.set_serving(serving)
            for name in ("", "rangelog.v1.PlacementDriver"):
                answer = await health.Check(health_pb2.HealthCheckRequest(service=name), timeout=5)
                assert (answer.status == health_pb2.HealthCheckResponse.SERVING) is serving
        request = reflection_pb2.ServerReflectionRequest(list_services="")
        replies = reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo(iter([request]), timeout=5)
        names = [each.name async for reply in replies for each in reply.list_services_response.service]
    assert "rangelog.v1.PlacementDriver" in names and "grpc.health.v1.Health" in names
