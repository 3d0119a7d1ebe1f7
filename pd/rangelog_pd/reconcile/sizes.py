"""The sizes of streams with a bound, updated as ranges are added, reported and removed.

What holds: a sealed range counts with the largest size that one of its replicas reported, or with the size of its part of the
committed objects if it has no replicas. Only streams with `retention_bytes` are kept here; those of shards are trimmed with
their topics, and only measured.
"""

from __future__ import annotations

from rangelog_core.ids import is_internal_name
from rangelog_pd.state.store import State
from rangelog_proto.v1 import common_pb2


class StreamSizes:
    """Sizes in bytes by stream and range index."""

    def __init__(self) -> None:
        self._sizes: dict[int, dict[int, int]] = {}
        self._totals: dict[int, int] = {}
        self._grown: dict[int, None] = {}
        """Streams that may be over their bound now."""

    def set(self, stream_id: int, index: int, size_bytes: int) -> None:
        """Set the size of a sealed range."""
        sizes = self._sizes.setdefault(stream_id, {})
        self._totals[stream_id] = self._totals.get(stream_id, 0) + size_bytes - sizes.get(index, 0)
        sizes[index] = size_bytes
        self._grown[stream_id] = None

    def get(self, stream_id: int, index: int) -> int:
        """Return the size of a range; 0 when it is not known."""
        return self._sizes.get(stream_id, {}).get(index, 0)

    def forget(self, stream_id: int, index: int) -> None:
        """Remove a range."""
        size_bytes = self._sizes.get(stream_id, {}).pop(index, 0)
        if size_bytes:
            self._totals[stream_id] -= size_bytes

    def forget_stream(self, stream_id: int) -> None:
        """Remove a stream that was deleted or no longer has a bound."""
        self._sizes.pop(stream_id, None)
        self._totals.pop(stream_id, None)
        self._grown.pop(stream_id, None)

    def streams_over(self, state: State) -> list[tuple[int, int]]:
        """Return (stream id, offset to trim to) of the streams that grew over their bound; each comes once per growth."""
        found = []
        for stream_id in list(self._grown):
            del self._grown[stream_id]
            end = self._trim_to(state, stream_id)
            if end is not None:
                found.append((stream_id, end))
        return found

    def look_again(self, stream_id: int) -> None:
        """Check a stream again, since its trim may not have been applied."""
        if stream_id in self._sizes:
            self._grown[stream_id] = None

    def _trim_to(self, state: State, stream_id: int) -> int | None:
        """Return the end of the last range that, with all later ones, exceeds the bound."""
        stream = state.streams.find(stream_id)
        if stream is None or not stream.config.retention_bytes or is_internal_name(stream.name):
            return None
        left, end = self._totals.get(stream_id, 0), None
        for each in state.ranges.of(stream_id).values():
            if left <= stream.config.retention_bytes or each.state != common_pb2.RANGE_STATE_SEALED:
                break
            left -= self.get(stream_id, each.index)
            end = each.end_offset
        return end if end is not None and end > stream.trim_offset else None
