"""How long a reader goes on where no copy can be read."""

from __future__ import annotations

import time

from rangelog._metadata import backoff
from rangelog_core.errors import RangelogError


class Patience:
    """The limit of a reader's retries where no copy can be read."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._attempt = 0
        self._failing_since: float | None = None

    def renew(self) -> None:
        """Start over: a read succeeded."""
        self._attempt, self._failing_since = 0, None

    async def pause(self, error: RangelogError) -> None:
        """Wait before the next try. Raises `error` once the limit has passed since the first failure."""
        now = time.monotonic()
        if self._failing_since is None:
            self._failing_since = now
        if now - self._failing_since > self._timeout_s:
            raise error
        await backoff(self._attempt)
        self._attempt += 1
