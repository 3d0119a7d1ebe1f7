"""Tails over a loopback socket and a cluster in memory: nothing is lost or repeated over connections, and each ends soon."""

from __future__ import annotations

import asyncio
import json
from typing import Any
from unittest import mock

import pytest

from rangelog import Client
from rangelog.errors import RightMissing, Unauthorized
from rangelog_broker.door import DoorContext
from rangelog_broker.verbs import read as reading
from rangelog_broker.verbs.caller import Caller
from rangelog_http.app import Application
from rangelog_http.handlers import tails
from rangelog_server_common.http_server import HttpServer
from tests.support.waiting import until

TAIL = "/v1/topics/default/t/tail"


class Tail:
    """One connection: `events` are (id, data) as they came."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.status = 0
        self.events: list[tuple[str, Any]] = []
        self.errors: list[Any] = []
        self.beats = 0
        self.positions: list[str] = []  # of events without data
        self._writer = writer
        self.reading = asyncio.create_task(self._read(reader))

    @classmethod
    async def open(cls, server: HttpServer, target: str = TAIL, **headers: str) -> Tail:
        """Ask, and return once there is a status."""
        reader, writer = await asyncio.open_connection(*server.address)  # type: ignore[attr-defined]
        lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
        writer.write(f"GET {target} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{lines}\r\n".encode())
        made = cls(reader, writer)
        await until(lambda: bool(made.status), "there is an answer")
        return made

    def values(self) -> list[str]:
        """The values that came."""
        return [data["value"] for _, data in self.events]

    async def close(self) -> None:
        """Go away."""
        self._writer.transport.abort()
        await asyncio.gather(self.reading, return_exceptions=True)

    async def _read(self, reader: asyncio.StreamReader) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        self.status = int(head.split()[1])
        if self.status != 200:
            return
        text = b""
        while size := int(await reader.readline(), 16):
            text += await reader.readexactly(size)
            await reader.readexactly(2)
            *whole, text = text.split(b"\n\n")
            for event in whole:
                fields = dict(line.split(b": ", 1) for line in event.split(b"\n"))
                data = json.loads(fields.get(b"data", b"null"))
                if b"data" not in fields:
                    self.beats += 1
                    self.positions += [fields[b"id"].decode()] if b"id" in fields else []
                elif b"event" in fields:
                    self.errors.append(data["code"])
                else:
                    self.events.append((fields[b"id"].decode(), data))


async def send(client: Client, *values: bytes) -> None:
    """Send records of one key."""
    async with client.producer("t") as producer:
        for value in values:
            await producer.send(value, key=b"k")


async def test_a_tail_goes_on_where_it_was_cut_off(client: Client, context: DoorContext, server: HttpServer) -> None:
    """By the id of whichever event came last, over a split of the shard: without a gap and without a repeat."""
    whole = [b"%02d" % number for number in range(30)]
    came: list[str] = []
    last = ""
    for part in range(3):
        tail = await Tail.open(server, f"{TAIL}?from=earliest", **({"Last_Event_ID": last} if last else {}))
        await send(client, *whole[10 * part : 10 * part + 10])
        if part == 1:
            await client.topics.scale("t", [0], 2)
        take = 7 if part < 2 else 30 - len(came)
        await until(lambda tail=tail, take=take: len(tail.events) >= take, "the records come")  # type: ignore[misc]
        came += tail.values()[:take]
        last = tail.events[take - 1][0]
        await tail.close()
    assert came == [value.decode() for value in whole]
    await until(lambda: context.reads.follow_count == 0, "no reader is left")


async def test_from_the_end_by_default(client: Client, server: HttpServer) -> None:
    """A client that follows gets what is sent from then on."""
    await send(client, b"before")
    tail = await Tail.open(server)
    await send(client, b"after")
    await until(lambda: tail.values() == ["after"], "the record comes")
    assert tail.events[0][1]["key"] == "k"
    await tail.close()


@pytest.mark.parametrize(
    ("target", "headers", "status"),
    [
        ("/v1/topics/default/nope/tail", {}, 404), (f"{TAIL}?from=nonsense", {}, 400), (f"{TAIL}?limit=1", {}, 400),
        (TAIL, {"Last_Event_ID": "nonsense"}, 400), (TAIL, {"Origin": "http://evil.example"}, 403), (f"{TAIL}/", {}, 404),
    ],
)  # fmt: skip
async def test_what_is_refused_before_the_first_byte(
    server: HttpServer, target: str, headers: dict[str, str], status: int
) -> None:
    """With the status of its error."""
    assert (await Tail.open(server, target, **headers)).status == status


async def test_rights_and_numbers(context: DoorContext, server: HttpServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A right that is missing; more readers than may follow."""
    with mock.patch.object(Caller, "require_named", mock.AsyncMock(side_effect=RightMissing("no"))):
        assert (await Tail.open(server)).status == 403
    monkeypatch.setattr(reading, "FOLLOWS_MAX", 1)
    first = await Tail.open(server)
    assert first.status == 200
    assert (await Tail.open(server)).status == 429
    await first.close()


