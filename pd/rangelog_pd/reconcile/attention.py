"""Which ranges one range server's next heartbeat examines: those that may need a directive.

What holds: every range that needs a directive for the server, or may need one soon, is in one of three sets: `issued` (a
directive was sent and is repeated until a report shows it done), `fresh` (the range changed since it was examined) or
`waiting` (a condition elsewhere is missing). All other ranges are in none. A heartbeat examines all of `issued`, a bounded
number of `fresh`, and a few of `waiting` in turn, so its cost does not depend on the number of ranges.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice

from rangelog_pd.state.tables import RangeKey

FRESH_MAX = 256
WAITING_MAX = 32
"""Ranges that one heartbeat examines."""


@dataclass(slots=True)
class Attention:
    """The ranges of one server that may need directives."""

    issued: dict[RangeKey, None] = field(default_factory=dict)
    fresh: dict[RangeKey, None] = field(default_factory=dict)
    waiting: dict[RangeKey, None] = field(default_factory=dict)

    def attend(self, key: RangeKey) -> None:
        """Note that a range changed."""
        if key not in self.issued:
            self.waiting.pop(key, None)
            self.fresh[key] = None

    def wake(self, key: RangeKey) -> None:
        """Examine a waiting range again, since its condition may hold now."""
        if key in self.waiting:
            del self.waiting[key]
            self.fresh[key] = None

    def take(self) -> Iterator[RangeKey]:
        """Yield the ranges to examine now; each must be passed to `settle`."""
        yield from list(self.issued)
        for source, bound in ((self.fresh, FRESH_MAX), (self.waiting, WAITING_MAX)):
            for key in list(islice(source, bound)):
                if source.pop(key, key) is None:
                    yield key

    def settle(self, key: RangeKey, *, issued: bool, done: bool) -> None:
        """Note the result for a range: a directive, nothing to do (`done`), or nothing yet."""
        if issued:
            self.issued[key] = None
            return
        self.issued.pop(key, None)
        if not done:
            self.waiting[key] = None

    def clear(self) -> None:
        """Remove all ranges."""
        self.issued.clear()
        self.fresh.clear()
        self.waiting.clear()
