"""Frees the log's segments in the background: those that nothing needs, and by moving batches on those that little needs.

A batch that cannot be read here is treated as any read of it: damage quarantines the replica, what the disk refuses is noted.
"""

from __future__ import annotations

import asyncio
import functools
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import structlog

from rangelog.errors import RangelogError, StorageFull
from rangelog_server.ranges.compaction import Compaction, Part, Step
from rangelog_server.ranges.reading import read_batches
from rangelog_server.ranges.store import Store

BUSY_PAUSE_S = 0.02
"""Between two slices of bookkeeping: the loop serves everybody else meanwhile."""
IDLE_PAUSE_S = 1.0

_log = structlog.get_logger("compaction")


class Compacting:
    """Runs a compaction on the event loop; the reading is done on a thread of its own. `run` until cancelled."""

    def __init__(self, store: Store, compaction: Compaction | None) -> None:
        self._store = store
        self._compaction = compaction
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="compaction")

    async def run(self) -> None:
        """For ever. Without a compaction: free only what nothing needs."""
        loop = asyncio.get_running_loop()
        try:
            while True:
                with suppress(StorageFull):
                    self._store.reclaim()
                pause_s = BUSY_PAUSE_S if self._store.space.is_busy else IDLE_PAUSE_S
                if self._compaction is not None:
                    step = self._compaction.next(loop.time())
                    if step is not None:
                        await self._copy(self._compaction, step)
                    pause_s = min(pause_s, self._compaction.wait_s(loop.time()))
                await asyncio.sleep(pause_s)
        finally:
            self._thread.shutdown(wait=False, cancel_futures=True)

    async def _copy(self, compaction: Compaction, step: Step) -> None:
        loop = asyncio.get_running_loop()
        try:
            for part in step.parts:
                batches = await self._read(part)
                if batches is not None:
                    self._store.space.move(part.hosted, part.plan, batches)
        except RangelogError as error:
            _log.warning("a segment is not freed now", problem=error.message)
            compaction.failed(loop.time())
        flushed: asyncio.Future[None] = loop.create_future()
        began_s = loop.time()
        self._store.wal.kick()
        self._store.space.when_moved(functools.partial(_resolve, flushed))
        await flushed
        compaction.flushed(loop.time(), loop.time() - began_s)

    async def _read(self, part: Part) -> list[bytes] | None:
        """Return a part's batches; None if they were moved, cut or dropped meanwhile. Raises RangelogError."""
        loop = asyncio.get_running_loop()
        try:
            batches = await loop.run_in_executor(self._thread, read_batches, self._store.wal, part.plan)
        except RangelogError as error:
            if part.hosted.dropped or self._store.read_failed(part.hosted, error, loop.time(), part.plan):
                return None
            raise
        first, last = part.plan.wanted[0], part.plan.wanted[-1]
        self._store.read_faults.succeeded(part.hosted.key, first.base_offset, last.end_offset)
        return batches


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
