"""Iceberg tables of tiered objects: what they hold after each change, kills between any two steps, runs at once, refusals."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.io.pyarrow import PyArrowFile
from pyiceberg.manifest import DataFile, DataFileContent
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from rangelog.spark.jobs import iceberg, iceberg_change, iceberg_table
from rangelog.spark.jobs.iceberg import RegisteredTable, bring_up_to_date, open_catalog
from rangelog.spark.jobs.iceberg_sources import LiveObject, TableSource, namespace_name, objects_of, table_name
from rangelog.tier.parquet import FORMAT_VERSION, OBJECT_SCHEMA
from rangelog_core.errors import (
    ConfigInvalid,
    Corruption,
    ObjectNotFound,
    PreconditionFailed,
    Unavailable,
    UnsupportedVersion,
)
from rangelog_core.manifest import ManifestObject, StreamManifest
from rangelog_core.object_keys import object_key

FLIGHTS = TableSource("stream", "flights", 7)
ORDERS = TableSource("topic", "shop/orders", 9)
NAME = ("rangelog", "flights")
DAY_MS = 86_400_000
T0_MS = 20_000 * DAY_MS + DAY_MS // 2


class Killed(BaseException):
    """Where a process is killed: nothing in the program catches it."""


class FakeTier:
    """A directory of objects, and which of them are live, as the placement driver would say it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.location = f"file://{folder}"
        self.objects: dict[int, list[ManifestObject]] = {}  # by stream
        self.trims: dict[int, int] = {}

    def add(self, count: int, *, stream_id: int = 7, version: int = 2, ms_per_record: int = 1000) -> ManifestObject:
        """One more object behind the others of a stream."""
        before = self.objects.setdefault(stream_id, [])
        start = before[-1].end_offset if before else 0
        key = object_key(stream_id, len(before), start, start + count, 100 + len(before))
        path = self.folder / key
        path.parent.mkdir(parents=True, exist_ok=True)
        columns = OBJECT_SCHEMA.names if version > 1 else OBJECT_SCHEMA.names[:-1]
        rows = {
            "offset": range(start, start + count),
            "timestamp": [(T0_MS + each * ms_per_record) * 1000 for each in range(start, start + count)],
            "key": [None if each % 3 else b"k%d" % each for each in range(count)],
            "value": [b"%d of %d" % (each, stream_id) for each in range(start, start + count)],
            "headers": [[("a", b"x")] if each % 2 else [] for each in range(count)],
            "batch_header": [None] * count,
        }
        schema = pa.schema([OBJECT_SCHEMA.field(each) for each in columns], {FORMAT_VERSION: str(version)})
        table = pa.table({each: pa.array(rows[each], schema.field(each).type) for each in columns}, schema=schema)
        pq.write_table(table, path, row_group_size=7, write_statistics=["offset", "timestamp"], compression="zstd")
        made = ManifestObject(key, start, start + count, count, path.stat().st_size, "", 0, 0, 0)
        before.append(made)
        return made

    def live(self) -> list[LiveObject]:
        """The live objects: a topic's where there are several streams."""
        return [
            each
            for stream_id, objects in self.objects.items()
            for each in objects_of(
                StreamManifest(
                    "s",
                    stream_id,
                    None,
                    self.trims.get(stream_id, 0),
                    0,
                    tuple(each for each in objects if each.end_offset > self.trims.get(stream_id, 0)),
                ),
                stream_id if len(self.objects) > 1 else None,
                self.location,
            )
        ]

    def offsets(self, stream_id: int = 7) -> list[int]:
        """The offsets that are tiered and not trimmed."""
        return list(range(self.trims.get(stream_id, 0), self.objects[stream_id][-1].end_offset))


@pytest.fixture
def tier(tmp_path: Path) -> FakeTier:
    """An empty tier."""
    return FakeTier(tmp_path / "tier")


@pytest.fixture(autouse=True)
def planner(monkeypatch: pytest.MonkeyPatch) -> None:
    """Polars asks for a package of its own otherwise."""
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")


def new_catalog(tmp_path: Path) -> Catalog:
    """A catalog in SQLite, as another process would open it."""
    (tmp_path / "warehouse").mkdir(exist_ok=True)
    return load_catalog(
        "lake", type="sql", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}/warehouse"
    )


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    """The catalog of a test."""
    return new_catalog(tmp_path)


def update(catalog: Catalog, tier: FakeTier, source: TableSource = FLIGHTS) -> RegisteredTable:
    """One run."""
    return bring_up_to_date(catalog, NAME, source, tier.location, tier.live)


