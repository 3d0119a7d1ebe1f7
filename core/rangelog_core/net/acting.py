"""For whom a program calls: a broker tells the placement driver who asked its REST interface.

What holds: only the task that serves a request speaks for its principal. What that task starts is the process's own: lookups
that requests share, and work that outlives them. So no call of another request, or of the broker, counts as the principal's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from rangelog_core.net.principals import Principal

ACTING_KEY = "rangelog-acting-for"
"""In the metadata of a gRPC call: role:name."""

_ACTING: ContextVar[tuple[Principal, asyncio.Task[object] | None] | None] = ContextVar("acting", default=None)


@contextmanager
def acting_for(principal: Principal | None) -> Iterator[None]:
    """Have the calls of this task be for a principal, in a `with` block. None: nobody is known, they are the process's own."""
    before = _ACTING.set((principal, asyncio.current_task()) if principal is not None else None)
    try:
        yield
    finally:
        _ACTING.reset(before)


def with_principal(metadata: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
    """Return metadata of a gRPC call with the principal for whom this task calls, if there is one."""
    acting = _ACTING.get()
    if acting is None or acting[1] is not asyncio.current_task():
        return metadata
    return (*metadata, (ACTING_KEY, str(acting[0])))
