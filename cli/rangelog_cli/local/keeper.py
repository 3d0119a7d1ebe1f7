"""Starts members of a supervisor again, each after a pause that doubles while the member keeps crashing."""

from __future__ import annotations

import signal
from collections.abc import Callable, Set
from dataclasses import dataclass

from rangelog_cli.local.process import Process

_BACKOFF_FIRST_S = 0.5
_BACKOFF_MAX_S = 30.0
_STABLE_S = 60.0
"""A member that ran this long has recovered: its next crash counts as the first."""


@dataclass
class _Care:
    """The keeper's state of one member."""

    process: Process
    crashes: int = 0
    started_s: float = 0.0
    restart_at_s: float | None = None


class Keeper:
    """Starts crashed members again, each after a pause that doubles while it keeps crashing.

    It has no clock of its own: callers pass the monotonic time to `check`. Who is `left_out` stays ended.
    """

    def __init__(
        self, members: dict[str, Process], now_s: float, say: Callable[[str], None], left_out: Set[str] = frozenset()
    ) -> None:
        self._cares = [_Care(process, started_s=now_s) for process in members.values()]
        self._say = say
        self._left_out = left_out

    def check(self, now_s: float) -> None:
        """Detect ended members, and start those again whose pause is over."""
        for care in self._cares:
            if care.process.name in self._left_out:
                continue
            if care.restart_at_s is None:
                if not care.process.running:
                    self._schedule(care, now_s)
            elif now_s >= care.restart_at_s:
                care.restart_at_s = None
                care.started_s = now_s
                care.process.start()

    def _schedule(self, care: _Care, now_s: float) -> None:
        care.crashes = 1 if now_s - care.started_s > _STABLE_S else care.crashes + 1
        pause_s = min(_BACKOFF_MAX_S, _BACKOFF_FIRST_S * 2 ** (care.crashes - 1))
        care.restart_at_s = now_s + pause_s
        how = describe_exit(care.process.returncode)
        if (care.process.returncode or 0) > 0:
            how += f": {care.process.last_words()}"
        self._say(f"{care.process.name} {how}; starting it again in {pause_s:g} s{care.process.where}")


def describe_exit(code: int | None) -> str:
    """Return the end of a process in words."""
    if code is not None and code < 0:
        return f"was ended by {signal.Signals(-code).name}"
    return f"ended with exit code {code}"
