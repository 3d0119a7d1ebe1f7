"""A batch that was encoded elsewhere and is in flight, beside those of the batch builder."""

from __future__ import annotations

import asyncio

from rangelog._append.batch_builder import tell
from rangelog.protocol.appender import Appender
from rangelog_core.batch import BatchHeader, restamp
from rangelog_core.errors import RangelogError
from rangelog_core.record import Ack


class EncodedBatch:
    """A batch in flight that was encoded elsewhere; its one waiter gets the ack of its first record."""

    __slots__ = ("_acked", "_waiters", "base_offset", "end_offset", "size_bytes")

    def __init__(self, base_offset: int, count: int, size_bytes: int, acked: asyncio.Future[Ack]) -> None:
        self.base_offset = base_offset
        self.end_offset = base_offset + count
        self.size_bytes = size_bytes
        self._acked = acked
        self._waiters: list[asyncio.Future[None]] = []

    @classmethod
    def place(
        cls, data: bytes, header: BatchHeader, stream_id: int, core: Appender, acked: asyncio.Future[Ack]
    ) -> tuple[EncodedBatch, bytes]:
        """Return the batch at the writer's next offset, and its bytes there."""
        batch = cls(core.next_offset, header.count, len(data), acked)
        placed = restamp(
            data,
            stream_id=stream_id,
            range_index=core.range_index,
            epoch=core.epoch,
            base_offset=batch.base_offset,
            header=header,
        )
        return batch, placed

    @property
    def unwatched(self) -> bool:
        """See BatchBuilder."""
        return False

    def wait(self, waiter: asyncio.Future[None]) -> None:
        """See BatchBuilder."""
        self._waiters.append(waiter)

    def resolve(self) -> None:
        """See BatchBuilder."""
        if not self._acked.done():
            self._acked.set_result(Ack(self.base_offset))
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)

    def fail(self, error: RangelogError, of_all: RangelogError) -> None:
        """See BatchBuilder."""
        tell(self._acked, error)
        for waiter in self._waiters:
            tell(waiter, of_all)
