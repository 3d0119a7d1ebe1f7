"""When the next cursor of a stream expires: one entry per stream, which is put off as its cursors are set.

What holds: a set costs nothing here, however often it comes: an entry that is due is compared with the cursors, and moved to
the time that they give. A stream that is returned comes again after RETRY_MS, unless its cursors have expired or moved by then.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator

from rangelog_pd.reconcile.due_queue import RETRY_MS
from rangelog_pd.state.store import State


class CursorExpiries:
    """Streams whose retention depends on cursors, by the time at which to look at these."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int]] = []
        self._armed: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._heap)

    def look(self, state: State, stream_id: int) -> None:
        """Note that a stream's cursors, or their expiry, may be due earlier than known."""
        due_ms = _due_ms(state, stream_id)
        if due_ms is not None and due_ms < self._armed.get(stream_id, due_ms + 1):
            self._arm(stream_id, due_ms)

    def take(self, state: State, time_ms: int) -> Iterator[int]:
        """Yield the streams with a cursor that is due to expire."""
        while self._heap and self._heap[0][0] <= time_ms:
            at_ms, stream_id = heapq.heappop(self._heap)
            if self._armed.get(stream_id) != at_ms:
                continue
            del self._armed[stream_id]
            due_ms = _due_ms(state, stream_id)
            if due_ms is None:
                continue
            self._arm(stream_id, due_ms if due_ms > time_ms else time_ms + RETRY_MS)
            if due_ms <= time_ms:
                yield stream_id

    def _arm(self, stream_id: int, at_ms: int) -> None:
        self._armed[stream_id] = at_ms
        heapq.heappush(self._heap, (at_ms, stream_id))


def _due_ms(state: State, stream_id: int) -> int | None:
    """Return when the first live cursor of a stream expires; None: none does."""
    if stream_id not in state.retained:
        return None
    return state.cursors.next_expiry_ms(state.streams[stream_id].config, stream_id)
