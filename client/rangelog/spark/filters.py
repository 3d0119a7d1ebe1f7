"""What a query wants of the rows: its filters on offset, timestamp, key and shard, and which rows they leave.

What holds: a filter that `take` takes is applied exactly, so Spark need not apply it again; the others are returned, and change
nothing here. Bounds and windows (`offsets`, `times_ms`) may be wider than the filters, never narrower: they serve to leave out
ranges, row groups and batches before they are read; `rows` then decides row by row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from rangelog_core.limits import OFFSET_MAX

if TYPE_CHECKING:
    from pyspark.sql.datasource import Filter

NEVER_NULL = ("offset", "timestamp", "shard", "value", "headers")
TIME_MS_MAX = (1 << 63) // 1000 - 1
"""Times beyond it have no microseconds."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_ABOVE_ALL = 1 << 64
_LONG_MAX = (1 << 63) - 1
OF_KEYS = ("EqualTo", "EqualNullSafe", "In")
_COMPARISONS: dict[str, Callable[..., pa.Array]] = {
    "EqualTo": pc.equal,
    "EqualNullSafe": pc.equal,
    "GreaterThan": pc.greater,
    "GreaterThanOrEqual": pc.greater_equal,
    "LessThan": pc.less,
    "LessThanOrEqual": pc.less_equal,
}


class Interval(NamedTuple):
    """Values from `low` to below `end`."""

    low: int
    end: int

    def meet(self, other: Interval) -> Interval:
        """Return what both have; empty as (n, n)."""
        low = max(self.low, other.low)
        return Interval(low, max(low, min(self.end, other.end)))

    def has(self, value: int) -> bool:
        """Whether a value lies in it."""
        return self.low <= value < self.end

    @property
    def is_empty(self) -> bool:
        """Whether there is no such value."""
        return self.low >= self.end


class Condition(NamedTuple):
    """One filter that is applied here: of a column, by a kind of filter, with integers (offset, µs, shard) or bytes."""

    column: str
    kind: str
    values: tuple[Any, ...]


ALL_OFFSETS = Interval(0, OFFSET_MAX + 1)
ALL_TIMES_MS = Interval(-TIME_MS_MAX, TIME_MS_MAX)


@dataclass
class Selection:
    """The filters of one read. A plain value, so that Spark can send it to the workers."""

    conditions: list[Condition] = field(default_factory=list)
    offsets: Interval = ALL_OFFSETS
    times_ms: Interval = ALL_TIMES_MS

    def take(self, filters: Iterable[Filter]) -> list[Filter]:
        """Add those filters, all of which must hold, that can be applied here; return the others."""
        return [each for each in filters if not self._take(each)]

    def has_shard(self, shard_id: int) -> bool:
        """Whether rows of a shard are wanted."""
        of_shard = [each for each in self.conditions if each.column == "shard"]
        return all(_window(each).has(shard_id) and (each.kind != "In" or shard_id in each.values) for each in of_shard)

    @property
    def is_of_time(self) -> bool:
        """Whether it narrows the timestamps."""
        return self.times_ms != ALL_TIMES_MS

    def rows(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows of a batch that fulfil all conditions, in their order. `shard` is no column of it."""
        mask = None
        for condition in self.conditions:
            if condition.column == "shard":
                continue  # a shard is wanted as a whole or not at all
            holds = _holds(batch, condition)
            mask = holds if mask is None else pc.and_(mask, holds)
        return batch if mask is None or pc.all(mask).as_py() else batch.filter(mask)

    def add(self, condition: Condition) -> None:
        """Add one condition."""
        self.conditions.append(condition)
        if condition.column == "offset":
            self.offsets = self.offsets.meet(_window(condition))
        elif condition.column == "timestamp":
            low, end = _window(condition)
            self.times_ms = self.times_ms.meet(Interval(low // 1000, -(-end // 1000)))  # of µs

    # ---- inside

    def _take(self, one: Filter) -> bool:
        kind = type(one).__name__
        path: Sequence[str] = getattr(one, "attribute", ())
        if len(path) != 1:
            return False
        column = path[0].lower()
        if kind == "IsNotNull" and column in NEVER_NULL:
            return True
        if kind in ("IsNull", "IsNotNull"):
            return column == "key" and self._added(Condition(column, kind, ()))
        if kind not in (OF_KEYS if column == "key" else (*_COMPARISONS, "In")):
            return False
        given: Any = getattr(one, "value", None)
        values = tuple(plain(column, each) for each in (given if kind == "In" else (given,)))
        return None not in values and self._added(Condition(column, kind, values))

    def _added(self, condition: Condition) -> bool:
        self.add(condition)
        return True


def plain(column: str, value: Any) -> Any:
    """Return a literal as an integer or as bytes; None where the column has no such values."""
    if column in ("offset", "shard") and type(value) is int and -_LONG_MAX - 1 <= value <= _LONG_MAX:
        return value
    if column == "timestamp" and isinstance(value, datetime) and value.tzinfo is not None:
        return (value - _EPOCH) // _MICROSECOND
    if column == "key" and isinstance(value, bytes | bytearray):
        return bytes(value)
    return None


def _window(condition: Condition) -> Interval:
    values = condition.values
    if not values:
        return Interval(0, 0)
    low, high = min(values), max(values)
    match condition.kind:
        case "GreaterThan":
            return Interval(low + 1, _ABOVE_ALL)
        case "GreaterThanOrEqual":
            return Interval(low, _ABOVE_ALL)
        case "LessThan":
            return Interval(-_ABOVE_ALL, high)
        case "LessThanOrEqual":
            return Interval(-_ABOVE_ALL, high + 1)
    return Interval(low, high + 1)


def _holds(batch: pa.RecordBatch, condition: Condition) -> pa.Array:
    """Return whether each row fulfils a condition; null is no."""
    column = batch.column(condition.column)
    if condition.kind == "IsNotNull":
        return column.is_valid()
    if condition.kind == "IsNull":
        return column.is_null()
    if condition.column == "timestamp":
        column = column.cast(pa.int64())
    if condition.kind == "In":
        return pc.is_in(column, pa.array(condition.values, column.type))
    held = _COMPARISONS[condition.kind](column, pa.scalar(condition.values[0], column.type))
    return held.fill_null(False)
