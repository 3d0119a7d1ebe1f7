"""A queue of keys by due time: a heap over times that may change.

What holds: the times in force are in state/due.py; an entry with another time is dropped when it is taken. A returned key is
returned again after RETRY_MS, unless it is no longer due by then: so a lost command loses no key.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping
from typing import Generic, TypeVar

RETRY_MS = 2_000

K = TypeVar("K", int, tuple[int, int])


class DueQueue(Generic[K]):
    """Keys by time."""

    def __init__(self, times: Mapping[K, int]) -> None:
        self._heap: list[tuple[int, K, int]] = [(due_ms, key, due_ms) for key, due_ms in times.items()]
        heapq.heapify(self._heap)
        self._queued: dict[K, int] = dict(times)

    def __len__(self) -> int:
        return len(self._heap)

    def put(self, key: K, times: Mapping[K, int]) -> None:
        """Add a key with its due time among the times in force; a key without one is not added."""
        due_ms = times.get(key)
        if due_ms is not None and self._queued.get(key) != due_ms:
            self._queued[key] = due_ms
            heapq.heappush(self._heap, (due_ms, key, due_ms))

    def withdraw(self, key: K) -> None:
        """Remove a key until it is put again."""
        self._queued.pop(key, None)

    def take(self, time_ms: int, times: Mapping[K, int]) -> Iterator[K]:
        """Yield the keys that are due at `time_ms` by the times in force, earliest first."""
        while self._heap and self._heap[0][0] <= time_ms:
            _, key, due_ms = self._heap[0]
            if times.get(key) != due_ms or self._queued.get(key) != due_ms:
                heapq.heappop(self._heap)
                if self._queued.get(key) == due_ms:
                    del self._queued[key]
                continue
            heapq.heapreplace(self._heap, (time_ms + RETRY_MS, key, due_ms))
            yield key
