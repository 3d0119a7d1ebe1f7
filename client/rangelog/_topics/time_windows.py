"""The window of event times at a position in a topic, from the topic's watermarks.

What holds: `lower_ms` is that of the last watermark whose cut lies at or before the position; `upper_ms` that of the first one
whose cut lies at or behind it, or of the last one with a cut at the position. So `lower_ms` is never above `upper_ms`.
Watermarks are in order, in time and in cut, so both are found by halving.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import NamedTuple

from rangelog._topics.shard_graph import ShardGraph
from rangelog._topics.values import Watermark
from rangelog._topics.watches import TopicShards

REFRESH_S = 1.0
"""Later watermarks are asked for so often at most."""
KEPT_MAX = 1_000

_List = Callable[[int], Awaitable[Sequence[Watermark]]]
_Map = Callable[[], Awaitable[TopicShards]]


class TimeWindow(NamedTuple):
    """The event times at a position in a topic, as far as its producers note times.

    Attributes:
        lower_ms: Each record behind the position has this event time or a later one, in ms since the Unix epoch, if it is of a
            producer that was noting times then. None: nothing is known.
        upper_ms: No producer had noted a later time when records up to the position, and perhaps some behind it, were in the
            topic. None: no such watermark is there yet.
    """

    lower_ms: int | None
    upper_ms: int | None


class TimeWindows:
    """The windows of one reader in one topic."""

    def __init__(self, list_after: _List, shard_map: _Map) -> None:
        """`list_after`: returns the watermarks above a number. `shard_map`: returns all shards of the topic."""
        self._list_after = list_after
        self._shard_map = shard_map
        self._graph = ShardGraph(())
        self._kept: list[Watermark] = []
        self._asked_at = float("-inf")

    async def at(self, position: Mapping[int, int], *, is_cut: bool) -> TimeWindow:
        """Return the window at a position.

        Args:
            position: Shard id → offset.
            is_cut: Whether it is a cut of the topic. Otherwise the window is about the shards of the position only.

        Raises:
            RangelogError: The watermarks or the shards cannot be read.
        """
        if not position:
            return TimeWindow(None, None)
        if time.monotonic() - self._asked_at >= REFRESH_S:
            asked_at = time.monotonic()
            self._take(await self._list_after(self._kept[-1].number if self._kept else 0))
            self._asked_at = asked_at
        kept = self._kept
        named = {*position, *(kept[-1].cut.offsets if kept else ())}
        if not named <= self._graph.shards.keys():
            self._graph = ShardGraph((await self._shard_map()).shards.values())
        graph = self._graph
        here = graph.before(position) if is_cut else position

        def is_behind(mark: Watermark) -> bool:
            """Whether the position is not at or behind the cut."""
            there = graph.before(mark.cut.offsets)
            if is_cut:
                return any(offset > here.get(shard, 0) for shard, offset in there.items())
            return any(there.get(shard, 0) > offset for shard, offset in here.items())

        def covers(mark: Watermark) -> bool:
            """Whether the position is at or before the cut."""
            there = graph.before(mark.cut.offsets)
            return all(offset <= there.get(shard, 0) for shard, offset in here.items())

        passed = bisect_left(kept, True, key=is_behind)
        covering = bisect_left(kept, True, key=covers)
        if covering < passed:
            covering = passed - 1  # the position is the cut of several
        return TimeWindow(
            kept[passed - 1].lower_ms if passed else None,
            kept[covering].upper_ms if covering < len(kept) else None,
        )

    def _take(self, found: Sequence[Watermark]) -> None:
        last = self._kept[-1].number if self._kept else 0
        self._kept = [*self._kept, *(each for each in found if each.number > last)][-KEPT_MAX:]
