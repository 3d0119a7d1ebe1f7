"""The first results of commands, for retries. Bounded, and the same on every member.

What holds: with ages in cluster time,

* A result younger than RESULTS_AGE_MS_MIN is always kept, which is longer than any client retries one request. A call on the
  driver ends within 15 s, opening a writer within 30 s; the rest is for tries in transit when the client gave up.
* The last RESULTS_KEPT_MIN are kept whatever their age: the time may step forward by days, after days without commands.
* Above RESULTS_USUAL of them, only results younger than RESULTS_AGE_MS_MIN are kept; below, up to RESULTS_AGE_MS_MAX.
* Count and bytes are bounded. Where the bound and the first rule cannot both hold there is no room: a new command is refused
  before it has an effect, and may be retried.

The arithmetic: 200,000 results in 60 s are 3,300 commands a second without limit of time, with bursts of 200,000 at any
rate. A request id and a large usual result (a seal that created a range of three) take 200 to 300 bytes, so 64 MiB hold the
200,000 up to 335 bytes each. A snapshot contains these bytes, too; memory holds 0.3 KiB of objects for each beside them:
125 MiB at most. A cluster that seals 100 ranges a second keeps its usual 20,000 (5 MiB).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator

RESULTS_AGE_MS_MIN = 60_000
RESULTS_AGE_MS_MAX = 600_000
RESULTS_KEPT_MIN = 1_000
RESULTS_USUAL = 20_000
RESULTS_MAX = 200_000
RESULTS_BYTES_MAX = 64 * 1024 * 1024


class Results:
    """Results by request, oldest first."""

    def __init__(self, kept: Iterable[tuple[str, int, bytes]] = ()) -> None:
        self._results: dict[str, bytes] = {}
        self._ages: deque[tuple[int, str]] = deque()
        self._bytes = 0
        for request, now_ms, result in kept:
            self.keep(request, now_ms, result)

    def __len__(self) -> int:
        return len(self._results)

    def __contains__(self, request: str) -> bool:
        return request in self._results

    def __iter__(self) -> Iterator[tuple[str, int, bytes]]:
        """Yield (request, time, result), oldest first."""
        return ((request, kept_ms, self._results[request]) for kept_ms, request in self._ages)

    def freeze(self) -> tuple[list[tuple[int, str]], dict[str, bytes]]:
        """Return the current times and requests, oldest first, and the results by request."""
        return list(self._ages), self._results.copy()

    def find(self, request: str) -> bytes | None:
        """Return the first result of the request, or None."""
        return self._results.get(request)

    def has_room(self, now_ms: int) -> bool:
        """Remove results that may be removed; return whether one more can be kept."""
        ages = self._ages
        while len(ages) > RESULTS_KEPT_MIN:
            age_ms = now_ms - ages[0][0]
            if age_ms < RESULTS_AGE_MS_MIN or (age_ms < RESULTS_AGE_MS_MAX and not self._is_full(RESULTS_USUAL)):
                break
            _, oldest = ages.popleft()
            self._bytes -= len(oldest) + len(self._results.pop(oldest))
        return not self._is_full(RESULTS_MAX)

    def keep(self, request: str, now_ms: int, result: bytes) -> None:
        """Keep the first result of a request."""
        self._results[request] = result
        self._ages.append((now_ms, request))
        self._bytes += len(request) + len(result)

    def _is_full(self, count: int) -> bool:
        return len(self._ages) >= count or self._bytes >= RESULTS_BYTES_MAX
