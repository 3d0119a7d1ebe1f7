"""How much each member of a group has, with who has most and who has least at hand. Pure.

What holds: among equals the one whose name is last has most, and the one whose name is first has least. A change costs the
logarithm of the number of members.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping


class Loads:
    """See the module."""

    def __init__(self, loads: Mapping[str, int]) -> None:
        self._names = sorted(loads)
        self._places = {name: place for place, name in enumerate(self._names)}
        self._loads = [loads[name] for name in self._names]
        self._least = [(load, place) for place, load in enumerate(self._loads)]
        self._most = [(-load, -place) for load, place in self._least]
        heapq.heapify(self._least)
        heapq.heapify(self._most)

    def __getitem__(self, name: str) -> int:
        return self._loads[self._places[name]]

    def add(self, name: str, weight: int) -> None:
        """Give a member more, or less."""
        place = self._places[name]
        load = self._loads[place] = self._loads[place] + weight
        heapq.heappush(self._least, (load, place))
        heapq.heappush(self._most, (-load, -place))

    def least(self) -> str:
        """Return who has least."""
        while self._is_stale(self._least[0]):
            heapq.heappop(self._least)
        return self._names[self._least[0][1]]

    def most(self) -> str:
        """Return who has most."""
        while self._is_stale(self._most[0]):
            heapq.heappop(self._most)
        return self._names[-self._most[0][1]]

    def _is_stale(self, noted: tuple[int, int]) -> bool:
        """Whether a member has another load by now. Those with most are noted with signs."""
        load, place = noted
        return self._loads[abs(place)] != abs(load)
