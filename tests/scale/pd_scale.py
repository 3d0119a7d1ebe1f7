"""`make pd-scale`: one placement driver with many streams: what a round, a call, a heartbeat, a snapshot and a start take.

The driver, its handlers, its reconcilers and its state are the production classes; consensus is the one-member stand-in, so
that what is measured is the driver's own work and not a disk. Times are medians; the worst of each is printed beside them.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from rangelog_pd.consensus.local import LocalConsensus
from rangelog_pd.driver import Driver
from rangelog_pd.handlers import ranges, servers
from rangelog_pd.settings import MemberSettings, PdSettings
from rangelog_pd.state.machine import Machine
from rangelog_proto.v1 import common_pb2, pd_state_pb2
from rangelog_proto.v1 import pd_pb2 as pb
from rangelog_server_common.garbage import spare_long_lived

MEMBERS = ("pd1", "pd2", "pd3")
REPEATS = 200
REPORTS_PER_BEAT = 50
"""Replicas that changed since the heartbeat before: a busy server."""


class Scale:
    """A driver with a given number of streams, ranges and servers."""

    def __init__(self, streams: int, ranges_: int, servers_: int, directory: Path) -> None:
        self.streams, self.ranges, self.servers = streams, ranges_, servers_
        members = {name: MemberSettings(raft_address=f"{name}:1", api_address=f"{name}:2") for name in MEMBERS}
        settings = PdSettings(
            name="pd1",
            data_dir=directory,
            members=members,
            raft_secret="not so secret",
            tier_url="file:///nowhere",
            server_suspect_ms=1_800_000,  # a slow driver must not lose its servers while it is measured
            server_dead_ms=3_600_000,
        )
        self.machine = Machine()
        self.driver = Driver(settings, LocalConsensus(self.machine, name="pd1"), self.machine)
        self.applied = 0
        self.beats: dict[str, int] = {}

    def name(self, number: int) -> str:
        return f"rs{number % self.servers:03d}"

    def apply(self, **action: Any) -> None:
        """One command straight into the state machine: filling is not what is measured."""
        self.applied += 1
        command = pd_state_pb2.Command(version=1, now_ms=self.driver.wall_ms(), **action)
        result = pd_state_pb2.CommandResult.FromString(self.machine.apply(self.applied, command.SerializeToString()))
        if result.error_code:
            raise SystemExit(f"pd-scale: {result.error_message}")

    def fill(self) -> None:
        """All streams have one open range, the first of them also a sealed one that is in the tier, or waits for it."""
        for number in range(self.servers):
            request = pb.RegisterServerRequest(
                server=self.name(number), incarnation=number + 1, boot=1, data_address=f"{self.name(number)}:1"
            )
            self.apply(register_server=request)
        config = common_pb2.StreamConfig(
            replicas=3,
            acks=2,
            range_size_bytes_max=1 << 30,
            hot_retention_ms=600_000,
            durability=common_pb2.DURABILITY_FLUSHED,
            compression=common_pb2.COMPRESSION_NONE,
            tiered=False,
            retention_ms=7 * 86_400_000,
        )
        sealed = self.ranges - self.streams
        for number in range(self.streams):
            stream_id = number + 1
            self.apply(create_stream=pb.CreateStreamRequest(name=f"stream-{number:06d}", config=config))
            self.apply(open_writer=pb.OpenWriterRequest(name=f"stream-{number:06d}"))
            self.apply(
                create_range=pd_state_pb2.PlacedCreateRange(
                    request=pb.CreateRangeRequest(stream_id=stream_id, epoch=1), replicas=self.members(number)
                )
            )
            if number < sealed:
                request = pb.SealRangeRequest(stream_id=stream_id, epoch=1, end_offset=1_000, create_next=True)
                self.apply(seal_range=pd_state_pb2.PlacedSealRange(request=request, replicas=self.members(number + 1)))

    def members(self, number: int) -> list[common_pb2.Replica]:
        chosen = [(number * 7 + step) % self.servers for step in (0, 1, 2)]
        return [common_pb2.Replica(server=self.name(each), incarnation=each + 1) for each in chosen]

    async def report_all(self) -> float:
        """The whole report of every server; returns the longest time that one took."""
        reports: dict[str, list[pb.ReplicaReport]] = {self.name(number): [] for number in range(self.servers)}
        sealed = self.ranges - self.streams
        for number in range(self.streams):
            indexes = (0, 1) if number < sealed else (0,)
            for index in indexes:
                is_sealed = index == 0 and number < sealed
                for replica in self.members(number + index):
                    state = pb.REPLICA_STATE_SEALED if is_sealed else pb.REPLICA_STATE_OPEN
                    reports[replica.server].append(
                        pb.ReplicaReport(
                            stream_id=number + 1, range_index=index, state=state, durable_offset=1_000, size_bytes=1_000
                        )
                    )
        longest = 0.0
        for number in range(self.servers):
            name = self.name(number)
            await self.beat(number)  # the first of a server only shows its sequence
            began = time.perf_counter()
            await self.beat(number, reports[name], complete=True)
            longest = max(longest, time.perf_counter() - began)
        return longest

    async def beat(self, number: int, reports: list[pb.ReplicaReport] | None = None, *, complete: bool = False) -> None:
        name = self.name(number)
        self.beats[name] = self.beats.get(name, 0) + 1
        request = pb.HeartbeatRequest(
            server=name,
            incarnation=number % self.servers + 1,
            sequence=(1 << 32) + self.beats[name],
            replicas=reports or [],
            complete=complete,
            wall_ms=self.driver.wall_ms(),
        )
        await servers.heartbeat(self.driver, request)

    async def usual_beat(self, number: int) -> None:
        """Some replicas grew."""
        name_number = number % self.servers
        mine = list(range(name_number, self.streams, self.servers))[:REPORTS_PER_BEAT]
        changed = [
            pb.ReplicaReport(stream_id=each + 1, range_index=9, state=pb.REPLICA_STATE_UNSPECIFIED) for each in mine
        ]
        await self.beat(name_number, changed)

    async def create(self, number: int) -> None:
        """The writer of a sealed stream goes on; streams are taken from the end, which have one range."""
        stream_id = self.streams - number
        request = pb.SealRangeRequest(
            request_id=f"scale-{number}", stream_id=stream_id, epoch=1, end_offset=10 + number, create_next=True
        )
        await ranges.seal_range(self.driver, request)

    def snapshot_ms(self) -> tuple[float, float, bytes]:
        """(ms in which nothing else is applied, ms in all, the snapshot)."""
        began = time.perf_counter()
        if hasattr(self.machine, "freeze"):
            sections = self.machine.freeze()
            held = time.perf_counter() - began
            data = b"".join(sections)
        else:
            data = self.machine.snapshot()
            held = time.perf_counter() - began
        return held * 1e3, (time.perf_counter() - began) * 1e3, data


def resident_bytes() -> int:
    """Of this process, after collecting what is garbage."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096


