"""kill -9 of every process at once, in the middle of appends, again and again: what was acked is there."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

import rangelog

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.timeout(400)]

ROUNDS = 20
ACKS_BEFORE_KILL = 300
STREAM = "survivor"


async def append_until_killed(local: Any, round_number: int) -> dict[int, bytes]:
    """Append pipelined; once some hundred are acked kill everything under the writer. What was acked: offset → value."""
    acked: dict[int, bytes] = {}
    enough = asyncio.Event()

    def note(value: bytes, future: asyncio.Future[Any]) -> None:
        if not future.cancelled() and future.exception() is None:
            acked[future.result().offset] = value
            if len(acked) >= ACKS_BEFORE_KILL:
                enough.set()

    async def append(writer: Any) -> None:
        number = 0
        while True:
            await writer.ready()
            for _ in range(20):
                value = b"round %d record %d" % (round_number, number)
                writer.submit(value).add_done_callback(lambda future, value=value: note(value, future))
                number += 1
            await asyncio.sleep(0.002)

    client = await rangelog.connect(local.connect_string)
    writer = client.writer(STREAM)
    await writer.open()
    appending = asyncio.create_task(append(writer))
    try:
        await asyncio.wait_for(enough.wait(), 30)
        await asyncio.to_thread(local.kill_everything)
        await asyncio.sleep(0)  # acks that had arrived count as well
    finally:
        appending.cancel()
        await writer.close(flush=False)
        await client.close()
    return acked


async def read_from(local: Any, offset: int) -> dict[int, bytes]:
    """Everything from `offset` to the end; the offsets are dense."""
    async with await rangelog.connect(local.connect_string) as client:
        found = {record.offset: record.value async for record in client.reader(STREAM, start=offset, follow=False)}
    assert list(found) == list(range(offset, offset + len(found)))
    return found


async def test_every_acked_record_survives_kill_of_everything(start_local: Callable[..., Any]) -> None:
    """20 rounds: append, kill -9 supervisor, placement drivers and range servers, start again, compare."""
    acked: dict[int, bytes] = {}
    local = start_local()
    local.wait_for("rangelog is up")
    async with await rangelog.connect(local.connect_string) as client:
        await client.create_stream(STREAM)
    for round_number in range(ROUNDS):
        fresh = await append_until_killed(local, round_number)
        assert not fresh.keys() & acked.keys(), "an offset was acked twice"
        acked |= fresh
        local = start_local()
        local.wait_for("rangelog is up")
        found = await read_from(local, min(fresh))
        assert {offset: found.get(offset) for offset in fresh} == fresh, f"lost in round {round_number}"
    found = await read_from(local, 0)
    assert {offset: found.get(offset) for offset in acked} == acked
    assert len(acked) >= ROUNDS * ACKS_BEFORE_KILL
    assert len(set(found.values())) == len(found), "a record was appended twice"
