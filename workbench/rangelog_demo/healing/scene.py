"""The scene of `rangelog demo --healing`: what happens to the cluster, step by step, under load."""

from __future__ import annotations

import asyncio
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rangelog_cli.local.processes import Cluster
from rangelog_core.stream_config import StreamConfig
from rangelog_demo.healing.calls import HealingCalls, is_idle, wait_for
from rangelog_demo.healing.load import HealingLoad, read_back
from rangelog_demo.healing.outcome import HealingOutcome
from rangelog_demo.progress import Bar, DemoProgress
from rangelog_proto.v1 import common_pb2, repair_pb2

if TYPE_CHECKING:
    import rangelog

STREAMS = ["orders", "payments", "clicks"]
RANGE_SERVERS = 6
"""Two in each of three zones."""
RESTORED_SERVERS = 3
"""Of the cluster that is restored."""
FIRST_RECORDS = 12_000
"""Of each stream, before anything happens: what has to be copied later."""
RANGE_SIZE_BYTES = 2 * 1024 * 1024
SETTINGS = {
    "RANGELOG_SERVER_SEGMENT_SIZE_BYTES": str(16 * 1024 * 1024),
    "RANGELOG_PD_SERVER_SUSPECT_MS": "1000",
    "RANGELOG_PD_SERVER_DEAD_MS": "2500",
    "RANGELOG_PD_REPAIR_AFTER_MS": "2500",
    "RANGELOG_PD_ORPHAN_QUIET_MS": "3000",
    "RANGELOG_PD_TIER_SNAPSHOT_INTERVAL_MS": "2000",
    "RANGELOG_PD_TIER_SNAPSHOT_SOON_MS": "500",
}
KILLED, WIPED, DRAINED, ZONE = "rs1", "rs2", "rs3", ("rs2", "rs5")
CUT_OFF_S = 8.0
GAP_S_MAX = 5.0
"""Longer without an ack, and a zone was not survived."""
WAIT_S = 60.0


