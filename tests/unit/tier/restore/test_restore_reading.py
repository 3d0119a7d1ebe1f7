"""A bucket as it is found: damaged, foreign, of another cluster, of a later program; and objects by their own words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from rangelog_core import tier_snapshot
from rangelog_core.errors import Corruption, InvalidArgument, UnsupportedVersion
from rangelog_core.object_keys import manifest_key, object_key, snapshot_key
from rangelog_proto.v1.restore_pb2 import TierSnapshotHeader
from rangelog_tier import open_object_store
from rangelog_tier.object_store import ObjectStore
from rangelog_tier.parquet import OBJECT_SCHEMA, ObjectWriter, WrittenObject
from rangelog_tier.restore.describing import describe
from rangelog_tier.restore.plan import RestoreOptions
from rangelog_tier.restore.reading import NO_SNAPSHOT, BucketReading, read_bucket, read_plan, read_snapshot
from rangelog_tier.storing import stored_digest
from tests.support.lost_clusters import LostCluster, restored


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    """An empty directory as tier."""
    return open_object_store(f"file://{tmp_path / 'tier'}", create=True)


def put_snapshot(store: ObjectStore, lost: LostCluster, folder: Path, *, cluster: str = "c1", index: int = 5) -> str:
    """Write a snapshot as a placement driver does; return its key."""
    key = snapshot_key(cluster, index)
    path = folder / "snapshot"
    with path.open("w+b") as target:
        header = TierSnapshotHeader(cluster_id=cluster, applied_index=index, time_ms=9, cluster_version=6)
        tier_snapshot.write(target, header, lost.pd.machine.freeze_rows())
    store.put_if_absent(key, path)
    return key


def put_object(
    store: ObjectStore, folder: Path, stream_id: int, index: int, start: int, end: int, object_id: int, epoch: int = 1
) -> tuple[str, WrittenObject]:
    """Upload an object with records of its own."""
    rows = end - start
    table = pa.table(
        [
            range(start, end), [n * 1_000 + 1 for n in range(start, end)], [None] * rows,
            [b"v%d" % n for n in range(start, end)], [[]] * rows, [None] * rows,
        ],
        schema=OBJECT_SCHEMA,
    )  # fmt: skip
    path = folder / "object"
    with ObjectWriter(
        path, stream_id=stream_id, stream_name="flights", range_index=index, epoch=epoch, start_offset=start,
        end_offset=end, object_id=object_id,
    ) as writer:  # fmt: skip
        writer.add(table)
        written = writer.finish()
    key = object_key(stream_id, index, start, end, object_id)
    store.put_if_absent(key, path)
    return key, written


def small() -> tuple[LostCluster, int]:
    """A cluster with one stream, whose first range is sealed at 10."""
    lost = LostCluster()
    stream_id = lost.create("flights")
    lost.append(stream_id, 10)
    return lost, stream_id


def read(store: ObjectStore, **options: Any) -> BucketReading:
    """Read the bucket."""
    return read_bucket(store, read_snapshot(store, **({"cluster_id": None, "snapshot_id": None} | options)))


def test_an_object_that_nobody_listed_is_taken_by_its_own_words(store: ObjectStore, tmp_path: Path) -> None:
    """It was uploaded after the snapshot, and no manifest was written: it has its epoch, times, footer and digest itself."""
    lost, stream_id = small()
    put_snapshot(store, lost, tmp_path)
    key, written = put_object(store, tmp_path, stream_id, 0, 0, 10, 3)
    reading = read(store)
    plan = read_plan(store, reading, RestoreOptions(), verify=True)
    (found,) = plan.objects
    assert (found.key, found.epoch, found.digest, found.size_bytes) == (key, 1, written.digest, written.size_bytes)
    assert (found.footer_size_bytes, found.footer_crc) == (written.footer_size_bytes, written.footer_crc)
    assert list(found.row_groups) == written.row_groups
    assert (found.timestamp_ms_min, found.timestamp_ms_max) == (0, 9)
    assert plan.lost == []
    assert restored(plan).state.streams[stream_id].next_offset == 10
    assert reading.problems == []


def test_a_damaged_object_does_not_count(store: ObjectStore, tmp_path: Path) -> None:
    """Neither one that nobody listed, nor (with verify) one whose size is right."""
    lost, stream_id = small()
    put_snapshot(store, lost, tmp_path)
    key, _ = put_object(store, tmp_path, stream_id, 0, 0, 10, 3)
    data = bytearray(store.get(key))
    data[30] ^= 0xFF
    (tmp_path / "tier" / key).write_bytes(bytes(data))
    reading = read(store)
    plan = read_plan(store, reading, RestoreOptions())
    assert plan.objects == []
    assert [(each.start_offset, each.end_offset) for each in plan.lost] == [(0, 10)]
    assert any("passed over" in each for each in reading.problems)
    with pytest.raises(Corruption):
        describe(store, key, len(data), whole=True)


def test_verify_finds_what_sizes_do_not_show(store: ObjectStore, tmp_path: Path) -> None:
    """An object of the snapshot with other bytes is left out, and the stream is cut before it."""
    lost, stream_id = small()
    key, written = put_object(store, tmp_path, stream_id, 0, 0, 10, 1)
    prepared = lost.pd.prepare(stream_id, 0, 0, 10, "rs1")
    lost.pd.commit(prepared, size_bytes=written.size_bytes, digest=written.digest)
    assert prepared.key == key
    put_snapshot(store, lost, tmp_path)
    assert len(read_plan(store, read(store), RestoreOptions(), verify=True).objects) == 1
    data = bytearray(store.get(key))
    data[30] ^= 0xFF
    (tmp_path / "tier" / key).write_bytes(bytes(data))
    assert len(read_plan(store, read(store), RestoreOptions()).objects) == 1
    reading = read(store)
    assert read_plan(store, reading, RestoreOptions(), verify=True).objects == []
    assert f"object {key} is damaged: its digest does not fit" in reading.problems
    (tmp_path / "tier" / key).unlink()
    missing = read_plan(store, read(store), RestoreOptions())
    assert (missing.objects, missing.missing) == ([], [key])


def test_a_damaged_snapshot_is_passed_over_and_named(store: ObjectStore, tmp_path: Path) -> None:
    """The one before it is used; where none is whole, that is said."""
    lost, _ = small()
    put_snapshot(store, lost, tmp_path, index=5)
    key = put_snapshot(store, lost, tmp_path, index=6)
    (tmp_path / "tier" / key).write_bytes(store.get(key)[:-1])
    reading = read(store)
    assert reading.snapshot_id == "5"
    assert len(reading.problems) == 1
    assert key in reading.problems[0]
    with pytest.raises(Corruption):
        read(store, snapshot_id="6")
    (tmp_path / "tier" / snapshot_key("c1", 5)).write_bytes(b"x")
    with pytest.raises(Corruption, match="no snapshot of cluster c1 is whole"):
        read(store, cluster_id="c1")


def test_a_snapshot_under_another_name_is_no_snapshot(store: ObjectStore, tmp_path: Path) -> None:
    """A file that somebody copied into the folder of another cluster."""
    lost, _ = small()
    key = put_snapshot(store, lost, tmp_path)
    store.put_if_absent(snapshot_key("c2", 5), store.get(key))
    with pytest.raises(Corruption, match="no snapshot of cluster c2"):
        read(store, cluster_id="c2")


def test_a_snapshot_of_a_later_program_ends_the_restore(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """What it says may matter, so an earlier one is not used in its place."""
    lost, _ = small()
    put_snapshot(store, lost, tmp_path, index=5)
    with monkeypatch.context() as later:
        later.setattr(tier_snapshot, "TIER_SNAPSHOT_VERSIONS", tier_snapshot.TIER_SNAPSHOT_VERSIONS._replace(highest=2))
        put_snapshot(store, lost, tmp_path, index=6)
    with pytest.raises(UnsupportedVersion, match="version 2"):
        read(store, cluster_id="c1")


def test_two_clusters_in_a_bucket_have_to_be_told_apart(store: ObjectStore, tmp_path: Path) -> None:
    """And a bucket without snapshots, or without anything, says so."""
    with pytest.raises(InvalidArgument, match="no snapshot of a placement driver"):
        read(store)
    with pytest.raises(InvalidArgument, match="holds no stream"):
        read(store, snapshot_id=NO_SNAPSHOT)
    lost, _ = small()
    put_snapshot(store, lost, tmp_path, cluster="c1")
    put_snapshot(store, lost, tmp_path, cluster="c2")
    with pytest.raises(InvalidArgument, match="choose one by --cluster-id"):
        read(store)
    assert read(store, cluster_id="c2").cluster_id == "c2"
    with pytest.raises(InvalidArgument, match="no snapshot of cluster 'c3'"):
        read(store, cluster_id="c3")
    with pytest.raises(InvalidArgument, match="no snapshot '4'"):
        read(store, cluster_id="c2", snapshot_id="4")


def test_foreign_files_change_nothing(store: ObjectStore, tmp_path: Path) -> None:
    """They are orphans, or problems, and no id follows from their names."""
    lost, stream_id = small()
    put_snapshot(store, lost, tmp_path)
    for key in ("notes.txt", "_pd/readme", "_pd/c1/x.snapshot", "manifests/9/x.json", "streams/1/notes.txt"):
        store.put_if_absent(key, b"hello")
    store.put_if_absent(object_key(1 << 60, 0, 0, 5, 1 << 60), b"hello")
    store.put_if_absent(object_key(stream_id, 0, 0, 10, 7), b"hello")
    reading = read(store)
    plan = read_plan(store, reading, RestoreOptions())
    assert plan.objects == []
    assert plan.next_object_id < 1 << 30
    assert len(plan.orphans) == 3
    assert len(reading.problems) == 2
    restored(plan)


def test_streams_come_back_by_their_manifests_alone(store: ObjectStore, tmp_path: Path) -> None:
    """Of a cluster whose program wrote no snapshots yet: with the default configuration, which is said."""
    lost, stream_id = small()
    key, written = put_object(store, tmp_path, stream_id, 0, 0, 10, 1)
    prepared = lost.pd.prepare(stream_id, 0, 0, 10, "rs1")
    lost.pd.commit(prepared, size_bytes=written.size_bytes, digest=written.digest)
    lost.write_manifest(stream_id)
    store.put_if_absent(manifest_key(stream_id, "flights"), lost.manifests[stream_id].to_bytes())
    plan = read_plan(store, read(store, snapshot_id=NO_SNAPSHOT), RestoreOptions(), verify=True)
    assert plan.without_config == ["flights"]
    assert [each.key for each in plan.objects] == [key]
    assert stored_digest(store, key, written.size_bytes) == written.digest
    assert restored(plan).state.stream("flights").next_offset == 10
