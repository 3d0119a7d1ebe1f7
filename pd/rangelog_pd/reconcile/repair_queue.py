"""The sealed ranges that lack members, the fewest copies left first.

What holds: a key is in the queue once. A key that is put is ranked when it is first examined, a bounded number a round, so
that the death of a server with many ranges costs each round the same; ranges with fewer copies left are handed out before
others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice

from rangelog_pd.state.tables import RangeKey


class RepairQueue:
    """See the module."""

    def __init__(self, keys: Iterable[RangeKey] = ()) -> None:
        self._new: dict[RangeKey, None] = dict.fromkeys(keys)
        self._ranked: dict[int, dict[RangeKey, None]] = {}
        self._ranks: dict[RangeKey, int] = {}

    def __len__(self) -> int:
        return len(self._new) + len(self._ranks)

    def __contains__(self, key: object) -> bool:
        return key in self._new or key in self._ranks

    def __iter__(self) -> Iterator[RangeKey]:
        """Yield all keys, those with the fewest copies left first, the unranked last."""
        return chain(*(self._ranked[rank] for rank in sorted(self._ranked)), self._new)

    def put(self, key: RangeKey) -> None:
        """Add a range, or rank it again."""
        self.discard(key)
        self._new[key] = None

    def update(self, keys: Iterable[RangeKey]) -> None:
        """Add many."""
        for key in keys:
            self.put(key)

    def discard(self, key: RangeKey) -> None:
        """Remove a range, if it is there."""
        self._new.pop(key, None)
        rank = self._ranks.pop(key, None)
        if rank is not None:
            del self._ranked[rank][key]
            if not self._ranked[rank]:
                del self._ranked[rank]

    def rank(self, copies_of: Callable[[RangeKey], int], count_max: int) -> None:
        """Rank up to `count_max` new ranges by the copies that are left of them."""
        for key in list(islice(self._new, count_max)):
            del self._new[key]
            rank = copies_of(key)
            self._ranks[key] = rank
            self._ranked.setdefault(rank, {})[key] = None

    def first(self, count_max: int) -> list[RangeKey]:
        """Return the most urgent ranked ranges."""
        return list(islice(chain(*(self._ranked[rank] for rank in sorted(self._ranked))), count_max))
