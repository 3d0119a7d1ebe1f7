"""Tables of rows by key, with hooks that update indexes.

What holds: a stored row never changes. An operation changes a copy and puts it; so a returned row stays constant, and a
snapshot of a table costs one list of its rows, however long it takes to encode them afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Generic, TypeVar

from google.protobuf.message import Message

from rangelog_proto.v1 import common_pb2

K = TypeVar("K")
V = TypeVar("V", bound=Message)
Hook = Callable[[V | None, V | None], None]
"""Called with the row before and after: None before an insertion, and after a removal."""

RangeKey = tuple[int, int]
"""Stream id and range index."""


class Table(Mapping[K, V], Generic[K, V]):
    """Rows of one kind.

    Example: `row = table.copy(key); row.epoch += 1; table.put(key, row)`.
    """

    def __init__(self, *hooks: Hook[V]) -> None:
        self._rows: dict[K, V] = {}
        self._hooks = hooks

    def __getitem__(self, key: K) -> V:
        return self._rows[key]

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[K]:
        return iter(self._rows)

    def __contains__(self, key: object) -> bool:
        return key in self._rows

    def find(self, key: K) -> V | None:
        """Return a row, or None. Callers must not change it."""
        return self._rows.get(key)

    def copy(self, key: K) -> V:
        """Return a copy of a row, for a change and `put`. Raises KeyError."""
        return copy_of(self._rows[key])

    def put(self, key: K, row: V) -> None:
        """Insert or replace a row, which callers must not change afterwards."""
        before = self._rows.get(key)
        self._rows[key] = row
        for hook in self._hooks:
            hook(before, row)

    def remove(self, key: K) -> V | None:
        """Remove a row and return it; None where there is none."""
        before = self._rows.pop(key, None)
        if before is not None:
            for hook in self._hooks:
                hook(before, None)
        return before

    def freeze(self) -> list[V]:
        """Return the current rows, in order of their insertion."""
        return list(self._rows.values())


class RangeTable(Table[RangeKey, common_pb2.Range]):
    """Ranges by stream and index. The ranges of a stream have consecutive indexes: they are added at the end and removed at
    the front, or all of them."""

    def __init__(self, *hooks: Hook[common_pb2.Range]) -> None:
        super().__init__(*hooks)
        self._spans: dict[int, tuple[int, int]] = {}

    def put(self, key: RangeKey, row: common_pb2.Range) -> None:
        """Insert the next range of a stream, or replace one; callers must not change the row afterwards."""
        stream_id, index = key
        first, end = self._spans.get(stream_id, (index, index))
        if index >= end:
            self._spans[stream_id] = (first, index + 1)
        super().put(key, row)

    def remove(self, key: RangeKey) -> common_pb2.Range | None:
        """Remove the first range of a stream, or any if all of them are removed."""
        stream_id, index = key
        first, end = self._spans.get(stream_id, (index, index))
        if first == index:
            first += 1
        if first >= end:
            self._spans.pop(stream_id, None)
        else:
            self._spans[stream_id] = (first, end)
        return super().remove(key)

    def of(self, stream_id: int) -> StreamRanges:
        """Return the ranges of one stream, by index."""
        return StreamRanges(self, stream_id, *self._spans.get(stream_id, (0, 0)))


class StreamRanges(Mapping[int, common_pb2.Range]):
    """The ranges of one stream at the time of the call, in order."""

    __slots__ = ("_end", "_first", "_stream_id", "_table")

    def __init__(self, table: RangeTable, stream_id: int, first: int, end: int) -> None:
        self._table, self._stream_id, self._first, self._end = table, stream_id, first, end

    def __getitem__(self, index: int) -> common_pb2.Range:
        return self._table[self._stream_id, index]

    def __len__(self) -> int:
        return self._end - self._first

    def __iter__(self) -> Iterator[int]:
        return iter(range(self._first, self._end))

    def __reversed__(self) -> Iterator[int]:
        return iter(range(self._end - 1, self._first - 1, -1))

    def __contains__(self, index: object) -> bool:
        return isinstance(index, int) and self._first <= index < self._end

    def indexes_from(self, index: int) -> range:
        """Return the indexes from `index` on."""
        return range(max(index, self._first), self._end)

    def last(self) -> common_pb2.Range | None:
        """Return the last range, or None."""
        return self[self._end - 1] if self._end > self._first else None

    def index_beyond(self, offset: int) -> int:
        """Return the index of the first range that is open or ends beyond `offset`, by bisection: ranges tile."""
        low, high = self._first, self._end
        while low < high:
            middle = (low + high) // 2
            each = self[middle]
            if each.state == common_pb2.RANGE_STATE_OPEN or each.end_offset > offset:
                high = middle
            else:
                low = middle + 1
        return low


def copy_of(row: V) -> V:
    """Return a copy of a row, for a change."""
    copy = type(row)()
    copy.CopyFrom(row)
    return copy
