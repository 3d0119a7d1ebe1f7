"""A small topic that is written and scaled at random: its shards, their logs, and what lies before a cut, key by key."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import NamedTuple

from rangelog._topics.values import ShardInfo
from rangelog_core.key_ranges import KEY_SPACE_END, KeyRange

UNITS = 12
"""Key ranges are in these parts of the key space; each has one key, its number."""
UNIT = KEY_SPACE_END // UNITS


class Entry(NamedTuple):
    """A record: its key, and its place among all records of the topic."""

    key: int
    order: int


def unit_range(low: int, high: int) -> KeyRange:
    """The key range of some parts."""
    return KeyRange(low * UNIT, high * UNIT if high < UNITS else KEY_SPACE_END)


class ShardHistory:
    """The topic, as its owners and the placement driver have it."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.version = 1
        self.shards: list[ShardInfo] = []
        self.units: list[tuple[int, int]] = []
        self.logs: list[list[Entry]] = []
        self.sealed = False
        self._order = 0
        for low, high in self._parts([(0, UNITS)], self.draw.randint(1, 3)):
            self._begin(low, high, ())

    # ---- changes

    def append(self) -> None:
        """A few records of drawn keys, each in the current shard of its key."""
        for _ in range(self.draw.randint(1, 4)):
            key = self.draw.randrange(UNITS)
            current = [shard_id for shard_id in self.chain(key) if self.shards[shard_id].is_current]
            if current:
                self.logs[current[0]].append(Entry(key, self._order))
                self._order += 1

    def scale(self) -> None:
        """Any shards become any others that cover the same keys."""
        current = [shard.shard_id for shard in self.shards if shard.is_current]
        if not current or len(self.shards) > 30:
            return
        parents = sorted(self.draw.sample(current, self.draw.randint(1, min(3, len(current)))))
        covered = sorted(self.units[each] for each in parents)
        self.version += 1
        first = len(self.shards)
        for low, high in self._parts(covered, len(parents) + self.draw.randint(-1, 2)):
            before = tuple(each for each in parents if self.units[each][0] < high and low < self.units[each][1])
            self._begin(low, high, before)
        for each in parents:
            after = tuple(shard.shard_id for shard in self.shards[first:] if each in shard.predecessors)
            self._end(each, after)

    def seal(self) -> None:
        """All shards end."""
        self.sealed = True
        for shard in list(self.shards):
            if shard.is_current:
                self.version += 1
                self._end(shard.shard_id, ())

    def tail(self) -> dict[int, int]:
        """The cut behind all records; of a sealed topic the ends of its last shards."""
        last = [shard.shard_id for shard in self.shards if not shard.successors]
        return {shard_id: len(self.logs[shard_id]) for shard_id in last}

    def head(self) -> dict[int, int]:
        """The cut before all records."""
        return {shard.shard_id: 0 for shard in self.shards if not shard.predecessors}

    # ---- what is true

    def chain(self, key: int) -> list[int]:
        """The shards that held a key, one after the other: ids rise."""
        return [number for number, (low, high) in enumerate(self.units) if low <= key < high]

    def is_cut(self, offsets: Mapping[int, int]) -> bool:
        """Whether each key has one shard of it, and none of them precedes another, be it over keys that they do not share."""
        for key in range(UNITS):
            named = [shard_id for shard_id in self.chain(key) if shard_id in offsets]
            if len(named) != 1 or not 0 <= offsets[named[0]] <= len(self.logs[named[0]]):
                return False
        return not any(before in offsets for shard_id in offsets for before in self.preceding(shard_id))

    def preceding(self, shard_id: int) -> set[int]:
        """All that precede a shard."""
        found = set(self.shards[shard_id].predecessors)
        return found.union(*(self.preceding(each) for each in found))

    def before(self, offsets: Mapping[int, int]) -> set[Entry]:
        """The records before a cut, key by key."""
        found: set[Entry] = set()
        for key in range(UNITS):
            for shard_id in self.chain(key):
                log = self.logs[shard_id]
                if shard_id in offsets:
                    found.update(entry for entry in log[: offsets[shard_id]] if entry.key == key)
                    break
                found.update(entry for entry in log if entry.key == key)
        return found

    # ---- inside

    def _begin(self, low: int, high: int, predecessors: tuple[int, ...]) -> None:
        shard_id = len(self.shards)
        self.shards.append(
            ShardInfo(shard_id, unit_range(low, high), 100 + shard_id, self.version, predecessors=predecessors)
        )
        self.units.append((low, high))
        self.logs.append([])

    def _end(self, shard_id: int, successors: tuple[int, ...]) -> None:
        shard = self.shards[shard_id]
        self.shards[shard_id] = ShardInfo(
            shard_id,
            shard.key_range,
            shard.stream_id,
            shard.created_version,
            self.version,
            shard.predecessors,
            successors,
            len(self.logs[shard_id]),
        )

    def _parts(self, covered: list[tuple[int, int]], count: int) -> list[tuple[int, int]]:
        """About `count` parts of what is covered, divided anywhere, also over the borders between neighbours."""
        joined: list[tuple[int, int]] = []
        for low, high in covered:
            if joined and joined[-1][1] == low:
                joined[-1] = joined[-1][0], high
            else:
                joined.append((low, high))
        parts = joined
        while len(parts) < count:
            at = self.draw.randrange(len(parts))
            low, high = parts[at]
            if high - low < 2:
                break
            middle = self.draw.randrange(low + 1, high)
            parts[at : at + 1] = [(low, middle), (middle, high)]
        return parts
