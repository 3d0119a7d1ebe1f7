"""Filters that are applied by the source: exactly those rows, and windows that are never narrower."""

from __future__ import annotations

import operator
import random
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

from rangelog.spark.filters import ALL_OFFSETS, ALL_TIMES_MS, Interval, Selection
from rangelog_tier.arrow import SCHEMA

EPOCH = datetime(2026, 1, 31, 12, tzinfo=UTC)
KEYS = (b"a", b"b", b"", None)
OPERATORS: dict[type[Any], Any] = {
    EqualTo: operator.eq,
    GreaterThan: operator.gt,
    GreaterThanOrEqual: operator.ge,
    LessThan: operator.lt,
    LessThanOrEqual: operator.le,
}


def batch_of(count: int, draw: random.Random) -> pa.RecordBatch:
    """Rows with times that do not rise, and with and without keys."""
    times = [EPOCH + timedelta(milliseconds=draw.randrange(-50, 50)) for _ in range(count)]
    columns = [range(100, 100 + count), times, [draw.choice(KEYS) for _ in range(count)], [b"v"] * count, [[]] * count]
    return pa.RecordBatch.from_arrays(
        [pa.array(list(column), field.type) for column, field in zip(columns, SCHEMA, strict=True)], schema=SCHEMA
    )


def wanted(one: Any, row: dict[str, Any]) -> bool:
    """Whether a row fulfils a filter, as SQL has it."""
    value = row[one.attribute[0]]
    if isinstance(one, IsNotNull | IsNull):
        return (value is None) == isinstance(one, IsNull)
    if value is None:
        return False
    return value in one.value if isinstance(one, In) else bool(OPERATORS[type(one)](value, one.value))


def drawn(draw: random.Random) -> Filter:
    """A filter of any kind that is taken."""
    column = draw.choice(["offset", "timestamp", "key"])
    values: dict[str, Any] = {
        "offset": draw.randrange(90, 160),
        "timestamp": EPOCH + timedelta(microseconds=draw.randrange(-60_000, 60_000, 500)),
        "key": draw.choice([b"a", b"b", b"", b"missing"]),
    }
    if column == "key" and draw.random() < 0.3:
        return draw.choice([IsNull, IsNotNull])((column,))
    if draw.random() < 0.3:
        return In((column,), tuple(values[column] for _ in range(draw.randrange(4))))
    return draw.choice([EqualTo] if column == "key" else list(OPERATORS))((column,), values[column])


@pytest.mark.parametrize("seed", range(200))
def test_the_rows_are_those_that_sql_leaves(seed: int) -> None:
    """Whatever filters are combined; what lies outside of the windows fulfils them not."""
    draw = random.Random(seed)
    batch = batch_of(50, draw)
    filters = [drawn(draw) for _ in range(draw.randrange(1, 4))]
    selection = Selection()
    assert selection.take(filters) == []
    expected = [row for row in batch.to_pylist() if all(wanted(each, row) for each in filters)]
    assert selection.rows(batch).to_pylist() == expected
    for row in expected:
        assert selection.offsets.has(row["offset"])
        assert selection.times_ms.has(round(row["timestamp"].timestamp() * 1000))


def test_what_is_left_to_spark() -> None:
    """Filters of other columns, of parts of columns and of other kinds come back, the same objects, and change nothing."""
    left: list[Filter] = [
        Not(EqualTo(("offset",), 3)),
        StringStartsWith(("value",), "a"),
        EqualTo(("value",), b"v"),
        EqualTo(("headers", "trace"), b"v"),
        GreaterThan(("key",), b"a"),
        EqualTo(("key",), "text"),
        EqualTo(("timestamp",), datetime(2026, 1, 31)),  # without a zone it is no instant
        EqualTo(("offset",), 3.5),
        EqualNullSafe(("key",), None),
        In(("key",), (b"a", None)),
        IsNull(("value",)),
    ]
    selection = Selection()
    returned = selection.take(left)
    assert all(one is other for one, other in zip(returned, left, strict=True))
    assert (selection.conditions, selection.offsets, selection.times_ms) == ([], ALL_OFFSETS, ALL_TIMES_MS)


def test_never_null_is_no_condition() -> None:
    """Spark adds it to every comparison."""
    selection = Selection()
    assert selection.take([IsNotNull(("offset",)), IsNotNull(("timestamp",)), IsNotNull(("shard",))]) == []
    assert selection.conditions == []


def test_shards_are_wanted_as_a_whole() -> None:
    """By list or by bounds."""
    selection = Selection()
    assert selection.take([In(("shard",), (1, 4, 9)), GreaterThan(("shard",), 1), LessThanOrEqual(("shard",), 8)]) == []
    assert [each for each in range(12) if selection.has_shard(each)] == [4]
    assert Selection().has_shard(7)


def test_windows() -> None:
    """The windows of several filters meet; a microsecond belongs to its millisecond."""
    selection = Selection()
    at = GreaterThan(("timestamp",), EPOCH + timedelta(microseconds=1_500))
    until = LessThan(("timestamp",), EPOCH + timedelta(microseconds=3_001))
    assert selection.take([at, until, GreaterThanOrEqual(("offset",), 7), LessThan(("offset",), 9)]) == []
    epoch_ms = int(EPOCH.timestamp()) * 1000
    assert selection.times_ms == Interval(epoch_ms + 1, epoch_ms + 4)
    assert selection.offsets == Interval(7, 9)
    assert selection.take([EqualTo(("offset",), 20)]) == []
    assert selection.offsets.is_empty
