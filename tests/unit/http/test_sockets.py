"""Tails over WebSockets, over a loopback socket and a cluster in memory: credits, endings, and what breaks the protocol."""

from __future__ import annotations

import asyncio
import base64
import struct
from typing import Any
from unittest import mock

import pytest
from wsproto.events import CloseConnection, Ping

from rangelog import Client
from rangelog.errors import RightMissing, Unauthorized
from rangelog_broker.door import DoorContext
from rangelog_broker.verbs import read as reading
from rangelog_broker.verbs.caller import Caller
from rangelog_http import upgrades
from rangelog_http.app import Application
from rangelog_http.handlers import sockets, tails
from rangelog_http.upgrades import MESSAGE_LENGTH_MAX, MESSAGES_MAX, MessageSocket
from rangelog_server_common.http_server import HttpServer
from tests.support.socket_client import SocketClient
from tests.support.waiting import until

TAIL = "/v1/topics/default/t/tail"


async def open_tail(server: HttpServer, target: str = TAIL, **headers: str) -> SocketClient:
    """Ask the door."""
    return await SocketClient.open(server.address, target, **headers)  # type: ignore[attr-defined]


async def send(client: Client, *values: bytes, key: bytes = b"k", headers: dict[str, bytes] | None = None) -> None:
    """Send records of one key."""
    async with client.producer("t") as producer:
        for value in values:
            await producer.send(value, key=key, headers=headers)


async def test_no_more_records_than_credits(client: Client, context: DoorContext, server: HttpServer) -> None:
    """They wait in the log until there is credit; a client goes on from whichever position it has, over a split."""
    whole = [b"%02d" % number for number in range(30)]
    await send(client, *whole[:15])
    tail = await open_tail(server, f"{TAIL}?from=earliest")
    assert tail.status == 101 and b"sec-websocket-accept: " in tail.head
    beside = await open_tail(server, f"{TAIL}?from=earliest")
    beside.send({"credits": 15})
    await until(lambda: len(beside.values) == 15, "a client beside it has its records")
    assert tail.values == []
    tail.send({"credits": 2})
    tail.send({"credits": 5})
    await until(lambda: len(tail.values) == 7, "as many as it has given credit for")
    beside.send({"credits": 1})
    await send(client, b"last")
    await until(lambda: len(beside.values) == 16, "the other one has another one")
    assert len(tail.values) == 7, "and this one has not"
    await client.topics.scale("t", [0], 2)
    await tail.close()
    again = await open_tail(server, f"{TAIL}?from={tail.messages[4]['next']}")
    again.send({"credits": 100})
    await until(lambda: len(again.values) == 12, "it has all that is left")
    assert tail.values[:4] + again.values == [value.decode() for value in [*whole[:15], b"last"]]
    for each in (beside, again):
        each.send_event(CloseConnection(code=1000))
        await each.reading
        assert each.code == 1000
    await until(lambda: context.reads.follow_count == 0, "no reader is left")


@pytest.mark.parametrize(
    ("message", "code"),
    [
        ("{", 1007), ("[]", 1007), ('{"credits": 0}', 1007), ('{"credits": -1}', 1007), ('{"credits": true}', 1007),
        ('{"credits": 1.5}', 1007), ('{"credits": 1, "more": 1}', 1007), ("[" * 1_000, 1007),
        ('{"credits": 1000001}', 1008), ("x" * (MESSAGE_LENGTH_MAX + 1), 1009),
    ],
)  # fmt: skip
async def test_a_strange_message_ends_the_connection(server: HttpServer, message: str, code: int) -> None:
    """By a code that says why."""
    tail = await open_tail(server)
    tail.send(message)
    await tail.reading
    assert tail.code == code


def frame(first: int, payload: bytes, *, mask: bool = True, length: int | None = None) -> bytes:
    """Return a frame by its first byte."""
    size = len(payload) if length is None else length
    bit = 0x80 if mask else 0
    head = struct.pack("!BB", first, bit | size) if size < 126 else struct.pack("!BBQ", first, bit | 127, size)
    return head + (bytes(4) if mask else b"") + payload


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (frame(0x81, b'{"credits": 1}', mask=False), 1002),  # not masked
        (frame(0xC1, b'{"credits": 1}'), 1002),  # compressed, which was not agreed
        (frame(0x80, b"x"), 1002),  # the end of a message that has not begun
        (frame(0x01, b"x") + frame(0x81, b"y"), 1002),  # two messages in each other
        (frame(0x09, b"x"), 1002),  # a ping in pieces
        (frame(0x89, bytes(200), length=200), 1002),  # a ping that is too large
        (frame(0x83, b"x"), 1002),  # of no known kind
        (frame(0x81, b"\xff"), 1007),  # no text
        (frame(0x82, b"x"), 1003),  # bytes
        (frame(0x81, b"x" * 70_000, length=1 << 40), 1009),  # a terabyte is announced
        (frame(0x01, b"") + frame(0x00, b"x" * 100) * (MESSAGE_LENGTH_MAX // 100 + 1), 1009),  # in many pieces
    ],
)  # fmt: skip
async def test_frames_that_break_the_protocol(server: HttpServer, data: bytes, code: int) -> None:
    """End the connection, with the code for it."""
    tail = await open_tail(server)
    tail.writer.write(data)
    await tail.reading
    assert tail.code == code


