"""The client's end of the data plane, against range servers that answer what a test says: well, late, wrong, or garbage."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from rangelog_core import errors
from rangelog_core.errors import RangelogError
from rangelog_core.frame import Frame, FrameDecoder, Opcode, encode_frame
from rangelog_core.limits import FRAME_MESSAGE_BYTES_MAX, FRAME_PAYLOAD_BYTES_MAX
from rangelog_core.net.data_connection import DataConnection, DataConnections, replica_id
from rangelog_core.versions import BATCH_HEADER_EXTENSION, DATA_PLANE_VERSIONS
from rangelog_proto.v1 import data_pb2
from tests.support.waiting import until

REPLICA = replica_id("rs1", 0xABC)
Answer = Callable[[Frame], bytes]


def _greeting(frame: Frame, **fields: Any) -> bytes:
    return encode_frame(Opcode.HELLO_REPLY, frame.request_id, data_pb2.HelloReply(**fields).SerializeToString())


class FakeServer:
    """Answers frames: hello as it should be unless `answers` says else; bytes go out as they are."""

    def __init__(self) -> None:
        self.answers: dict[Opcode, Answer] = {
            Opcode.HELLO: lambda frame: _greeting(frame, protocol_version=DATA_PLANE_VERSIONS.highest)
        }
        self.frames: list[Frame] = []
        self.writers: list[asyncio.StreamWriter] = []
        self.ended = 0
        self.address = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writers.append(writer)
        decoder = FrameDecoder(message_bytes_max=FRAME_MESSAGE_BYTES_MAX, payload_bytes_max=FRAME_PAYLOAD_BYTES_MAX)
        try:
            while data := await reader.read(4096):
                decoder.get_buffer()[: len(data)] = data
                for frame in decoder.received(len(data)):
                    self.frames.append(frame)
                    answer = self.answers.get(frame.opcode, lambda _: b"")(frame)
                    writer.write(answer)
        except ConnectionError:
            pass
        finally:
            self.ended += 1
            writer.close()

    def say(self, data: bytes) -> None:
        """Send to everybody who is connected."""
        for writer in self.writers:
            writer.write(data)

    def hang_up(self) -> None:
        """End all connections."""
        for writer in self.writers:
            writer.close()


StartServer = Callable[..., Awaitable[FakeServer]]


@pytest.fixture
async def start_server() -> AsyncIterator[StartServer]:
    """`await start_server()`: a range server's data port at `.address`."""
    listening: list[tuple[asyncio.Server, FakeServer]] = []

    async def start() -> FakeServer:
        fake = FakeServer()
        server = await asyncio.start_server(fake.serve, "127.0.0.1", 0)
        listening.append((server, fake))
        fake.address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        return fake

    yield start
    for server, fake in listening:
        fake.hang_up()
        server.close()
        await server.wait_closed()


class Listener:
    """Notes what it is told."""

    def __init__(self) -> None:
        self.told: list[Any] = []

    def append_replied(self, reply: data_pb2.AppendReply) -> None:
        self.told.append(reply.durable_offset)

    def append_refused(self, error: RangelogError) -> None:
        self.told.append(error)

    def connection_closed(self, error: RangelogError) -> None:
        self.told.append(("closed", error))


def _error(request_id: int, error: RangelogError, stream_id: int = 0, range_index: int = 0) -> bytes:
    told = data_pb2.Error(
        code=error.code, message=error.message, epoch=error.epoch or 0, stream_id=stream_id, range_index=range_index
    )
    return encode_frame(Opcode.ERROR, request_id, told.SerializeToString())


async def test_hello_names_both_ends(start_server: StartServer) -> None:
    """Hello carries the token, and the server and incarnation that are meant."""
    server = await start_server()
    connection = await DataConnection.connect(server.address, REPLICA, token="s3cret", client_name="me/1")
    hello = data_pb2.Hello.FromString(server.frames[0].message)
    assert (hello.server, hello.incarnation, hello.token, hello.client) == ("rs1", 0xABC, "s3cret", "me/1")
    connection.close()
    await until(lambda: server.ended == 1)