@dataclass
class HealingScene:
    """The state that all steps share."""

    directory: Path
    cluster: Cluster
    client: rangelog.Client
    calls: HealingCalls
    load: HealingLoad
    progress: DemoProgress
    outcome: HealingOutcome

    async def append(self) -> None:
        """(a) Records in three streams, to have something to lose."""
        total = FIRST_RECORDS * len(STREAMS)
        with self.progress.step("append to three streams", total=total) as bar:
            for name in STREAMS:
                config = StreamConfig(range_size_bytes_max=RANGE_SIZE_BYTES, hot_retention_seconds=float("inf"))
                await self.client.create_stream(name, config)
            self.load.start(FIRST_RECORDS)
            while self.load.acked < total and not self.load.problems:
                bar.update(self.load.acked)
                await asyncio.sleep(0.1)
            bar.update(total)
            bar.note = "they go on from here"

    async def kill(self) -> None:
        """(b) A range server that never comes back: suspect, dead, its ranges copied to others, healthy again."""
        with self.progress.step(f"{KILLED} is killed for good") as bar:
            began_s = time.monotonic()
            await asyncio.to_thread(self.cluster.kill, KILLED)
            await self._seen(common_pb2.SERVER_HEALTH_SUSPECT, common_pb2.SERVER_HEALTH_DEAD)  # the first may be over
            await self._say(bar, "server", "list")
            await self._seen(common_pb2.SERVER_HEALTH_DEAD)
            await self._say(bar, "server", "list")
            await wait_for(self._is_repairing, WAIT_S, "no repair began")
            await self._say(bar, "repair", "status")
            found = await self._repaired()
            outcome = self.outcome
            outcome.repair_s = time.monotonic() - began_s
            outcome.copy_s = found.took_ms / 1000
            outcome.repaired_bytes = found.copied_bytes
            await self._say(bar, "repair", "status")
            await self._must(bar, "server", "remove", KILLED, "--yes")
            await wait_for(self._is_healthy, WAIT_S, "the cluster is not healthy again")
            await self._say(bar, "cluster", "status")
            after = f"after {outcome.repair_s:.1f} s, {outcome.mb_per_s:.0f} MB/s"
            bar.note = f"{found.done_count} ranges had all copies again {after}"

    async def wipe(self) -> None:
        """(c) A server comes back with an empty disk: it is another member, and gets its copies again."""
        with self.progress.step(f"the disk of {WIPED} is wiped") as bar:
            await asyncio.to_thread(self.cluster.kill, WIPED)
            shutil.rmtree(self.cluster.directory / WIPED)
            await self._seen(common_pb2.SERVER_HEALTH_DEAD, server=WIPED)
            await asyncio.to_thread(self.cluster.start_member, WIPED)
            await self._seen(common_pb2.SERVER_HEALTH_ALIVE, server=WIPED)
            found = await self._repaired()
            bar.note = f"{found.done_count} ranges repaired"

    async def drain(self) -> None:
        """(d) A server is emptied and taken out, without a copy too few at any time."""
        with self.progress.step(f"{DRAINED} is drained") as bar:
            code, _ = await self._say(bar, "server", "drain", DRAINED, "--wait", "--timeout", f"{WAIT_S:.0f}s")
            if code == 0:
                await wait_for(self._left_open_ranges, WAIT_S, f"{DRAINED} is a member of open ranges")
                code, _ = await self._say(bar, "server", "remove", DRAINED, "--yes")
            self.outcome.drained = code == 0
            await asyncio.to_thread(self.cluster.kill, DRAINED)
            await self._repaired()

    async def cut_off(self) -> None:
        """(e) All servers of one zone of three stand still at once; appends go on."""
        with self.progress.step(f"the zone of {' and '.join(ZONE)} is cut off") as bar:
            before = {each.name: each.acked for each in self.load.streams}
            self.load.forget_gaps()
            for name in ZONE:
                self.cluster.pause(name)
            try:
                await asyncio.sleep(CUT_OFF_S)
            finally:
                for name in ZONE:
                    self.cluster.resume(name)
            gaps = [max(each.longest_gap_s, time.monotonic() - each.acked_at_s) for each in self.load.streams]
            self.outcome.longest_gap_s = max(gaps)
            went_on = all(each.acked > before[each.name] for each in self.load.streams)
            self.outcome.zone_survived = went_on and max(gaps) < GAP_S_MAX
            await self._repaired()
            bar.note = f"longest time without an ack {max(gaps):.2f} s"

    async def end(self) -> None:
        """(f) The load ends; all of it reaches the bucket, and so does what the placement drivers know."""
        with self.progress.step("everything reaches the bucket") as bar:
            await self.load.stop()
            self.outcome.appended = self.load.acked
            for name in STREAMS:
                await self.client.seal_stream(name)
            await wait_for(self._is_tiered, WAIT_S, "not everything is in the tier")
            await wait_for(
                self._snapshot_is_current, WAIT_S, "the bucket has no current snapshot of the placement drivers"
            )
            await self._say(bar, "cluster", "status")
            bar.note = f"{self.outcome.appended:,} records"

    # ---- inside

    async def _seen(self, *wanted: common_pb2.ServerHealth, server: str = KILLED) -> None:
        async def holds() -> bool:
            return await self.calls.health(server) in wanted

        names = " or ".join(common_pb2.ServerHealth.Name(each) for each in wanted)
        await wait_for(holds, WAIT_S, f"{server} was not seen as {names}")

    async def _is_repairing(self) -> bool:
        found = await self.calls.repairs()
        return found.done_count > 0 or not is_idle(found)

    async def _repaired(self) -> repair_pb2.ListRepairsResponse:
        """Wait until nothing lacks a copy any more; count what was repaired meanwhile."""

        async def done() -> repair_pb2.ListRepairsResponse | None:
            found = await self.calls.repairs()
            return found if is_idle(found) and not found.since_ms else None

        found = await wait_for(done, WAIT_S, "ranges still lack copies")
        assert found is not None
        self.outcome.repaired_ranges += found.done_count
        return found

    async def _is_healthy(self) -> bool:
        return (await self.calls.cluster()).health == "healthy"

    async def _left_open_ranges(self) -> bool:
        ranges = [each for name in STREAMS for each in await self.calls.ranges(name)]
        return not any(
            replica.server == DRAINED
            for each in ranges
            if each.state == common_pb2.RANGE_STATE_OPEN
            for replica in each.replicas
        )

    async def _is_tiered(self) -> bool:
        ranges = [each for name in STREAMS for each in await self.calls.ranges(name)]
        return all(each.tiered_end_offset >= each.end_offset for each in ranges)

    async def _snapshot_is_current(self) -> bool:
        return (await self.calls.cluster()).tier_snapshot.current

    async def _say(self, bar: Bar, *arguments: str) -> tuple[int, str]:
        """Run pdctl and show what it prints."""
        code, text = await self.calls.pdctl(*arguments)
        bar.say(f"$ pdctl {' '.join(arguments)}")
        for line in text.rstrip().splitlines():
            bar.say(f"  {line}")
        return code, text

    async def _must(self, bar: Bar, *arguments: str) -> None:
        code, text = await self._say(bar, *arguments)
        if code:
            self.outcome.problems.append(f"pdctl {' '.join(arguments)} failed: {text.strip()}")


async def restore(
    calls: HealingCalls,
    client: rangelog.Client,
    tier_url: str,
    load: HealingLoad,
    progress: DemoProgress,
    outcome: HealingOutcome,
) -> None:
    """(g) An empty cluster is restored from the bucket, and read: every acked record, once."""
    with progress.step("restored from the bucket alone") as bar:
        code, text = await calls.pdctl("restore", "--from", tier_url, "--yes")
        for line in text.rstrip().splitlines():
            bar.say(f"  {line}")
        found = await read_back(client, load.streams)
        outcome.read, outcome.lost, outcome.duplicated = found.read, found.lost, found.duplicated
        if found.problem:
            outcome.problems.append(found.problem)
        outcome.restored = code == 0 and found.lost == 0 and found.read == outcome.appended
        bar.note = f"{found.read:,} of {outcome.appended:,} records read"
