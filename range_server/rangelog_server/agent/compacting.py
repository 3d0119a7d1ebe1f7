"""Frees segments of the log in the background: those without live data, and sparse ones after moving their batches.

A failed read counts as any other read of the batch: damage quarantines the replica, a fault of the disk is noted.
"""

from __future__ import annotations

import asyncio
import functools
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import structlog

from rangelog_core.errors import Overloaded, RangelogError, StorageFull
from rangelog_server.ranges.compaction import Compaction, CompactionStep, Part
from rangelog_server.ranges.reading import read_batches
from rangelog_server.ranges.store import Store
from rangelog_server.wal.log import Wal

BUSY_PAUSE_S = 0.02
"""The pause between two slices of bookkeeping, in which the loop does its other work."""
IDLE_PAUSE_S = 1.0

_log = structlog.get_logger("compaction")


class Compacting:
    """Runs a compaction on the event loop, with reads on a thread of its own. `run` until cancelled."""

    def __init__(self, store: Store, compaction: Compaction | None) -> None:
        self._store = store
        self._compaction = compaction
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="compaction")

    async def run(self) -> None:
        """Free segments until cancelled. Without a compaction only segments without live data are freed."""
        loop = asyncio.get_running_loop()
        try:
            while True:
                with suppress(StorageFull, Overloaded):
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

    async def _copy(self, compaction: Compaction, step: CompactionStep) -> None:
        loop, store = asyncio.get_running_loop(), self._store
        found = await loop.run_in_executor(self._thread, _read, store.wal, step.parts)
        began_s = loop.time()
        try:
            for part, batches in zip(step.parts, found, strict=True):
                self._move(part, batches, began_s)
        except RangelogError as error:
            _log.warning("a segment is not freed now", problem=error.message)
            compaction.failed(loop.time())
        flushed: asyncio.Future[None] = loop.create_future()
        store.wal.kick()
        store.space.when_moved(functools.partial(_resolve, flushed))
        await flushed
        compaction.flushed(loop.time(), loop.time() - began_s)

    def _move(self, part: Part, batches: list[bytes] | RangelogError, now_s: float) -> None:
        """Submit one part, unless it was moved, cut or dropped meanwhile. Raises the error of its read, or StorageFull."""
        store, hosted, wanted = self._store, part.hosted, part.plan.wanted
        if isinstance(batches, RangelogError):
            if hosted.dropped or store.read_failed(hosted, batches, now_s, part.plan):
                return
            raise batches
        store.read_faults.succeeded(hosted.key, wanted[0].base_offset, wanted[-1].end_offset)
        store.space.move(hosted, part.plan, batches)


def _read(wal: Wal, parts: list[Part]) -> list[list[bytes] | RangelogError]:
    """Return each part's batches, or the error of their read. Blocking."""
    found: list[list[bytes] | RangelogError] = []
    for part in parts:
        try:
            found.append(read_batches(wal, part.plan))
        except RangelogError as error:
            found.append(error)
    return found


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
