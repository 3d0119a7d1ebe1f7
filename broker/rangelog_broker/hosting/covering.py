"""Snapshots of producers that the placement driver waits for before it trims a shard.

What holds: a shard is reported as covered up to an offset once a snapshot of all batches below it is acked in its side log, and
that never becomes less. Of a shard that has ended any broker writes the last snapshot, at its end.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Iterable, Sequence
from typing import Protocol

from rangelog.errors import RangelogError
from rangelog_broker.hosting.assignments import OwnedKey
from rangelog_broker.shards.finished import FinishedShards
from rangelog_broker.shards.shard import OwnedShard
from rangelog_proto.v1 import broker_pb2

AT_A_TIME = 8
"""Shards that have ended and get their last snapshot."""

_log = logging.getLogger("rangelog.broker")


class OpenShards(Protocol):
    """What this broker owns now."""

    def open_shard(self, key: OwnedKey) -> OwnedShard | None:
        """Return an open shard."""


class Covering:
    """The snapshots that are wanted of one broker. For one event loop; `close` it."""

    def __init__(self, finished: FinishedShards, owned: OpenShards) -> None:
        self._finished = finished
        self._owned = owned
        self._wanted: dict[OwnedKey, int] = {}
        self._covered: dict[OwnedKey, int] = {}  # of ended shards
        self._tasks: dict[OwnedKey, asyncio.Task[None]] = {}
        self._slots = asyncio.Semaphore(AT_A_TIME)

    async def close(self) -> None:
        """End all tasks."""
        for task in list(self._tasks.values()):
            task.cancel()

    def want(self, wanted: Iterable[broker_pb2.ShardCover]) -> None:
        """Begin what is wanted now; what is not wanted any more is not reported either."""
        self._wanted = {(each.topic_id, each.shard_id): each.offset for each in wanted}
        self._covered = {key: offset for key, offset in self._covered.items() if key in self._wanted}
        for key, offset in self._wanted.items():
            shard = self._owned.open_shard(key)
            if shard is not None:
                shard.cover(offset)
            elif key not in self._tasks and key not in self._covered:
                task = self._tasks[key] = asyncio.create_task(self._cover_ended(key))
                task.add_done_callback(functools.partial(self._ended, key))

    def _ended(self, key: OwnedKey, task: asyncio.Task[None]) -> None:
        self._tasks.pop(key, None)

    def reached(self) -> Sequence[broker_pb2.ShardCover]:
        """Return how far snapshots of the wanted shards reach."""
        found: list[broker_pb2.ShardCover] = []
        for key in self._wanted:
            shard = self._owned.open_shard(key)
            offset = self._covered.get(key, 0) if shard is None else shard.covered_offset
            if offset:
                found.append(broker_pb2.ShardCover(topic_id=key[0], shard_id=key[1], offset=offset))
        return found

    async def _cover_ended(self, key: OwnedKey) -> None:
        async with self._slots:
            try:
                self._covered[key] = await self._finished.cover(key)
            except RangelogError as error:  # it is asked for again while it is wanted
                _log.info("no last snapshot of shard %d/%d: %s", *key, error)
            except Exception:
                _log.exception("the last snapshot of shard %d/%d failed", *key)
