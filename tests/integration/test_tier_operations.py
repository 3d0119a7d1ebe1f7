"""Real processes: a tier that goes away and comes back, gets another store, loses objects, and is repaired by an operator."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rangelog
from rangelog import Client
from rangelog_cli.local.processes import Cluster
from rangelog_core.object_keys import object_key
from tests.integration.helpers.pdctl_command import Pdctl
from tests.support.waiting import eventually

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.timeout(300)]

WAIT_S = 120.0
PER_PART = 200


async def append_part(client: Client, number: int) -> None:
    """Append records, and seal the range that they are in."""
    async with client.writer("s") as writer:
        for each in range(PER_PART):
            writer.append_nowait(b"%d" % (number * PER_PART + each))
        await writer.flush()
    await client.seal_stream("s")


async def cold_values(client: Client) -> list[int]:
    """All records, read from the tier alone."""
    return [int(each.value) async for each in client.reader("s", read_preference="cold_only")]


def tiered(pdctl: Pdctl, parts: int) -> list[dict[str, Any]]:
    """The objects, once they have as many parts of the stream; else nothing."""
    return pdctl.objects_of("s", 0, parts * PER_PART)


def scrub(pdctl: Pdctl, *arguments: str) -> dict[str, Any]:
    """What a scrub finds; its exit code says whether that is anything."""
    run = pdctl("object", "scrub", *arguments, "-o", "json")
    found: dict[str, Any] = json.loads(run.stdout)
    assert run.returncode == int(any(found["found"].values())), run
    return found


def status(pdctl: Pdctl) -> dict[str, Any]:
    """The state of the cluster, whatever it is."""
    found: dict[str, Any] = json.loads(pdctl("cluster", "status", "-o", "json").stdout)
    return found


def failing(pdctl: Pdctl) -> set[str]:
    """Who has trouble with the tier."""
    return {each["name"] for each in status(pdctl)["tier_checks"] if each["error"]}


async def test_a_tier_through_an_operators_day(cluster_factory: Callable[..., Cluster], tmp_path: Path) -> None:
    """Away: said by all who use it, and back; another store: old and new objects are read; faults: found, named, repaired."""
    first, second = tmp_path / "first", tmp_path / "second"
    cluster = cluster_factory(pds=1, range_servers=3, tier_url=f"file://{first}")
    pdctl = Pdctl(cluster)
    async with await rangelog.connect(cluster.connect_string) as client:
        await client.create_stream("s")
        await append_part(client, 0)
        await asyncio.to_thread(eventually, lambda: tiered(pdctl, 1), "nothing is tiered", WAIT_S)
        assert failing(pdctl) == set()
        # Where one server stalls, another uploads as well, and the later one is refused: a failing task until its next report.
        await asyncio.to_thread(eventually, lambda: status(pdctl)["health"] == "healthy", "it is degraded", WAIT_S)

        first.rename(tmp_path / "away")
        first.write_bytes(b"no directory")
        await append_part(client, 1)
        await asyncio.to_thread(eventually, lambda: failing(pdctl), "nobody says that the tier is away", WAIT_S)
        assert status(pdctl)["health"] == "degraded"
        first.unlink()
        (tmp_path / "away").rename(first)
        await asyncio.to_thread(
            eventually, lambda: tiered(pdctl, 2) and not failing(pdctl), "the tier is not back", WAIT_S
        )

        second.mkdir()
        told = pdctl.json("cluster", "set-tier", f"file://{second}", "--yes")["tier_url"]
        assert told.startswith(f"file://{first} ") and told.endswith(f"=file://{second}")
        await append_part(client, 2)
        objects = await asyncio.to_thread(eventually, lambda: tiered(pdctl, 3), "nothing goes to the new store", WAIT_S)
        assert [(first / each["key"]).exists() for each in objects] == [True, True, False]
        assert (second / objects[2]["key"]).exists()
        assert await cold_values(client) == list(range(3 * PER_PART))
        assert scrub(pdctl, "--verify")["seen"]["committed"] == 3

        number = int(told.rsplit(" ", 1)[1].partition("=")[0])  # given out, and no object's
        orphan = second / object_key(1, 0, 0, 1, number)
        orphan.parent.mkdir(parents=True, exist_ok=True)
        orphan.write_bytes(b"left over")
        os.utime(orphan, (1, 1))
        (first / objects[0]["key"]).unlink()
        damaged = second / objects[2]["key"]
        damaged.write_bytes(damaged.read_bytes()[:-1] + b"?")
        found = scrub(pdctl, "--verify")["findings"]
        assert sorted((each["kind"], Path(each["key"]).name) for each in found) == sorted(
            [("damaged", damaged.name), ("missing", Path(objects[0]["key"]).name), ("orphan", orphan.name)]
        )
        done = {each["kind"]: each["done"] for each in scrub(pdctl, "--verify", "--repair", "--yes")["findings"]}
        assert done == {"damaged": "is uploaded again", "missing": "is uploaded again", "orphan": "removed"}
        await asyncio.to_thread(
            eventually,
            lambda: len(tiered(pdctl, 3)) == 3 and not scrub(pdctl, "--verify")["findings"],
            "no repair",
            WAIT_S,
        )
        assert not orphan.exists()
        async with await rangelog.connect(cluster.connect_string) as other:
            assert await cold_values(other) == list(range(3 * PER_PART))
