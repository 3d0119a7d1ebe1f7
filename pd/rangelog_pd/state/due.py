"""When things of the state come due: hot copies that may go, and oldest ranges that get over their age.

What holds: `hot_drops` and `trims` follow from the rows. A time is here only once what it counts from is dated. Whoever acts
on them keeps its own order (a heap) and compares with these before it acts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rangelog_pd.state.tables import RangeKey
from rangelog_proto.v1 import common_pb2

if TYPE_CHECKING:
    from rangelog_pd.state.store import State

_SEALED = common_pb2.RANGE_STATE_SEALED


class DueTimes:
    """In cluster time, ms."""

    def __init__(self, state: State) -> None:
        self._state = state
        self.hot_drops: dict[RangeKey, int] = {}
        """From when a range's hot copies may go: all of it is in the tier, for as long as its stream says."""
        self.trims: dict[int, int] = {}
        """From when the first sealed range of a stream is over the stream's age."""

    def range_changed(self, before: common_pb2.Range | None, after: common_pb2.Range | None) -> None:
        """A row of the ranges changed."""
        row = after if after is not None else before
        if row is None or row.state != _SEALED:
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
        self._note_trim(after.stream_id)

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
