"""The leader's snapshots in the tier, as they are written, kept and shown; nothing else waits for them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rangelog_core import tier_snapshot
from rangelog_core.object_keys import snapshot_prefix
from rangelog_pd.handlers import cluster
from rangelog_pd.tier_snapshots import TierSnapshots
from rangelog_proto.v1 import pd_pb2, restore_pb2
from rangelog_tier import open_object_store
from rangelog_tier.restore.known import snapshot_rows


class Writing:
    """A leader on a directory as tier, whose clock the test moves."""

    def __init__(self, api: Any, tier: Path) -> None:
        self.api = api
        self.tier = tier
        self.snapshots = TierSnapshots(api.driver)
        api.driver.settings.tier_snapshot_count = 2

    async def look(self, ms: float = 60_000) -> None:
        """Some time later."""
        self.api.driver.clock_ms += ms
        await self.snapshots._look()

    def keys(self) -> list[str]:
        """The snapshots in the tier."""
        if not self.tier.is_dir():
            return []
        with_id = self.api.machine.state.cluster_id
        return [each.key for each in open_object_store(f"file://{self.tier}").list(snapshot_prefix(with_id))]

    async def status(self) -> restore_pb2.TierSnapshotStatus:
        """As the description of the cluster has it."""
        described = await cluster.describe_cluster(self.api.driver, pd_pb2.DescribeClusterRequest())
        return described.tier_snapshot


@pytest.fixture
def writing(make_api: Callable[..., Any], tmp_path: Path) -> Iterator[Writing]:
    """A leader."""
    made = Writing(make_api(tier_url=f"file://{tmp_path / 'tier'}"), tmp_path / "tier")
    yield made
    made.snapshots.close()


async def test_a_change_is_written_and_the_last_ones_are_kept(writing: Writing) -> None:
    """A snapshot has the rows of its moment, says whose it is, and is shown with its age."""
    await writing.api.driver.reconcile()
    await writing.look()
    assert writing.keys() == [], "an empty cluster writes none"
    for name in ("a", "b", "c"):
        await writing.api.create(name, request_id=name)
        assert not (await writing.status()).current
        await writing.look()
        assert (await writing.status()).current
    await writing.look()
    assert len(writing.keys()) == 2
    key = writing.keys()[-1]
    header, state = tier_snapshot.read((writing.tier / key).read_bytes(), source=key)
    assert header.cluster_id == writing.api.machine.state.cluster_id
    assert header.tier_url == f"file://{writing.tier}"
    assert [each.name for each in snapshot_rows(state).streams.values()] == ["a", "b", "c"]
    told = await writing.status()
    assert (told.snapshot_id, told.age_ms) == (str(header.applied_index), 60_000)
    assert not (writing.api.driver.settings.data_dir / "tier-snapshot.tmp").exists()


async def test_a_store_that_is_away_is_told_and_tried_again(writing: Writing) -> None:
    """The commands of clients go on; the next snapshot has what happened meanwhile."""
    await writing.api.driver.reconcile()
    writing.tier.write_text("in the way")
    await writing.api.create("a", request_id="a")
    await writing.look()
    told = await writing.status()
    assert told.last_error
    assert not told.snapshot_id
    await writing.api.create("b", request_id="b")
    writing.tier.unlink()
    await writing.look()
    told = await writing.status()
    assert told.current
    assert not told.last_error


async def test_during_a_restore_none_is_written(writing: Writing) -> None:
    """Half of a state is worth nothing, and would be the newest."""
    await writing.api.driver.reconcile()
    begin = restore_pb2.BeginRestoreRequest(
        request_id="r",
        plan_id="p",
        row_count=1,
        next_stream_id=9,
        next_object_id=9,
        next_topic_id=9,
        next_cursor_version=9,
    )
    await writing.api.driver.propose(restore_pb2.RestoreResponse, "", begin_restore=begin)
    await writing.look()
    assert writing.keys() == []


async def test_a_call_does_not_wait_for_the_store(writing: Writing, monkeypatch: pytest.MonkeyPatch) -> None:
    """The store is called on another thread; a command is applied while it hangs."""
    await writing.api.driver.reconcile()
    await writing.api.create("a", request_id="a")
    begun, end = asyncio.Event(), asyncio.Event()

    async def hang(work: Callable[[], Any]) -> int:
        begun.set()
        await end.wait()
        return 1

    monkeypatch.setattr(writing.snapshots._worker, "run", hang)
    looking = asyncio.create_task(writing.look())
    await begun.wait()
    await asyncio.wait_for(writing.api.create("b", request_id="b"), 5)
    assert not (await writing.status()).current
    end.set()
    await looking
    assert not (await writing.status()).current, "what came meanwhile is not in it"
