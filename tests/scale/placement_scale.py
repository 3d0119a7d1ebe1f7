"""`make placement-scale`: 1,000 range servers and 1,000,000 ranges: what a placement takes, how even the servers become, and
what the death of one server costs the others' heartbeats and the rounds of repair.

State, placement, view, reconcilers and handlers are the production classes; consensus is the one-member stand-in. Of single
placements the median is told, of everything longer the processor time: other programs on the machine count little.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rangelog_pd.consensus.local import LocalConsensus
from rangelog_pd.driver import Driver
from rangelog_pd.handlers import servers
from rangelog_pd.placement import place, replicas_of
from rangelog_pd.settings import MemberSettings, PdSettings
from rangelog_pd.state.machine import Machine
from rangelog_pd.state.versions import LEVEL_OPERATIONS
from rangelog_proto.v1 import common_pb2, pd_state_pb2
from rangelog_proto.v1 import pd_pb2 as pb
from rangelog_server_common.garbage import spare_long_lived

RACKS_PER_ZONE = 20
RANGE_BYTES = 64 << 20
ROUNDS_MAX = 2_000
NEVER_MS = 86_400_000


class Cluster:
    """A driver, and servers that do at once what they are told."""

    def __init__(self, servers_: int, zones: int, streams: int, ranges: int, directory: Path) -> None:
        self.servers, self.zones, self.streams, self.ranges = servers_, zones, streams, ranges
        settings = PdSettings(
            name="pd1",
            data_dir=directory,
            members={"pd1": MemberSettings(raft_address="pd1:1", api_address="pd1:2")},
            server_suspect_ms=NEVER_MS // 2,  # only who is made to die does so, however long this takes
            server_dead_ms=NEVER_MS,
            repair_after_ms=NEVER_MS,
        )
        self.machine = Machine()
        self.driver = Driver(settings, LocalConsensus(self.machine, name="pd1"), self.machine)
        self.view = self.driver.view
        self.applied = 0
        self.sequences: Counter[str] = Counter()
        self.dead = ""

    @property
    def names(self) -> Iterable[str]:
        """The servers that live."""
        return (name for name in self.machine.state.servers if name != self.dead)

    def apply(self, **action: Any) -> None:
        """One command straight into the state machine."""
        self.applied += 1
        command = pd_state_pb2.Command(version=LEVEL_OPERATIONS, now_ms=self.driver.wall_ms(), **action)
        result = pd_state_pb2.CommandResult.FromString(self.machine.apply(self.applied, command.SerializeToString()))
        if result.error_code:
            raise SystemExit(f"placement-scale: {result.error_message}")

    async def start(self) -> None:
        """Register all servers, which send their first heartbeats, and create the streams."""
        await self.driver.reconcile()
        for number in range(self.servers):
            zone, rack = number % self.zones, number // self.zones % RACKS_PER_ZONE
            name = f"rs{number:04d}"
            request = pb.RegisterServerRequest(
                server=name, incarnation=1, boot=1, data_address=f"{name}:1", zone=f"z{zone}", rack=f"r{rack}"
            )
            self.apply(register_server=request)
            await self.beat(name)
        config = common_pb2.StreamConfig(tiered=False)
        for number in range(self.streams):
            self.apply(create_stream=pb.CreateStreamRequest(name=f"s{number:06d}", config=config))
            self.apply(open_writer=pb.OpenWriterRequest(name=f"s{number:06d}"))

    async def beat(
        self, name: str, reports: Iterable[pb.ReplicaReport] = (), *, complete: bool = False
    ) -> pb.HeartbeatResponse:
        """One heartbeat."""
        self.sequences[name] += 1
        request = pb.HeartbeatRequest(
            server=name,
            incarnation=1,
            sequence=(1 << 32) + self.sequences[name],
            replicas=reports,
            complete=complete,
            wall_ms=self.driver.wall_ms(),
        )
        return await servers.heartbeat(self.driver, request)

    def fill(self) -> list[float]:
        """Place all ranges, stream after stream in turn, each with the state as it then is; return what each placement took."""
        took = []
        state = self.machine.state
        for number in range(self.ranges):
            stream_id, index = number % self.streams + 1, number // self.streams
            began = time.perf_counter()
            placer = self.view.fleet.placer(state, self.driver.now_ms())
            chosen = replicas_of(placer.place(replicas=3, acks=2), with_reason=True)
            took.append(time.perf_counter() - began)
            if not index:
                create = pb.CreateRangeRequest(stream_id=stream_id, epoch=1)
                self.apply(create_range=pd_state_pb2.PlacedCreateRange(request=create, replicas=chosen))
                continue
            seal = pb.SealRangeRequest(
                stream_id=stream_id, range_index=index - 1, epoch=1, end_offset=10 * index, create_next=True
            )
            self.apply(seal_range=pd_state_pb2.PlacedSealRange(request=seal, replicas=chosen))
        return took

    def rebuilt_s(self, count: int) -> float:
        """What a placement takes that reads and compares all candidates, on average."""
        began = time.process_time()
        for _ in range(count):
            place(self.view.fleet.candidates(self.machine.state, self.driver.now_ms()), replicas=3, acks=2)
        return (time.process_time() - began) / count

    async def report_all(self) -> None:
        """The complete report of every server."""
        state = self.machine.state
        for name in list(self.names):
            hosted = state.hosted.of(name, 1)
            found = [report(*key, pb.REPLICA_STATE_SEALED) for key in hosted.sealed]
            found += [report(*key, pb.REPLICA_STATE_OPEN) for key in hosted.open]
            await self.beat(name, found, complete=True)
        for name in list(self.names):  # what the first answers had told
            for _ in range(3):
                await self.beat(name)

    async def heartbeats(self) -> float:
        """One of each living server, which copies what it is told to; returns the processor time of all, in s."""
        took = 0.0
        for name in list(self.names):
            began = time.process_time()
            answer = await self.beat(name)
            took += time.process_time() - began
            copied = [
                report(each.stream_id, each.range_index, pb.REPLICA_STATE_SEALED)
                for each in answer.directives
                if each.HasField("copy_replica")
            ]
            if copied:
                await self.beat(name, copied)
        return took

    async def die(self, name: str) -> tuple[list[float], list[float]]:
        """A server is lost for good; rounds until every range is whole. Returns what each round, and its heartbeats, took."""
        self.dead = name
        self.view.servers[name].heard_ms -= 2 * NEVER_MS
        rounds, beats = [], []
        while len(rounds) < ROUNDS_MAX:
            began = time.process_time()
            await self.driver.reconcile()
            rounds.append(time.process_time() - began)
            beats.append(await self.heartbeats())
            repairs = self.view.upkeep.repairs
            if not repairs.waiting and not repairs.copying:
                return rounds, beats
        raise SystemExit(f"placement-scale: repairs are not over after {ROUNDS_MAX} rounds")


def report(stream_id: int, index: int, state: pb.ReplicaState) -> pb.ReplicaReport:
    """A replica as its server reports it."""
    return pb.ReplicaReport(
        stream_id=stream_id, range_index=index, state=state, durable_offset=10 * index + 10, size_bytes=RANGE_BYTES
    )


def unevenness(counts: Iterable[int]) -> float:
    """The largest by the mean."""
    found = list(counts)
    return max(found) / statistics.fmean(found)


def balance(cluster: Cluster) -> dict[str, float]:
    """How even the servers and zones are: the largest by the mean, of replicas and of open ranges."""
    state = cluster.machine.state
    hosted = {name: state.hosted.of(name, 1) for name in cluster.names}
    zones: dict[str, int] = {}
    for name, each in hosted.items():
        zone = state.servers[name].server.zone
        zones[zone] = zones.get(zone, 0) + len(each)
    return {
        "replicas": unevenness(len(each) for each in hosted.values()),
        "open": unevenness(len(each.open) for each in hosted.values()),
        "zones": unevenness(zones.values()),
    }


def apart(cluster: Cluster) -> int:
    """The ranges whose replicas are not in three zones."""
    state = cluster.machine.state
    zone = {name: each.server.zone for name, each in state.servers.items()}
    return sum(len({zone[replica.server] for replica in each.replicas}) != 3 for each in state.ranges.values())


async def measure(given: argparse.Namespace) -> int:
    with tempfile.TemporaryDirectory() as directory:
        cluster = Cluster(given.servers, given.zones, given.streams, given.ranges, Path(directory))
        await cluster.start()
        began, began_cpu = time.monotonic(), time.process_time()
        took = cluster.fill()
        fill_s, fill_cpu_s = time.monotonic() - began, time.process_time() - began_cpu
        place_us = statistics.median(took) * 1e6  # by the clock: the median has no interruptions in it
        print(
            f"placed and applied {given.ranges} ranges in {fill_cpu_s:.0f} s of processor time ({fill_s:.0f} s by the clock); "
            f"a placement: median {place_us:.0f} us, 99 of 100 within {sorted(took)[len(took) * 99 // 100] * 1e6:.0f} us",
            flush=True,
        )
        rebuilt_us = cluster.rebuilt_s(50) * 1e6
        even, wrong = balance(cluster), apart(cluster)
        print(f"a placement that reads all candidates: {rebuilt_us:.0f} us")
        print(
            f"largest by mean: replicas of a server {even['replicas']:.3f}, open ranges of a server {even['open']:.3f}, "
            f"replicas of a zone {even['zones']:.4f}; ranges not in three zones: {wrong}",
            flush=True,
        )
        await cluster.report_all()
        spare_long_lived()
        quiet_began = time.process_time()
        await cluster.driver.reconcile()
        quiet_ms = (time.process_time() - quiet_began) * 1e3
        quiet_beat_us = await cluster.heartbeats() / given.servers * 1e6
        lost = next(iter(cluster.names))
        replicas = len(cluster.machine.state.hosted.of(lost, 1).sealed)
        rounds, beats = await cluster.die(lost)
        after = balance(cluster)
        round_ms, round_worst_ms = statistics.median(rounds) * 1e3, max(rounds) * 1e3
        beat_us = statistics.median(beats) / (given.servers - 1) * 1e6
        print(f"nothing to do: a round {quiet_ms:.2f} ms, a heartbeat {quiet_beat_us:.0f} us")
        print(
            f"{lost} dies with {replicas} sealed replicas: {len(rounds)} rounds, median {round_ms:.2f} ms, worst "
            f"{round_worst_ms:.2f} ms; a heartbeat meanwhile {beat_us:.0f} us; ranges not in three zones: {apart(cluster)}; "
            f"largest by mean after it: {after['replicas']:.3f}"
        )
        print(
            f"placement-scale: servers={given.servers} zones={given.zones} ranges={given.ranges} place_us={place_us:.0f} "
            f"rebuilt_us={rebuilt_us:.0f} filled_s={fill_cpu_s:.0f} replicas_max_by_mean={even['replicas']:.3f} "
            f"open_max_by_mean={even['open']:.3f} repair_rounds={len(rounds)} repair_round_ms={round_ms:.2f} "
            f"heartbeat_us={beat_us:.0f} not_apart={wrong + apart(cluster)}"
        )
    return 0 if not wrong else 1


def main() -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(description="placement and repair with many range servers and ranges")
    parser.add_argument("--servers", type=int, default=1_000)
    parser.add_argument("--zones", type=int, default=5)
    parser.add_argument("--streams", type=int, default=50_000)
    parser.add_argument("--ranges", type=int, default=1_000_000)
    given = parser.parse_args()
    if given.zones < 3 or given.servers < 2 * given.zones or not given.streams <= given.ranges:
        parser.error("zones: at least 3; servers: at least two for each zone; ranges: at least one for each stream")
    return asyncio.run(measure(given))


if __name__ == "__main__":
    sys.exit(main())
