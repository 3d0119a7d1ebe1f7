"""The least cut of a topic that has given positions before it. Pure.

What holds: the shards of the cut tile the key space and none precedes another, if those of the topic are given wholly. A
succession (shards that end together and those that take their place) is passed as a whole, as soon as something behind it is
given: then all of the shards that end in it lies before the cut. Positions that a former least cut has are given again, so
cuts never go back.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping


class ShardTree:
    """The shards of a topic, and what precedes and follows each."""

    def __init__(self, predecessors: Mapping[int, Iterable[int]]) -> None:
        """`predecessors`: of each shard; one that is not given itself is passed already."""
        self._predecessors = {
            shard: [each for each in before if each in predecessors] for shard, before in predecessors.items()
        }
        self._successors: dict[int, list[int]] = {shard: [] for shard in self._predecessors}
        for shard, before in self._predecessors.items():
            for each in before:
                self._successors[each].append(shard)

    def least_cut(self, reached: Mapping[int, int]) -> dict[int, int]:
        """Return the least cut behind these positions, in order of shards; all of them must be known.

        >>> ShardTree({1: (), 2: (1,), 3: (1,)}).least_cut({1: 9})
        {1: 9}
        >>> ShardTree({1: (), 2: (1,), 3: (1,)}).least_cut({1: 9, 3: 4})
        {2: 0, 3: 4}
        """
        passed = self._passed(reached)
        return {
            shard: reached.get(shard, 0)
            for shard, before in sorted(self._predecessors.items())
            if shard not in passed and all(each in passed for each in before)
        }

    def _passed(self, reached: Iterable[int]) -> set[int]:
        """Return all shards that end before the least cut."""
        passed: set[int] = set()
        pending = list(reached)
        while pending:
            for before in self._predecessors[pending.pop()]:
                if before not in passed:
                    ended = self._ended_with(before)
                    passed |= ended
                    pending += ended
        return passed

    def _ended_with(self, shard: int) -> set[int]:
        """Return the shards that end in the succession in which this one ends."""
        ended = {shard}
        pending = [shard]
        while pending:
            for after in self._successors[pending.pop()]:
                for before in self._predecessors[after]:
                    if before not in ended:
                        ended.add(before)
                        pending.append(before)
        return ended
