"""The sizes of streams with a bound, updated as ranges are added, reported and removed.

What holds: a sealed range counts with the largest size that one of its replicas reported, or with the size of its part of the
committed objects if it has no replicas. Only streams with `retention_bytes` are kept here.
"""

from __future__ import annotations


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

    def total(self, stream_id: int) -> int:
        """Return the size of a stream's sealed ranges."""
        return self._totals.get(stream_id, 0)

    def grown(self) -> list[int]:
        """Return the streams that may have grown over their bound since the last call."""
        found = list(self._grown)
        self._grown.clear()
        return found

    def look_again(self, stream_id: int) -> None:
        """Check a stream again, since its trim may not have been applied."""
        if stream_id in self._sizes:
            self._grown[stream_id] = None
