"""The recent log of this process: what `log_to_stderr` printed last, for those who ask over the network.

What holds: one ring per process, used from any thread; a line is kept as it was masked; a long event is cut, and says so.
"""

from __future__ import annotations

import json
import os
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from rangelog_server_common.log_ring import LINE_BYTES_MAX, LogPage, LogRing

TEXT_LENGTH_MAX = 3_000
"""Characters of one value of a line that is kept: four bytes each fit into a line."""
_FIRST_KEYS = ("timestamp", "level", "role", "process", "logger", "event")
_CUT_LENGTH = 300


class RecentLog:
    """The ring of a process, and a number that is another one after a restart."""

    def __init__(self, ring: LogRing | None = None) -> None:
        self.begin(ring)

    def begin(self, ring: LogRing | None = None) -> None:
        """Begin another log, as a process does that was forked: with an empty ring, and a number of its own."""
        self.run = secrets.randbits(63) | 1
        self._ring = ring if ring is not None else LogRing()
        self._lock = threading.Lock()

    def note(self, event: Mapping[str, Any], masked: Callable[[str], str]) -> None:
        """Keep an event of structlog. `masked`: takes secrets out of a line."""
        line = line_of(event, masked)
        wall_ms = time.time_ns() // 1_000_000
        with self._lock:
            self._ring.add(str(event.get("level", "info")), wall_ms, line)

    def read(self, **wanted: Any) -> LogPage:
        """Read the ring: see LogRing.read."""
        with self._lock:
            return self._ring.read(**wanted)


def line_of(event: Mapping[str, Any], masked: Callable[[str], str]) -> str:
    """Return an event as one line of JSON of at most LINE_BYTES_MAX bytes, without secrets; one that was cut has `cut`."""
    line = masked(_json(event))
    if _fits(line) and all(len(each) <= TEXT_LENGTH_MAX for each in event.values() if isinstance(each, str)):
        return line
    # Secrets leave before texts are cut: half of one would not be found.
    short = {key: _cut(masked(each), TEXT_LENGTH_MAX) if isinstance(each, str) else each for key, each in event.items()}
    line = masked(_json(short | {"cut": True}))
    if _fits(line):
        return line
    first = {key: _cut(masked(str(event[key])), _CUT_LENGTH) for key in _FIRST_KEYS if key in event}
    return masked(_json(first | {"cut": True}))


def _fits(line: str) -> bool:
    return len(line.encode(errors="replace")) <= LINE_BYTES_MAX


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else text[:length] + "…"


def _json(event: Mapping[str, Any]) -> str:
    line = json.dumps(dict(event), ensure_ascii=False, default=repr)
    return line.encode(errors="backslashreplace").decode()  # a lone surrogate, as of a file name, is no UTF-8


RECENT = RecentLog()
os.register_at_fork(after_in_child=RECENT.begin)
