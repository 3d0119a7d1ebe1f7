"""Who watches which streams, and what of them changed. Pure: the handler of the call feeds it and sends what it returns.

What holds: after a watcher was told of a stream, it is told of every later change, of many at once as they are then; what
waits for a slow watcher is bounded by what it watches, not by how often it changes. A change of a stream that nobody watches
costs one look into a dictionary.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from rangelog_pd.state.store import State
from rangelog_pd.state.tables import RangeKey
from rangelog_proto.v1 import common_pb2

RANGES_PER_ANSWER = 500
STREAMS_MAX = 100_000
"""Of one watcher."""


@dataclass(eq=False, slots=True)
class Watcher:
    """One call."""

    watched: dict[int, None] = field(default_factory=dict)
    streams: dict[int, None] = field(default_factory=dict)
    """Those whose row is to be sent."""
    ranges: dict[RangeKey, None] = field(default_factory=dict)


class Watches:
    """All calls to one leader."""

    def __init__(self) -> None:
        self._by_stream: dict[int, dict[Watcher, None]] = {}
        self._state: State | None = None
        self._seen = 0

    def begin(self, state: State, watcher: Watcher, stream_id: int, from_index: int) -> None:
        """A watcher wants to know of a stream: its row and the ranges from an index on, and then what changes."""
        watcher.watched[stream_id] = None
        watcher.streams[stream_id] = None
        self._by_stream.setdefault(stream_id, {})[watcher] = None
        for index in state.ranges.of(stream_id).indexes_from(from_index):
            watcher.ranges[stream_id, index] = None

    def end(self, watcher: Watcher, stream_ids: Iterable[int]) -> None:
        """A watcher does not want to know of some streams any more."""
        for stream_id in stream_ids:
            watcher.watched.pop(stream_id, None)
            watcher.streams.pop(stream_id, None)
            watchers = self._by_stream.get(stream_id, {})
            watchers.pop(watcher, None)
            if not watchers:
                self._by_stream.pop(stream_id, None)

    def leave(self, watcher: Watcher) -> None:
        """A call ended."""
        self.end(watcher, list(watcher.watched))

    def follow(self, state: State) -> None:
        """Note for each watcher what changed since the last call."""
        changes = state.changes.since(self._seen) if self._state is state else None
        self._state, self._seen = state, state.changes.last
        if changes is None:
            for stream_id, watchers in self._by_stream.items():
                for watcher in watchers:
                    watcher.streams[stream_id] = None
                    watcher.ranges.update({(stream_id, index): None for index in state.ranges.of(stream_id)})
            return
        for before, after in changes:
            row = after if after is not None else before
            if isinstance(row, common_pb2.Range):
                for watcher in self._by_stream.get(row.stream_id, ()):
                    if after is not None:
                        watcher.ranges[row.stream_id, row.index] = None
            elif isinstance(row, common_pb2.Stream):
                for watcher in self._by_stream.get(row.stream_id, ()):
                    watcher.streams[row.stream_id] = None

    def take(
        self, state: State, watcher: Watcher
    ) -> tuple[list[common_pb2.Stream], list[common_pb2.Range], list[int]] | None:
        """Return (streams, ranges, ids of deleted streams) to be sent now, bounded; None when there is nothing."""
        if not watcher.streams and not watcher.ranges:
            return None
        streams, deleted = [], []
        for stream_id in list(watcher.streams)[:RANGES_PER_ANSWER]:
            del watcher.streams[stream_id]
            row = state.streams.find(stream_id)
            if row is not None:
                streams.append(row)
            else:
                deleted.append(stream_id)
        ranges = []
        for key in list(watcher.ranges)[:RANGES_PER_ANSWER]:
            del watcher.ranges[key]
            found = state.ranges.find(key)
            if found is not None:
                ranges.append(found)
        self.end(watcher, deleted)
        return streams, ranges, deleted