async def test_hello_announces_versions_and_features(start_server: StartServer) -> None:
    """The client offers all that it supports; what the server chose is in force, with the features that both announce."""
    server = await start_server()
    server.answers[Opcode.HELLO] = lambda frame: _greeting(
        frame, protocol_version=DATA_PLANE_VERSIONS.highest, features=[BATCH_HEADER_EXTENSION, "of-a-newer-server"]
    )
    connection = await DataConnection.connect(server.address, REPLICA)
    hello = data_pb2.Hello.FromString(server.frames[0].message)
    assert (hello.protocol_version_min, hello.protocol_version) == DATA_PLANE_VERSIONS
    assert list(hello.features) == [BATCH_HEADER_EXTENSION]
    assert connection.protocol_version == DATA_PLANE_VERSIONS.highest
    assert connection.features == {BATCH_HEADER_EXTENSION}
    connection.close()


@pytest.mark.parametrize(
    ("message", "problem"),
    [
        (data_pb2.HelloReply(protocol_version=99).SerializeToString(), "chose version 99 .* offered 1"),
        (b"", "chose version 0"),
        (b"\xff\xff", "malformed"),
    ],
)
async def test_a_choice_that_was_not_offered(start_server: StartServer, message: bytes, problem: str) -> None:
    """A server that chooses another version than was offered, or answers garbage, is refused and disconnected."""
    server = await start_server()
    server.answers[Opcode.HELLO] = lambda frame: encode_frame(Opcode.HELLO_REPLY, frame.request_id, message)
    with pytest.raises(errors.ProtocolViolation, match=problem):
        await DataConnection.connect(server.address, REPLICA)
    await until(lambda: server.ended == 1)


@pytest.mark.parametrize(
    "error",
    [
        errors.WrongServer("another one"),
        errors.Unauthorized("no token"),
        errors.UnsupportedVersion("upgrade the range server"),
    ],
)
async def test_refused_hello(start_server: StartServer, error: RangelogError) -> None:
    """A hello that is refused raises what the server said, and leaves no connection open."""
    server = await start_server()
    server.answers[Opcode.HELLO] = lambda frame: _error(frame.request_id, error)
    with pytest.raises(type(error), match=error.message):
        await DataConnection.connect(server.address, REPLICA)
    await until(lambda: server.ended == 1)


async def test_nobody_there(dead_address: str) -> None:
    """A port that refuses, and a host that does not exist, are unavailable, in words that name the server."""
    for address in (dead_address, "no.such.host.invalid:1"):
        with pytest.raises(errors.Unavailable, match=r"range server rs1 at .* cannot be reached"):
            await DataConnection.connect(address, REPLICA)


async def test_silent_server(start_server: StartServer) -> None:
    """A server that takes the connection and never answers is a timeout, and the connection is closed."""
    server = await start_server()
    server.answers[Opcode.HELLO] = lambda _: b""
    with pytest.raises(errors.RequestTimeout):
        await DataConnection.connect(server.address, REPLICA, timeout_s=0.1)
    await until(lambda: server.ended == 1)


async def test_replies_by_id(start_server: StartServer) -> None:
    """Replies in another order, and in single bytes, reach the requests that they answer."""
    server = await start_server()
    connection = await DataConnection.connect(server.address, REPLICA)
    calls = [asyncio.create_task(connection.request(Opcode.FETCH, b"", timeout_s=10)) for _ in range(3)]
    await until(lambda: len(server.frames) == 4)
    for frame in reversed(server.frames[1:]):
        for byte in encode_frame(Opcode.FETCH_REPLY, frame.request_id, b"", b"p%d" % frame.request_id):
            server.say(bytes([byte]))
            await asyncio.sleep(0)
    replies = await asyncio.gather(*calls)
    assert [reply.payload for reply in replies] == [b"p%d" % frame.request_id for frame in server.frames[1:]]
    connection.close()


