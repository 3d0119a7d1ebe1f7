"""When an owner writes its shard's state into the side log: after so many bytes or batches, and where someone asks for it.

What holds: at most one is written at a time, never inside a run. A failure costs the next owner time, and nothing else.
"""

from __future__ import annotations

import asyncio
import logging
import time

from rangelog.errors import RangelogError
from rangelog_broker.shards.owner import ShardOwner
from rangelog_broker.shards.side_log import SideLog
from rangelog_core.limits import MIB
from rangelog_core.versions import LEVEL_BROKERS

SNAPSHOT_BYTES = 32 * MIB
SNAPSHOT_BATCHES = 10_000
"""After so much of either a snapshot is taken: what the next owner reads is bounded by twice that."""

_log = logging.getLogger("rangelog.broker")


class ShardSnapshots:
    """The snapshots of one owner of a shard."""

    def __init__(self, name: str, side: SideLog) -> None:
        self._name = name
        self._side = side
        self._owner: ShardOwner
        self._epoch: int
        self._since_bytes = self._since_batches = 0
        self._task: asyncio.Task[None] | None = None

    def begin(self, owner: ShardOwner, epoch: int) -> None:
        """The state that is written is this owner's."""
        self._owner, self._epoch = owner, epoch

    @property
    def covered_offset(self) -> int:
        """All batches below it are in a snapshot that is acked."""
        return self._side.snapshot.offset if self._side.snapshot is not None else 0

    def count(self, size_bytes: int) -> bool:
        """Count a batch that was acked; return whether a snapshot is due."""
        self._since_bytes += size_bytes
        self._since_batches += 1
        return self._since_bytes >= SNAPSHOT_BYTES or self._since_batches >= SNAPSHOT_BATCHES

    def start(self, broker_version: int) -> None:
        """Write the state as it is now, unless one is being written."""
        if self._task is None and self._owner.state.can_be_captured:
            self._since_bytes = self._since_batches = 0
            if broker_version >= LEVEL_BROKERS:
                self._owner.table.expire_idle(time.time_ns() // 1_000_000, self._owner.confirm_offset)
            self._task = asyncio.create_task(self._write())
            self._task.add_done_callback(self._ended)

    async def settled(self) -> None:
        """Wait for the one that is being written."""
        if self._task is not None:
            await asyncio.wait([self._task])

    def close(self) -> None:
        """Write no more. Idempotent."""
        if self._task is not None:
            self._task.cancel()

    async def _write(self) -> None:
        try:
            await self._side.write_snapshot(self._epoch, self._owner.confirm_offset, self._owner.state)
        except RangelogError as error:
            _log.info("no snapshot of shard %s: %s", self._name, error)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._task = None
        if not task.cancelled() and task.exception() is not None:
            _log.error("a snapshot of shard %s failed", self._name, exc_info=task.exception())
