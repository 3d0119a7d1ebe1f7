"""Directives that concern this server alone: learn the committed end of a range, drop a replica."""

from __future__ import annotations

import asyncio

from rangelog_proto.v1 import pd_pb2 as pb
from rangelog_server.ranges.hosted import Hosted
from rangelog_server.ranges.store import Store

FLUSH_TIMEOUT_S = 30.0


class Flushed:
    """A future that a store's completion resolves."""

    def __init__(self) -> None:
        self._future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def __call__(self, hosted: Hosted | None = None) -> None:
        """Say that it is durable."""
        if not self._future.done():
            self._future.set_result(None)

    async def wait(self, store: Store) -> None:
        """Wait until it is."""
        store.wal.kick()
        async with asyncio.timeout(FLUSH_TIMEOUT_S):
            await self._future


class LocalDirectives:
    """See the module."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def seal_replica(self, directive: pb.Directive) -> None:
        """Learn the end. Raises PreconditionFailed when another end is known, StorageFull."""
        action = directive.seal_replica
        await commit_end(self._store, directive, action.epoch, action.start_offset, action.end_offset)

    async def drop_replica(self, directive: pb.Directive) -> None:
        """Forget the replica. Raises StorageFull."""
        done = Flushed()
        self._store.drop(directive.stream_id, directive.range_index, done)
        await done.wait(self._store)


async def commit_end(store: Store, directive: pb.Directive, epoch: int, start_offset: int, end_offset: int) -> None:
    """Write down the end that the placement driver committed."""
    done = Flushed()
    store.commit_end(
        directive.stream_id,
        directive.range_index,
        start_offset,
        end_offset,
        epoch,
        done,
        by_placement_driver=True,
    )
    await done.wait(store)
