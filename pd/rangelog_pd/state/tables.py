"""Tables of rows by key, with hooks that update indexes.

What holds: a stored row never changes. An operation changes a copy and puts it; so a returned row stays constant, and a
snapshot of a table costs one list of its rows, however long it takes to encode them afterwards.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from typing import Any, Generic, TypeVar

from google.protobuf.message import Message

from rangelog_proto.v1 import common_pb2

K = TypeVar("K")
G = TypeVar("G")
V = TypeVar("V", bound=Message)
Hook = Callable[[V | None, V | None], None]
"""Called with the row before and after: None before an insertion, and after a removal."""

RangeKey = tuple[int, int]
"""Stream id and range index."""

ShardKey = tuple[int, int]
"""Topic id and shard id."""


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
        """Remove a row and return it; None without such a row."""
        before = self._rows.pop(key, None)
        if before is not None:
            for hook in self._hooks:
                hook(before, None)
        return before

    def freeze(self) -> list[V]:
        """Return the current rows, in order of their insertion."""
        return list(self._rows.values())


class RangeTable(Table[RangeKey, common_pb2.Range]):
    """Ranges by stream and index. Indexes rise within a stream and are not reused; where a range was removed from the middle,
    they leave a gap."""

    def __init__(self, *hooks: Hook[common_pb2.Range]) -> None:
        super().__init__(*hooks)
        self._runs: dict[int, Runs] = {}

    def put(self, key: RangeKey, row: common_pb2.Range) -> None:
        """Insert the next range of its stream, or replace one."""
        stream_id, index = key
        runs = self._runs.get(stream_id, ())
        if not runs or index > runs[-1].stop:
            self._runs[stream_id] = (*runs, range(index, index + 1))
        elif index == runs[-1].stop:
            self._runs[stream_id] = (*runs[:-1], range(runs[-1].start, index + 1))
        super().put(key, row)

    def remove(self, key: RangeKey) -> common_pb2.Range | None:
        """Remove a range and return it; None without such a range."""
        stream_id, index = key
        if key in self:
            runs = _without(self._runs[stream_id], index)
            if runs:
                self._runs[stream_id] = runs
            else:
                del self._runs[stream_id]
        return super().remove(key)

    def of(self, stream_id: int) -> StreamRanges:
        """Return the ranges of one stream, by index."""
        return StreamRanges(self, stream_id, self._runs.get(stream_id, ()))


Runs = tuple[range, ...]
"""Indexes of one stream's ranges: consecutive ones in one run, runs in order, none of them empty. One run in most streams."""


def _without(runs: Runs, index: int) -> Runs:
    at = bisect_right(runs, index, key=_start_of) - 1
    run = runs[at]
    parts = (range(run.start, index), range(index + 1, run.stop))
    return (*runs[:at], *(part for part in parts if part), *runs[at + 1 :])


def _start_of(run: range) -> int:
    return run.start


class StreamRanges(Mapping[int, common_pb2.Range]):
    """The ranges of one stream at the time of the call, in order."""

    __slots__ = ("_runs", "_stream_id", "_table")

    def __init__(self, table: RangeTable, stream_id: int, runs: Runs) -> None:
        self._table, self._stream_id, self._runs = table, stream_id, runs

    def __getitem__(self, index: int) -> common_pb2.Range:
        return self._table[self._stream_id, index]

    def __len__(self) -> int:
        return sum(map(len, self._runs))

    def __iter__(self) -> Iterator[int]:
        return chain.from_iterable(self._runs)

    def __reversed__(self) -> Iterator[int]:
        return chain.from_iterable(map(reversed, reversed(self._runs)))

    def __contains__(self, index: object) -> bool:
        return isinstance(index, int) and any(index in run for run in self._runs)

    def indexes_from(self, index: int) -> Iterator[int]:
        """Return the indexes from `index` on."""
        for run in self._runs[max(0, bisect_right(self._runs, index, key=_start_of) - 1) :]:
            yield from range(max(index, run.start), run.stop)

    def count(self, first: int, last: int) -> int:
        """Return the number of ranges with indexes from `first` to `last`, both included."""
        return sum(max(0, min(last + 1, run.stop) - max(first, run.start)) for run in self._runs)

    def first_from(self, index: int) -> common_pb2.Range | None:
        """Return the first range whose index is `index` or above, or None."""
        found = next(self.indexes_from(index), None)
        return self[found] if found is not None else None

    def last(self) -> common_pb2.Range | None:
        """Return the last range, or None."""
        return self[self._runs[-1][-1]] if self._runs else None

    def index_beyond(self, offset: int) -> int:
        """Return the index of the first range that is open or ends beyond `offset`, by bisection: ranges tile. Without such a
        range: one past the last index."""
        if not self._runs:
            return 0
        at = bisect_left(self._runs, True, key=lambda run: self._is_beyond(run[-1], offset))
        if at == len(self._runs):
            return self._runs[-1].stop
        run = self._runs[at]
        return run[bisect_left(run, True, key=lambda index: self._is_beyond(index, offset))]

    def _is_beyond(self, index: int, offset: int) -> bool:
        each = self[index]
        return each.state == common_pb2.RANGE_STATE_OPEN or each.end_offset > offset


def row_of(before: V | None, after: V | None) -> V:
    """Return the row that a hook is called with: the one after the change; of a removal the one before."""
    row = after if after is not None else before
    assert row is not None, "a hook is called with a row"
    return row


def mark(index: dict[K, None], key: K, *, present: bool) -> None:
    """Put a key into an index, or remove it."""
    if present:
        index[key] = None
    else:
        index.pop(key, None)


def discard(groups: dict[G, dict[K, Any]], group: G, key: K) -> None:
    """Remove a key from its group, and a group that is empty then."""
    members = groups.get(group, {})
    members.pop(key, None)
    if not members:
        groups.pop(group, None)


def copy_of(row: V) -> V:
    """Return a copy of a row, for a change."""
    copy = type(row)()
    copy.CopyFrom(row)
    return copy
