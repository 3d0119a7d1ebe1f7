"""The waiters for replicas that this server does not have.

What holds: each waiter is called once, when the replica is there, unless it stops waiting before; a range without waiters takes
no memory. The fetches of the connections bound the number of waiters.
"""

from __future__ import annotations

from collections.abc import Callable

from rangelog_server.ranges.hosted_replica import RangeKey


class AwaitedReplicas:
    """For the event loop's thread."""

    def __init__(self) -> None:
        self._waiters: dict[RangeKey, dict[Callable[[], None], None]] = {}

    def __len__(self) -> int:
        """The number of ranges that are waited for."""
        return len(self._waiters)

    def add(self, key: RangeKey, wake: Callable[[], None]) -> None:
        """Call `wake` when there is a replica of the range."""
        self._waiters.setdefault(key, {})[wake] = None

    def discard(self, key: RangeKey, wake: Callable[[], None]) -> None:
        """Stop waiting. Idempotent."""
        waiting = self._waiters.get(key)
        if waiting is not None:
            waiting.pop(wake, None)
            if not waiting:
                del self._waiters[key]

    def made(self, key: RangeKey) -> None:
        """There is a replica of the range now."""
        for wake in self._waiters.pop(key, ()):
            wake()
