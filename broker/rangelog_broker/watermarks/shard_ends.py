"""How far the records of current shards reach, for notes that name positions in them.

What holds: a position is refused only by a proved end that was asked for after the position had come. A shard is asked about at
most once in a pause; all who wait share the answer, and what an answer covers is asked for no more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from rangelog_core.ids import shard_stream_name
from rangelog_proto.v1 import watermark_pb2

AT_ONCE = 64
"""Shards that are asked about at a time."""
QUESTIONS_PER_S = 200
PAUSE_S_MAX = 5.0
"""Where notes name more shards than are asked about in a second, the pauses are longer, up to this: a note waits so long."""


class StreamEnd(Protocol):
    """Where the acked records of a stream end."""

    @property
    def offset(self) -> int:
        """Everything below it is acked."""

    def check_reached(self, offset: int, where: str = "", of: str = "") -> None:
        """Raise OffsetOutOfRange beyond a proved end, Unavailable where the end is not proved."""


FindEnd = Callable[[str], Awaitable[StreamEnd]]
"""Returns the end of a stream by its name."""


@dataclass(slots=True)
class _Known:
    offset: int = 0
    asked_at: float = float("-inf")
    next: asyncio.Task[StreamEnd] | None = None
    """The question that is not asked yet."""


class ShardEnds:
    """The shards of one journal's topics. For one event loop; `close` it."""

    def __init__(self, find_end: FindEnd, pause_s: float) -> None:
        """`pause_s`: between two questions about a shard, at least."""
        self._find_end = find_end
        self._pause_s = pause_s
        self._loop = asyncio.get_running_loop()
        self._known: dict[int, dict[int, _Known]] = {}  # topic → shard
        self._turns = asyncio.Semaphore(AT_ONCE)
        self._asking: set[asyncio.Task[StreamEnd]] = set()

    def close(self) -> None:
        """Ask nothing more. Idempotent."""
        for asking in self._asking:
            asking.cancel()

    def keep(self, topic_id: int, current: Iterable[int]) -> None:
        """Forget all shards of a topic but these."""
        known = self._known.pop(topic_id, {})
        kept = {shard_id: known[shard_id] for shard_id in current if shard_id in known}
        if kept:
            self._known[topic_id] = kept

    async def check(self, topic_id: int, positions: Iterable[watermark_pb2.NotedPosition]) -> None:
        """Check positions in current shards. Raises OffsetOutOfRange, StreamNotFound, Unavailable."""
        await asyncio.gather(*(self._check(topic_id, each.shard_id, each.offset) for each in positions))

    async def _check(self, topic_id: int, shard_id: int, offset: int) -> None:
        known = self._known.setdefault(topic_id, {}).setdefault(shard_id, _Known())
        if offset <= known.offset:
            return
        if known.next is None:
            known.next = asyncio.ensure_future(self._ask(shard_stream_name(topic_id, shard_id), known))
            self._asking.add(known.next)
            known.next.add_done_callback(self._asked)
        end = await asyncio.shield(known.next)
        end.check_reached(offset, "a note of a time: ", f"shard {shard_id}")

    async def _ask(self, name: str, known: _Known) -> StreamEnd:
        pause_s = max(self._pause_s, min(PAUSE_S_MAX, len(self._asking) / QUESTIONS_PER_S))
        await asyncio.sleep(known.asked_at + pause_s - self._loop.time())
        async with self._turns:
            known.next = None  # who comes from now on waits for the next answer
            known.asked_at = self._loop.time()
            end = await self._find_end(name)
        known.offset = max(known.offset, end.offset)
        return end

    def _asked(self, asking: asyncio.Task[StreamEnd]) -> None:
        self._asking.discard(asking)
        if not asking.cancelled():
            asking.exception()  # raised where it is awaited, if anybody still waits
