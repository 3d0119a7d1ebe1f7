"""Iceberg tables of tiered objects: what they hold after each change, by which partitions, and how they are named."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import polars
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import Catalog

from rangelog_core.errors import (
    UnsupportedVersion,
)
from rangelog_jobs import iceberg_change, iceberg_table
from rangelog_jobs.iceberg import open_catalog
from rangelog_jobs.iceberg_sources import TableSource, namespace_name, table_name
from rangelog_tier.parquet import OBJECT_SCHEMA
from tests.unit.jobs.iceberg_tier import (
    DAY_MS,
    FLIGHTS,
    NAME,
    ORDERS,
    FakeTier,
    FakeTierWithout,
    new_catalog,
    offsets,
    update,
)


@pytest.fixture
def tier(tmp_path: Path) -> FakeTier:
    """An empty tier."""
    return FakeTier(tmp_path / "tier")


@pytest.fixture(autouse=True)
def planner(monkeypatch: pytest.MonkeyPatch) -> None:
    """Polars asks for a package of its own otherwise."""
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    """The catalog of a test."""
    return new_catalog(tmp_path)


def test_a_table_follows_what_is_tiered_trimmed_and_deleted(catalog: Catalog, tier: FakeTier, tmp_path: Path) -> None:
    """Each run makes one snapshot with what changed, and one that finds nothing new makes none."""
    first = update(catalog, FakeTierWithout(tier))
    assert (first.made, first.snapshot_id, first.object_count) == (True, None, 0)
    for _ in range(3):
        tier.add(20)
    second = update(catalog, tier)
    assert (second.made, second.added, second.removed, second.record_count) == (False, 3, 0, 60)
    assert offsets(catalog) == tier.offsets()
    assert update(catalog, tier).snapshot_id is None
    tier.trims[7] = 25
    tier.add(20)
    third = update(catalog, tier)
    assert (third.added, third.removed, third.partly_trimmed, third.hidden_count, third.record_count) == (
        1,
        1,
        1,
        5,
        55,
    )
    assert offsets(catalog) == tier.offsets() == list(range(25, 80))
    tier.trims[7] = 33
    assert update(catalog, tier).hidden_count == 13
    assert offsets(catalog) == tier.offsets()
    tier.trims[7] = 40
    fifth = update(catalog, tier)
    assert (fifth.removed, fifth.partly_trimmed, fifth.record_count) == (1, 0, 40)
    assert offsets(catalog) == tier.offsets()
    assert update(catalog, tier).snapshot_id is None
    tier.trims[7] = 80
    assert update(catalog, tier).object_count == 0
    assert offsets(catalog) == []
    table = catalog.load_table(NAME)
    operations = [each.summary and each.summary.operation.value for each in table.snapshots()]
    assert operations == ["append", "overwrite", "delete", "delete", "delete"]
    last = table.current_snapshot()
    assert last is not None and last.summary is not None
    totals = {
        name: last.summary[f"total-{name}"] for name in ("records", "data-files", "delete-files", "position-deletes")
    }
    assert set(totals.values()) == {"0"}, totals
    assert not list((tmp_path / "warehouse").rglob("*streams*")), "nothing is copied"


def test_rows_have_all_columns_and_times_leave_files_out(catalog: Catalog, tier: FakeTier) -> None:
    """Also across midnight; what is hidden is hidden from scans with filters, and from another reader."""
    for _ in range(6):
        tier.add(40, ms_per_record=1_800_000)  # most of a day each
    tier.trims[7] = 10
    update(catalog, tier)
    table = catalog.load_table(NAME)
    stored = [row for each in tier.live() for row in pq.read_table(each.url.removeprefix("file://")).to_pylist()]
    expected = [{"stream": "flights", **row} for row in stored[10:]]
    assert sorted(table.scan().to_arrow().to_pylist(), key=lambda row: row["offset"]) == expected
    day = expected[100]["timestamp"].date()
    where = f"timestamp >= '{day}T00:00:00+00:00' and timestamp <= '{day}T23:59:59+00:00'"
    wanted = [row["offset"] for row in expected if row["timestamp"].date() == day]
    assert offsets(catalog, where) == wanted and len(wanted) == 48
    assert len(list(table.scan(row_filter=where).plan_files())) in (2, 3)
    assert len(list(table.scan(row_filter="offset >= 200").plan_files())) == 1
    assert offsets(catalog, "offset < 15") == [10, 11, 12, 13, 14]
    assert table.scan().count() == len(expected)
    assert sorted(polars.scan_iceberg(table).collect()["offset"]) == [row["offset"] for row in expected]


def days_of(catalog: Catalog) -> dict[tuple[object, ...], int]:
    """How many objects each partition has, by its values and the number of its spec."""
    entries = catalog.load_table(NAME).inspect.files().to_pylist()
    found: dict[tuple[object, ...], int] = {}
    for each in entries:
        key = (each["spec_id"], *each["partition"].values())
        found[key] = found.get(key, 0) + (each["content"] == 0)
    return found


def test_an_object_of_one_day_is_in_the_partition_of_that_day(catalog: Catalog, tier: FakeTier) -> None:
    """Others are in the table too, under a second spec that comes with the first of them; scans of days find all."""
    half_day = DAY_MS // 2 // 20
    tier.add(20, ms_per_record=half_day)  # noon to midnight of the first day
    update(catalog, tier)
    assert [each.fields[-1].name for each in catalog.load_table(NAME).specs().values()] == ["timestamp_day"]
    tier.add(40, ms_per_record=half_day)  # the next day, to its last record
    tier.add(30, ms_per_record=half_day)  # three quarters of a day
    tier.add(20, ms_per_record=half_day)  # across midnight
    tier.trims[7] = 5
    update(catalog, tier)
    first = date(2024, 10, 4)
    with_day, without = 0, 1
    day = timedelta(days=1)
    assert days_of(catalog) == {
        (with_day, "flights", first): 1,
        (with_day, "flights", first + day): 1,
        (with_day, "flights", first + 2 * day): 1,
        (without, "flights", None): 1,
    }
    table = catalog.load_table(NAME)
    assert table.spec().spec_id == with_day
    for number, (objects, low, high) in enumerate([(1, 5, 20), (1, 20, 60), (2, 60, 100), (1, 100, 110)]):
        start = datetime.combine(first + number * day, datetime.min.time(), UTC)
        where = f"timestamp >= '{start.isoformat()}' and timestamp < '{(start + day).isoformat()}'"
        assert offsets(catalog, where) == list(range(low, high))
        assert len(list(table.scan(row_filter=where).plan_files())) == objects
    tier.trims[7] = 95  # days leave the table, and the one across midnight loses some rows
    assert update(catalog, tier).hidden_count == 5
    assert offsets(catalog) == tier.offsets() and [key for key, count in days_of(catalog).items() if count] == [
        (without, "flights", None)
    ]
    tier.add(5, ms_per_record=half_day)
    update(catalog, tier)
    assert sorted(polars.scan_iceberg(catalog.load_table(NAME)).collect()["offset"]) == tier.offsets()
    assert len(catalog.load_table(NAME).specs()) == 2 and catalog.load_table(NAME).spec().spec_id == with_day


def test_the_shards_of_a_topic_are_one_table(catalog: Catalog, tier: FakeTier) -> None:
    """The column `shard`, which no object has, tells them apart; each is trimmed by itself."""
    for stream_id in (3, 4, 5):
        tier.add(20, stream_id=stream_id)
        tier.add(20, stream_id=stream_id)
    tier.trims = {3: 7, 4: 20, 5: 33}
    done = update(catalog, tier, ORDERS)
    assert (done.added, done.partly_trimmed, done.hidden_count) == (4, 2, 20)
    table = catalog.load_table(NAME)
    rows = table.scan().to_arrow().to_pylist()
    assert [*rows[0]][:3] == ["topic", "shard", "offset"] and {row["topic"] for row in rows} == {"shop/orders"}
    for shard in tier.objects:
        assert sorted(row["offset"] for row in rows if row["shard"] == shard) == tier.offsets(shard)
        assert {row["value"].split(b" of ")[1] for row in rows if row["shard"] == shard} == {b"%d" % shard}
    assert len(list(table.scan(row_filter="shard = 4").plan_files())) == 1
    tier.trims = {3: 20, 4: 40, 5: 34}
    done = update(catalog, tier, ORDERS)
    assert (done.removed, done.partly_trimmed, done.hidden_count) == (2, 1, 14)
    rows = polars.scan_iceberg(catalog.load_table(NAME)).collect().rows()
    assert sorted(row[1:3] for row in rows) == [(each, offset) for each in (3, 5) for offset in tier.offsets(each)]


def test_objects_of_all_versions_are_one_table(catalog: Catalog, tier: FakeTier, tmp_path: Path) -> None:
    """Version 1 has no column batch_header; one of a later version is refused, and so is damage."""
    tier.add(20, version=1)
    tier.add(20, version=2)
    update(catalog, tier)
    assert offsets(catalog) == tier.offsets()
    assert catalog.load_table(NAME).scan(row_filter="batch_header is null").count() == 40
    tier.add(20, version=3)
    with pytest.raises(UnsupportedVersion, match="is of version 3"):
        update(catalog, tier)
    assert offsets(catalog) == list(range(40))


def test_objects_that_are_deleted_before_a_run_leave_the_table(catalog: Catalog, tier: FakeTier) -> None:
    """As after a long pause of the job: scans need files that are gone, until it runs again. So do earlier snapshots."""
    for _ in range(3):
        tier.add(20)
    tier.trims[7] = 3
    update(catalog, tier)
    for each in tier.objects[7][:2]:
        (tier.folder / each.key).unlink()
    tier.trims[7] = 45
    with pytest.raises(FileNotFoundError):
        offsets(catalog)
    assert update(catalog, tier).removed == 2
    assert offsets(catalog) == tier.offsets()
    table = catalog.load_table(NAME)
    with pytest.raises(FileNotFoundError):
        table.scan(snapshot_id=table.snapshots()[0].snapshot_id).to_arrow()


def test_a_column_that_a_table_lacks_is_added(
    catalog: Catalog, tier: FakeTier, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table of an earlier program gets the columns of this one with its next snapshot; renamed ones stay known."""
    tier.add(20, version=1)
    with monkeypatch.context() as earlier:
        earlier.setattr(iceberg_table, "_COLUMNS", iceberg_table._COLUMNS[:-1])
        update(catalog, tier)
    table = catalog.load_table(NAME)
    assert "batch_header" not in table.schema().column_names
    with table.update_schema() as change:
        change.rename_column("value", "body")
    tier.add(20, version=2)
    update(catalog, tier)
    assert {each.name for each in catalog.load_table(NAME).schema().fields} == {
        "stream",
        "body",
        *OBJECT_SCHEMA.names,
    } - {"value"}
    assert offsets(catalog) == tier.offsets()
    assert sorted(catalog.load_table(NAME).scan().to_arrow()["body"].to_pylist())[0] == b"0 of 7"


