"""Who waits for a producer's records: a future for a record, and flushes for all records up to one.

What holds: each future resolves with the ack of its own record, or fails with that record's error. The error of a record
without a future, or with one that was cancelled (as `asyncio.wait_for` does), is kept for the next flush.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import Collection, Sequence
from typing import NamedTuple

from rangelog._append.batch_builder import tell
from rangelog_core.errors import RangelogError


class ProducerAck(NamedTuple):
    """The record at `offset` of `shard` is durable on as many replicas as the topic's `acks`. Both never change.

    Attributes:
        shard: The id of the shard.
        offset: The record's number in the shard; dense, from 0.
    """

    shard: int
    offset: int


class _Flush:
    """A wait for all records below an order."""

    __slots__ = ("below", "future", "left")

    def __init__(self, below: int, left: int, future: asyncio.Future[None]) -> None:
        self.below = below
        self.left = left
        self.future = future


class Waiters:
    """See the module."""

    def __init__(self) -> None:
        self._futures: dict[int, asyncio.Future[ProducerAck]] = {}
        self._flushes: list[_Flush] = []
        self._untold: RangelogError | None = None

    def watch(self, order: int) -> asyncio.Future[ProducerAck]:
        """Return a future of a record's ack."""
        future: asyncio.Future[ProducerAck] = asyncio.get_running_loop().create_future()
        self._futures[order] = future
        return future

    def flush(self, below: int, left: int) -> asyncio.Future[None]:
        """Return what resolves once the `left` records without an outcome, all below an order, have one."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._flushes.append(_Flush(below, left, future))
        return future

    def acked(self, shard_id: int, offset: int, orders: Sequence[int]) -> None:
        """These records, in order, are acked at consecutive offsets."""
        if self._futures:
            for number, order in enumerate(orders):
                future = self._futures.pop(order, None)
                if future is not None and not future.done():
                    future.set_result(ProducerAck(shard_id, offset + number))
        self._settled(orders)

    def refused(self, orders: Sequence[int], error: RangelogError) -> None:
        """These records are in no log."""
        certain = error.with_outcome(unknown=False)
        for order in orders:
            future = self._futures.pop(order, None)
            if future is not None and not future.cancelled():
                tell(future, certain)
            else:
                self._untold = self._untold or certain
        self._settled(sorted(orders))

    def end(
        self, orders: Collection[int], certain: Collection[int], of_sent: RangelogError, of_waiting: RangelogError
    ) -> RangelogError | None:
        """None of these records, all that are left, is acked any more; the `certain` ones are in no log.

        Returns the error of records without a future that can tell it.
        """
        unknown, known = of_sent.with_outcome(unknown=True), of_waiting.with_outcome(unknown=False)
        futures, self._futures = self._futures, {}
        for order, future in futures.items():
            tell(future, known if order in certain else unknown)
        of_all = unknown if len(orders) > len(certain) else known
        flushes, self._flushes = self._flushes, []
        for flush in flushes:
            tell(flush.future, of_all)
        return of_all if any(order not in futures or futures[order].cancelled() for order in orders) else None

    def take_untold(self) -> RangelogError | None:
        """Return the error of refused records without a future; once."""
        untold, self._untold = self._untold, None
        return untold

    def _settled(self, orders: Sequence[int]) -> None:
        if not self._flushes:
            return
        for flush in self._flushes:
            flush.left -= bisect_left(orders, flush.below)
            if flush.left <= 0 and not flush.future.done():
                flush.future.set_result(None)
        self._flushes = [flush for flush in self._flushes if not flush.future.done()]
