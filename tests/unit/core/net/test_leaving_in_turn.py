"""A writer that lost one replica of three goes on acking until it is its turn to leave the range, and stays if all is well."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from rangelog._append.writer import Writer
from rangelog.protocol.appender import AppenderPhase, Probe, SealRange
from rangelog_core.ids import Incarnation, ReplicaId
from rangelog_proto.v1 import common_pb2, pd_pb2
from tests.support.noting_connections import NotingConnections, opened_writer
from tests.support.waiting import until

LOST = ReplicaId("c", Incarnation(1))


class HeldCalls:
    """In place of PlacementCalls: turns and seals come when the test says so."""

    def __init__(self) -> None:
        self.turns, self.sealing = asyncio.Event(), asyncio.Event()
        self.urgent: list[bool] = []
        self.seals: list[SealRange] = []
        self.held = 0

    @asynccontextmanager
    async def turn(self, *, urgent: bool) -> AsyncIterator[bool]:
        self.urgent.append(urgent)
        if not urgent:
            await self.turns.wait()
        self.held += 1
        try:
            yield not urgent
        finally:
            self.held -= 1

    async def probe(self, effect: Probe) -> bool:
        return True

    async def seal_and_create(self, stream_id: int, epoch: int, effect: SealRange) -> pd_pb2.SealRangeResponse:
        self.seals.append(effect)
        await self.sealing.wait()
        sealed = common_pb2.Range(stream_id=1, index=0, end_offset=effect.end_offset)
        following = common_pb2.Range(stream_id=1, index=1, epoch=epoch, start_offset=effect.end_offset, acks=2)
        for name in ("a", "b"):
            following.replicas.add(server=name, incarnation=1, data_address="h:1")
        return pd_pb2.SealRangeResponse(range=sealed, next_range=following)


class Case:
    """An open writer, what it is connected to, and what it asks."""

    def __init__(self, connections: NotingConnections, writer: Writer) -> None:
        self.connections, self.writer, self.calls = connections, writer, HeldCalls()
        assert writer._runner is not None
        self.runner = writer._runner
        self.runner._host.calls = cast(Any, self.calls)

    async def append(self, *names: str) -> None:
        """Append one record, acked by these replicas."""
        appending = asyncio.ensure_future(self.writer.append(b"v"))
        offset = self.writer.next_offset
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        for name in names:
            self.connections.of[name].reply(offset + 1)
        await appending


@pytest.fixture
async def case() -> AsyncIterator[Case]:
    connections = NotingConnections()
    made = Case(connections, await opened_writer(connections))
    yield made
    await made.writer.close(flush=False)


async def test_appends_are_acked_while_the_range_waits_for_its_turn(case: Case) -> None:
    """Nothing is frozen before; then the range is sealed behind all that was acked meanwhile, and the turn is given back."""
    case.runner.disconnected(0, LOST)
    await until(lambda: case.calls.urgent == [False])
    await case.append("a", "b")
    await case.append("a", "b")
    assert case.runner.core.phase is AppenderPhase.PROBING and not case.calls.seals
    case.calls.turns.set()
    await until(lambda: bool(case.calls.seals))
    assert case.calls.seals[0].end_offset == 2 and case.calls.held == 1
    case.calls.sealing.set()
    await until(lambda: not case.calls.held)
    assert case.runner.core.range_index == 1


async def test_a_server_that_is_back_when_the_turn_comes_is_not_left(case: Case) -> None:
    """A seal for nothing would cost the placement driver, and the stream a range."""
    case.runner.disconnected(0, LOST)
    await until(lambda: case.calls.urgent == [False])
    case.runner.connected(0, LOST)
    case.calls.turns.set()
    await until(lambda: case.runner.core.phase is AppenderPhase.OPEN)
    assert not case.calls.seals and not case.calls.held
    await case.append("b", "c")


async def test_a_range_that_cannot_ack_any_more_does_not_wait(case: Case) -> None:
    """With two of three lost nothing is acked until it is left."""
    for name in ("b", "c"):
        case.runner.core.disconnected(0.0, 0, ReplicaId(name, Incarnation(1)))
    case.runner.disconnected(0, LOST)
    await until(lambda: bool(case.calls.seals))
    assert case.calls.urgent == [True]


async def test_a_writer_that_is_closed_gives_its_turn_back(case: Case) -> None:
    """Also in the middle of its seal."""
    case.runner.disconnected(0, LOST)
    case.calls.turns.set()
    await until(lambda: bool(case.calls.seals))
    await case.writer.close(flush=False)
    await until(lambda: not case.calls.held)
