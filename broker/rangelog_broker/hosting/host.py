"""Opens what is assigned to this broker, and opens it again when it closes, for as long as it is assigned.

What holds: each assigned key has one task; the task ends when the assignment does, or when the shard has ended. A shard that
was closed for a scale is opened again only once the topic is not scaling any more, and holds no other opening up meanwhile.
What a later program wrote is reported, so that a broker with that program gets it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress

from rangelog.errors import (
    RangelogError,
    ShardNotFound,
    StreamNotFound,
    StreamSealed,
    TopicNotFound,
    UnsupportedVersion,
)
from rangelog_broker.hosting.assignments import OwnedKey
from rangelog_server_common.metrics.tally import count_by

PAUSE_S = (0.02, 2.0)
OPENINGS_MAX = 128
"""Shards that are opened at a time: what a dead broker leaves behind comes at once."""

_GONE = (StreamSealed, StreamNotFound, ShardNotFound, TopicNotFound)
_log = logging.getLogger("rangelog.broker")

Opening = Callable[[OwnedKey], Awaitable[Awaitable[None] | None]]
"""Opens what a key names, and returns what waits until it is closed; None: there is nothing to own any more."""
Settling = Callable[[OwnedKey], Awaitable[None]]
"""Waits while what a key names is to stay closed, for as long as a scale takes."""


class Host:
    """The tasks of one broker. For one event loop; `close` it."""

    def __init__(self, open_one: Opening, settled: Settling) -> None:
        self._open_one = open_one
        self._settled = settled
        self._tasks: dict[OwnedKey, asyncio.Task[None]] = {}
        self._openings = asyncio.Semaphore(OPENINGS_MAX)
        self.opened_count = 0
        """How often a shard or journal was opened."""
        self.failures: dict[str, int] = {}
        """Openings that failed and are tried again, by the error's code."""
        self._unopenable: dict[OwnedKey, None] = {}

    def assigned(self, key: OwnedKey) -> None:
        """Own a shard or journal. Idempotent."""
        task = self._tasks.get(key)
        if task is None or task.done():
            self._tasks[key] = asyncio.create_task(self._keep(key))

    def withdrawn(self, key: OwnedKey) -> None:
        """Own it no more."""
        self._unopenable.pop(key, None)
        task = self._tasks.pop(key, None)
        if task is not None:
            task.cancel()

    def unopenable(self) -> list[OwnedKey]:
        """Return what is assigned to this broker, and was written by a later program: another one is to open it."""
        return list(self._unopenable)

    @property
    def assigned_count(self) -> int:
        """Shards and journals that are assigned to this broker, ended ones among them."""
        return len(self._tasks)

    async def close(self) -> None:
        """End all tasks; what they own is closed by their cancellation."""
        tasks, self._tasks = list(self._tasks.values()), {}
        for task in tasks:
            task.cancel()
        for task in tasks:
            with suppress(asyncio.CancelledError):
                await task

    async def _keep(self, key: OwnedKey) -> None:
        attempt = 0
        while True:
            try:
                await self._settled(key)
                async with self._openings:
                    closed = await self._open_one(key)
                self._unopenable.pop(key, None)
                if closed is None:
                    return
                self.opened_count += 1
                attempt = 0
                await closed
            except _GONE as error:
                _log.info("shard %d/%d has nothing to own any more: %s", *key, error)
                return
            except RangelogError as error:
                count_by(self.failures, error.code)
                if isinstance(error, UnsupportedVersion):
                    self._unopenable[key] = None
                _log.warning("shard %d/%d cannot be opened, and is tried again: %s", *key, error)
            except asyncio.CancelledError:
                raise
            except Exception:
                count_by(self.failures, "INTERNAL")
                _log.exception("shard %d/%d cannot be opened, and is tried again", *key)
            await asyncio.sleep(min(PAUSE_S[1], PAUSE_S[0] * 2.0 ** min(attempt, 8)))
            attempt += 1
