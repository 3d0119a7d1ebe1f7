"""One client that appends as fast as it can, nine that append now and then: nobody starves, no quota needed."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Callable

import pytest

import rangelog
from rangelog_cli.local.processes import Cluster
from rangelog_core.stream_config import StreamConfig

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180), pytest.mark.measure, pytest.mark.alone]

SECONDS = 25.0
"""So long that a moment in which the machine stands still, one late record of each of the nine, is no hundredth of all."""
P99_MS_MAX = 1_500.0
"""Of the nine: client, servers and the flood share two processors. Without a flood it is below 30 ms."""
FLOOD = """
import asyncio, sys, time, rangelog

async def main():
    async with rangelog.connect(sys.argv[1]) as client, client.writer("flood") as writer:
        end_s, count = time.monotonic() + float(sys.argv[2]), 0
        while time.monotonic() < end_s:
            await writer.ready()
            writer.append_nowait(bytes(16_384))
            count += 1
            if count % 64 == 0:
                await asyncio.sleep(0)
        await writer.flush()
        print(count)

asyncio.run(main())
"""


async def latencies_ms(client: rangelog.Client, name: str, until_s: float) -> list[float]:
    """Append one record after the other."""
    found = []
    async with client.writer(name) as writer:
        while time.monotonic() < until_s:
            began_s = time.monotonic()
            await writer.append(b"x" * 100)
            found.append((time.monotonic() - began_s) * 1000)
            await asyncio.sleep(0.05)
    return found


async def answers_s(client: rangelog.Client, until_s: float) -> list[float]:
    """Ask the placement driver once a second."""
    found = []
    while time.monotonic() < until_s:
        began_s = time.monotonic()
        await client.describe_stream("flood")
        found.append(time.monotonic() - began_s)
        await asyncio.sleep(1)
    return found


async def test_nine_clients_beside_a_flood(cluster_factory: Callable[..., Cluster]) -> None:
    """Each of the nine goes on appending, and the flood as well; calls on the placement driver are answered meanwhile."""
    cluster = cluster_factory(pds=1, range_servers=3, brokers=0)
    names = [f"calm-{number}" for number in range(9)]
    async with rangelog.connect(cluster.connect_string) as client:
        for name in ("flood", *names):
            await client.create_stream(name, StreamConfig(tiered=False))
        command = [sys.executable, "-c", FLOOD, cluster.connect_string, str(SECONDS + 2)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, env=os.environ) as flood:
            try:
                until_s = time.monotonic() + SECONDS
                described_s, *found = await asyncio.gather(
                    answers_s(client, until_s), *(latencies_ms(client, name, until_s) for name in names)
                )
                told, _ = await asyncio.to_thread(flood.communicate, None, 60)
            finally:
                flood.kill()
    every = sorted(each for one in found for each in one)
    p99_ms = every[int(len(every) * 0.99)]
    print(f"\nfairness: flood {int(told)} records of 16 KiB, nine others {len(every)}, p99 {p99_ms:.0f} ms")
    assert flood.returncode == 0 and int(told) > 1_000
    assert min(map(len, found)) > 50 and p99_ms < P99_MS_MAX
    assert sorted(described_s)[-2] < 2.0, "all but one: as above"
