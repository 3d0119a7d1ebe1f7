"""Which ranges one range server's next heartbeat is answered for: those where something may be wanted.

What holds: every range of which something is wanted from the server, or may be soon, is here: `told` (a directive was given
and is repeated until a report shows it done), `fresh` (something about the range changed since it was looked at) or `waiting`
(something is missing elsewhere). A range of which nothing is wanted is in none. A heartbeat looks at all of `told`, at a
bounded number of `fresh`, and at a few of `waiting` in turn, so its cost does not depend on how many ranges there are.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice

from rangelog_pd.state.tables import RangeKey

FRESH_MAX = 256
WAITING_MAX = 32
"""Looked at in one heartbeat."""


@dataclass(slots=True)
class Attention:
    """Of one server."""

    told: dict[RangeKey, None] = field(default_factory=dict)
    fresh: dict[RangeKey, None] = field(default_factory=dict)
    waiting: dict[RangeKey, None] = field(default_factory=dict)

    def attend(self, key: RangeKey) -> None:
        """Something about a range changed."""
        if key not in self.told:
            self.waiting.pop(key, None)
            self.fresh[key] = None

    def wake(self, key: RangeKey) -> None:
        """What a range may be waiting for is perhaps there."""
        if key in self.waiting:
            del self.waiting[key]
            self.fresh[key] = None

    def take(self) -> Iterator[RangeKey]:
        """Yield the ranges to look at now; each is to be given to `settle`."""
        yield from list(self.told)
        for source, bound in ((self.fresh, FRESH_MAX), (self.waiting, WAITING_MAX)):
            for key in list(islice(source, bound)):
                if source.pop(key, key) is None:
                    yield key

    def settle(self, key: RangeKey, *, told: bool, done: bool) -> None:
        """What came of looking at a range: a directive, nothing to do (`done`), or nothing yet."""
        if told:
            self.told[key] = None
            return
        self.told.pop(key, None)
        if not done:
            self.waiting[key] = None

    def clear(self) -> None:
        """Forget all."""
        self.told.clear()
        self.fresh.clear()
        self.waiting.clear()
