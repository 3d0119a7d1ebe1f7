"""One session of watching at the placement driver: one call after the other, each answered when something changed.

What holds: a subclass gets every answer of the session in order, each once; after an answer is missed, or where another
placement driver leads, it begins anew. The call runs from the first `hurry` to `stop`.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod

from rangelog._metadata import Metadata, backoff
from rangelog_core.errors import RangelogError
from rangelog_proto.v1 import pd_pb2

WAIT_MS = 2_000
"""Below the time limit of one try at a placement driver."""
CALL_TIMEOUT_S = 4.0
BEGIN_MAX = 5_000
"""What is added in one call; the next call adds more."""
FALL_BACK_S = 0.2
"""How often a reader polls while its watch is not sound."""

_log = logging.getLogger("rangelog.reader")


class WatchCalls(ABC):
    """Made on any thread, used on one event loop."""

    def __init__(self, metadata: Metadata) -> None:
        self._metadata = metadata
        self._task: asyncio.Task[None] | None = None
        self._hurry: asyncio.Event | None = None

    @abstractmethod
    def _fill(self, request: pd_pb2.WatchRequest) -> None:
        """Name in a call what begins and what ends."""

    @abstractmethod
    def _arrived(self, request: pd_pb2.WatchRequest, answer: pd_pb2.WatchResponse) -> None:
        """Take an answer, and forget what the call began and ended."""

    @abstractmethod
    def _begin_anew(self) -> None:
        """Changes may have been missed: name everything again."""

    def hurry(self) -> None:
        """Call now, since something is added; start the session where there is none."""
        if self._task is None:
            self._hurry = asyncio.Event()
            self._task = asyncio.create_task(self._run())
        assert self._hurry is not None
        self._hurry.set()

    def stop(self) -> None:
        """End the session. Idempotent."""
        if self._task is not None:
            self._task.cancel()
            self._task = None

    # ---- inside

    async def _run(self) -> None:
        session = acked = attempt = call = 0
        while True:
            call += 1
            request = pd_pb2.WatchRequest(session=session, acked=acked, call=call, wait_ms=WAIT_MS)
            self._fill(request)
            try:
                answer = await self._call(request)
            except RangelogError as error:
                _log.debug("nothing is watched: %s", error)
                self._begin_anew()
                session = acked = 0
                await backoff(attempt)
                attempt += 1
                continue
            attempt = 0
            if answer is None:
                continue  # something is added: call at once, under the same session
            if not answer.session:
                self._begin_anew()
                session = acked = 0
                continue
            session, acked = answer.session, answer.sequence
            self._arrived(request, answer)

    async def _call(self, request: pd_pb2.WatchRequest) -> pd_pb2.WatchResponse | None:
        """Call; None when something was added meanwhile, which cannot wait for the reply."""
        assert self._hurry is not None
        self._hurry.clear()
        asking = asyncio.ensure_future(self._metadata.pd.call(request, pd_pb2.WatchResponse, timeout_s=CALL_TIMEOUT_S))
        hurrying = asyncio.ensure_future(self._hurry.wait())
        try:
            await asyncio.wait((asking, hurrying), return_when=asyncio.FIRST_COMPLETED)
            return asking.result() if asking.done() else None
        finally:
            hurrying.cancel()
            if not asking.done():
                asking.cancel()
