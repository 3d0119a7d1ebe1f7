"""`make storm`: a range server dies under thousands of open streams: how long until each of them acks again.

Real processes on this machine: three placement drivers, range servers, one client with all writers. Each stream has a record in
flight all the time; the longest time between two acks of each is measured around the kill, then everything is read back.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import rangelog
from rangelog.errors import RangelogError
from rangelog_cli.bench.loop import run_on_loop
from rangelog_cli.local.health import wait_healthy
from rangelog_cli.local.processes import Cluster

OPENING_AT_ONCE = 64
PACE_S = 10.0
"""Each stream appends once in this time: all together what one client does easily."""
CALM_S = 5.0
GIVE_UP_S = 60.0


class Storm:
    """All streams of one client."""

    def __init__(self, client: Any, streams: int) -> None:
        self.client = client
        self.names = [f"storm-{number:05d}" for number in range(streams)]
        self.writers: list[Any] = []
        self.acked = [0] * streams
        self.stopping = False

    async def open(self) -> None:
        slots = asyncio.Semaphore(OPENING_AT_ONCE)

        async def one(name: str) -> Any:
            async with slots:
                await self.client.create_stream(name)
                writer = self.client.writer(name)
                await writer.open()
                return writer

        self.writers = list(await asyncio.gather(*(one(name) for name in self.names)))

    async def run(self, number: int) -> None:
        """One record in flight, at the stream's pace."""
        writer = self.writers[number]
        await asyncio.sleep(PACE_S * number / len(self.writers))
        while not self.stopping:
            began_s = time.monotonic()
            await writer.append(b"%08d" % self.acked[number])
            self.acked[number] += 1
            await asyncio.sleep(max(0.0, PACE_S - (time.monotonic() - began_s)))

    async def ack_all(self) -> list[float]:
        """Append one record to each stream at once; return when each was acked, in seconds from now."""
        began_s = time.monotonic()

        async def one(number: int) -> float:
            await self.writers[number].append(b"%08d" % self.acked[number], timeout_s=GIVE_UP_S)
            self.acked[number] += 1
            return time.monotonic() - began_s

        return list(await asyncio.gather(*(one(number) for number in range(len(self.writers)))))

    async def missing(self) -> int:
        """How many acked records are not in the log."""
        slots = asyncio.Semaphore(OPENING_AT_ONCE)

        async def one(number: int) -> int:
            async with slots:
                found = [record.value async for record in self.client.reader(self.names[number], follow=False)]
                return sum(found[:1][0:0] != [] or value != b"%08d" % at for at, value in enumerate(found)) + (
                    self.acked[number] - len(found)
                )

        return sum(await asyncio.gather(*(one(number) for number in range(len(self.names)))))


async def measure(streams: int, servers: int, directory: Path) -> int:
    with Cluster.open(directory, pds=3, range_servers=servers, env={}) as cluster:
        await asyncio.to_thread(wait_healthy, cluster)
        async with await rangelog.connect(cluster.connect_string) as client:
            storm = Storm(client, streams)
            began_s = time.monotonic()
            await storm.open()
            print(f"{streams} streams open in {time.monotonic() - began_s:.1f} s", flush=True)
            usual = await storm.ack_all()
            usual = await storm.ack_all()
            print(f"one record on each, nothing wrong: all acked in {max(usual):.2f} s", flush=True)
            victim = "rs1"
            affected = sum(
                any(replica.server == victim for replica in writer._runner.core.opened.replicas)
                for writer in storm.writers
            )
            await asyncio.to_thread(cluster.kill, victim)
            took = await storm.ack_all()
            order = sorted(took)
            print(
                f"storm: streams={streams} servers={servers} affected={affected} all_acked_s={max(took):.2f} "
                f"p50_s={statistics.median(order):.2f} p99_s={order[int(len(order) * 0.99)]:.2f} "
                f"usual_s={max(usual):.2f}",
                flush=True,
            )
            after = await storm.ack_all()
            print(f"once more: all acked in {max(after):.2f} s", flush=True)
            with contextlib.suppress(RangelogError):
                missing = await storm.missing()
                print(f"missing={missing}")
                return 1 if missing else 0
    return 1


def main() -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(description="a range server dies under thousands of open streams")
    parser.add_argument("--streams", type=int, default=10_000)
    parser.add_argument("--servers", type=int, default=9)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir="build" if Path("build").is_dir() else None) as directory:
        return run_on_loop(lambda: measure(given.streams, given.servers, Path(directory)))


if __name__ == "__main__":
    sys.exit(main())
