"""A table's partition against a plain dictionary: conditions, all or nothing, versions, scans, changes, snapshots."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import islice

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from rangelog_broker.journal.entry import PIECE_BYTES_MAX
from rangelog_broker.tables import machine as module
from rangelog_broker.tables.machine import (
    ChangePage,
    Row,
    RowChange,
    TablePartition,
)
from rangelog_core.errors import Corruption, InvalidArgument, OffsetTrimmed, PreconditionFailed, StorageFull
from rangelog_core.limits import TABLE_KEY_BYTES_MAX, TABLE_VALUE_BYTES_MAX, TABLE_WRITES_MAX
from rangelog_proto.v1 import table_pb2
from tests.support.journal_machines import restored

KEYS = st.sampled_from([b"a", b"ab", b"b", b"\xff", b"\xff\xff"])


def write(
    key: bytes, value: bytes | None = None, *, absent: bool | None = None, version: int = 0
) -> table_pb2.TableWrite:
    """A put, or without a value a removal; with a condition."""
    made = table_pb2.TableWrite(key=key)
    if value is None:
        made.remove = True
    else:
        made.value = value
    if absent is not None:
        made.condition.absent = absent
    elif version:
        made.condition.version = version
    return made


def apply(table: TablePartition, *writes: table_pb2.TableWrite) -> table_pb2.TableResult:
    command = table_pb2.TableCommand(writes=writes).SerializeToString()
    return table_pb2.TableResult.FromString(table.apply(command, 0))


def copied(table: TablePartition) -> TablePartition:
    copy = TablePartition()
    restored(copy, table.snapshot())
    return copy


class TableMachine(RuleBasedStateMachine):
    """Every command on the table and on a dictionary."""

    def __init__(self) -> None:
        super().__init__()
        self.table = TablePartition()
        self.rows: dict[bytes, Row] = {}
        self.version = 0
        self.changes: list[tuple[int, bytes]] = []

    @rule(writes=st.lists(
        st.tuples(KEYS, st.none() | st.binary(max_size=3), st.none() | st.booleans() | st.integers(1, 9)),
        min_size=1, max_size=3, unique_by=lambda one: one[0],
    ))  # fmt: skip
    def command(self, writes: list[tuple[bytes, bytes | None, bool | int | None]]) -> None:
        made, holds = [], True
        for key, value, condition in writes:
            row = self.rows.get(key)
            if isinstance(condition, bool):
                made.append(write(key, value, absent=condition))
                holds &= condition == (row is None)
            else:
                made.append(write(key, value, version=condition or 0))
                holds &= condition is None or (row is not None and row.version == condition)
        if not holds:
            with pytest.raises(PreconditionFailed):
                apply(self.table, *made)
            return
        changed = [(key, value) for key, value, _ in writes if value is not None or key in self.rows]
        self.version += bool(changed)
        for key, value in changed:
            self.changes.append((self.version, key))
            if value is None:
                del self.rows[key]
            else:
                self.rows[key] = Row(value, self.version)
        result = apply(self.table, *made)
        assert (result.version, result.changed) == (self.version, bool(changed))

    @rule(start=st.just(b"") | KEYS, end=st.none() | KEYS, limit=st.integers(1, 3))
    def scan(self, start: bytes, end: bytes | None, limit: int) -> None:
        expected = sorted((key, row) for key, row in self.rows.items() if key >= start and (end is None or key < end))
        found: list[tuple[bytes, Row]] = []
        at: bytes | None = start
        while at is not None:
            page = self.table.scan(at, end, limit)
            assert len(page.rows) <= limit
            found += page.rows
            at = page.next_key
        assert found == expected

    @rule(since=st.integers(0, 20), start=st.just(b"") | KEYS, end=st.none() | KEYS, limit=st.integers(1, 3))
    def watch(self, since: int, start: bytes, end: bytes | None, limit: int) -> None:
        """In parts: the last change of each key, in order, and nothing else; the parts end at the present version."""
        last = {key: version for version, key in self.changes}
        expected = [
            RowChange(version, key, self.rows.get(key))
            for version, key in self.changes
            if version > since and version == last[key] and key >= start and (end is None or key < end)
        ]
        found: list[RowChange] = []
        reached = since
        while reached < self.version:
            page = self.table.changes_since(reached, limit, start=start, end=end)
            assert page.version > reached
            assert all(reached < change.version <= page.version for change in page.changes)
            found += page.changes
            reached = page.version
        assert found == expected
        assert reached == max(since, self.version)

    @rule()
    def restore(self) -> None:
        self.table = copied(self.table)

    @invariant()
    def same_rows(self) -> None:
        assert self.table.version == self.version
        assert {key: self.table.get(key) for key in self.rows} == self.rows
        assert self.table.size_bytes == sum(len(key) + len(row.value) + 64 for key, row in self.rows.items())


TestTableMachine = TableMachine.TestCase
TestTableMachine.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


@pytest.mark.parametrize(
    "writes",
    [
        [],
        [write(b"", b"v")],
        [write(bytes(TABLE_KEY_BYTES_MAX + 1), b"v")],
        [write(b"k", bytes(TABLE_VALUE_BYTES_MAX + 1))],
        [write(b"k", b"v"), write(b"k", b"w")],
        [table_pb2.TableWrite(key=b"k")],
        [table_pb2.TableWrite(key=b"k", remove=False)],
        [write(b"%d" % number, b"v") for number in range(TABLE_WRITES_MAX + 1)],
    ],
)
def test_bad_commands_change_nothing(writes: list[table_pb2.TableWrite]) -> None:
    """Each is refused as such."""
    table = TablePartition()
    with pytest.raises(InvalidArgument):
        apply(table, *writes)
    assert (table.version, table.size_bytes) == (0, 0)


def test_what_does_not_decode_is_refused() -> None:
    """As a command it is an invalid argument, as a snapshot corruption."""
    table = TablePartition()
    with pytest.raises(InvalidArgument):
        table.apply(b"\xff\xff", 0)
    for piece in (b"", b"X", b"H\xff\xff", b"R\xff\xff"):
        with pytest.raises(Corruption):
            restored(table, [piece])


def test_a_full_partition_takes_removals() -> None:
    """And values that are not larger than those that they replace."""
    table = TablePartition(bytes_max=300)
    apply(table, write(b"a", bytes(100)))
    with pytest.raises(StorageFull, match="remove some"):
        apply(table, write(b"b", bytes(100)))
    apply(table, write(b"a", bytes(100)))
    apply(table, write(b"b", bytes(50)), write(b"a"))
    assert table.get(b"a") is None


def test_old_changes_are_an_error_and_not_a_hole(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of one version stay or go together."""
    monkeypatch.setattr(module, "CHANGES_MAX", 5)
    table = TablePartition()
    for number in range(4):
        apply(table, write(b"a", b"%d" % number), write(b"b", b"%d" % number))
    with pytest.raises(OffsetTrimmed, match="scan the table") as caught:
        table.changes_since(1, 10)
    assert caught.value.offset == 2
    assert named(table.changes_since(2, 10)) == [(4, b"a"), (4, b"b")], "version 3 is replaced"
    apply(table, write(b"b"))
    assert named(table.changes_since(3, 1)) == [(4, b"a")]
    assert copied(table).changes_since(4, 1) == ChangePage([RowChange(5, b"b", None)], 5)


