"""The tier moves to another store under load, then a cluster is lost but for its stores, and restored from them.

A cluster of its own on loopback, beside that of the run: a restore begins with empty placement drivers and range servers. What
holds:
- Records that were in the tier as the last snapshot was written are there again, from both stores, each at its offset.
- A stream ends where its records cease to be in the tier. What was acked behind that is listed as lost from there on, and the
  next writer goes on there, under a higher epoch.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import rangelog
from rangelog_cli.local.health import describe, wait_healthy
from rangelog_cli.local.processes import Cluster
from rangelog_core.net.pd_client import PdClient
from rangelog_proto.v1 import common_pb2, pd_pb2
from tests.chaos.chaos_cluster import SETTINGS
from tests.chaos.chaos_faults import Fault
from tests.chaos.chaos_load import Client, Load, StreamPlan
from tests.chaos.chaos_network import Loopback
from tests.chaos.chaos_reading import read_back
from tests.support.history import Ended, Invoked, read_history
from tests.support.leader import leader_of
from tests.support.waiting import eventually

PLANS = (
    StreamPlan("moved", rate=400, record_bytes=400, range_bytes=64 * 1024, hot_retention_s=2.0),
    StreamPlan("slow", rate=150, record_bytes=400, range_bytes=64 * 1024, hot_retention_s=60.0),
)
SOON = {"RANGELOG_PD_TIER_SNAPSHOT_SOON_MS": "500", "RANGELOG_PD_TIER_SNAPSHOT_INTERVAL_MS": "2000"}
RANGES = 4
"""So many are in each store before it goes on."""
TIERED_WITHIN_S = 60.0
SNAPSHOT_WITHIN_S = 30.0
COMMAND_S = 120.0
CALL_S = 10.0
PAGE = 1_000
_numbers = itertools.count(1)


class TierMovedAndRestored(Fault):
    """The tier moves to another store under load; all servers lose everything; a new cluster is restored from both stores."""

    name = "tier-moved-and-restored"
    side = "all"
    by_default = False
    hold_s = (0.0, 0.1)

    def inject(self) -> str:
        """See Fault."""
        directory = self.system.directory / f"moved-{next(_numbers)}"
        stores = directory / "first", directory / "second"
        for each in stores:
            each.mkdir(parents=True)
        with ExitStack() as stack:
            old = _start(stack, directory / "old", f"file://{stores[0]}")
            writers = _begin(stack, old, directory)
            tier_url = self._move(old, stores)
            tiered = {plan.name: _tiered_end(old, plan.name) for plan in PLANS}
            for _ in range(2):  # the first one may have been on its way
                _wait_snapshot(old)
            _lose(old)
            for writer in writers:
                writer.process.kill()
            new = _start(stack, directory / "new", tier_url)
            report = _pdctl(new, "restore", "--from", f"file://{stores[1]}", "--yes", "--verify")
            problems = [f"{key}: {report[key]}" for key in ("missing", "doubtful", "problems") if report[key]]
            said = []
            for writer in writers:
                name = writer.stream
                acked, sent = _noted(writer.history)
                found, wrong = asyncio.run(_look(new, name, writer.pulse.epoch))
                lost_from = [each["start_offset"] for each in report["lost"] if each["stream"] == name]
                problems += wrong + problems_of(name, acked, sent, found, tiered[name], lost_from)
                said.append(f"{name} {len(found)} of {max(acked) + 1} acked, {tiered[name]} had to be there")
            assert not problems, "; ".join(problems)
        return ", ".join(said)

    def heal(self) -> None:
        """Nothing is left of it."""

    def _move(self, cluster: Cluster, stores: Sequence[Path]) -> str:
        """Have the tier move when ranges are in the first store, and the leader die then; returns the tier with both."""
        _wait_tiered(cluster, dict.fromkeys((plan.name for plan in PLANS), 0))
        before = {plan.name: _tiered_end(cluster, plan.name) for plan in PLANS}
        tier_url: str = _pdctl(cluster, "cluster", "set-tier", f"file://{stores[1]}", "--yes")["tier_url"]
        leader = leader_of(cluster)
        cluster.kill(leader)
        self.interrupts.wait(self.dice.uniform(0.1, 1.0))
        cluster.start_member(leader)
        _wait_tiered(cluster, before)
        for each in stores:
            eventually(lambda each=each: any(each.rglob("*.parquet")), f"{each} has no object", TIERED_WITHIN_S)
        return tier_url


def problems_of(
    stream: str,
    acked: Mapping[int, bytes],
    sent: Collection[bytes],
    found: Sequence[bytes],
    tiered_end: int,
    lost_from: Sequence[int],
) -> list[str]:
    """What is wrong with a restored stream: identities by offset as they were acked, and as they are read from 0 on."""
    problems = []
    if len(found) < tiered_end:
        problems.append(f"{stream} is restored up to {len(found)}; up to {tiered_end} it was in the tier")
    other = [offset for offset, name in enumerate(found) if acked.get(offset, name) != name]
    if other:
        problems.append(f"{len(other)} records of {stream} are others than were acked, such as at {other[0]}")
    strange = [offset for offset, name in enumerate(found) if name not in sent]
    if strange:
        problems.append(f"nobody sent {len(strange)} records of {stream}, such as that at {strange[0]}")
    if max(acked, default=-1) >= len(found) and len(found) not in lost_from:
        problems.append(
            f"records of {stream} were acked behind {len(found)}, and are not listed as lost from there on: {lost_from}"
        )
    return problems


def _start(stack: ExitStack, directory: Path, tier_url: str) -> Cluster:
    """A healthy cluster without brokers, which is gone when the stack is closed."""
    cluster = Cluster.open(directory, pds=3, range_servers=3, brokers=0, tier_url=tier_url, env=SETTINGS | SOON)
    stack.callback(cluster.stop)
    stack.callback(cluster.kill_all)
    cluster.start()
    wait_healthy(cluster)
    return cluster


def _begin(stack: ExitStack, cluster: Cluster, directory: Path) -> list[Client]:
    """Create the streams and start their writers."""
    asyncio.run(_create(cluster))
    load = Load(directory / "clients", Loopback(), cluster.connect_string, PLANS, light=True)
    stack.callback(load.close)
    load.directory.mkdir()
    return [load.begin(plan.name, "loopback") for plan in PLANS]


async def _create(cluster: Cluster) -> None:
    async with await rangelog.connect(cluster.connect_string) as client:
        for plan in PLANS:
            config = rangelog.StreamConfig(
                range_size_bytes_max=plan.range_bytes, hot_retention_seconds=plan.hot_retention_s, tiered=True
            )
            await client.create_stream(plan.name, config)


def _lose(cluster: Cluster) -> None:
    """Every process, and every directory of one."""
    cluster.kill_all()
    for name in cluster.members:
        shutil.rmtree(cluster.directory / name)


def _pdctl(cluster: Cluster, *arguments: str) -> Any:
    """What a command says as JSON. Raises AssertionError with its words."""
    env = os.environ | {"RANGELOG_PD": cluster.connect_string}
    command = [sys.executable, "-m", "pdctl", *arguments, "-o", "json"]
    ran = subprocess.run(command, env=env, capture_output=True, text=True, timeout=COMMAND_S, check=False)
    assert ran.returncode == 0, f"pdctl {' '.join(arguments)}: {ran.stderr}"
    return json.loads(ran.stdout)


def _tiered_end(cluster: Cluster, stream: str) -> int:
    """Up to where the records of a stream are in the tier without a hole. Raises what asking raises."""

    async def ask() -> int:
        pd = PdClient(cluster.pd_addresses)
        try:
            end = index = 0
            while True:
                request = pd_pb2.ListRangesRequest(name=stream, from_index=index, page_size=PAGE)
                page = await pd.call(request, pd_pb2.ListRangesResponse, timeout_s=CALL_S)
                for each in page.ranges:
                    if each.state != common_pb2.RANGE_STATE_SEALED or each.tiered_end_offset < each.end_offset:
                        return end
                    end, index = each.end_offset, each.index + 1
                if not page.more:
                    return end
        finally:
            await pd.close()

    return asyncio.run(ask())


def _wait_tiered(cluster: Cluster, behind: Mapping[str, int]) -> None:
    """Until some ranges more of each stream are in the tier."""
    for plan in PLANS:
        wanted = behind[plan.name] + RANGES * plan.range_bytes // plan.record_bytes
        eventually(
            lambda plan=plan, wanted=wanted: _tiered_end(cluster, plan.name) >= wanted,
            f"{plan.name} is not in the tier up to {wanted}",
            TIERED_WITHIN_S,
        )


def _wait_snapshot(cluster: Cluster) -> None:
    """Until a snapshot is written that was not there before."""
    before = _snapshot(cluster)
    eventually(lambda: _snapshot(cluster) not in ("", before), "no snapshot is written", SNAPSHOT_WITHIN_S)


def _snapshot(cluster: Cluster) -> str:
    return describe(cluster.pd_addresses).tier_snapshot.snapshot_id


def _noted(history: Path) -> tuple[dict[int, bytes], set[bytes]]:
    """What a writer's appends were acked at, by offset; and all that it sent."""
    sent: dict[int, bytes] = {}
    acked: dict[int, bytes] = {}
    for event in read_history(history):
        if isinstance(event, Invoked):
            sent.update(enumerate(event.identities, event.sequence))
        elif isinstance(event, Ended) and event.offset is not None:
            acked.update((event.offset + n, sent[event.sequence + n]) for n in range(event.count))
    return acked, set(sent.values())


async def _look(cluster: Cluster, stream: str, epoch: int) -> tuple[list[bytes], list[str]]:
    """What a restored stream has, by offset from 0 on; and what is wrong with how it goes on behind that."""
    async with await rangelog.connect(cluster.connect_string) as client:
        finals, end = await read_back(client, stream, "tier", "cold_first")
        found = [name for each in finals for name in each.identities]
        if len(found) != end or finals[0].offset:
            return found, [f"{stream} has {len(found)} records from {finals[0].offset} to {end}"]
        async with client.writer(stream) as writer:
            ack = await writer.append(b"more")
            if ack.offset == end and writer.epoch > epoch:
                return found, []
            return found, [f"{stream} goes on at {ack.offset} in epoch {writer.epoch}; it ended at {end} in {epoch}"]
