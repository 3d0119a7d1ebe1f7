"""Client processes that produce: flat out, or one record in flight for each shard."""

from __future__ import annotations

import asyncio
import time
from itertools import pairwise
from typing import Any

from rangelog import Client, TopicProducer
from rangelog_bench.payload import make_record
from rangelog_bench.topics.roles import Orders, answer
from rangelog_bench.workload import PRODUCER_KEYS
from rangelog_core.errors import RangelogError

now = time.perf_counter
KEYS = tuple(b"key-%d" % number for number in range(PRODUCER_KEYS))
"""Of records with keys, in turn."""
_SENT_AT_ONCE = 64


async def produce_flat_out(client: Client, settings: dict[str, Any], orders: Orders) -> None:
    """Open `producers` of a `topic`; on each order let all produce records of `size` for `seconds`, `keyed` or not."""
    producers = [client.producer(settings["topic"]) for _ in range(settings["producers"])]
    await asyncio.gather(*(each.open() for each in producers))
    payload = make_record(settings["size"], 0)
    await asyncio.gather(*(each.send(payload, shard=shard) for each in producers for shard in each.shards))
    answer({})
    while (order := await orders.next()) is not None:
        started_s = now()
        pump = _pump_keyed if order["keyed"] else _pump
        sent = sum(await asyncio.gather(*(pump(each, payload, started_s + order["seconds"]) for each in producers)))
        answer({"acked": sent, "started_s": started_s, "ended_s": now()})


async def _pump(producer: TopicProducer, payload: bytes, end_s: float) -> int:
    sent = 0
    while now() < end_s:
        for _ in range(_SENT_AT_ONCE):
            producer.send_nowait(payload)
        sent += _SENT_AT_ONCE
        await producer.ready()
    await producer.flush()
    return sent


async def _pump_keyed(producer: TopicProducer, payload: bytes, end_s: float) -> int:
    sent = 0
    while now() < end_s:
        at = sent % len(KEYS)
        for key in KEYS[at : at + _SENT_AT_ONCE]:
            producer.send_nowait(payload, key=key)
            sent += 1
        await producer.ready()
    await producer.flush()
    return sent


async def produce_one_by_one(client: Client, settings: dict[str, Any], orders: Orders) -> None:
    """Keep one record in flight for each of `shards`; an order ends that: its answer has the acks and gaps.

    The order's `since_s` is when something was done: `longest_s` is the longest time between two acks of each shard after it,
    `usual_s` the longest one before.
    """
    payload, acks = make_record(settings["size"], 0), {shard: [0.0] for shard in settings["shards"]}
    failed = 0
    async with client.producer(settings["topic"], append_timeout_s=60.0) as producer:
        for shard in acks:
            producer.send_nowait(payload, shard=shard)
        await producer.flush()
        answer({})
        order = await orders.next()
        if order is None:
            return
        stopping = False

        async def one(shard: int, times_s: list[float]) -> None:
            nonlocal failed
            times_s[0] = now()
            while not stopping:
                try:
                    await producer.send(payload, shard=shard)
                except RangelogError:
                    failed += 1
                    raise
                times_s.append(now())

        started_s = now()
        tasks = [asyncio.create_task(one(*each)) for each in acks.items()]
        order = await orders.next()
        stopping, ended_s = True, now()
        acked = sum(len(times_s) - 1 for times_s in acks.values())
        await asyncio.gather(*tasks)
        if order is not None:
            since_s = order.get("since_s", ended_s)
            answer({
                "acked": acked, "seconds": ended_s - started_s, "failed": failed,
                "written": len(acks) + sum(len(times_s) - 1 for times_s in acks.values()),
                "longest_s": [_longest(times_s, since_s, True) for times_s in acks.values()],
                "usual_s": [_longest(times_s, since_s, False) for times_s in acks.values()],
            })  # fmt: skip


def _longest(times_s: list[float], since_s: float, after: bool) -> float:
    return max((later - earlier for earlier, later in pairwise(times_s) if (later > since_s) == after), default=0.0)
