"""A warm standby of a journal: it follows the stream, so a takeover reads only what came since.

What holds: the standby's state is one that the journal had, perhaps not the newest. `take_over` fences first and reads to
the end that the fence settled, as every opening does. After an entry that cannot be applied the standby begins anew.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Generic

from rangelog import Client
from rangelog.errors import Corruption, OffsetTrimmed, RangelogError, UnsupportedVersion
from rangelog_broker.journal.journal import OPEN_TIMEOUT_S, Journal, feed_chunks
from rangelog_broker.journal.machine import M
from rangelog_broker.journal.owner import DEFAULT_LIMITS, OwnerLimits
from rangelog_broker.journal.replay import JournalReplay

RETRY_S = 1.0

_log = logging.getLogger("rangelog.journal")


class Standby(Generic[M]):
    """Follows one journal. `start` it, then `take_over` or `close` it; for one event loop."""

    def __init__(self, client: Client, stream: str, make_machine: Callable[[], M]) -> None:
        self.stream = stream
        self._client = client
        self._make_machine = make_machine
        self._replay: JournalReplay[M] | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to follow."""
        self._task = asyncio.create_task(self._follow())

    @property
    def machine(self) -> M | None:
        """The machine, in a state that the journal had; None while none is known. Change nothing in it."""
        return self._replay.fold.machine if self._replay is not None and self._replay.is_known else None

    @property
    def next_offset(self) -> int:
        """The standby has read all entries below it."""
        return self._replay.next_offset if self._replay is not None else 0

    async def take_over(
        self,
        *,
        limits: OwnerLimits = DEFAULT_LIMITS,
        clock_ms: Callable[[], int] | None = None,
        timeout_s: float = OPEN_TIMEOUT_S,
    ) -> Journal[M]:
        """Become the owner; the standby is closed. Raises what `Journal.open` raises."""
        await self.close()
        replay, self._replay = self._replay, None
        return await Journal.open(
            self._client,
            self.stream,
            self._make_machine,
            standby=replay,
            limits=limits,
            clock_ms=clock_ms,
            timeout_s=timeout_s,
        )

    async def close(self) -> None:
        """Stop. Idempotent."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    async def _follow(self) -> None:
        while True:
            try:
                if self._replay is None:
                    stream = await self._client.metadata.describe_stream(self.stream)
                    self._replay = JournalReplay(self._make_machine(), stream.trim_offset)
                await self._read(self._replay)
            except OffsetTrimmed:
                self._replay = None  # it fell behind: from the latest snapshot on
                continue
            except (Corruption, UnsupportedVersion) as error:
                _log.error("a standby of the journal %s cannot replay it: %s", self.stream, error)
                self._replay = None
            except RangelogError as error:
                _log.warning("a standby of the journal %s cannot read it: %s", self.stream, error)
            await asyncio.sleep(RETRY_S)

    async def _read(self, replay: JournalReplay[M]) -> None:
        while True:  # once more where a snapshot has ended
            await feed_chunks(replay, self._client.internal.records(self.stream, 0, replay.next_offset, None))