def test_snapshots_that_are_dropped_take_no_object_with_them(catalog: Catalog, tier: FakeTier, tmp_path: Path) -> None:
    """Earlier snapshots show trimmed rows, and may go: no file is deleted, and the next run is as any other."""
    for _ in range(3):
        tier.add(20)
        tier.trims[7] = tier.trims.get(7, 0) + 9
        update(catalog, tier)
    table = catalog.load_table(NAME)
    assert table.scan(snapshot_id=table.snapshots()[0].snapshot_id).count() == 11
    before = {each for each in tmp_path.rglob("*") if each.is_file()}
    table.maintenance.expire_snapshots().by_ids([each.snapshot_id for each in table.snapshots()[:-1]]).commit()
    assert len(catalog.load_table(NAME).snapshots()) == 1 and table.properties["gc.enabled"] == "false"
    assert before <= {*tmp_path.rglob("*")}
    tier.add(20)
    assert update(catalog, tier).added == 1
    assert offsets(catalog) == tier.offsets()


def test_a_table_that_is_dropped_leaves_the_objects_and_one_that_is_purged_does_not(
    catalog: Catalog, tier: FakeTier
) -> None:
    """Why the page says never to purge: pyiceberg does not ask for `gc.enabled`."""
    path = tier.folder / tier.add(20).key
    update(catalog, tier)
    catalog.drop_table(NAME)
    assert path.exists() and update(catalog, tier).made
    catalog.purge_table(NAME)
    assert not path.exists()


