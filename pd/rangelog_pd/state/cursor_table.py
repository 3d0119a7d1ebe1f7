"""The table of cursors: named positions of consumers, by stream id and name.

What holds: a version is given to one row only, also after a cursor was deleted; they rise. A cursor without a date has no age.
A live cursor is one that has not expired.
"""

from __future__ import annotations

from collections.abc import Container, Iterable

from rangelog_core.limits import CURSORS_PER_STREAM_MAX
from rangelog_core.stream_defaults import CURSOR_EXPIRY_MS_DEFAULT
from rangelog_pd.state.tables import Table, copy_of, discard, mark, row_of
from rangelog_proto.v1 import common_pb2, cursor_pb2

CursorKey = tuple[int, str]
"""Stream id and name."""


class CursorTable:
    """All cursors."""

    def __init__(self) -> None:
        self.next_version = 1
        self.names: dict[int, dict[str, None]] = {}
        """The cursors of a stream."""
        self.undated: dict[CursorKey, None] = {}
        self.rows: Table[CursorKey, cursor_pb2.Cursor] = Table(self._changed)

    def of(self, stream_id: int) -> list[cursor_pb2.Cursor]:
        """Return the cursors of a stream."""
        return [self.rows[stream_id, name] for name in self.names.get(stream_id, ())]

    def lowest(self, stream_id: int) -> cursor_pb2.Cursor | None:
        """Return the live cursor of a stream that is furthest behind, or None."""
        live = (each for each in self.of(stream_id) if not each.expired)
        return min(live, key=lambda each: (each.offset, each.name), default=None)

    def next_expiry_ms(self, config: common_pb2.StreamConfig, stream_id: int) -> int | None:
        """Return the time from which the first live cursor of a stream is overdue, or None."""
        dates = [each.set_ms for each in self.of(stream_id) if each.set_ms and not each.expired]
        return min(dates) + _expiry_ms(config) + 1 if dates else None

    def overdue(self, config: common_pb2.StreamConfig, stream_id: int, time_ms: int) -> list[cursor_pb2.Cursor]:
        """Return the live cursors of a stream that were not set for its expiry."""
        latest = time_ms - _expiry_ms(config)
        return [each for each in self.of(stream_id) if 0 < each.set_ms < latest and not each.expired]

    def take_version(self) -> int:
        """Return a version that no row has had."""
        self.next_version += 1
        return self.next_version - 1

    def remove_stream(self, stream_id: int) -> None:
        """Remove all cursors of a stream."""
        for name in list(self.names.get(stream_id, ())):
            self.rows.remove((stream_id, name))

    def date_all(self, time_ms: int) -> list[int]:
        """Date what has no date; return the streams of these cursors."""
        streams = {stream_id: None for stream_id, _ in self.undated}
        for key in list(self.undated):
            row = copy_of(self.rows[key])
            row.set_ms = time_ms
            row.created_ms = row.created_ms or time_ms
            self.rows.put(key, row)
        return list(streams)

    def load(self, rows: Iterable[cursor_pb2.Cursor], next_version: int) -> None:
        """Put all rows of a snapshot."""
        self.next_version = next_version
        for row in rows:
            self.rows.put((row.stream_id, row.name), row)

    def _changed(self, before: cursor_pb2.Cursor | None, after: cursor_pb2.Cursor | None) -> None:
        row = row_of(before, after)
        mark(self.undated, (row.stream_id, row.name), present=after is not None and not after.set_ms)
        if after is not None:
            self.names.setdefault(row.stream_id, {})[row.name] = None
        else:
            discard(self.names, row.stream_id, row.name)

    def indexes(self) -> list[object]:
        """Return all indexes, for comparison."""
        return [self.names, self.undated]

    def validate(self, stream_ids: Container[int]) -> None:
        """Assert the invariants; for tests and the simulator."""
        versions = {row.version for row in self.rows.values()}
        assert len(versions) == len(self.rows), "two cursors have one version"
        assert all(0 < version < self.next_version for version in versions)
        for stream_id, names in self.names.items():
            assert stream_id in stream_ids, "a cursor goes with its stream"
            assert len(names) <= CURSORS_PER_STREAM_MAX


def _expiry_ms(config: common_pb2.StreamConfig) -> int:
    return config.cursor_expiry_ms or CURSOR_EXPIRY_MS_DEFAULT
