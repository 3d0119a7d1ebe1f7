"""What the writers and readers of one client may have under way together."""

from __future__ import annotations

import asyncio

import pytest

from rangelog.errors import AppendTimeout
from rangelog_core.limits import FETCH_CREDIT_BYTES_MIN, MIB
from rangelog_core.net.budgets import AppendBudget, FetchBudget
from tests.support.noting_connections import NotingConnections, opened_writer
from tests.support.waiting import until


def ack(connections: NotingConnections, durable_offset: int) -> None:
    """Two of three replicas hold everything below."""
    for name in ("a", "b"):
        connections.of[name].reply(durable_offset)


async def test_writers_wait_for_each_other_when_their_client_has_much_in_flight() -> None:
    """A writer far below its own bound waits while others use the budget up, and goes on as soon as they are acked."""
    here, there = NotingConnections(), NotingConnections()
    here.appends = there.appends = AppendBudget(1_000)
    first, second = await opened_writer(here), await opened_writer(there)
    first.append_nowait(b"v" * 2_000)
    second.append_nowait(b"v")
    await until(lambda: first._pending.budget.batches_in_flight == 2)
    waiting = asyncio.create_task(second.ready())
    await asyncio.sleep(0)
    assert not waiting.done()
    ack(here, 1)
    await waiting
    assert here.appends.bytes_in_flight < 1_000
    ack(there, 1)
    assert (here.appends.batches_in_flight, here.appends.bytes_in_flight) == (0, 0)
    await first.close()
    await second.close()


async def test_a_writer_with_nothing_pending_has_room() -> None:
    """Others cannot keep it from its first append, nor for ever from its next."""
    here, there = NotingConnections(), NotingConnections()
    here.appends = there.appends = AppendBudget(1_000)
    first, second = await opened_writer(here), await opened_writer(there)
    first.append_nowait(b"v" * 2_000)
    await until(lambda: here.appends.is_used_up)
    await second.ready()
    second.append_nowait(b"v")
    await until(lambda: here.appends.batches_in_flight == 2)
    waiting = asyncio.create_task(second.ready())
    await asyncio.sleep(0)
    ack(there, 1)
    await waiting
    assert here.appends.is_used_up
    await first.close(flush=False)
    await second.close()
    assert (here.appends.batches_in_flight, here.appends.bytes_in_flight) == (0, 0), "what was never acked, too"


async def test_who_waits_too_long_for_others_is_told() -> None:
    """As for its own bound: nothing was appended."""
    connections = NotingConnections()
    connections.appends = AppendBudget(10)
    writer = await opened_writer(connections)
    writer.append_nowait(b"v")
    await until(lambda: connections.appends.is_used_up)
    with pytest.raises(AppendTimeout) as caught:
        await writer.ready(timeout_s=0.001)
    assert not caught.value.outcome_unknown
    await writer.close(flush=False)


def test_fetches_share_their_credit() -> None:
    """The first ones get what they want, all others the least; what is given back is there for the next."""
    budget = FetchBudget(5 * MIB)
    taken = [budget.take(2 * MIB) for _ in range(4)]
    assert taken == [2 * MIB, 2 * MIB, 1 * MIB, FETCH_CREDIT_BYTES_MIN]
    budget.give_back(taken[0])
    assert budget.take(2 * MIB) == 2 * MIB - FETCH_CREDIT_BYTES_MIN
    assert FetchBudget(5 * MIB).take(1_000) == 1_000
