"""Range servers that are heard of and yet in trouble: too slow for many writers, no source for its peers, or coming and going.

What holds:

* A complaint counts for COMPLAINT_MS. REPORTERS_MIN distinct reporters, streams or servers, begin a *bout* of a server; one
  reporter never does, however often it complains. So does the return of a server that was dead, if it returned not long before.
* During a bout the server is avoided. The bout ends after a calm period without trouble, which doubles with each bout that
  follows within RELAPSE_MS, up to CALM_MS_MAX: flapping is damped.
* A bout with complaints that lasts for LEAVE_AFTER_MS makes the server one that is left: its replicas go elsewhere.
* What is said of a server that is dead, or of a process before the last start, does not count: its silence explains it. Nor
  does what is said within GRACE_MS after a start or a return, when writers still report connections that broke before.
* Never more than a third of the usable servers are avoided at a time, those with the most reporters, each until its bout ends:
  when all are complained about, the cause is the network or the load, and avoiding all of them would not help.
* Memory: one entry for each server that is dead or was in trouble within RELAPSE_MS, with REPORTERS_MAX reporters.

Of one leader, in memory only: a new leader begins calm. Pure; times are of the leader's monotonic clock, in ms.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, field

COMPLAINT_MS = 60_000.0
REPORTERS_MIN = 3
REPORTERS_MAX = 64
GRACE_MS = 10_000.0
CALM_MS = 30_000.0
CALM_MS_MAX = 600_000.0
RELAPSE_MS = 600_000.0
LEAVE_AFTER_MS = 300_000.0
AVOIDED_SHARE = 3
"""One server of so many may be avoided."""


@dataclass(slots=True)
class _Entry:
    """One server."""

    reporters: dict[str, float] = field(default_factory=dict)  # when each complained last, oldest first
    bouts: int = 0
    began_ms: float | None = None  # None: no bout
    trouble_ms: float = -math.inf  # the last one
    ended_ms: float = -math.inf  # of the last bout
    complained: bool = False  # the bout has complaints; otherwise the server only came and went
    is_dead: bool = False
    returned_ms: float = -math.inf
    deaf_until_ms: float = -math.inf

    @property
    def calm_ms(self) -> float:
        """How long no trouble may come until the bout ends."""
        return float(min(CALM_MS_MAX, CALM_MS * 2.0 ** min(self.bouts - 1, 16)))

    def trouble(self, now_ms: float) -> None:
        """Begin a bout, or prolong it."""
        if self.began_ms is None:
            self.bouts = self.bouts + 1 if now_ms - self.ended_ms < RELAPSE_MS else 1
            self.began_ms, self.complained = now_ms, False
        self.trouble_ms = now_ms

    def begin_anew(self, now_ms: float) -> None:
        """Forget complaints, since the server was away: only how often it was in trouble still counts."""
        self.reporters.clear()
        self.deaf_until_ms = now_ms + GRACE_MS
        if self.began_ms is not None and self.complained:
            self.began_ms, self.ended_ms = None, now_ms

    def age(self, now_ms: float) -> None:
        """Forget old complaints, and end the bout after the calm period."""
        while self.reporters:
            first = next(iter(self.reporters))
            if now_ms - self.reporters[first] < COMPLAINT_MS:
                break
            del self.reporters[first]
        if self.began_ms is not None and now_ms - self.trouble_ms >= self.calm_ms:
            self.began_ms, self.ended_ms = None, now_ms
            self.reporters.clear()

    def is_idle(self, now_ms: float) -> bool:
        """Whether there is nothing to remember."""
        recent = max(self.ended_ms, self.returned_ms, self.deaf_until_ms - RELAPSE_MS)
        return not (self.reporters or self.is_dead) and self.began_ms is None and now_ms - recent >= RELAPSE_MS


class Complaints:
    """All servers of one leader."""

    def __init__(self) -> None:
        self._entries: dict[str, _Entry] = {}
        self.avoided: dict[str, str] = {}
        """Servers that are avoided, and why. As of the last `judge`; so is `left`."""
        self.left: dict[str, None] = {}
        """Those of them that are left for good: their replicas go elsewhere."""

    def clear(self) -> None:
        """Begin calm, in another term of leadership."""
        self._entries.clear()
        self.avoided.clear()
        self.left.clear()

    def forget(self, server: str) -> None:
        """Forget a server, which was removed."""
        self._entries.pop(server, None)
        self.avoided.pop(server, None)
        self.left.pop(server, None)

    def complain(self, server: str, reporter: str, now_ms: float) -> None:
        """A writer has left a server out, or a peer could not copy from it. `reporter`: the stream or the peer, by any name."""
        entry = self._entries.setdefault(server, _Entry())
        if entry.is_dead or now_ms < entry.deaf_until_ms:
            return
        entry.age(now_ms)
        entry.reporters.pop(reporter, None)
        if len(entry.reporters) >= REPORTERS_MAX:
            del entry.reporters[next(iter(entry.reporters))]
        entry.reporters[reporter] = now_ms
        if len(entry.reporters) >= REPORTERS_MIN:
            entry.trouble(now_ms)
            entry.complained = True

    def started(self, server: str, now_ms: float) -> None:
        """A process of a server registered."""
        self._entries.setdefault(server, _Entry()).begin_anew(now_ms)

    def seen(self, server: str, now_ms: float, *, is_dead: bool) -> None:
        """Note whether a server is heard of, often enough to see each change."""
        entry = self._entries.get(server)
        if is_dead:
            self._entries.setdefault(server, _Entry()).is_dead = True
        elif entry is not None and entry.is_dead:
            entry.is_dead = False
            entry.begin_anew(now_ms)
            if now_ms - entry.returned_ms < RELAPSE_MS:
                entry.trouble(now_ms)
            entry.returned_ms = now_ms

    def judge(self, usable: Collection[str], now_ms: float) -> None:
        """Decide who is avoided and who is left, of the servers that are heard of and that could get replicas."""
        heard = frozenset(usable)
        ill: list[tuple[bool, int, float, str]] = []
        for name, entry in list(self._entries.items()):
            entry.age(now_ms)
            if entry.began_ms is not None and name in heard:
                ill.append((name not in self.avoided, -len(entry.reporters), entry.began_ms, name))
            elif entry.is_idle(now_ms):
                del self._entries[name]
        chosen = [name for *_, name in sorted(ill)[: (len(usable) - 1) // AVOIDED_SHARE]] if ill else []
        self.avoided = {name: self._reason(name, now_ms) for name in chosen}
        self.left = {name: None for name in chosen if self._is_left(name, now_ms)}

    def _is_left(self, name: str, now_ms: float) -> bool:
        entry = self._entries[name]
        return entry.complained and entry.began_ms is not None and now_ms - entry.began_ms >= LEAVE_AFTER_MS

    def _reason(self, name: str, now_ms: float) -> str:
        entry = self._entries[name]
        since_s = (now_ms - (entry.began_ms or now_ms)) / 1000
        what = "writers of streams and other servers complain about it" if entry.complained else "it comes and goes"
        left = ", and its replicas are moved elsewhere" if self._is_left(name, now_ms) else ""
        again = f", {entry.bouts} times in a row" if entry.bouts > 1 else ""
        calm_s = max(0.0, entry.calm_ms - (now_ms - entry.trouble_ms)) / 1000
        return f"{what}, for {since_s:.0f} s{again}{left}; trusted after {calm_s:.0f} s without trouble"
