"""Programs that begin, send a little, are idle for long, and end: shards forget their producers, who go on by themselves."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any
from unittest import mock

from rangelog._produce.core import ProducerCore
from rangelog._produce.producer import TopicProducer
from rangelog.errors import ProducerFenced, RangelogError
from rangelog_broker.shards import producer_table
from rangelog_broker.shards.producer_table import ProducerTable
from tests.simulation.virtual_clients import Clients

PROGRAMS = 4
"""At once."""
IDLE_S = 3.0
"""In place of a day. A producer whose program goes on sends far more often, but while it cannot."""
KEPT_MAX = 4
"""In place of 100,000: the producers that go on, and one."""
CORNER_CASES = ("a shard forgot a producer", "a producer that was forgotten began anew")
RARE = ("a producer was forgotten with a batch in doubt",)


def watch_programs(watch: Any, stack: contextlib.ExitStack, note: Callable[[str], None]) -> None:
    """Have producers expire soon, and count them."""
    stack.enter_context(mock.patch.object(producer_table, "IDLE_MS", IDLE_S * 1000))
    stack.enter_context(mock.patch.object(producer_table, "MARK_INTERVAL_MS", IDLE_S * 100))
    stack.enter_context(mock.patch.object(producer_table, "OWN_PRODUCERS_MAX", KEPT_MAX))

    def expire_idle(self: ProducerTable, inner: Any, *args: int) -> int:
        count: int = inner(self, *args)
        if count:
            note("a shard forgot a producer")
        return count

    def begin_anew(self: ProducerCore, inner: Any, *args: int) -> bool:
        done: bool = inner(self, *args)
        note("a producer that was forgotten began anew" if done else "a producer was forgotten with a batch in doubt")
        return done

    watch(ProducerTable, "expire_idle", expire_idle)
    watch(ProducerCore, "begin_anew", begin_anew)


async def run_programs(
    clients: Clients, topic: str, name: str, send: Callable[[TopicProducer, str, dict[int, int]], None]
) -> None:
    """Start one after the other. `send`: append a record of a producer, by the next number of its key."""
    chance, number = clients.chance, 0
    client = await clients.client()
    while not clients.stopping:
        number += 1
        numbers: dict[int, int] = {}
        try:
            async with client.producer(topic) as producer:
                for _ in range(chance.choice([1, 1, 2, 4])):
                    for _ in range(chance.choice([1, 3, 20])):
                        send(producer, f"{name}.{number}", numbers)
                    await asyncio.sleep(chance.choice([0.0, 0.1, 0.3, 1.0]))
                    if clients.stopping:
                        break
            clients.cluster.note("a program sent a little, and ended")
        except ProducerFenced:
            clients.cluster.note("a program ended whose producer was forgotten")
        except RangelogError as error:
            clients.cluster.note(f"program: {type(error).__name__}")
            await asyncio.sleep(0.3)