async def test_a_broker_that_stops_ends_its_tails(context: DoorContext, server: HttpServer) -> None:
    """At once, in whole: their clients go to another one."""
    tail = await Tail.open(server)
    context.reads.leave()
    await tail.reading
    assert context.reads.follow_count == 0 and not tail.errors
    assert (await Tail.open(server)).status == 429


async def test_a_right_that_ends_ends_the_tail(
    context: DoorContext, server: HttpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is looked at again and again, and the client is given the reason."""
    monkeypatch.setattr(tails, "BEAT_S", 0.01)
    tail = await Tail.open(server)
    await until(lambda: tail.beats > 2, "the connection is kept up")
    with mock.patch.object(Application, "_caller", side_effect=Unauthorized("the token has expired")):
        await tail.reading
    assert tail.errors == ["UNAUTHORIZED"]
    await until(lambda: context.reads.follow_count == 0, "no reader is left")


async def test_an_error_in_the_middle_is_an_event(client: Client, context: DoorContext, server: HttpServer) -> None:
    """The topic is deleted: the client does not wait for ever."""
    tail = await Tail.open(server)
    await client.topics.delete("t", force=True)
    await tail.reading
    assert tail.errors == ["TOPIC_NOT_FOUND"]


async def test_a_client_that_reads_nothing_holds_back_its_own_reader(
    client: Client, context: DoorContext, server: HttpServer
) -> None:
    """What it is sent waits in the log, not here; a client beside it has everything."""
    _, writer = await asyncio.open_connection(*server.address, limit=1_024)  # type: ignore[attr-defined]
    writer.write(f"GET {TAIL}?from=earliest HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    await until(lambda: context.reads.follow_count == 1, "it follows")
    other = await Tail.open(server)
    await send(client, *[b"x" * 200_000] * 60)
    await until(lambda: len(other.events) == 60, "the other one has all records")
    sizes = [each.transport.get_write_buffer_size() for each in server._server.server_state.connections]  # type: ignore[attr-defined, union-attr]
    assert max(sizes) < 2 << 20
    writer.transport.abort()
    await other.close()


async def test_a_tail_that_had_no_record_goes_on_where_it_began(client: Client, server: HttpServer) -> None:
    """Its first event is where it begins: what came while the client was away is not missed."""
    await send(client, b"before")
    tail = await Tail.open(server)
    await until(lambda: bool(tail.positions), "it is told where it begins")
    await tail.close()
    await send(client, b"meanwhile")
    again = await Tail.open(server, Last_Event_ID=tail.positions[0])
    await until(lambda: again.values() == ["meanwhile"], "the record comes")
    await again.close()


async def test_a_filter_moves_on(client: Client, server: HttpServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last id is behind what the client does not want; who goes on there misses nothing and has nothing twice."""
    monkeypatch.setattr(tails, "BEAT_S", 0.02)
    tail = await Tail.open(server, f"{TAIL}?from=earliest&key=k")
    await send(client, b"1")
    async with client.producer("t") as producer:
        await producer.send(b"no", key=b"other")
    await until(lambda: len(tail.positions) > 1 and bool(tail.events), "the position has moved on")
    await send(client, b"2")
    await until(lambda: tail.values() == ["1", "2"], "what is wanted comes")
    await tail.close()
    again = await Tail.open(server, f"{TAIL}?from={tail.positions[-1]}")
    await until(lambda: again.values() == ["2"], "what follows, and nothing else")
    await again.close()
