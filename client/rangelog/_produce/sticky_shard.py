"""Where records without a key go: to one shard until a batch is whole, then to the next.

What holds: records that are sent together are one batch of one shard, as long as it has an owner. Shards take turns; one
without an owner, or behind, is passed over while another one is not.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from rangelog._produce.core import MappedShard, ProducerCore


class StickyShard:
    """See the module."""

    def __init__(self, core: ProducerCore, lacks_owner: Callable[[int], bool], batch_bytes_max: int) -> None:
        self._core = core
        self._lacks_owner = lacks_owner
        self._batch_bytes_max = batch_bytes_max
        self._version = -1
        self._shards: Sequence[MappedShard] = ()
        self._turn = 0
        self._size_bytes = 0

    def position(self, size_bytes: int, *, begins_turn: bool) -> int:
        """Return the position of a record without a key. `begins_turn`: what was appended before has been flushed."""
        if self._core.map_version != self._version:
            self._version = self._core.map_version
            self._shards = self._core.current
            self._turn = random.randrange(len(self._shards)) if self._shards else 0
        elif self._size_bytes + size_bytes > self._batch_bytes_max or (begins_turn and self._is_over()):
            self._next()
        self._size_bytes += size_bytes
        return self._shards[self._turn].low if self._shards else 0

    def _is_over(self) -> bool:
        """Whether the batch is whole, since nothing of it waits any more, or cannot be sent now."""
        if not self._size_bytes or not self._shards:
            return False
        shard_id = self._shards[self._turn].shard_id
        return not self._core.queued_for(shard_id) or self._lacks_owner(shard_id)

    def _next(self) -> None:
        self._size_bytes = 0
        count = len(self._shards)
        for step in range(1, count + 1):
            turn = (self._turn + step) % count
            shard_id = self._shards[turn].shard_id
            if self._core.takes_more(shard_id) and not self._lacks_owner(shard_id):
                self._turn = turn
                return
        self._turn = (self._turn + 1) % count if count else 0
