"""The last acked batches of shards, kept in memory for those who fetch at the end.

What holds: a tail has consecutive acked batches up to where the shard is acked; all tails of a broker, with what fetches have
taken and not given back, stay within one limit: the oldest batch leaves first, whichever shard it is of.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable
from itertools import islice

from rangelog_core.batch import BatchHeader

ENTRY_BYTES = 500
"""What a batch costs beside its bytes: the header, the numbers, the objects."""


class FetchMemory:
    """The memory of all fetches of one broker."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.tail_bytes = 0
        """Of the batches in tails."""
        self.taken_bytes = 0
        """Of answers that are not sent yet, and of batches that were read ahead."""
        self.on_room: Callable[[], object] = lambda: None
        """Called where something was given back."""
        self._order: deque[Tail] = deque()  # for each batch its tail, the oldest first

    @property
    def has_room(self) -> bool:
        """Whether another fetch may take batches: not while those that were taken alone reach the limit."""
        return self.taken_bytes < self.bytes_max

    def take(self, size_bytes: int) -> None:
        """Count batches of a fetch; tails make room for them."""
        self.taken_bytes += size_bytes
        self._fit()

    def give_back(self, size_bytes: int) -> None:
        """Batches that were taken are sent, or given up."""
        self.taken_bytes -= size_bytes
        self.on_room()

    def _added(self, tail: Tail, size_bytes: int) -> None:
        self.tail_bytes += size_bytes
        self._order.append(tail)
        self._fit()

    def _fit(self) -> None:
        while self._order and self.tail_bytes + self.taken_bytes > self.bytes_max:
            self._order.popleft()._drop_first()

    def _cleared(self, tail: Tail, size_bytes: int) -> None:
        self.tail_bytes -= size_bytes
        self._order = deque(each for each in self._order if each is not tail)


class Tail:
    """The last batches of one shard, from `start_offset` to `end_offset`; it begins empty at the shard's end."""

    def __init__(self, memory: FetchMemory, end_offset: int) -> None:
        self.start_offset = self.end_offset = end_offset
        self.on_acked: Callable[[], object] = lambda: None
        """Called once the shard is acked up to a later offset, and when the tail is closed."""
        self.is_closed = False
        self._memory = memory
        self._ends: list[int] = []
        self._batches: list[tuple[BatchHeader, bytes]] = []
        self._first = 0  # of these lists, the place of the first that is left
        self._size_bytes = 0

    def acked(self, offset: int, end_offset: int, batch: tuple[BatchHeader, bytes] | None) -> None:
        """Add the batch that was acked next; None: its bytes are not known here, so the tail starts behind it."""
        self.end_offset = end_offset
        if batch is None:
            self._clear()
            self.start_offset = end_offset
            return
        header, data = batch
        self._ends.append(end_offset)
        self._batches.append((header._replace(base_offset=offset), data))
        size_bytes = len(data) + ENTRY_BYTES
        self._size_bytes += size_bytes
        self._memory._added(self, size_bytes)

    def batches_from(self, offset: int, bytes_max: int) -> list[tuple[BatchHeader, bytes]]:
        """Return the batches from the one that holds an offset on: at least one, more only within `bytes_max`.

        The offset is at least `start_offset` and below `end_offset`.
        """
        place = bisect_right(self._ends, offset, lo=self._first)
        found = [self._batches[place]]
        left_bytes = bytes_max - len(found[0][1])
        for each in islice(self._batches, place + 1, None):
            left_bytes -= len(each[1])
            if left_bytes < 0:
                break
            found.append(each)
        return found

    def size_from(self, offset: int, enough_bytes: int) -> int:
        """Return the bytes of the batches from an offset on, counted up to where they are enough."""
        size_bytes = 0
        for place in range(bisect_right(self._ends, offset, lo=self._first), len(self._ends)):
            size_bytes += len(self._batches[place][1])
            if size_bytes >= enough_bytes:
                break
        return size_bytes

    def close(self) -> None:
        """Keep nothing any more. Idempotent."""
        self.is_closed = True
        self._clear()
        self.start_offset = self.end_offset
        self.on_acked()

    def _clear(self) -> None:
        if self._size_bytes:
            self._memory._cleared(self, self._size_bytes)
        self._ends, self._batches, self._first, self._size_bytes = [], [], 0, 0

    def _drop_first(self) -> None:
        size_bytes = len(self._batches[self._first][1]) + ENTRY_BYTES
        self.start_offset = self._ends[self._first]
        self._batches[self._first] = _GONE
        self._first += 1
        self._size_bytes -= size_bytes
        self._memory.tail_bytes -= size_bytes
        if self._first * 2 > len(self._ends):
            del self._ends[: self._first], self._batches[: self._first]
            self._first = 0


_GONE = (BatchHeader(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0), b"")
