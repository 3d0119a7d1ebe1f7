"""The tail cache: the latest batches as they were received, so that readers at the tail cost no disk work. Pure.

A batch that is not yet written is never evicted: it cannot be read from the disk.
"""

from __future__ import annotations

from collections import deque

CACHE_BYTES_DEFAULT = 32 * 1024 * 1024


class TailCache:
    """Batches by their place in the log, bounded in bytes; the oldest are evicted first."""

    __slots__ = ("_batches", "_bytes", "_bytes_max", "_order")

    def __init__(self, bytes_max: int = CACHE_BYTES_DEFAULT) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._batches: dict[int, bytes] = {}
        self._order: deque[int] = deque()

    def put(self, place: int, batch: bytes, flushed_lsn: int) -> None:
        """Keep a batch; drop old ones below `flushed_lsn` while there are too many bytes."""
        self._batches[place] = batch
        self._order.append(place)
        self._bytes += len(batch)
        while self._bytes > self._bytes_max and self._order[0] < flushed_lsn:
            self._bytes -= len(self._batches.pop(self._order.popleft()))

    def get(self, place: int) -> bytes | None:
        """Return the batch at a place of the log."""
        return self._batches.get(place)
