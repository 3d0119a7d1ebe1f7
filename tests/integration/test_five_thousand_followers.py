"""One process follows 5,000 streams of one range server over one connection: what that costs, and how soon records come."""

from __future__ import annotations

import asyncio
import math
import os
import resource
import time
from pathlib import Path
from typing import Any

import pytest

from rangelog_core.checked_batches import split_batches
from rangelog_core.frame import Opcode
from rangelog_proto.v1 import data_pb2
from rangelog_server.testing import RawClient, ServerProcess, batch
from tests.support.waiting import until

pytestmark = [pytest.mark.integration, pytest.mark.alone, pytest.mark.timeout(120)]

STREAMS = 5_000
WAIT_MS = 2_000
"""As a reader of the SDK asks: something is said that often on each stream."""
DELIVERED = 500
IDLE_CPU_SHARE_MAX = 0.5
"""Of a processor. Far above what a quiet machine shows: the figure is printed."""


def cpu_s(pid: int) -> float:
    """Processor time that a process took so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def rss_bytes(pid: int) -> int:
    """Memory that a process has."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize()


async def appended(writer: RawClient, base: int) -> None:
    """Append one record to each stream, and wait until the last of them is durable, and all are confirmed."""
    logs = [writer.listen(stream_id) for stream_id in range(1, STREAMS + 1)]
    for stream_id in range(1, STREAMS + 1):
        writer.append(batch(base, [b"record"], stream_id=stream_id), stream_id=stream_id, confirm_offset=base)
        if stream_id % 500 == 0:
            await asyncio.sleep(0.01)
    await until(lambda: not any(log.durable_offset <= base for log in logs), within_s=30)
    for stream_id in range(1, STREAMS + 1):
        writer.confirm(base + 1, stream_id=stream_id)


async def follow(replies: Any, seen: dict[int, float], stream_id: int) -> None:
    """Take what is pushed of one stream; note when a record came."""
    while True:
        frame = await replies.next(timeout_s=30.0)
        seen[0] = seen.get(0, 0.0) + 1
        if any(True for _ in split_batches(frame.payload)):
            seen[stream_id] = time.perf_counter()


async def replied(seen: dict[int, float], count: int) -> None:
    """Wait until so many replies came in all."""
    await until(lambda: seen.get(0, 0.0) >= count)


@pytest.mark.parametrize(
    "idle_cpu_share_max",
    [
        pytest.param(math.inf, marks=pytest.mark.long, id="promises"),
        pytest.param(IDLE_CPU_SHARE_MAX, marks=pytest.mark.measure, id="costs"),
    ],
)
async def test_five_thousand_streams_are_followed_on_one_connection(tmp_path: Path, idle_cpu_share_max: float) -> None:
    """All fetches wait on one connection, and a new record arrives. Measured: the idle server has processor time left."""
    server = ServerProcess(tmp_path / "rs1").start()
    try:
        assert server.process is not None
        pid = server.process.pid
        writer, reader = await server.connect(), await server.connect()
        await appended(writer, 0)
        before = rss_bytes(pid)
        seen: dict[int, float] = {}
        tasks: list[asyncio.Task[None]] = []
        for stream_id in range(1, STREAMS + 1):
            request = data_pb2.Fetch(
                stream_id=stream_id, offset=1, bytes_max=240 * 1024, wait_ms_max=WAIT_MS, credit_bytes=2 << 20
            )
            replies = reader.connection.subscribe(Opcode.FETCH, request.SerializeToString())
            tasks.append(asyncio.create_task(follow(replies, seen, stream_id)))
        await replied(seen, 2 * STREAMS)
        memory = (rss_bytes(pid) - before) / STREAMS
        began, cpu_before = time.perf_counter(), cpu_s(pid)
        await replied(seen, 5 * STREAMS)
        idle_s = time.perf_counter() - began
        share = (cpu_s(pid) - cpu_before) / idle_s
        assert not any(task.done() for task in tasks), "a fetch was refused"
        latencies: list[float] = []
        for number in range(DELIVERED):
            stream_id = 1 + number * (STREAMS // DELIVERED)
            sent = time.perf_counter()
            writer.append(batch(1, [b"news"], stream_id=stream_id), stream_id=stream_id, confirm_offset=1)
            writer.confirm(2, stream_id=stream_id)
            async with asyncio.timeout(30):
                while stream_id not in seen:
                    await asyncio.sleep(0)
            latencies.append((seen[stream_id] - sent) * 1000)
        latencies.sort()
        p50, p99 = latencies[DELIVERED // 2], latencies[DELIVERED * 99 // 100]
        print(
            f"\nfollowers: streams={STREAMS} idle_cpu_share={share:.3f} idle_replies_per_s={3 * STREAMS / idle_s:.0f} "
            f"memory_bytes_each={memory:.0f} delivery_ms_p50={p50:.2f} p99={p99:.2f}"
        )
        assert share < idle_cpu_share_max
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        writer.close()
        reader.close()
    finally:
        server.close()
