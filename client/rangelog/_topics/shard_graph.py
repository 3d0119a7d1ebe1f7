"""The shards of a topic as a graph: what precedes what, which sets of shards are cuts, and how one cut lies to another.

What holds:

* A set of shards is consistent when it tiles the key space and none of it precedes another. Of each key exactly one shard of a
  consistent set holds it, so each shard of the topic lies before the set, in it, or behind it.
* A *succession* is the least set of shards that end and of shards that follow them such that neither part overlaps a shard of
  the same scale outside of it. A consistent set that has all shards of the one part becomes consistent again when they are
  replaced by the other part; no consistent set has some of both parts. So a position in a topic goes from shards to their
  successors one succession at a time, and is a cut at every moment.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from rangelog._topics.values import ShardInfo
from rangelog_core.errors import InvalidArgument, OffsetOutOfRange, ShardNotFound
from rangelog_core.key_ranges import KEY_SPACE, check_tiling


class Succession(NamedTuple):
    """Shards that end, and those that take their place: see the module."""

    ended: tuple[int, ...]
    followers: tuple[int, ...]


class ShardGraph:
    """All shards that a topic ever had, as far as they are known."""

    def __init__(self, shards: Iterable[ShardInfo] = ()) -> None:
        self.shards: dict[int, ShardInfo] = {}
        self.update(shards)

    def update(self, shards: Iterable[ShardInfo]) -> None:
        """Insert or replace shards."""
        for shard in shards:
            self.shards[shard.shard_id] = shard

    def first(self) -> list[int]:
        """Return the shards that nothing precedes, in order of keys: those that the topic was created with."""
        return self._by_key(shard for shard in self.shards.values() if not shard.predecessors)

    def current(self) -> list[int]:
        """Return the current shards, in order of keys."""
        return self._by_key(shard for shard in self.shards.values() if shard.is_current)

    def succession(self, shard_id: int) -> Succession | None:
        """Return the succession in which a shard ends; None: it is current, nothing follows it, or some of it is unknown."""
        ended: dict[int, None] = {shard_id: None}
        followers: dict[int, None] = {}
        pending = [shard_id]
        while pending:
            shard = self.shards.get(pending.pop())
            if shard is None or not shard.successors:
                return None
            for after in shard.successors:
                if after in followers:
                    continue
                if after not in self.shards:
                    return None
                followers[after] = None
                for before in self.shards[after].predecessors:
                    if before not in ended:
                        ended[before] = None
                        pending.append(before)
        return Succession(tuple(sorted(ended)), tuple(sorted(followers)))

    def ancestors(self, shard_ids: Iterable[int]) -> dict[int, None]:
        """Return all shards that precede these, but not these themselves unless one precedes another."""
        found: dict[int, None] = {}
        pending = list(shard_ids)
        while pending:
            shard = self.shards.get(pending.pop())
            for before in shard.predecessors if shard is not None else ():
                if before not in found:
                    found[before] = None
                    pending.append(before)
        return found

    def check_cut(self, offsets: Mapping[int, int]) -> None:
        """Check that offsets are a cut of this topic.

        Raises ShardNotFound, KeyRangeGap, KeyRangeOverlap, InvalidArgument (one shard precedes another), OffsetOutOfRange
        (beyond the end of a shard that has ended).
        """
        for shard_id in offsets:
            if shard_id not in self.shards:
                raise ShardNotFound(f"the topic has no shard {shard_id}, which the cut names")
        check_tiling([self.shards[each].key_range for each in offsets], [KEY_SPACE])
        before = self.ancestors(offsets)
        for shard_id, offset in offsets.items():
            if shard_id in before:
                raise InvalidArgument(f"shard {shard_id} precedes another shard of the cut")
            end = self.shards[shard_id].end_offset
            if end is not None and offset > end:
                raise OffsetOutOfRange(f"shard {shard_id} ended at {end}; the cut names offset {offset}", offset=end)

    def earlier(self, one: Mapping[int, int], other: Mapping[int, int]) -> dict[int, int]:
        """Return the cut before which exactly what lies before both cuts lies."""
        before_one, before_other = self.ancestors(one), self.ancestors(other)
        found = {
            shard_id: min(offset, other.get(shard_id, offset))
            for shard_id, offset in one.items()
            if shard_id in other or shard_id in before_other
        }
        found.update((shard_id, offset) for shard_id, offset in other.items() if shard_id in before_one)
        return found

    def later(self, one: Mapping[int, int], other: Mapping[int, int]) -> dict[int, int]:
        """Return the cut before which exactly what lies before either cut lies."""
        before_one, before_other = self.ancestors(one), self.ancestors(other)
        found = {
            shard_id: max(offset, other.get(shard_id, offset))
            for shard_id, offset in one.items()
            if shard_id not in before_other
        }
        found.update(
            (shard_id, offset)
            for shard_id, offset in other.items()
            if shard_id not in one and shard_id not in before_one
        )
        return found

    def before(self, cut: Mapping[int, int]) -> dict[int, int]:
        """Return shard id → the offset below which the shard's records lie before a cut; a shard that is left out has none."""
        found = {shard_id: self.shards[shard_id].end_offset or 0 for shard_id in self.ancestors(cut)}
        return {**found, **cut}

    def between(self, start: Mapping[int, int], end: Mapping[int, int]) -> dict[int, tuple[int, int]]:
        """Return shard id → [first offset, end offset) of the shards that have records between two cuts, in order of id.

        Ids rise with each scale, so a shard comes after all that precede it. Raises InvalidArgument (there are records between
        `end` and `start`).
        """
        before_start, before_end = self.before(start), self.before(end)
        found: dict[int, tuple[int, int]] = {}
        for shard_id in sorted({**before_start, **before_end}):
            low, high = before_start.get(shard_id, 0), before_end.get(shard_id, 0)
            if low > high:
                raise InvalidArgument(f"the start lies behind the end: in shard {shard_id} at {low}, the end at {high}")
            if low < high:
                found[shard_id] = low, high
        return found

    def _by_key(self, shards: Iterable[ShardInfo]) -> list[int]:
        return [shard.shard_id for shard in sorted(shards, key=lambda shard: shard.key_range)]