def offsets(catalog: Catalog, where: str = "true") -> list[int]:
    """The offsets in the table, in order."""
    found = catalog.load_table(NAME).scan(row_filter=where, selected_fields=("offset",)).to_arrow()
    return sorted(found.column("offset").to_pylist())


def files_of(catalog: Catalog) -> list[str]:
    """The objects in the table."""
    return sorted(each.file.file_path for each in catalog.load_table(NAME).scan().plan_files())


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


class FakeTierWithout(FakeTier):
    """A tier of the same place with nothing in it."""

    def __init__(self, tier: FakeTier) -> None:
        super().__init__(tier.folder)


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


class Steps:
    """Counts the steps of runs, writes to storage and commits, and kills the run before or after one of them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.left = 1 << 30
        create, commit = PyArrowFile.create, iceberg_change.Table._do_commit

        def counted(of: Callable[..., Any]) -> Callable[..., Any]:
            def call(*args: Any, **options: Any) -> Any:
                self.step()
                found = of(*args, **options)
                self.step()
                return found

            return call

        monkeypatch.setattr(PyArrowFile, "create", counted(create))
        monkeypatch.setattr(iceberg_change.Table, "_do_commit", counted(commit))

    def step(self) -> None:
        """One step."""
        self.left -= 1
        if self.left < 0:
            raise Killed


def test_a_run_that_is_killed_anywhere_can_be_repeated(
    tmp_path: Path, tier: FakeTier, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before and after each write and each commit: the next run makes the table what it has to be."""
    steps = Steps(monkeypatch)
    tier.add(20)
    update(new_catalog(tmp_path), tier)
    killed = 0
    for kill_at in range(40):
        tier.add(20)
        tier.trims[7] = tier.trims.get(7, 0) + 13  # an object leaves the table in some rounds
        steps.left = kill_at
        with suppress(Killed):
            update(new_catalog(tmp_path), tier)
            break
        killed += 1
        steps.left = 1 << 30
        catalog = new_catalog(tmp_path)
        assert set(files_of(catalog)) <= {f"{tier.location}/{each.key}" for each in tier.objects[7]}
        update(catalog, tier)
        assert offsets(catalog) == tier.offsets()
        assert update(catalog, tier).snapshot_id is None
    assert killed >= 10
    assert offsets(new_catalog(tmp_path)) == tier.offsets()


def test_the_first_run_may_be_killed_anywhere(tmp_path: Path, tier: FakeTier, monkeypatch: pytest.MonkeyPatch) -> None:
    """While it makes the table."""
    steps = Steps(monkeypatch)
    tier.add(20)
    tier.trims[7] = 3
    for kill_at in range(40):
        place = tmp_path / str(kill_at)
        place.mkdir()
        steps.left = kill_at
        with suppress(Killed):
            update(new_catalog(place), tier)
            break
        steps.left = 1 << 30
        update(new_catalog(place), tier)
        assert offsets(new_catalog(place)) == tier.offsets()
    assert 10 <= kill_at < 39


def test_runs_at_once_add_each_object_once(tmp_path: Path, tier: FakeTier) -> None:
    """Four threads with catalogs of their own, from an empty table on, while objects come and go."""
    new_catalog(tmp_path)  # makes the tables of SQLite
    errors: list[BaseException] = []
    for _ in range(4):
        tier.add(20)
        tier.trims[7] = tier.trims.get(7, -9) + 9
        ready = threading.Barrier(4)

        def one(ready: threading.Barrier = ready) -> None:
            try:
                mine = new_catalog(tmp_path)
                ready.wait(30)
                update(mine, tier)
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=one) for _ in range(4)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        assert not errors, errors
        catalog = new_catalog(tmp_path)
        found = files_of(catalog)
        assert found == sorted({each.url for each in tier.live()})
        assert offsets(catalog) == tier.offsets()
    assert len(catalog.load_table(NAME).snapshots()) == 4


def test_a_late_run_does_not_take_back_an_earlier_one(catalog: Catalog, tier: FakeTier) -> None:
    """It asked before the other one's objects were there, and commits after it: a conflict, then another look."""
    tier.add(20)
    looks: list[int] = []

    def look() -> list[LiveObject]:
        found = tier.live()
        looks.append(len(found))
        if len(looks) == 1:
            tier.add(20)
            update(catalog, tier)
        return found

    late = bring_up_to_date(catalog, NAME, FLIGHTS, tier.location, look)
    assert looks == [1, 2] and late.snapshot_id is None and late.object_count == 2
    assert offsets(catalog) == tier.offsets()


