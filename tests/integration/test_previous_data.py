"""Data directories that the previous release wrote, and left in a crash: this release starts on them, and has it all."""

from __future__ import annotations

import io
import json
import lzma
import tarfile
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import rangelog
from rangelog import errors
from rangelog_cli.local.plan import read_plan, with_ports, write_plan
from rangelog_cli.local.processes import Cluster
from rangelog_pd.state.versions import FEATURE_LEVEL
from tests.integration.helpers.pd_group import wait_for_version
from tests.integration.helpers.pdctl_command import Pdctl
from tests.integration.helpers.previous_program import FOLDER
from tests.support.waiting import eventually

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]

TOLD: dict[str, Any] = json.loads((FOLDER / "data.json").read_text())


@pytest.fixture
def earlier(tmp_path: Path, cluster_factory: Any) -> Cluster:
    """A running cluster of the present program on a copy of the data.

    Its ports are its own. Where the brokers of before were, another test may listen: the cluster is handed out once it
    knows where they are now.
    """
    directory = tmp_path / "earlier"
    with tarfile.open(fileobj=io.BytesIO(lzma.decompress((FOLDER / "data.tar.xz").read_bytes()))) as archive:
        archive.extractall(directory, filter="data")
    plan = read_plan(directory)
    assert plan is not None
    write_plan(directory, replace(with_ports(plan, 0), tier_url=f"file://{directory / 'tier'}"))
    cluster: Cluster = cluster_factory("earlier")
    pdctl, here = Pdctl(cluster), {each.name: f"{each.host}:{each.port}" for each in cluster.plan.brokers}
    eventually(
        lambda: {each["name"]: each["address"] for each in pdctl.json("broker", "list")} == here, "an old address"
    )
    return cluster


@pytest.fixture
async def client(earlier: Cluster) -> AsyncIterator[rangelog.Client]:
    """A client of it."""
    async with await rangelog.connect(earlier.connect_string) as made:
        yield made


def shown(record: Any) -> list[Any]:
    """A record as the fixture tells it."""
    headers = {name: value.decode() for name, value in record.headers.items()}
    return [record.offset, record.key.decode() if record.key is not None else None, record.value.decode(), headers]


async def test_all_that_the_previous_release_acked_is_read_back_and_goes_on(
    earlier: Cluster, client: rangelog.Client
) -> None:
    """Open, sealed, tiered and trimmed ranges, from either tier; cursors, topics, groups; then new records follow the old."""
    assert json.loads((FOLDER / "program.json").read_text())["commit"] == TOLD["commit"], "made by different releases"
    assert "open" in TOLD["states"]["open"] and set(TOLD["states"]["tiered"][:3]) == {"sealed"}
    await wait_for_version(earlier, FEATURE_LEVEL)
    for name, records in TOLD["streams"].items():
        assert [shown(each) async for each in client.reader(name, start=records[0][0])] == records, name
    tiered = [shown(each) async for each in client.reader("tiered", read_preference="cold_only")]
    assert tiered == TOLD["streams"]["tiered"]
    with pytest.raises(errors.OffsetTrimmed):
        _ = [each async for each in client.reader("trimmed", start=0)]
    kept = Pdctl(earlier).json("range", "list", "cold")
    assert [each["state"] for each in kept[:3]] == ["sealed"] * 3 and not any(each["replicas"] for each in kept[:3])
    cursor = await client.cursors("tiered").get("reports")
    assert cursor is not None and [cursor.offset, cursor.metadata] == TOLD["cursor"]
    await _topic_and_group(client)
    async with client.writer("open") as writer:
        assert (await writer.append(b"of this release")).offset == len(TOLD["streams"]["open"])
    values = [each.value async for each in client.reader("open")]
    assert values == [*(each[2].encode() for each in TOLD["streams"]["open"]), b"of this release"]


async def _topic_and_group(client: rangelog.Client) -> None:
    """The topic has what was acked; the group begins where it was, and hands out the rest."""
    found = [[each.shard_id, each.offset, each.value.decode()] async for each in client.topic_reader("flights")]
    assert sorted(found) == sorted(TOLD["topic"])
    async with client.producer("flights") as producer:
        await producer.send(b"flight of this release", key=b"0")
    rest: list[list[Any]] = []
    async with client.group("billing", "flights") as member:
        async for record in member:
            rest.append([record.shard_id, record.offset, record.value.decode()])
            if len(rest) == len(TOLD["topic"]) - len(TOLD["consumed"]) + 1:
                break
    assert "flight of this release" in [value for _, _, value in rest]
    before = [each for each in rest if each[2] != "flight of this release"]
    assert sorted(TOLD["consumed"] + before) == sorted(TOLD["topic"])
