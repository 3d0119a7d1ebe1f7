"""Real processes: many small objects become few, and trimmed rows leave, without anybody asking; readers go on meanwhile."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

import rangelog
from rangelog import Client, StreamConfig
from rangelog_cli.local.processes import Cluster
from rangelog_core.manifest import parse_manifest
from tests.integration.helpers.pdctl_command import Pdctl
from tests.support.leader import leader_of
from tests.support.waiting import Seen, eventually

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

PACKING = {
    "RANGELOG_PD_REPACK_TARGET_BYTES": str(1 << 20),
    "RANGELOG_PD_REPACK_MIN_AGE_MS": "2000",
    "RANGELOG_PD_REPACK_TRIMMED_FRACTION": "0.3",
    "RANGELOG_PD_DELETE_GRACE_MS": "3000",
}
PARTS, PER_PART = 30, 40
TOTAL = PARTS * PER_PART
FEW = 5
"""No more can be left of 30 parts: joining ends where each object is larger than all behind it together."""
WAIT_S = 90.0


def value(number: int) -> bytes:
    """That of one record: it does not compress, so that objects have a size."""
    return b"%d|" % number + os.urandom(400)


async def append(client: Client, parts: Iterable[int]) -> None:
    """Append some parts of the records, each in a range of its own that is sealed behind it."""
    for part in parts:
        async with client.writer("s") as writer:
            for number in range(part * PER_PART, (part + 1) * PER_PART):
                writer.append_nowait(value(number))
            await writer.flush()
        await client.seal_stream("s")


async def numbers(client: Client, start: Any = "earliest") -> list[int]:
    """The records from somewhere on, from the tier alone."""
    reader = client.reader("s", start=start, read_preference="cold_only")
    return [int(each.value.partition(b"|")[0]) async for each in reader]


class Tier:
    """What the placement driver, the manifest and the directory have of stream `s`."""

    def __init__(self, cluster: Cluster, directory: Path) -> None:
        self.pdctl = Pdctl(cluster)
        self.directory = directory

    def objects(self, trimmed: int = 0) -> list[dict[str, Any]]:
        """Those that count, once they have all records."""
        return self.pdctl.objects_of("s", trimmed, TOTAL)

    def few(self, most: int) -> Seen:
        """The objects, once they are few; what there is and what is being done else."""
        found = self.objects()
        told = found or (self.pdctl.json("object", "list", "s"), self.pdctl.json("task", "list"))
        return Seen(found and len(found) <= most, told)

    def follows(self, objects: list[dict[str, Any]]) -> bool:
        """Whether manifest and directory have these objects and no others."""
        keys = sorted(each["key"] for each in objects)
        stored = sorted(str(each.relative_to(self.directory)) for each in self.directory.glob("streams/**/*.parquet"))
        manifests = list(self.directory.glob("manifests/*/*.json"))
        named = [each.key for path in manifests for each in parse_manifest(path.read_bytes(), path.name).objects]
        return stored == keys == sorted(named)


@pytest.mark.hasty
async def test_many_small_ranges_end_in_few_objects(cluster_factory: Callable[..., Cluster], tmp_path: Path) -> None:
    """While a reader reads over and over, and a server is killed; then most is trimmed, and leaves object and manifest."""
    directory = tmp_path / "tier"
    cluster = cluster_factory(pds=1, range_servers=3, tier_url=f"file://{directory}", env=PACKING)
    tier = Tier(cluster, directory)
    async with await rangelog.connect(cluster.connect_string) as client:
        await client.create_stream("s", StreamConfig(hot_retention_seconds=0.0))
        stopped = False
        reads = 0

        async def read_over_and_over() -> None:
            nonlocal reads
            while not stopped:
                found = [int(each.value.partition(b"|")[0]) async for each in client.reader("s")]
                assert found == list(range(len(found)))
                reads += 1
                await asyncio.sleep(0.05)

        reading = asyncio.create_task(read_over_and_over())
        await append(client, range(PARTS // 2))
        cluster.kill("rs2")
        await append(client, range(PARTS // 2, PARTS))
        cluster.restart("rs2")
        objects: Any = (
            await asyncio.to_thread(eventually, lambda: tier.few(FEW), "many objects are left", WAIT_S)
        ).value
        stopped = True
        await reading
        assert reads > 1
        assert objects[0]["start_offset"] == 0
        assert await numbers(client) == list(range(TOTAL))
        await asyncio.to_thread(eventually, lambda: tier.follows(tier.objects()), "the store has others", WAIT_S)

        size_bytes = sum(path.stat().st_size for path in directory.glob("streams/**/*.parquet"))
        last = objects[-1]
        trimmed = last["start_offset"] + (last["end_offset"] - last["start_offset"]) * 2 // 3
        await client.trim_stream("s", trimmed)
        objects = await asyncio.to_thread(eventually, lambda: tier.objects(trimmed), "trimmed rows stay", WAIT_S)
        assert await numbers(client) == list(range(trimmed, TOTAL))
        await asyncio.to_thread(
            eventually, lambda: tier.follows(tier.objects(trimmed)), "the trimmed object stays in the store", WAIT_S
        )
        left_bytes = sum(path.stat().st_size for path in directory.glob("streams/**/*.parquet"))
        assert left_bytes < size_bytes / 2
        await asyncio.to_thread(
            eventually,
            lambda: not [each for each in tier.pdctl.json("task", "list") if each["last_error"]],
            "tasks fail",
            WAIT_S,
        )
        assert tier.pdctl("verify", "s", "--deep").returncode == 0


async def test_a_new_leader_goes_on(cluster_factory: Callable[..., Cluster], tmp_path: Path) -> None:
    """Three placement drivers, of which the leader dies while repacks are waited for or under way."""
    cluster = cluster_factory(pds=3, range_servers=3, tier_url=f"file://{tmp_path}/tier", env=PACKING)
    tier = Tier(cluster, tmp_path / "tier")
    async with await rangelog.connect(cluster.connect_string) as client:
        await client.create_stream("s", StreamConfig())
        await append(client, range(PARTS))
        cluster.kill(await asyncio.to_thread(leader_of, cluster))
        await asyncio.to_thread(eventually, lambda: tier.few(FEW), "many objects are left", WAIT_S)
        assert await numbers(client) == list(range(TOTAL))
