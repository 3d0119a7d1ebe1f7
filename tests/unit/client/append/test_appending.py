"""A writer's runtime over connections that only note: who is told what is acked, and when; how much it keeps in flight."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rangelog._append import runner
from rangelog._append.writer import _BATCHES_IN_FLIGHT, _MANY_BATCHES_IN_FLIGHT, Writer
from tests.support.noting_connections import NotingConnection, NotingConnections, opened_writer
from tests.support.waiting import until

pytestmark = pytest.mark.virtual


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


async def test_the_next_append_tells_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is appended before the others are told carries it, and nothing is said twice."""
    monkeypatch.setattr(runner, "_CONFIRM_DELAY_S", 60.0)  # however slowly this test runs
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


async def test_without_a_follower_the_delay_follows_the_latency(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where acks take long, so does what is appended after them: replicas are told as much later, within bounds."""
    connections = NotingConnections()
    a, b, c = connections.of.values()
    writer = await opened_writer(connections)
    delays_s: list[float] = []
    loop = asyncio.get_running_loop()
    call_later = loop.call_later

    def noting(delay_s: float, *rest: Any) -> asyncio.TimerHandle:
        delays_s.append(delay_s)
        return call_later(delay_s, *rest)

    monkeypatch.setattr(loop, "call_later", noting)
    now_ms = 1_000_000.0
    monkeypatch.setattr(runner, "_now_ms", lambda: now_ms)
    for end, took_ms in enumerate((0.5, 20.0, 5_000.0), 1):
        writer.append_nowait(b"v")
        await asyncio.sleep(0)
        assert len(a.appended) == end
        now_ms += took_ms
        for each in (a, b):
            each.reply(end)
        assert (a.confirmed, b.confirmed) == ([], [])  # not by itself in this turn, and not in the next one
        writer._runner._send_later_confirms()  # type: ignore[union-attr]  # its time has come
        assert a.confirmed == b.confirmed == c.confirmed == [end]
        for each in (a, b, c):
            each.confirmed.clear()
    assert delays_s == [pytest.approx(0.005), pytest.approx(0.08), pytest.approx(0.25)]
    await writer.close()


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
    assert len(first.appended) == _BATCHES_IN_FLIGHT == connections.appends.batches_in_flight
    connections.appends.batches_in_flight += _MANY_BATCHES_IN_FLIGHT
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
    assert connections.appends.batches_in_flight == _MANY_BATCHES_IN_FLIGHT
    await writer.close()