def test_removed_keys_are_forgotten_with_their_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the number of changes, and by the bytes of their keys."""
    monkeypatch.setattr(module, "CHANGES_MAX", 3)
    table = TablePartition()
    for number in range(20):
        apply(table, write(b"%d" % number, b"v"))
        apply(table, write(b"%d" % number))
    assert len(table._removed) <= 3
    monkeypatch.setattr(module, "CHANGES_BYTES_MAX", 10)
    apply(table, write(b"a" * 8, b"v"))
    apply(table, write(b"b" * 8, b"v"))
    assert not table._removed
    assert named(table.changes_since(41, 10)) == [(42, b"b" * 8)]
    with pytest.raises(OffsetTrimmed):
        table.changes_since(40, 10)


def test_a_page_of_changes_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the bytes of the rows, and by how many changes are looked at, also where none fits."""
    table = TablePartition()
    for number in range(4):
        apply(table, write(b"%d" % number, bytes(300_000)))
    assert [len(table.changes_since(version, 10).changes) for version in (0, 2)] == [2, 2]
    monkeypatch.setattr(module, "CHANGES_LOOKED_AT_MAX", 2)
    assert table.changes_since(0, 10, start=b"9") == ChangePage([], 2)
    assert table.changes_since(2, 10, start=b"9") == ChangePage([], 4)


def named(page: ChangePage) -> list[tuple[int, bytes]]:
    return [(change.version, change.key) for change in page.changes]


def test_a_snapshot_stays_as_it_was_taken() -> None:
    """In pieces that fit an entry, whatever the rows."""
    table = TablePartition()
    for number in range(12):
        apply(table, write(b"%02d" % number, bytes(TABLE_VALUE_BYTES_MAX)))
    pieces = table.snapshot()
    for number in range(12):
        apply(table, write(b"%02d" % number))
    frozen = list(pieces)
    assert all(len(piece) < PIECE_BYTES_MAX for piece in frozen)
    copy = TablePartition()
    restored(copy, frozen)
    assert copy.version == 12
    assert copy.size_bytes == 12 * (TABLE_VALUE_BYTES_MAX + 2 + 64)


@pytest.mark.parametrize("seed", range(20))
def test_rows_may_change_while_a_snapshot_is_taken(seed: int) -> None:
    """Puts, removals and new keys between any two pieces, and other snapshots beside it: each has the rows of its beginning."""
    draw = random.Random(seed)
    table = TablePartition()
    keys = [b"%03d" % number for number in range(40)]

    def change() -> None:
        key = draw.choice(keys)
        if draw.random() < 0.4:
            apply(table, write(key))
        else:
            apply(table, write(key, b"%d" % draw.randrange(9) * draw.choice([10, 300_000])))

    for _ in range(60):
        change()
    taken: list[tuple[Iterator[bytes], list[bytes], list[bytes]]] = []
    for _ in range(3):
        taken.append((table.snapshot(), [], list(table.snapshot())))
        for _ in range(draw.randrange(12)):
            change()
            snapshot, pieces, _ = draw.choice(taken)
            pieces.extend(islice(snapshot, draw.randrange(3)))
    for snapshot, pieces, wanted in taken:
        assert [*pieces, *snapshot] == wanted
    del taken, snapshot, pieces
    assert len(table._captured) == 0, "a snapshot that nobody takes any more costs nothing"
