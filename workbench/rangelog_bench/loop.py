"""The event loop of the measured processes of rangelog."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

_T = TypeVar("_T")


def run_on_loop(work: Callable[[], Coroutine[Any, Any, _T]]) -> _T:
    """asyncio.run, on uvloop where it is installed; Ctrl-C cancels the work, which cleans up, and is raised then."""
    factory: Callable[[], asyncio.AbstractEventLoop] | None = None
    try:
        import uvloop

        factory = uvloop.new_event_loop
    except ImportError:
        pass
    with asyncio.Runner(loop_factory=factory) as runner:
        return runner.run(work())
