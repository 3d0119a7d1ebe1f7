"""`make storm`: a range server dies under thousands of open streams: how long until each of them acks again.

Real processes on this machine: three placement drivers, range servers, one client with all writers. At the kill one record is
appended to each stream at once, and again and again until no open range has a replica on that server: a range is frozen while
it is left, so the first round alone would not see the longest wait. Then once more, and some seconds later. Who used the
processors is printed beside each time; at the end everything is read back.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import rangelog
from rangelog_bench.loop import run_on_loop
from rangelog_bench.meter import Meter
from rangelog_cli.local.health import wait_healthy
from rangelog_cli.local.processes import Cluster

OPENING_AT_ONCE = 64
GIVE_UP_S = 120.0
AFTERMATH_S = 5.0
"""By then the placement driver has taken the server for dead, and replaces its members of sealed ranges."""
VICTIM = "rs1"


class Storm:
    """All streams of one client."""

    def __init__(self, client: Any, streams: int) -> None:
        self.client = client
        self.names = [f"storm-{number:05d}" for number in range(streams)]
        self.writers: list[Any] = []
        self.acked = [0] * streams

    async def open(self) -> None:
        slots = asyncio.Semaphore(OPENING_AT_ONCE)

        async def one(name: str) -> Any:
            async with slots:
                await self.client.create_stream(name)
                writer = self.client.writer(name)
                await writer.open()
                return writer

        self.writers = list(await asyncio.gather(*(one(name) for name in self.names)))

    async def ack_all(self) -> list[float]:
        """Append one record to each stream at once; return when each was acked, in seconds from now."""
        began_s = time.monotonic()

        async def one(number: int) -> float:
            await self.writers[number].append(b"%08d" % self.acked[number], timeout_s=GIVE_UP_S)
            self.acked[number] += 1
            return time.monotonic() - began_s

        return list(await asyncio.gather(*(one(number) for number in range(len(self.writers)))))

    async def missing(self) -> int:
        """How many acked records are not in the log, or not where they belong."""
        slots = asyncio.Semaphore(OPENING_AT_ONCE)

        async def one(number: int) -> int:
            async with slots:
                found = [record.value async for record in self.client.reader(self.names[number], follow=False)]
                return sum(found[at : at + 1] != [b"%08d" % at] for at in range(self.acked[number]))

        return sum(await asyncio.gather(*(one(number) for number in range(len(self.names)))))

    def affected(self, server: str) -> int:
        """How many streams have a replica of their open range on a server."""
        return sum(
            any(replica.server == server for replica in writer._runner.core.opened.replicas) for writer in self.writers
        )


class Phases:
    """Times of the parts of a run, and who used the processors meanwhile."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.figures: dict[str, Any] = {}

    async def ack_all(self, name: str, storm: Storm) -> list[float]:
        """Measure one record on each stream; return when each was acked, in order."""
        meter = Meter({name: each.pid for name, each in self._cluster.members.items() if each.running})
        took = sorted(await storm.ack_all())
        used = meter.stop()
        cpu_s: dict[str, float] = {}
        for member, seconds in used["cpu_s"].items():
            role = member.rstrip("0123456789")
            cpu_s[role] = cpu_s.get(role, 0.0) + seconds
            if role == "pd":
                cpu_s["busiest pd"] = max(cpu_s.get("busiest pd", 0.0), seconds)
            elif role == "rs":
                cpu_s["busiest rs"] = max(cpu_s.get("busiest rs", 0.0), seconds)
        self.figures[name] = {
            "all_acked_s": round(took[-1], 2),
            "p50_s": round(statistics.median(took), 2),
            "p99_s": round(took[int(len(took) * 0.99)], 2),
            "cpu_s": {role: round(seconds, 2) for role, seconds in sorted(cpu_s.items())},
            "cores_of_others": used["cores_of_others"],
        }
        print(f"{name}: {json.dumps(self.figures[name])}", flush=True)
        return took


async def measure(streams: int, servers: int, directory: Path) -> int:
    with Cluster.open(directory, pds=3, range_servers=servers, env={}) as cluster:
        await asyncio.to_thread(wait_healthy, cluster)
        async with await rangelog.connect(cluster.connect_string) as client:
            storm, phases = Storm(client, streams), Phases(cluster)
            began_s = time.monotonic()
            await storm.open()
            print(f"{streams} streams open in {time.monotonic() - began_s:.1f} s", flush=True)
            await storm.ack_all()
            usual = await phases.ack_all("nothing wrong", storm)
            affected = storm.affected(VICTIM)
            await asyncio.to_thread(cluster.kill, VICTIM)
            killed_s = time.monotonic()
            took = await phases.ack_all("server killed", storm)
            longest_s = took[-1]
            while (
                storm.affected(VICTIM) and time.monotonic() < killed_s + GIVE_UP_S
            ):  # a range that is left is frozen for a while
                longest_s = max(longest_s, (await phases.ack_all("while its ranges are left", storm))[-1])
            left_s = time.monotonic() - killed_s
            still = storm.affected(VICTIM)
            longest_s = max(longest_s, (await phases.ack_all("once more", storm))[-1])
            await asyncio.sleep(AFTERMATH_S)
            await phases.ack_all(f"{AFTERMATH_S:g} s later", storm)
            missing = await storm.missing()
            print(
                f"storm: streams={streams} servers={servers} affected={affected} all_acked_s={took[-1]:.2f} "
                f"longest_s={longest_s:.2f} all_left_s={left_s:.2f} not_left={still} usual_s={usual[-1]:.2f} "
                f"missing={missing}",
                flush=True,
            )
            return 1 if missing or still else 0


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