async def timed(call: Callable[[int], Awaitable[None]], repeats: int) -> tuple[float, float]:
    """(median, worst) in ms."""
    took = []
    for number in range(repeats):
        began = time.perf_counter()
        await call(number)
        took.append((time.perf_counter() - began) * 1e3)
    return statistics.median(took), max(took)


async def measure(streams: int, ranges_: int, servers_: int) -> int:
    with tempfile.TemporaryDirectory() as directory:
        scale = Scale(streams, ranges_, servers_, Path(directory))
        before = resident_bytes()
        began = time.perf_counter()
        scale.fill()
        print(f"filled in {time.perf_counter() - began:.1f} s", flush=True)
        spare_long_lived()  # as a driver does when it has started
        per_range = (resident_bytes() - before) / ranges_
        await scale.driver.barrier()
        longest = await scale.report_all()
        with_reports = (resident_bytes() - before) / ranges_
        print(f"memory per range: {per_range:.0f} B, with its replicas' reports {with_reports:.0f} B")
        print(f"whole report of a server: at most {longest * 1e3:.1f} ms")

        async def round_(_number: int) -> None:
            await scale.driver.reconcile()

        await round_(0)
        found = {}
        for name, call, repeats in (
            ("reconcile", round_, 20),
            ("heartbeat", scale.usual_beat, REPEATS),
            ("seal", scale.create, REPEATS),
        ):
            found[name], worst = await timed(call, repeats)
            print(f"{name}: median {found[name]:.3f} ms, worst {worst:.3f} ms", flush=True)
        held_ms, whole_ms, data = scale.snapshot_ms()
        print(f"snapshot: {held_ms:.1f} ms held, {whole_ms:.0f} ms in all, {len(data) / 1e6:.1f} MB")
        other = Machine()
        began = time.perf_counter()
        other.restore(data)
        restart_s = time.perf_counter() - began
        print(f"restart: {restart_s:.2f} s to restore the snapshot")
        print(
            f"pd-scale: streams={streams} ranges={ranges_} servers={servers_} reconcile_ms={found['reconcile']:.2f} "
            f"seal_ms={found['seal']:.2f} heartbeat_ms={found['heartbeat']:.2f} snapshot_ms={held_ms:.1f} "
            f"restart_s={restart_s:.2f} bytes_per_range={per_range:.0f}"
        )
    return 0


def main() -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(description="what a placement driver with many streams takes for its work")
    parser.add_argument("--streams", type=int, default=100_000)
    parser.add_argument("--ranges", type=int, default=150_000)
    parser.add_argument("--servers", type=int, default=100)
    given = parser.parse_args()
    if not given.streams <= given.ranges <= 2 * given.streams or given.servers < 3:
        parser.error("ranges: from one to two for each stream; servers: at least 3")
    return asyncio.run(measure(given.streams, given.ranges, given.servers))


if __name__ == "__main__":
    sys.exit(main())
