"""Reads single rows of one partition: what is asked for while calls are under way shares the next one.

What holds: a row is read after it was asked for. Four calls are under way at most for each kind of read.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import NamedTuple

from rangelog._table.partition_calls import PartitionCalls
from rangelog_core.errors import ClientClosed, InternalError, Overloaded, RangelogError, RequestTimeout, Unavailable
from rangelog_proto.v1 import table_pb2
from rangelog_proto.v1 import table_service_pb2 as pb

CALLS_MAX = 4
CALL_KEYS_MAX = 500
CALL_TIMEOUT_S = 30.0
WAITING_MAX = 50_000


class _Wanted(NamedTuple):
    key: bytes
    future: asyncio.Future[table_pb2.TableRow]


class Lookups:
    """See the module. For one event loop; `close` it."""

    def __init__(self, calls: PartitionCalls, *, stale: bool) -> None:
        self._calls = calls
        self._stale = stale
        self._queue: deque[_Wanted] = deque()
        self._asking: set[asyncio.Task[None]] = set()
        self._is_due = False
        self._closed = False

    async def get(self, key: bytes, timeout_s: float) -> table_pb2.TableRow:
        """Return the row of a key; version 0: it is not there. Raises Unavailable, RequestTimeout, Overloaded."""
        if self._closed:
            raise ClientClosed("the client is closed")
        if len(self._queue) >= WAITING_MAX:
            raise Overloaded(f"{WAITING_MAX} reads wait for one partition, the limit")
        loop = asyncio.get_running_loop()
        wanted = _Wanted(key, loop.create_future())
        self._queue.append(wanted)
        self._soon()
        timer = loop.call_later(timeout_s, self._expire, wanted, timeout_s)
        try:
            return await wanted.future
        finally:
            timer.cancel()

    async def close(self) -> None:
        """End all calls. Idempotent."""
        self._closed = True
        tasks = list(self._asking)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        _fail(self._queue, Unavailable("the client was closed"))
        self._queue.clear()

    # ---- inside

    def _expire(self, wanted: _Wanted, timeout_s: float) -> None:
        error = RequestTimeout(f"the row was not read within {timeout_s:g} s", outcome_unknown=False)
        _fail([wanted], error)

    def _soon(self) -> None:
        if not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._send)  # what else is asked for in this turn comes along

    def _send(self) -> None:
        self._is_due = False
        while self._queue and len(self._asking) < CALLS_MAX and not self._closed:
            batch: list[_Wanted] = []
            while self._queue and len(batch) < CALL_KEYS_MAX:
                wanted = self._queue.popleft()
                if not wanted.future.done():
                    batch.append(wanted)
            if batch:
                task = asyncio.create_task(self._ask(batch))
                self._asking.add(task)
                task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._asking.discard(task)
        if not self._closed:
            self._soon()

    async def _ask(self, batch: list[_Wanted]) -> None:
        try:
            while batch:
                request = pb.GetRowsRequest(keys=[wanted.key for wanted in batch], stale=self._stale)
                response = await self._calls.get(request, CALL_TIMEOUT_S)
                if not 0 < len(response.rows) <= len(batch):
                    raise InternalError("the owner of a partition has answered for other keys than were asked for")
                for wanted, row in zip(batch, response.rows, strict=False):
                    if not wanted.future.done():
                        wanted.future.set_result(row)
                batch = batch[len(response.rows) :]
        except RangelogError as error:
            _fail(batch, error.with_outcome(unknown=False))
        except asyncio.CancelledError:
            _fail(batch, Unavailable("the client was closed"))
            raise


def _fail(batch: list[_Wanted] | deque[_Wanted], error: RangelogError) -> None:
    for wanted in batch:
        if not wanted.future.done():
            wanted.future.set_exception(error)
