"""What the connections of range servers and of brokers have in common: both are asked here."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest

from rangelog_broker.serving import connection as broker_serving
from rangelog_core.batch_extension import Producer
from rangelog_core.frame import Frame, Opcode, encode_frame
from rangelog_proto.v1 import data_pb2
from rangelog_server.serving import connection as server_serving
from rangelog_server.testing import batch
from rangelog_server_common.frames import connection as frames
from tests.support.memory_server import Client, memory_plane
from tests.support.owner_cluster import made_batch
from tests.support.producer_client import INCARNATION, NAME, ProducerClient, ScriptedShards

pytestmark = pytest.mark.virtual


class Clock:
    """The time of a port, as a test sets it."""

    now_s = 1_000.0

    def time(self) -> float:
        """See asyncio.AbstractEventLoop."""
        return self.now_s

    def call_later(self, delay: float, callback: Any) -> None:
        """Nothing here waits for it."""


@dataclass
class Kind:
    """A port, a greeted client, and a request that is taken and not yet answered."""

    port: Any
    client: Any
    limits: Any
    limit: str
    request: Frame
    clock: Clock


@pytest.fixture(params=["range server", "broker"])
async def kind(request: pytest.FixtureRequest) -> AsyncIterator[Kind]:
    clock = Clock()
    async with memory_plane() as plane:
        if request.param == "range server":
            client: Any = Client(plane).hello()
            plane.store.wal.held = True  # type: ignore[attr-defined]
            message: Any = data_pb2.Append(stream_id=1, range_index=0, epoch=1)
            taken = Frame(Opcode.APPEND, 2, message.SerializeToString(), batch(0, [b"x" * 1_000]))
            plane.loop = clock  # type: ignore[assignment]
            yield Kind(plane, client, server_serving, "INFLIGHT_BYTES_MAX", taken, clock)
            return
        port = broker_serving.ProducerPort(NAME, INCARNATION, "secret", ScriptedShards(), asyncio.get_running_loop())
        client = ProducerClient(port)
        client.hello()
        await client.replies()
        message, port.loop = data_pb2.Produce(topic_id=3), clock  # type: ignore[assignment]
        taken = Frame(Opcode.PRODUCE, 2, message.SerializeToString(), made_batch(Producer(7, 0, 0), b"x" * 1_000))
        yield Kind(port, client, broker_serving, "UNANSWERED_BYTES_MAX", taken, clock)


async def test_a_frame_has_its_whole_time_again_when_its_connection_is_read_again(kind: Kind) -> None:
    """While nobody reads it the client cannot end its frame; then it has the time to do so, and no more."""
    client, clock = kind.client, kind.clock
    client.feed(encode_frame(*kind.request)[:30])
    clock.now_s += frames.FRAME_TIMEOUT_S - 1
    client.connection.pause_writing()
    clock.now_s += frames.SLOW_READER_TIMEOUT_S - 1
    kind.port.sweep()
    client.connection.resume_writing()
    clock.now_s += frames.FRAME_TIMEOUT_S - 1
    kind.port.sweep()
    assert not client.wire.ended
    clock.now_s += 2
    kind.port.sweep()
    assert client.wire.ended == "closed"


async def test_a_hello_has_no_more_time_for_a_pause(kind: Kind) -> None:
    """Who has not greeted is not waited for again."""
    connection = type(kind.client)(kind.port)
    connection.connection.pause_writing()
    connection.connection.resume_writing()
    kind.clock.now_s += frames.HELLO_TIMEOUT_S + 1
    kind.port.sweep()
    assert (connection.wire.ended, kind.client.wire.ended) == ("closed", "")


async def test_frames_that_waited_for_a_grant_pause_reading(kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    """They count from the moment at which they are taken: the client is not read until then and further."""
    monkeypatch.setattr(kind.limits, kind.limit, 500)
    kind.client.connection._handle_later(kind.request)
    assert not kind.client.wire.reading
    assert list(kind.port.paused) == [kind.client.connection]
    kind.client.connection.connection_lost(None)
    assert not kind.port.paused and not kind.port.connections
