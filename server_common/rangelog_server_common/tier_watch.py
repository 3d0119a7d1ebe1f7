"""The state of the tier, as one process sees it: checked at start, and again on request, as after a failing use.

What holds: `error` is what the last check came to, empty before the first one and while the tier works. A failing tier is
checked again with pauses, so that its return is seen; a working one only on request. A check never ends the process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

import structlog

from rangelog_core.errors import RangelogError

PAUSE_S = 1.0
PAUSE_S_MAX = 15.0
"""Between two checks, also of a tier that works and is to be checked again and again."""
LIMIT_S = 180.0
"""After it a check counts as failed: a directory that hangs never answers."""
ERROR_LENGTH_MAX = 500

_log = structlog.get_logger("tier")


class TierWatch:
    """The checks of one process. For one event loop."""

    def __init__(self, check: Callable[[], Awaitable[None]]) -> None:
        """`check` raises what is wrong with the tier."""
        self._check = check
        self._wanted = asyncio.Event()
        self.error = ""

    def recheck(self) -> None:
        """Check the tier soon."""
        self._wanted.set()

    async def run(self) -> None:
        """Check until cancelled."""
        pause_s = PAUSE_S
        while True:
            self._wanted.clear()
            self._note(await self._problem())
            if self.error:
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, PAUSE_S_MAX)
                continue
            pause_s = PAUSE_S
            await self._wanted.wait()
            await asyncio.sleep(pause_s)

    async def _problem(self) -> str:
        try:
            async with asyncio.timeout(LIMIT_S):
                await self._check()
        except RangelogError as error:
            return f"{error.code}: {error.message}"[:ERROR_LENGTH_MAX]
        except TimeoutError:
            return f"UNAVAILABLE: no answer within {LIMIT_S:g} s"
        except Exception as error:
            _log.exception("the check of the tier failed")
            return f"INTERNAL: {type(error).__name__}"
        return ""

    def _note(self, problem: str) -> None:
        if problem and problem != self.error:
            _log.warning("the tier does not work; it is checked again", problem=problem)
        elif self.error and not problem:
            _log.info("the tier works again")
        self.error = problem


class WatchTask:
    """The task in which a watch runs."""

    def __init__(self, watch: TierWatch) -> None:
        self._watch = watch
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Check now, and from here on."""
        if self._task is None:
            self._task = asyncio.create_task(self._watch.run())
        else:
            self._watch.recheck()

    async def close(self) -> None:
        """Stop; idempotent."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
