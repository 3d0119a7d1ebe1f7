"""`pdctl restore` of a tier whose URL was changed: the snapshot names the stores, so that nothing is cut that is elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from rangelog_core import tier_snapshot
from rangelog_core.object_keys import snapshot_key
from rangelog_pd.state.tier_stores import tier_url
from rangelog_proto.v1 import tier_pb2
from rangelog_proto.v1.restore_pb2 import TierSnapshotHeader
from rangelog_tier import open_object_store
from tests.support.lost_clusters import LostCluster
from tests.unit.pdctl.conftest import Pdctl
from tests.unit.pdctl.in_process_pd import InProcessPd, PdctlOverGrpc
from tests.unit.tier.restore.test_restore_reading import put_object


class ChangedTier:
    """What is left of a cluster: 10 records of a stream in the store `first`, 10 more in `second`, with the snapshot."""

    def __init__(self, folder: Path, *, told: bool = True) -> None:
        self.first, self.second = (f"file://{folder / name}" for name in ("first", "second"))
        lost = LostCluster()
        stream_id = lost.create("flights")
        self._upload(lost, stream_id, 0, self.first, folder)
        lost.pd.do(tier_pb2.SetTierResponse, set_tier=tier_pb2.SetTierRequest(url=self.second))
        self._upload(lost, stream_id, 10, self.second, folder)
        self.both = tier_url(lost.pd.state, self.first)
        path = folder / "snapshot"
        with path.open("w+b") as target:
            header = TierSnapshotHeader(cluster_id="gone", applied_index=5, time_ms=9, cluster_version=6)
            header.tier_url = self.both if told else ""
            tier_snapshot.write(target, header, lost.pd.machine.freeze_rows())
        open_object_store(self.second).put_if_absent(snapshot_key("gone", 5), path)

    @staticmethod
    def _upload(lost: LostCluster, stream_id: int, start: int, url: str, folder: Path) -> None:
        of = lost.append(stream_id, 10)
        prepared = lost.pd.prepare(stream_id, of.index, start, start + 10, "rs1")
        store = open_object_store(url, create=True)
        key, written = put_object(store, folder, stream_id, of.index, start, start + 10, prepared.object_id)
        assert key == prepared.key
        lost.pd.commit(prepared, size_bytes=written.size_bytes, digest=written.digest)


@pytest.fixture
def tier(tmp_path: Path) -> ChangedTier:
    """Both stores."""
    return ChangedTier(tmp_path)


def test_the_current_store_is_enough(tier: ChangedTier) -> None:
    """Its snapshot names the former one: nothing is missing, nothing is cut, and the whole text is shown."""
    report = Pdctl().json("restore", "--from", tier.second, "--dry-run", "--verify")
    assert (report["record_count"], report["object_count"], report["tier_url"]) == (20, 2, tier.both)
    assert report["missing"] == report["holes"] == report["lost"] == report["problems"] == []
    assert report["left_out"] == {}
    assert Pdctl().json("restore", "--from", tier.both, "--dry-run") == report | {"plan_id": report["plan_id"]}


def test_a_store_that_is_elsewhere_is_refused(tier: ChangedTier, tmp_path: Path) -> None:
    """A copy of the last one, or one that is away, is no reason to cut streams: what to pass is said."""
    (tmp_path / "copy").symlink_to(tmp_path / "second")
    told = Pdctl().fails(2, "restore", "--from", f"file://{tmp_path / 'copy'}", "--dry-run")
    assert f"--from '{tier.both}'" in told and "the tier has 2 stores" in told
    (tmp_path / "first").rename(tmp_path / "away")
    assert "there is no directory" in Pdctl().fails(4, "restore", "--from", tier.second, "--dry-run")
    whole = tier.both.replace("/first", "/away")
    assert Pdctl().json("restore", "--from", whole, "--dry-run")["record_count"] == 20


def test_a_snapshot_that_does_not_name_the_first_store_is_refused(tmp_path: Path) -> None:
    """An earlier program wrote it; it knows that there were two."""
    tier = ChangedTier(tmp_path, told=False)
    told = Pdctl().fails(2, "restore", "--from", tier.second, "--dry-run")
    assert "does not name the one with the objects below" in told and f"'URL {tier.both.partition(' ')[2]}'" in told
    assert Pdctl().json("restore", "--from", tier.both, "--dry-run")["record_count"] == 20


def test_the_new_cluster_has_all_stores(tier: ChangedTier, member: InProcessPd, run: PdctlOverGrpc) -> None:
    """One that has the last store alone could not read what is in the first; afterwards ranges are counted as they are."""
    member.reconcile()
    member.driver.settings.tier_url = tier.second
    told = run.fails(5, "restore", "--from", tier.second, "--yes")
    assert told.endswith(f"start the placement drivers with the tier_url '{tier.both}'")
    member.driver.settings.tier_url = tier.both
    assert run.json("restore", "--from", tier.second, "--yes")["restored"]
    assert run.json("stream", "show", "flights")["range_count"] == 2
    (listed,) = run.json("stream", "list")
    assert (listed["range_count"], listed["sealed_end_offset"]) == (2, 20)