async def test_late_and_unasked_replies(start_server: StartServer) -> None:
    """A reply that comes after its timeout, or that nobody asked for, changes nothing."""
    server = await start_server()
    connection = await DataConnection.connect(server.address, REPLICA)
    with pytest.raises(errors.RequestTimeout):
        await connection.request(Opcode.FETCH, b"", timeout_s=0.05)
    server.say(encode_frame(Opcode.FETCH_REPLY, server.frames[-1].request_id, b"late"))
    server.say(encode_frame(Opcode.FETCH_REPLY, 4_000_000_000, b"unasked"))
    server.answers[Opcode.FETCH] = lambda frame: encode_frame(Opcode.FETCH_REPLY, frame.request_id, b"")
    assert (await connection.request(Opcode.FETCH, b"", timeout_s=5)).opcode is Opcode.FETCH_REPLY
    connection.close()


async def test_a_peer_that_went_silent_is_given_up(start_server: StartServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """When a request times out and nothing at all came meanwhile, the connection is closed: the next one is a new one."""
    monkeypatch.setattr("rangelog_core.net.data_connection.SILENT_S", 0.05)
    server = await start_server()
    connection = await DataConnection.connect(server.address, REPLICA)
    with pytest.raises(errors.RequestTimeout):
        await connection.request(Opcode.FETCH, b"", timeout_s=0.05)
    assert isinstance(connection.closed, errors.RequestTimeout)


def _header_of(size: int) -> bytes:
    """The header of a frame whose payload is `size` bytes, without the payload."""
    from rangelog_core.frame import encode_head

    return encode_head(Opcode.FETCH_REPLY, 1, b"", size)


@pytest.mark.parametrize(
    "garbage",
    [
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"\x00" * 100,
        encode_frame(Opcode.FETCH_REPLY, 1, b"")[:-1] + b"\x00",
        _header_of(FRAME_PAYLOAD_BYTES_MAX + 1),
        _header_of((1 << 32) - 1),
        encode_frame(Opcode.APPEND_REPLY, 0, b"\xff\xff\xff"),
        encode_frame(Opcode.ERROR, 0, b"\xff\xff\xff"),
    ],
    ids=["http", "zeros", "bad-crc", "too-large", "largest", "bad-append-reply", "bad-error"],
)
async def test_garbage(start_server: StartServer, garbage: bytes) -> None:
    """Bytes that are no frames end the connection: all who wait get a protocol violation that names the server."""
    server = await start_server()
    connection = await DataConnection.connect(server.address, REPLICA)
    listener = Listener()
    connection.listen(1, 0, listener)
    waiting = asyncio.create_task(connection.request(Opcode.FETCH, b"", timeout_s=10))
    await until(lambda: len(server.frames) == 2)
    server.say(garbage)
    with pytest.raises(errors.ProtocolViolation, match="rs1"):
        await waiting
    assert [each[0] for each in listener.told] == ["closed"]
    with pytest.raises(errors.ProtocolViolation):
        await connection.request(Opcode.FETCH, b"", timeout_s=5)
    connection.send(Opcode.CONFIRM, b"")  # does nothing
    await until(lambda: server.ended == 1)


async def test_server_goes_away(start_server: StartServer) -> None:
    """When the server hangs up, all who wait hear it once, as unavailable."""
    server = await start_server()
    connection = await DataConnection.connect(server.address, REPLICA)
    listeners = [Listener(), Listener(), Listener()]
    for index, listener in enumerate(listeners):
        connection.listen(1, index, listener)
    connection.unlisten(1, 2)
    waiting = asyncio.create_task(connection.request(Opcode.FETCH, b"", timeout_s=10))
    await until(lambda: len(server.frames) == 2)
    server.hang_up()
    with pytest.raises(errors.Unavailable):
        await waiting
    connection.close()
    assert [len(listener.told) for listener in listeners] == [1, 1, 0]


async def test_replies_to_appends(start_server: StartServer) -> None:
    """Replies and refusals of appends go to their range's listener; those of other ranges to nobody."""
    server = await start_server()
    connection = await DataConnection.connect(server.address, REPLICA)
    first, second = Listener(), Listener()
    connection.listen(7, 0, first)
    connection.listen(7, 1, second)
    for index, offset in ((0, 10), (1, 20), (2, 30), (0, 11)):
        reply = data_pb2.AppendReply(stream_id=7, range_index=index, durable_offset=offset)
        server.say(encode_frame(Opcode.APPEND_REPLY, 0, reply.SerializeToString()))
    server.say(_error(99, errors.WriterFenced("a later writer", epoch=5), stream_id=7, range_index=1))
    server.say(_error(98, errors.WriterFenced("a later writer", epoch=5), stream_id=8, range_index=1))
    await until(lambda: len(second.told) == 2)
    assert first.told == [10, 11]
    assert second.told[0] == 20
    assert isinstance(second.told[1], errors.WriterFenced) and second.told[1].epoch == 5
    assert connection.closed is None
    connection.close()


async def test_one_frame_for_many_ranges(start_server: StartServer) -> None:
    """A reply tells the listeners of all its ranges; confirms said in one turn of the loop share a frame."""
    server = await start_server()
    connection = await DataConnection.connect(server.address, REPLICA)
    listeners = [Listener() for _ in range(3)]
    connection.listen(7, 0, listeners[0])
    connection.confirm(7, 0, 1, 5)
    await until(lambda: len(server.frames) == 2)
    for index in (1, 2):
        connection.listen(7, index, listeners[index])
    for index in (0, 1, 2):
        connection.confirm(7, index, 1, 10 + index)
    await until(lambda: len(server.frames) == 3)
    said = [data_pb2.Confirm.FromString(frame.message) for frame in server.frames[1:]]
    assert [(said[0].confirm_offset, len(said[0].others)), len(said[1].others)] == [(5, 0), 2]
    assert [said[1].confirm_offset] + [each.confirm_offset for each in said[1].others] == [10, 11, 12]
    reply = data_pb2.AppendReply(stream_id=7, range_index=0, durable_offset=20)
    for index in (1, 2, 3):
        reply.others.add(stream_id=7, range_index=index, durable_offset=20 + index)
    server.say(encode_frame(Opcode.APPEND_REPLY, 0, reply.SerializeToString()))
    await until(lambda: bool(listeners[2].told))
    assert [listener.told for listener in listeners] == [[20], [21], [22]]
    connection.close()


async def test_frames_of_one_turn_arrive_in_order(start_server: StartServer) -> None:
    """The first goes at once, the others at the end of the turn; a later turn begins anew. Nothing overtakes."""
    server = await start_server()
    connection = await DataConnection.connect(server.address, REPLICA)
    for turn in range(3):
        for number in range(5):
            payload = [bytes([turn, number]) * 1000] * (number % 3)
            connection.send(Opcode.APPEND, bytes([turn, number]), payload)
        connection.send_encoded((encode_frame(Opcode.CONFIRM, 0, bytes([turn])),))
        await asyncio.sleep(0)
    await until(lambda: len(server.frames) == 1 + 3 * 6)
    said = [frame.message for frame in server.frames[1:]]
    assert said == [m for turn in range(3) for m in [*(bytes([turn, number]) for number in range(5)), bytes([turn])]]
    assert [len(frame.payload) for frame in server.frames[1:7]] == [0, 2000, 4000, 0, 2000, 0]
    connection.send(Opcode.CONFIRM, b"at once")
    connection.send(Opcode.CONFIRM, b"with the next")
    connection.close()
    connection.send(Opcode.CONFIRM, b"after the end")
    await asyncio.sleep(0)  # the end of the turn finds it closed


async def test_error_about_the_connection(start_server: StartServer) -> None:
    """An error in answer to nothing is about the connection, and ends it with that error."""
    server = await start_server()
    connection = await DataConnection.connect(server.address, REPLICA)
    waiting = asyncio.create_task(connection.request(Opcode.FETCH, b"", timeout_s=10))
    await until(lambda: len(server.frames) == 2)
    server.say(_error(0, errors.ProtocolViolation("your frame is too large")))
    with pytest.raises(errors.ProtocolViolation, match="too large"):
        await waiting


async def test_refused_appends_that_nobody_waits_for(start_server: StartServer) -> None:
    """Appends have no request id: a refusal of one whose writer is gone is for nobody, and others go on undisturbed."""
    server = await start_server()
    connection = await DataConnection.connect(server.address, REPLICA)
    gone, other = Listener(), Listener()
    connection.listen(7, 0, gone)
    connection.listen(8, 0, other)
    for _ in range(2):
        server.say(_error(0, errors.WriterFenced("a later writer", epoch=5), stream_id=7))
        await until(lambda: len(gone.told) == 1)
        connection.unlisten(7, 0)
    reply = data_pb2.AppendReply(stream_id=8, durable_offset=3)
    server.say(encode_frame(Opcode.APPEND_REPLY, 0, reply.SerializeToString()))
    await until(lambda: bool(other.told))
    assert other.told == [3] and connection.closed is None
    connection.close()


async def test_a_peer_that_vanishes_is_noticed(start_server: StartServer) -> None:
    """The kernel asks an idle peer whether it is there, and gives up on one that does not acknowledge, within a minute."""
    server = await start_server()
    connection = await DataConnection.connect(server.address, REPLICA)
    assert connection._transport is not None
    end = connection._transport.get_extra_info("socket")
    asked = {
        name: end.getsockopt(level, getattr(socket, name))
        for level, name in (
            (socket.SOL_SOCKET, "SO_KEEPALIVE"),
            (socket.IPPROTO_TCP, "TCP_KEEPIDLE"),
            (socket.IPPROTO_TCP, "TCP_KEEPINTVL"),
            (socket.IPPROTO_TCP, "TCP_KEEPCNT"),
            (socket.IPPROTO_TCP, "TCP_USER_TIMEOUT"),
        )
    }
    assert asked["SO_KEEPALIVE"] == 1
    assert 0 < asked["TCP_KEEPIDLE"] + asked["TCP_KEEPINTVL"] * asked["TCP_KEEPCNT"] <= 60
    assert 0 < asked["TCP_USER_TIMEOUT"] <= 60_000
    connection.close()


async def test_a_transport_without_a_socket() -> None:
    """Where there is no socket, as in the simulation, or one that is not TCP's, nothing is asked for."""

    class Transport(asyncio.Transport):
        def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
            pass

    connection = DataConnection(REPLICA)
    connection.connection_made(Transport())
    local, other = socket.socketpair()
    with local, other:
        connection.connection_made(Transport({"socket": local}))
        assert local.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 0


async def test_connections_are_shared(start_server: StartServer) -> None:
    """All who want a server at once get one connection; after it broke there is a new one; another incarnation is another."""
    server = await start_server()
    connections = DataConnections()
    first, *rest = await asyncio.gather(*(connections.get(REPLICA, server.address) for _ in range(20)))
    assert all(each is first for each in rest) and len(server.writers) == 1
    assert connections.existing(REPLICA) is first
    other = await connections.get(replica_id("rs1", 0xDEF), server.address)
    assert other is not first
    first.close()
    assert connections.existing(REPLICA) is None
    assert await connections.get(REPLICA, server.address) is not first
    await connections.close()
    await until(lambda: server.ended == 3)


async def test_failed_connections_are_tried_again(start_server: StartServer, dead_address: str) -> None:
    """An attempt that failed is told to all who waited, and does not stand in the way of the next."""
    connections = DataConnections()
    results = await asyncio.gather(*(connections.get(REPLICA, dead_address) for _ in range(5)), return_exceptions=True)
    assert all(isinstance(each, errors.Unavailable) for each in results)
    with pytest.raises(errors.Unavailable, match="no longer registered"):
        await connections.get(REPLICA, "")
    server = await start_server()
    assert (await connections.get(REPLICA, server.address)).closed is None
    await connections.close()


async def test_a_broker_is_called_a_broker() -> None:
    """Producers use the same connections: messages name the kind of the server that is not reached, or broke off."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unused.getsockname()[1]}"
    connections = DataConnections()
    with pytest.raises(errors.Unavailable, match=r"^broker rs1 at .* cannot be reached"):
        await connections.get(REPLICA, address, kind="broker")
    with pytest.raises(errors.Unavailable, match=r"^range server rs1 at .* cannot be reached"):
        await connections.get(REPLICA, address)
    broken = DataConnection(REPLICA, "broker")
    broken.connection_lost(None)
    assert broken.closed is not None and broken.closed.message == "the connection to broker rs1 broke"
