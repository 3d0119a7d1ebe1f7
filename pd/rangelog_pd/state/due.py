"""The due times of the state: of hot replicas to drop, of ranges that reach their stream's age, of open ranges that are old.

What holds: `hot_drops`, `trims` and `open_ages` follow from the rows. A due time exists only once the row that it counts from
is dated. The reconcilers keep their own order (a heap) and compare with these times before they act.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rangelog_pd.state.tables import RangeKey, row_of
from rangelog_proto.v1 import common_pb2

if TYPE_CHECKING:
    from rangelog_pd.state.store import State

_OPEN, _SEALED = common_pb2.RANGE_STATE_OPEN, common_pb2.RANGE_STATE_SEALED

_GRACE_PARTS = 8
"""A writer leaves a range at its age; after one such part of the age more it is late."""


class DueTimes:
    """Due times in cluster time, ms."""

    def __init__(self, state: State) -> None:
        self._state = state
        self.hot_drops: dict[RangeKey, int] = {}
        """When a range's hot replicas may be dropped: all of it has been in the tier for the stream's hot retention."""
        self.trims: dict[int, int] = {}
        """When the first sealed range of a stream exceeds the stream's age."""
        self.open_ages: dict[RangeKey, int] = {}
        """When a living writer would long have left an open range because of its age."""

    def range_changed(self, before: common_pb2.Range | None, after: common_pb2.Range | None) -> None:
        """A row of the ranges changed."""
        row = row_of(before, after)
        self._note_open_age(row, is_there=after is not None)
        if row.state != _SEALED:
            return
        self._note_hot_drop(row, is_there=after is not None)
        self._note_trim(row.stream_id)

    def stream_changed(self, before: common_pb2.Stream | None, after: common_pb2.Stream | None) -> None:
        """A row of the streams changed. A change of its ages concerns all of its ranges."""
        if after is None:
            if before is not None:
                self.trims.pop(before.stream_id, None)
            return
        if before is not None and before.config.hot_retention_ms != after.config.hot_retention_ms:
            for each in self._state.ranges.of(after.stream_id).values():
                self._note_hot_drop(each, is_there=True)
        if before is not None and before.config.range_age_ms_max != after.config.range_age_ms_max:
            last = self._state.ranges.of(after.stream_id).last()
            if last is not None:
                self._note_open_age(last, is_there=True)
        self._note_trim(after.stream_id)

    def _note_open_age(self, of: common_pb2.Range, *, is_there: bool) -> None:
        stream = self._state.streams.find(of.stream_id)
        age_ms_max = stream.config.range_age_ms_max if stream is not None else 0
        if is_there and of.state == _OPEN and age_ms_max:
            self.open_ages[of.stream_id, of.index] = of.created_ms + age_ms_max + age_ms_max // _GRACE_PARTS
        else:
            self.open_ages.pop((of.stream_id, of.index), None)

    def _note_hot_drop(self, of: common_pb2.Range, *, is_there: bool) -> None:
        stream = self._state.streams.find(of.stream_id)
        key = (of.stream_id, of.index)
        whole = of.state == _SEALED and of.tiered_end_offset == of.end_offset  # so is an empty one
        since_ms = of.tiered_ms if of.tiered_end_offset > of.start_offset else of.sealed_ms
        if is_there and whole and since_ms and not of.hot_dropped and stream is not None:
            hot_retention_ms = stream.config.hot_retention_ms
            if hot_retention_ms >= 0:
                self.hot_drops[key] = since_ms + hot_retention_ms
                return
        self.hot_drops.pop(key, None)

    def _note_trim(self, stream_id: int) -> None:
        stream = self._state.streams.find(stream_id)
        if stream is None or not stream.config.retention_ms:
            self.trims.pop(stream_id, None)
            return
        ranges = self._state.ranges.of(stream_id)
        first = ranges.get(ranges.index_beyond(stream.trim_offset))
        if first is None or first.state != _SEALED or not first.sealed_ms:
            self.trims.pop(stream_id, None)
        else:
            self.trims[stream_id] = first.sealed_ms + stream.config.retention_ms + 1
