"""Who is told to write manifests after trims and deletions: one living server that knows them, until it is done."""

from __future__ import annotations

from typing import Any

import pytest

from rangelog_pd.reconcile.manifest_queue import STREAMS_MAX, ManifestQueue
from rangelog_proto.v1 import common_pb2


def told(pd: Any) -> dict[str, list[int]]:
    """The streams whose manifests each server is told to write."""
    found = {name: pd.directives(name).get("write_manifests") for name in pd.state.servers}
    return {name: list(each.write_manifests.stream_ids) for name, each in found.items() if each is not None}


@pytest.fixture
def upgraded(pd: Any) -> Any:
    """A cluster whose second and third server know manifests."""
    for name in ("rs2", "rs3"):
        pd.state.servers[name].server.formats.append(common_pb2.FormatVersions(format="manifest", lowest=1, highest=1))
    return pd


@pytest.fixture
def sealed(upgraded: Any) -> int:
    """A tiered stream with records below 10."""
    stream_id: int = upgraded.create_stream(tiered=True).stream_id
    upgraded.open_writer()
    upgraded.create_range(stream_id, 1, 0, "rs1", "rs2", "rs3")
    upgraded.seal(stream_id, 0, 1, 10)
    assert told(upgraded) == {}
    return stream_id


def test_a_trim_and_a_deletion_are_told_until_done(upgraded: Any, sealed: int) -> None:
    """One server at a time; a trim during the write is told again; another server takes over from a dead one."""
    pd = upgraded
    pd.trim(4)
    assert told(pd) == {"rs2": [sealed]}
    first = pd.directives("rs2")["write_manifests"].task_id
    pd.trim(5)
    assert told(pd) == {"rs2": [sealed]} and pd.directives("rs2")["write_manifests"].task_id == first
    pd.view.upkeep.manifests.done("manifests-0-0-1@rs2")
    assert told(pd) == {"rs2": [sealed]}, "the report of another task"
    pd.pass_ms(1)
    pd.view.upkeep.manifests.done(first)
    second = pd.directives("rs2")["write_manifests"].task_id
    assert told(pd) == {"rs2": [sealed]} and second != first
    pd.view.upkeep.manifests.done(second)
    assert told(pd) == {}
    pd.delete_stream()
    passed = 0
    while passed < 6_000:
        pd.pass_ms(1_000)
        passed += 1_000
        for name in ("rs1", "rs3"):
            pd.beat(name, complete=False)
    assert told(pd) == {"rs3": [sealed]}


def test_what_nobody_knows_waits(pd: Any) -> None:
    """In a cluster whose servers know no manifests nobody is told; nor is of a stream that is not tiered."""
    pd.create_stream(tiered=True)
    pd.open_writer()
    pd.create_range(1, 1, 0, "rs1", "rs2", "rs3")
    pd.seal(1, 0, 1, 10)
    told(pd)
    pd.trim(4)
    assert told(pd) == {}
    pd.state.servers["rs1"].server.formats.append(common_pb2.FormatVersions(format="manifest", lowest=1, highest=1))
    assert told(pd) == {"rs1": [1]}


def test_batches_are_bounded() -> None:
    """A batch has so many streams at most; what comes meanwhile is in the next one; no stream is lost."""
    queue = ManifestQueue()
    seen: list[int] = []
    for stream_id in range(1, 2 * STREAMS_MAX + 2):
        queue.put(stream_id)
    names = set()
    while (batch := queue.batch(7))[1]:
        names.add(batch[0])
        seen += batch[1]
        assert len(batch[1]) <= STREAMS_MAX and queue.batch(8) == batch
        queue.done(f"{batch[0]}@rs1")
    assert len(names) == 3 and seen == list(range(1, 2 * STREAMS_MAX + 2))