def test_the_storage_is_that_of_the_tier_unless_the_catalog_says_otherwise(tmp_path: Path) -> None:
    """Endpoint and region of the tier's URL are the ones that the catalog's files are read with."""
    given = {"type": "sql", "uri": "sqlite://", "s3.region": "here"}
    opened = open_catalog("lake", given, "s3://bucket/logs?endpoint=http://127.0.0.1:1&region=there")
    assert (opened.properties["s3.endpoint"], opened.properties["s3.region"]) == ("http://127.0.0.1:1", "here")


def test_the_names_of_tables() -> None:
    """Nothing that SQL would want quoted, unless the name begins with a digit."""
    assert (namespace_name(FLIGHTS, ()), table_name(TableSource("stream", "a.b-c_d", 1))) == (("rangelog",), "a_b_c_d")
    assert (namespace_name(ORDERS, ()), table_name(ORDERS)) == (("shop",), "orders")
    assert namespace_name(ORDERS, ("lake", "raw")) == ("lake", "raw")


def test_many_snapshots_leave_few_manifests(catalog: Catalog, tier: FakeTier, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small ones are merged, and those that name nothing any more are dropped."""
    monkeypatch.setattr(iceberg_change, "_MERGED_COUNT", 5)
    for _ in range(12):
        tier.add(5)
        tier.trims[7] = max(0, tier.objects[7][-1].end_offset - 17)
        update(catalog, tier)
    table = catalog.load_table(NAME)
    snapshot = table.current_snapshot()
    assert snapshot is not None and len(snapshot.manifests(table.io)) <= 7
    assert offsets(catalog) == tier.offsets()