async def test_a_message_in_pieces_is_one(client: Client, server: HttpServer) -> None:
    """With a ping between its pieces, which is answered."""
    await send(client, b"first")
    tail = await open_tail(server, f"{TAIL}?from=earliest")
    tail.writer.write(frame(0x01, b'{"cre') + frame(0x89, b"here?") + frame(0x00, b'dits"') + frame(0x80, b": 1}"))
    await until(lambda: tail.values == ["first"], "the credit counts")
    assert tail.pongs == [b"here?"]
    await tail.close()


@pytest.mark.parametrize(
    ("target", "headers", "status"),
    [
        ("/v1/topics/default/nope/tail", {}, 404), (f"{TAIL}?from=nonsense", {}, 400), (f"{TAIL}?limit=1", {}, 400),
        (f"{TAIL}?token=secret", {}, 400), (TAIL, {"Origin": "http://evil.example"}, 403),
        (TAIL, {"Sec_WebSocket_Version": "8"}, 426), (TAIL, {"Sec_WebSocket_Key": "short"}, 400),
        (TAIL, {"Sec_WebSocket_Key": ""}, 400), (TAIL, {"Sec_WebSocket_Protocol": "chat"}, 400),
        (TAIL, {"Sec_WebSocket_Protocol": "rangelog.v1, rangelog.bearer.!"}, 400), (TAIL, {"Content_Length": "1"}, 400),
    ],
)  # fmt: skip
async def test_what_is_refused_before_the_upgrade(
    context: DoorContext, server: HttpServer, target: str, headers: dict[str, str], status: int
) -> None:
    """With the status of its error."""
    tail = await open_tail(server, target, **headers)
    assert tail.status == status
    assert (b"sec-websocket-version: 13" in tail.head) == (status == 426)
    await tail.close()
    assert context.reads.follow_count == 0


async def test_an_upgrade_of_another_path_is_not_taken_up(server: HttpServer) -> None:
    """It is a request like any other."""
    other = await open_tail(server, "/v1/topics/default/t/records")
    assert other.status == 200 and b'"records":[]' in other.body
    await other.close()


