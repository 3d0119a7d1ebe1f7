"""Client processes that own a journal, or use a table."""

from __future__ import annotations

import asyncio
import gc
import os
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

import rangelog
from rangelog import Client
from rangelog_bench.topics.roles import Orders, answer
from rangelog_broker.journal.journal import Journal
from rangelog_broker.tables.machine import TablePartition
from rangelog_core.allocator import keep_large_blocks
from rangelog_proto.v1 import table_pb2

now = time.perf_counter
COMMAND_VALUE_BYTES = 100
ROW_VALUE_BYTES = 1024
_COMMANDS_AT_ONCE = 200
_PROPOSERS = 8
_KEYS = 10_000


async def keep_journal(client: Client, settings: dict[str, Any], orders: Orders) -> None:
    """Own a journal of a table's partition, in a process with a broker's settings.

    Propose commands for `seconds`, then fill the state up to `state_bytes`, and open the journal again.
    """
    keep_large_blocks()
    sys.setswitchinterval(0.001)
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)
    journal = await Journal.open(client, settings["streams"][0], TablePartition)
    answer({})
    if await orders.next() is None:
        return
    started_s = now()
    counts = await asyncio.gather(
        *(_propose(journal, each, started_s + settings["seconds"]) for each in range(_PROPOSERS))
    )
    took_s = now() - started_s
    await journal.close()
    answer({"commands": sum(counts), "seconds": took_s})
    await orders.next()
    journal = await Journal.open(client, settings["streams"][1], TablePartition)
    await _fill(journal, settings["state_bytes"])
    await journal.close()
    del journal
    gc.collect()
    async with await rangelog.connect(settings["endpoints"]) as other:
        started_s = now()
        journal = await Journal.open(other, settings["streams"][1], TablePartition)
        took_s = now() - started_s
        answer({"seconds": took_s, "state_bytes": journal.machine.size_bytes, "entries": journal.applied_offset})
        await journal.close()


def _put(key: bytes, value: bytes) -> bytes:
    return table_pb2.TableCommand(writes=[table_pb2.TableWrite(key=key, value=value)]).SerializeToString()


async def _propose(journal: Journal[TablePartition], proposer: int, end_s: float) -> int:
    session, sequence = await journal.open_session(), 0
    value = os.urandom(COMMAND_VALUE_BYTES)
    while now() < end_s:
        numbered = [
            (number, _put(b"key-%d-%d" % (proposer, number % _KEYS), value))
            for number in range(sequence, sequence + _COMMANDS_AT_ONCE)
        ]
        for result in await journal.propose_all(session, numbered, settled=sequence):
            result.unwrap()
        sequence += _COMMANDS_AT_ONCE
    return sequence


async def _fill(journal: Journal[TablePartition], state_bytes: int) -> None:
    session, sequence = await journal.open_session(), 0
    while journal.machine.size_bytes < state_bytes:
        numbered = [
            (number, _put(b"row-%d" % number, os.urandom(ROW_VALUE_BYTES)))
            for number in range(sequence, sequence + _COMMANDS_AT_ONCE)
        ]
        for result in await journal.propose_all(session, numbered, settled=sequence):
            result.unwrap()
        sequence += _COMMANDS_AT_ONCE


async def use_table(client: Client, settings: dict[str, Any], orders: Orders) -> None:
    """Use a `table` from `callers` at once, each with a row of its own; an order has the `operation` and the `seconds`."""
    table = client.table(settings["table"])
    keys = [b"%s-%d" % (settings["name"].encode(), number) for number in range(settings["callers"])]
    value = os.urandom(COMMAND_VALUE_BYTES)
    versions = dict(zip(keys, await asyncio.gather(*(table.put(key, value) for key in keys)), strict=True))
    answer({})

    async def get(key: bytes) -> None:
        row = await table.get(key)
        assert row is not None

    async def put(key: bytes) -> None:
        versions[key] = await table.put_if_version(key, value, versions[key])

    operations: dict[str, Callable[[bytes], Awaitable[None]]] = {"get": get, "put": put}
    while (order := await orders.next()) is not None:
        operation, end_s = operations[order["operation"]], now() + order["seconds"]

        async def repeat(key: bytes, operation: Any = operation, end_s: float = end_s) -> int:
            count = 0
            while now() < end_s:
                await operation(key)
                count += 1
            return count

        started_s = now()
        counts = await asyncio.gather(*map(repeat, keys))
        answer({"count": sum(counts), "started_s": started_s, "ended_s": now()})
