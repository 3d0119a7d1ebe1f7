"""A writer's runtime over connections that only note: who is told what is acked, and when; how much it keeps in flight."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, cast

from rangelog._appending import Appending
from rangelog._transport.data_connection import DataConnections, RangeListener
from rangelog._writer import _BATCHES_IN_FLIGHT, _MANY_BATCHES_IN_FLIGHT, Writer
from rangelog.batch import CODEC_NONE
from rangelog.ids import ReplicaId
from rangelog.protocol.appender import OpenRange
from rangelog_proto.frame import FrameDecoder
from rangelog_proto.v1 import common_pb2, data_pb2

SERVERS = ("a", "b", "c")


class NotingConnection:
    """In place of a DataConnection."""

    closed = None

    def __init__(self) -> None:
        self.listener: RangeListener | None = None
        self.appended: list[int] = []  # the confirm offset that each append carried
        self.confirmed: list[int] = []

    def listen(self, stream_id: int, range_index: int, listener: RangeListener) -> None:
        self.listener = listener

    def unlisten(self, stream_id: int, range_index: int) -> None:
        self.listener = None

    def send_encoded(self, buffers: Sequence[bytes]) -> None:
        (frame,) = FrameDecoder(message_bytes_max=1 << 16, payload_bytes_max=1 << 26).feed(b"".join(buffers))
        self.appended.append(data_pb2.Append.FromString(frame.message).confirm_offset)

    def confirm(self, stream_id: int, range_index: int, epoch: int, confirm_offset: int) -> None:
        self.confirmed.append(confirm_offset)

    def reply(self, durable_offset: int, *, followed: bool = False) -> None:
        """The replica holds everything below."""
        assert self.listener is not None
        self.listener.append_replied(data_pb2.AppendReply(durable_offset=durable_offset, followed=followed))


class NotingConnections:
    """In place of DataConnections."""

    batches_in_flight = 0

    def __init__(self) -> None:
        self.of = {name: NotingConnection() for name in SERVERS}

    async def get(self, replica: ReplicaId, address: str) -> NotingConnection:
        return self.of[replica.server]


async def opened_writer(connections: NotingConnections) -> Writer:
    """A writer whose range is open on three servers; no placement driver stands behind it."""
    shared = cast(DataConnections, connections)
    writer = Writer(cast(Any, None), shared, "s", append_timeout_s=5, open_timeout_s=5)
    replicas = [common_pb2.Replica(server=name, incarnation=1, data_address="h:1") for name in SERVERS]
    created = common_pb2.Range(stream_id=1, index=0, epoch=1, acks=2, replicas=replicas)
    config = common_pb2.StreamConfig(range_size_bytes_max=1 << 40)
    stream = common_pb2.Stream(stream_id=1, name="s", epoch=1, config=config)
    writer._loop, writer._stream, writer._codec = asyncio.get_running_loop(), stream, CODEC_NONE
    writer._appending = Appending(
        cast(Any, None), shared, stream, created,
        confirmed=writer._resolve, stopped=writer._stopped, send_gathered=writer._pump,
    )  # fmt: skip
    writer._accepting = True
    writer._appending.start()
    assert isinstance(writer._appending.core.opened, OpenRange)
    while not all(connection.listener for connection in connections.of.values()):
        await asyncio.sleep(0)
    return writer


async def until(condition: Callable[[], bool]) -> None:
    """Wait for something that is to happen soon."""
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.001)


async def acked_writer(connections: NotingConnections, followed: NotingConnection) -> Writer:
    """A writer whose first append is acked by the first server and by the one where a reader waits."""
    writer = await opened_writer(connections)
    writer.append_nowait(b"v")
    await asyncio.sleep(0)
    connections.of["a"].reply(1)
    followed.reply(1, followed=True)
    return writer


async def test_a_followed_replica_is_told_at_once() -> None:
    """Where a reader waits the confirm offset goes out with the ack; the others hear of it a little later."""
    connections = NotingConnections()
    a, b, c = connections.of.values()
    writer = await acked_writer(connections, b)
    await asyncio.sleep(0)
    assert (a.confirmed, b.confirmed, c.confirmed) == ([], [1], [])
    await until(lambda: len(a.confirmed) == len(c.confirmed) == 1)
    assert (a.confirmed, b.confirmed, c.confirmed) == ([1], [1], [1])
    await writer.close()


async def test_the_next_append_tells_it() -> None:
    """What is appended before the others are told carries it, and nothing is said twice."""
    connections = NotingConnections()
    a, b, c = connections.of.values()
    writer = await acked_writer(connections, c)
    await until(lambda: c.confirmed == [1])
    writer.append_nowait(b"w")
    await until(lambda: len(c.appended) == 2)
    assert [each.appended for each in (a, b, c)] == [[0, 1]] * 3
    assert (a.confirmed, b.confirmed, c.confirmed) == ([], [], [1])
    for each in (a, b):
        each.reply(2)
    await writer.close()  # what is acked is said before it goes
    assert (a.confirmed, b.confirmed, c.confirmed) == ([2], [2], [1, 2])


async def test_each_confirm_finds_its_follower() -> None:
    """One that waits for the others' sake does not keep the next one from going out at once."""
    connections = NotingConnections()
    a, b, _ = connections.of.values()
    writer = await opened_writer(connections)
    for end in range(1, 6):
        writer.append_nowait(b"v")
        await asyncio.sleep(0)
        a.reply(end)
        b.reply(end, followed=True)
        await asyncio.sleep(0)
        assert b.confirmed == list(range(1, end + 1))
    await writer.close()


async def test_many_batches_in_flight_make_larger_batches() -> None:
    """A writer keeps some batches in flight; while all writers together have many, one."""
    connections = NotingConnections()
    first = connections.of["a"]
    writer = await opened_writer(connections)

    async def append_turns(turns: int) -> None:
        for _ in range(turns):
            writer.append_nowait(b"v")
            await asyncio.sleep(0)

    await append_turns(10)
    assert len(first.appended) == _BATCHES_IN_FLIGHT == connections.batches_in_flight
    connections.batches_in_flight += _MANY_BATCHES_IN_FLIGHT
    for connection in connections.of.values():
        connection.reply(_BATCHES_IN_FLIGHT)  # all that was sent; the rest goes together
    await append_turns(10)
    assert len(first.appended) == _BATCHES_IN_FLIGHT + 1
    for connection in connections.of.values():
        connection.reply(10)
    assert len(first.appended) == _BATCHES_IN_FLIGHT + 2
    for connection in connections.of.values():
        connection.reply(20)
    assert writer.confirm_offset == 20
    assert connections.batches_in_flight == _MANY_BATCHES_IN_FLIGHT
    await writer.close()