async def test_rights_and_numbers(context: DoorContext, server: HttpServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A right that is missing; more readers than may follow."""
    with mock.patch.object(Caller, "require_named", mock.AsyncMock(side_effect=RightMissing("no"))):
        assert (await open_tail(server)).status == 403
    monkeypatch.setattr(reading, "FOLLOWS_MAX", 1)
    first = await open_tail(server)
    assert first.status == 101
    assert (await open_tail(server)).status == 429
    await first.close()


async def test_a_token_by_header_or_by_subprotocol(context: DoorContext, server: HttpServer) -> None:
    """A page has no other way; the answer names the subprotocol alone."""
    found = server._server.config.app  # type: ignore[union-attr]
    assert isinstance(found, Application)
    found._secret = "a secret/with?signs"
    encoded = base64.urlsafe_b64encode(found._secret.encode()).decode().rstrip("=")
    offered = f"rangelog.v1, rangelog.bearer.{encoded}"
    by_protocol = await open_tail(server, Sec_WebSocket_Protocol=offered)
    assert by_protocol.status == 101 and b"sec-websocket-protocol: rangelog.v1\r\n" in by_protocol.head
    assert encoded.encode() not in by_protocol.head
    by_header = await open_tail(server, Authorization=f"Bearer {found._secret}")
    assert by_header.status == 101 and b"sec-websocket-protocol" not in by_header.head
    for headers in ({}, {"Sec_WebSocket_Protocol": "rangelog.v1"}, {"Sec_WebSocket_Protocol": f"{offered[:-2]}"}):
        assert (await open_tail(server, **headers)).status in (400, 401)
    for each in (by_header, by_protocol):
        await each.close()


async def test_a_broker_that_stops_says_so(context: DoorContext, server: HttpServer) -> None:
    """1001, by which clients go to another one: as its reads end, and as its server is closed."""
    first, second = await open_tail(server), await open_tail(server)
    await server.close()
    for each in (first, second):
        await each.reading
        assert each.code == 1001
    assert context.reads.follow_count == 0


async def test_a_broker_that_hands_over_says_so(context: DoorContext, server: HttpServer) -> None:
    """The same, while its server still serves."""
    tail = await open_tail(server)
    context.reads.leave()
    await tail.reading
    assert tail.code == 1001
    assert (await open_tail(server)).status == 429


async def test_a_right_that_ends_ends_the_tail(server: HttpServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is looked at again and again, and the client is given the reason."""
    monkeypatch.setattr(tails, "BEAT_S", 0.01)
    tail = await open_tail(server)
    await until(lambda: tail.pings > 2, "the client is asked whether it is there")
    with mock.patch.object(Application, "_caller", side_effect=Unauthorized("the token has expired")):
        await tail.reading
    assert tail.messages[-1]["error"]["code"] == "UNAUTHORIZED"
    assert (tail.code, tail.reason) == (1008, "UNAUTHORIZED")


async def test_an_error_in_the_middle(client: Client, server: HttpServer) -> None:
    """The topic is deleted: the client does not wait for ever."""
    tail = await open_tail(server)
    tail.send({"credits": 1})
    await client.topics.delete("t", force=True)
    await tail.reading
    assert (tail.messages[-1]["error"]["code"], tail.code) == ("TOPIC_NOT_FOUND", 1011)


async def test_a_client_that_answers_no_ping_is_gone(
    context: DoorContext, server: HttpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its place is free again, though its connection was never closed."""
    monkeypatch.setattr(tails, "BEAT_S", 0.02)
    monkeypatch.setattr(upgrades, "CLOSE_TIMEOUT_S", 0.02)
    tail = await open_tail(server)
    tail.answers_pings = False
    await until(lambda: context.reads.follow_count == 0, "no reader is left")
    connections = server._server.server_state.connections  # type: ignore[union-attr]
    await until(lambda: not connections, "no connection is left")
    await tail.close()


async def test_a_filter_moves_on(client: Client, server: HttpServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client hears of positions behind what it does not want; who goes on there misses nothing and has nothing twice."""
    monkeypatch.setattr(tails, "BEAT_S", 0.02)
    tail = await open_tail(server, f"{TAIL}?from=earliest&key=k&header.source=web")
    tail.send({"credits": 10})
    await send(client, b"1", headers={"source": b"web"})
    await send(client, b"no", key=b"other", headers={"source": b"web"})
    await send(client, b"no", headers={"source": b"app"})
    await until(lambda: bool(tail.values) and "record" not in tail.messages[-1], "the position has moved on")
    assert tail.values == ["1"]
    await tail.close()
    await send(client, b"2", headers={"source": b"web"})
    again = await open_tail(server, f"{TAIL}?key=k&header.source=web&from={tail.messages[-1]['next']}")
    again.send({"credits": 10})
    await until(lambda: again.values == ["2"], "what follows, and nothing else")
    await again.close()


async def test_a_client_that_reads_nothing_holds_back_its_own_reader(
    client: Client, context: DoorContext, server: HttpServer
) -> None:
    """Whatever credit it has given: what it is sent waits in the log; pings of its own cost nothing."""
    reader, writer = await asyncio.open_connection(*server.address, limit=1_024)  # type: ignore[attr-defined]
    lines = b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: "
    writer.write(
        f"GET {TAIL}?from=earliest HTTP/1.1\r\nHost: x\r\n".encode() + lines + base64.b64encode(bytes(16)) + b"\r\n\r\n"
    )
    assert b" 101 " in await reader.readuntil(b"\r\n\r\n")
    writer.write(frame(0x81, b'{"credits": 1000000}'))
    other = await open_tail(server, f"{TAIL}?from=earliest")
    other.send({"credits": 1_000})
    await send(client, *[b"x" * 200_000] * 60)
    writer.write(frame(0x89, bytes(125)) * 20_000)
    await until(lambda: len(other.values) == 60, "the other one has all records")
    found = [each for each in server._server.server_state.connections if isinstance(each, MessageSocket)]  # type: ignore[union-attr]
    assert len(found) == 2 and max(each.transport.get_write_buffer_size() for each in found) < 2 << 20
    writer.transport.abort()
    await other.close()


async def test_messages_that_are_not_taken_wait_in_the_socket(server: HttpServer) -> None:
    """A flood of them: few are kept."""
    held = asyncio.Event()
    real = sockets.SocketTail._take_credits

    async def late(self: Any) -> Any:
        await held.wait()
        return await real(self)

    with mock.patch.object(sockets.SocketTail, "_take_credits", late):
        tail = await open_tail(server)
        for _ in range(5_000):
            tail.send({"credits": 1})
        (socket,) = server._server.server_state.connections  # type: ignore[union-attr]
        assert isinstance(socket, MessageSocket)
        await until(lambda: not socket.transport.is_reading(), "the server reads no more")
        assert MESSAGES_MAX <= len(socket._came) < 20_000
        held.set()
        tail.send_event(Ping(payload=b"end"))
        await until(lambda: tail.pongs == [b"end"], "all of them are taken")
        await tail.close()
