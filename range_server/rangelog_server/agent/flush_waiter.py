"""Waiting until the store has made an operation durable."""

from __future__ import annotations

import asyncio

from rangelog_server.ranges.hosted_replica import HostedReplica
from rangelog_server.ranges.store import Store

FLUSH_TIMEOUT_S = 30.0


class FlushWaiter:
    """A future that a store's completion resolves: pass the object as `done`, then await `wait`."""

    def __init__(self) -> None:
        self._future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def __call__(self, hosted: HostedReplica | None = None) -> None:
        """Note that the operation is durable."""
        if not self._future.done():
            self._future.set_result(None)

    async def wait(self, store: Store) -> None:
        """Wait until the operation is durable. Raises TimeoutError after FLUSH_TIMEOUT_S."""
        store.wal.kick()
        async with asyncio.timeout(FLUSH_TIMEOUT_S):
            await self._future
