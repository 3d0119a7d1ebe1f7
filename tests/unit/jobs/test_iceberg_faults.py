"""Faults of the job `iceberg`: kills between any two steps, runs at once, damage, catalogs that are away, tables of others."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitStateUnknownException, NoSuchTableError
from pyiceberg.io.pyarrow import PyArrowFile
from pyiceberg.manifest import DataFile, DataFileContent
from pyiceberg.schema import Schema
from pyiceberg.table import CommitTableResponse
from pyiceberg.types import LongType, NestedField

from rangelog_core.errors import (
    ConfigInvalid,
    Corruption,
    ObjectNotFound,
    PreconditionFailed,
    Unauthorized,
    Unavailable,
)
from rangelog_jobs import iceberg, iceberg_change, iceberg_table
from rangelog_jobs.iceberg import bring_up_to_date, open_catalog
from rangelog_jobs.iceberg_sources import LiveObject, TableSource
from rangelog_tier.parquet import FORMAT_VERSION
from tests.unit.jobs.iceberg_tier import (
    DAY_MS,
    FLIGHTS,
    NAME,
    FakeTier,
    FakeTierWithout,
    files_of,
    new_catalog,
    offsets,
    update,
)


class Killed(BaseException):
    """Where a process is killed: nothing in the program catches it."""


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
        tier.add(20, ms_per_record=DAY_MS // 25)  # some of them span midnight
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
    tier.add(20, ms_per_record=DAY_MS // 10)  # of several days
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
        tier.add(20, ms_per_record=DAY_MS // 25)  # some of them span midnight
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


def test_a_commit_of_which_nobody_knows_is_found_again(
    catalog: Catalog, tier: FakeTier, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The catalog breaks off after it has taken the snapshot, before it, or because the table went: nothing comes twice."""
    monkeypatch.setattr(iceberg, "_PAUSE_S", 0.0)
    commit = type(catalog).commit_table
    update(catalog, FakeTierWithout(tier))
    for is_taken, error in (
        (True, CommitStateUnknownException),
        (False, CommitStateUnknownException),
        (False, NoSuchTableError),
    ):
        tier.add(20)
        failures = [error("broken off")]

        def broken(
            *args: Any, is_taken: bool = is_taken, failures: list[Exception] = failures, **options: Any
        ) -> CommitTableResponse:
            if failures and is_taken:
                commit(*args, **options)
            if failures:
                raise failures.pop()
            return commit(*args, **options)

        monkeypatch.setattr(type(catalog), "commit_table", broken)
        done = update(catalog, tier)
        assert done.added == 1 and done.snapshot_id is not None
        assert offsets(catalog) == tier.offsets()
    assert len(catalog.load_table(NAME).snapshots()) == 3


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


@pytest.mark.parametrize(
    "damage", ["empty", "no Parquet", "cut off", "footer", "length", "longer", "other rows", "no version"]
)
def test_damaged_objects_are_refused(
    catalog: Catalog, tier: FakeTier, damage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The table stays as it was; an object that is whole again is added."""
    tier.add(20)
    update(catalog, tier)
    made = tier.add(20)
    path = tier.folder / made.key
    whole = path.read_bytes()
    if damage == "other rows":
        tier.objects[7][-1] = replace(made, end_offset=made.end_offset + 1)
    elif damage == "no version":
        pq.write_table(pq.read_table(path).replace_schema_metadata({FORMAT_VERSION: "x"}), path)
    else:
        path.write_bytes(
            {
                "empty": b"",
                "no Parquet": b"PAR1 no",
                "cut off": whole[:-100],
                "footer": whole[:-200] + b"\xff" * 190 + whole[-10:],
                "length": whole[:-8] + b"\xff" * 4 + whole[-4:],
                "longer": b"PAR1" + whole,
            }[damage]
        )
    with pytest.raises(Corruption, match=made.key) as raised:
        update(catalog, tier)
    assert "see what `rangelog-spark audit` says of the stream" in raised.value.message
    assert offsets(catalog) == list(range(20))
    path.write_bytes(whole)
    tier.objects[7][-1] = made
    monkeypatch.setattr(iceberg_change, "_TAIL_BYTES", 16)  # the footer is longer
    update(catalog, tier)
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
    with pytest.raises(Unauthorized, match="check the credentials"), iceberg_table.catalog_errors("the catalog"):
        raise OSError("When reading 'a': AWS Error ACCESS_DENIED during HeadObject operation: No response body.")
    with pytest.raises(Unavailable) as raised, iceberg_table.catalog_errors("the catalog"):
        raise RuntimeError("cannot connect to postgres://user:secret@host/db\nmore")
    assert "secret" not in raised.value.message and "\n" not in raised.value.message
    away = new_catalog(tmp_path)
    away.engine.dispose()  # type: ignore[attr-defined]
    (tmp_path / "catalog.db").write_bytes(b"not a database" * 100)
    with pytest.raises(Unavailable, match="does not answer"):
        update(away, tier)