def test_an_object_that_goes_while_it_is_added_is_looked_for_again(catalog: Catalog, tier: FakeTier) -> None:
    """It was trimmed and deleted in between; one that stays away is an error of one sentence."""
    gone = tier.add(20)
    tier.add(20)
    path = tier.folder / gone.key
    looks: list[int] = []

    def look() -> list[LiveObject]:
        looks.append(1)
        found = tier.live()
        path.unlink(missing_ok=True)
        tier.trims[7] = 20
        return found

    assert bring_up_to_date(catalog, NAME, FLIGHTS, tier.location, look).added == 1
    assert len(looks) == 2 and offsets(catalog) == tier.offsets()


def test_a_missing_object_is_named(catalog: Catalog, tier: FakeTier, monkeypatch: pytest.MonkeyPatch) -> None:
    """After some looks."""
    monkeypatch.setattr(iceberg, "_PAUSE_S", 0.0)
    made = tier.add(20)
    (tier.folder / made.key).unlink()
    with pytest.raises(ObjectNotFound, match=made.key):
        update(catalog, tier)


def test_objects_of_all_versions_are_one_table(catalog: Catalog, tier: FakeTier, tmp_path: Path) -> None:
    """Version 1 has no column batch_header; one of a later version is refused, and so is damage."""
    tier.add(20, version=1)
    tier.add(20, version=2)
    update(catalog, tier)
    assert offsets(catalog) == tier.offsets()
    assert catalog.load_table(NAME).scan(row_filter="batch_header is null").count() == 40
    later = tier.add(20, version=3)
    with pytest.raises(UnsupportedVersion, match="is of version 3"):
        update(catalog, tier)
    (tier.folder / later.key).write_bytes(b"PAR1 no")
    with pytest.raises(Corruption, match=later.key):
        update(catalog, tier)
    assert offsets(catalog) == list(range(40))


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


def test_snapshots_that_are_dropped_take_no_object_with_them(catalog: Catalog, tier: FakeTier) -> None:
    """Earlier snapshots may go; the next run is as any other."""
    for _ in range(3):
        tier.add(20)
        tier.trims[7] = tier.trims.get(7, 0) + 9
        update(catalog, tier)
    table = catalog.load_table(NAME)
    table.maintenance.expire_snapshots().by_ids([each.snapshot_id for each in table.snapshots()[:-1]]).commit()
    assert len(catalog.load_table(NAME).snapshots()) == 1 and table.properties["gc.enabled"] == "false"
    assert all((tier.folder / each.key).exists() for each in tier.objects[7])
    tier.add(20)
    assert update(catalog, tier).added == 1
    assert offsets(catalog) == tier.offsets()


def test_tables_of_others_are_refused(catalog: Catalog, tier: FakeTier, tmp_path: Path) -> None:
    """Of another stream, of an earlier one of this name, of another tier, or of nobody we know."""
    tier.add(20)
    update(catalog, tier)
    for source, said in (
        (TableSource("stream", "f.lights", 8), "is of stream flights: give another name with --table"),
        (TableSource("topic", "air/flights", 8), "is of stream flights"),
        (TableSource("stream", "flights", 8), "is of an earlier stream flights, which was deleted"),
    ):
        with pytest.raises(PreconditionFailed, match=said):
            update(catalog, tier, source)
    moved = FakeTier(tmp_path / "elsewhere")
    with pytest.raises(PreconditionFailed, match=r"has its objects at .*/tier, not at .*/elsewhere"):
        update(catalog, moved)
    catalog.create_table("rangelog.foreign", Schema(NestedField(1, "offset", LongType())))
    with pytest.raises(PreconditionFailed, match="which this job did not make"):
        bring_up_to_date(catalog, ("rangelog", "foreign"), FLIGHTS, tier.location, tier.live)
    assert offsets(catalog) == tier.offsets()


