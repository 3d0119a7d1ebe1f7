"""Reads sealed replicas again in the background, so that rot is found while another replica or an object is still whole.

A damaged replica is quarantined: it is never served again, and the next heartbeat reports it, so that the placement driver
has it copied again. A batch that the disk refuses to read is retried until it is read or counts as lost.
"""

from __future__ import annotations

import asyncio
import functools
from concurrent.futures import ThreadPoolExecutor

import structlog

from rangelog_core.errors import Corruption, RangelogError
from rangelog_server.ranges.read_faults import ReadFault
from rangelog_server.ranges.reading import read_batches
from rangelog_server.ranges.scrub import Scrub, ScrubStep
from rangelog_server.ranges.store import Store

ASK_AGAIN_S = 1.0
"""The longest pause between two checks for work."""

_log = structlog.get_logger("scrub")


class Scrubbing:
    """Runs a scrub on the event loop, with reads on a thread of its own. `run` until cancelled."""

    def __init__(self, store: Store, scrub: Scrub) -> None:
        self._store = store
        self._scrub = scrub
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="scrub")

    async def run(self) -> None:
        """Scrub until cancelled."""
        loop = asyncio.get_running_loop()
        try:
            while True:
                step = self._scrub.next(self._store.replicas, loop.time())
                if step is not None:
                    await self._check(step)
                await asyncio.sleep(min(ASK_AGAIN_S, self._scrub.wait_s(loop.time())))
        finally:
            self._thread.shutdown(wait=False, cancel_futures=True)

    async def _check(self, step: ScrubStep) -> None:
        loop = asyncio.get_running_loop()
        hosted, wanted = step.hosted, step.plan.wanted
        read = functools.partial(read_batches, self._store.wal, step.plan, from_disk=True)
        try:
            await loop.run_in_executor(self._thread, read)
        except RangelogError as error:
            if hosted.dropped:
                return
            if self._store.read_failed(hosted, error, loop.time(), step.plan):
                self._scrub.again(step, loop.time(), soon=True)  # its batches were moved while they were read
                return
            event = "damage found" if isinstance(error, Corruption) else "a replica cannot be read now"
            _log.error(event, range=str(hosted), problem=error.message)
            if isinstance(error, ReadFault):
                self._scrub.again(step, loop.time())
        else:
            self._store.counts.scrubbed_bytes += sum(each.length for each in wanted)
            self._store.read_faults.succeeded(hosted.key, wanted[0].base_offset, wanted[-1].end_offset)
