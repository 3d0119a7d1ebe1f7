"""Client processes that make transactions, each program one after the other."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from rangelog import Client, Transactional
from rangelog_bench.payload import make_record
from rangelog_bench.topics.roles import Orders, answer

now = time.perf_counter


async def transact(client: Client, settings: dict[str, Any], orders: Orders) -> None:
    """Open `programs`; on each order let all make transactions of `records` in `shards` of a `topic` for `seconds`.

    The answer has how many were committed, and for each how long the call of `commit` and the whole transaction took.
    """
    names = [f"{settings['name']}-{number}" for number in range(settings["programs"])]
    programs = [client.transactional(name) for name in names]
    await asyncio.gather(*(each.open() for each in programs))
    payload, shards = make_record(settings["size"], 0), settings["shards"]
    topic, records = settings["topic"], settings["records"]

    async def one(program: Transactional) -> tuple[float, float]:
        began_s = now()
        async with program.transaction() as transaction:
            futures = [
                await transaction.submit(topic, payload, shard=shards[number % len(shards)])
                for number in range(records)
            ]
            await asyncio.gather(*futures)
            staged_s = now()
        ended_s = now()
        return ended_s - staged_s, ended_s - began_s

    async def repeat(program: Transactional, end_s: float) -> list[tuple[float, float]]:
        took: list[tuple[float, float]] = []
        while not took or now() < end_s:
            took.append(await one(program))
        return took

    await asyncio.gather(*map(one, programs))
    answer({})
    while (order := await orders.next()) is not None:
        started_s = now()
        found = await asyncio.gather(*(repeat(each, started_s + order["seconds"]) for each in programs))
        took = [each for of_program in found for each in of_program]
        answer({
            "count": len(took), "started_s": started_s, "ended_s": now(),
            "commit_s": [commit_s for commit_s, _ in took], "whole_s": [whole_s for _, whole_s in took],
        })  # fmt: skip
    for program in programs:
        await program.leave()