def write_as_others(catalog: Catalog, **changes: Any) -> None:
    """Append an entry to the table as another program would: that of its first object, with something changed."""
    table = catalog.load_table(NAME)
    snapshot = table.current_snapshot()
    assert snapshot is not None
    (manifest, *_) = snapshot.manifests(table.io)
    known = manifest.fetch_manifest_entry(table.io)[0].data_file
    fields = ("content", "file_path", "file_format", "partition", "record_count", "file_size_in_bytes")
    with table.transaction() as transaction, transaction.update_snapshot().fast_append() as append:
        append.append_data_file(DataFile.from_args(**{each: getattr(known, each) for each in fields} | changes))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"file_path": "{tier}/compacted.parquet"}, "has a file that is not an object of the tier"),
        ({"file_path": "file:///elsewhere/streams/7.parquet"}, "has a file that is not an object of the tier"),
        ({}, "has the object .* twice"),
        (
            {"content": DataFileContent.POSITION_DELETES, "file_path": "file:///elsewhere/deletes.parquet"},
            "has deletions that something else made",
        ),
    ],
)
def test_a_table_that_something_else_wrote_to_is_refused(
    catalog: Catalog, tier: FakeTier, changes: dict[str, Any], said: str
) -> None:
    """Rows of another origin would stay for ever, and what was rewritten would be added again."""
    tier.add(20)
    update(catalog, tier)
    before = catalog.load_table(NAME).metadata
    if "file_path" in changes:
        changes = {**changes, "file_path": changes["file_path"].format(tier=tier.location)}
    write_as_others(catalog, **changes)
    assert catalog.load_table(NAME).metadata != before
    with pytest.raises(PreconditionFailed, match=f"{said}.*: drop it, and run this again: the objects stay"):
        update(catalog, tier)
    catalog.drop_table(NAME)
    assert update(catalog, tier).made
    assert offsets(catalog) == tier.offsets()


def test_a_table_that_is_dropped_meanwhile_is_made_anew(catalog: Catalog, tier: FakeTier) -> None:
    """Between the look at it and the commit, or made anew by another run: nothing is committed to what is not there."""
    tier.add(20)
    update(catalog, tier)
    for others_are_first in (False, True):
        tier.add(20)
        looks: list[int] = []

        def look(looks: list[int] = looks, others_are_first: bool = others_are_first) -> list[LiveObject]:
            looks.append(1)
            if len(looks) == 1:
                catalog.drop_table(NAME)
                if others_are_first:
                    update(catalog, tier)
            return tier.live()

        done = bring_up_to_date(catalog, NAME, FLIGHTS, tier.location, look)
        assert (len(looks), done.made, done.added) == (2, not others_are_first, 0 if others_are_first else 2)
        assert offsets(catalog) == tier.offsets()


def test_partitions_that_were_changed_are_refused(catalog: Catalog, tier: FakeTier) -> None:
    """Objects are not divided by them."""
    tier.add(20)
    update(catalog, tier)
    with catalog.load_table(NAME).update_spec() as change:
        change.add_identity("offset")
    tier.add(20)
    with pytest.raises(PreconditionFailed, match=r"partitions .* were changed"):
        update(catalog, tier)


def test_conflicts_end(catalog: Catalog, tier: FakeTier, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table that changes with each look is left, and what was written for it is deleted."""
    monkeypatch.setattr(iceberg, "_PAUSE_S", 0.0)
    tier.add(20)
    update(catalog, tier)
    tier.trims[7] = 5

    def look() -> list[LiveObject]:
        table = catalog.load_table(NAME)
        with table.transaction() as transaction:
            transaction.update_snapshot().fast_append().commit()
        return tier.live()

    with pytest.raises(Unavailable, match="faster than this run"):
        bring_up_to_date(catalog, NAME, FLIGHTS, tier.location, look)
    assert not list(Path(catalog.load_table(NAME).location().removeprefix("file://")).rglob("rangelog-trim-*"))


def test_a_catalog_that_is_away_or_wrong_is_said_in_one_sentence(tmp_path: Path, tier: FakeTier) -> None:
    """Its URL's password is not."""
    with pytest.raises(Unavailable, match=r"the catalog 'lake' does not answer: .*unable to open database file"):
        open_catalog("lake", {"type": "sql", "uri": f"sqlite:///{tmp_path}/no/such/catalog.db"}, "file:///t")
    with pytest.raises(ConfigInvalid, match=r"cannot be used: .*check the catalog's properties"):
        open_catalog("lake", {"type": "nonsense"}, "file:///t")
    with pytest.raises(Unavailable) as raised, iceberg_table.catalog_errors("the catalog"):
        raise RuntimeError("cannot connect to postgres://user:secret@host/db\nmore")
    assert "secret" not in raised.value.message and "\n" not in raised.value.message
    away = new_catalog(tmp_path)
    away.engine.dispose()  # type: ignore[attr-defined]
    (tmp_path / "catalog.db").write_bytes(b"not a database" * 100)
    with pytest.raises(Unavailable, match="does not answer"):
        update(away, tier)


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
