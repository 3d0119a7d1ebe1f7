"""Watches of streams: one call for all readers of a client, with a reply at each change, in place of polling by each reader.

What holds: a sound watch has received every change of its stream up to its version, and its version rises with the next one;
while the placement driver does not answer it is not sound, and readers poll as without a watch. A watch never replaces a
request for the ranges: it only shows when one is needed.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging

from rangelog._metadata import Metadata, backoff
from rangelog_core.errors import RangelogError
from rangelog_proto.v1 import pd_pb2

WAIT_MS = 2_000
"""Below the time limit of one try at a placement driver."""
CALL_TIMEOUT_S = 4.0
BEGIN_MAX = 5_000
"""Streams added in one call; the next call adds more."""
FALL_BACK_S = 0.2
"""How often a reader polls while its watch is not sound."""

_log = logging.getLogger("rangelog.reader")


class StreamWatch:
    """One stream, watched by any number of readers."""

    def __init__(self, stream_id: int) -> None:
        self.stream_id = stream_id
        self.is_sound = False
        self.version = 0
        self.readers = 0
        self._changed = asyncio.Event()

    def note(self, *, is_sound: bool = True) -> None:
        """Raise the version: the stream changed, or its state is unknown."""
        self.is_sound = is_sound
        self.version += 1
        self._changed.set()
        self._changed = asyncio.Event()

    async def wait(self, version: int, timeout_s: float) -> None:
        """Return once the version differs from `version`, or after the time."""
        if version != self.version:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s if self.is_sound else min(timeout_s, FALL_BACK_S)):
                await self._changed.wait()


class StreamWatches:
    """All watches of one client. Made on any thread, used on one event loop."""

    def __init__(self, metadata: Metadata) -> None:
        self._metadata = metadata
        self._watches: dict[int, StreamWatch] = {}
        self._to_begin: dict[int, None] = {}
        self._to_end: dict[int, None] = {}
        self._task: asyncio.Task[None] | None = None
        self._hurry: asyncio.Event | None = None

    def join(self, stream_id: int) -> StreamWatch:
        """Watch a stream; `leave` ends it."""
        watch = self._watches.get(stream_id)
        if watch is None:
            watch = self._watches[stream_id] = StreamWatch(stream_id)
            self._to_begin[stream_id] = None
            self._to_end.pop(stream_id, None)
        watch.readers += 1
        if self._task is None:
            self._hurry = asyncio.Event()
            self._task = asyncio.create_task(self._run())
        assert self._hurry is not None
        self._hurry.set()
        return watch

    def leave(self, watch: StreamWatch) -> None:
        """End a reader's watch."""
        watch.readers -= 1
        if watch.readers or self._watches.get(watch.stream_id) is not watch:
            return
        del self._watches[watch.stream_id]
        if self._to_begin.pop(watch.stream_id, 0) == 0:
            self._to_end[watch.stream_id] = None
        if not self._watches:
            self.close()

    def close(self) -> None:
        """End the call."""
        if self._task is not None:
            self._task.cancel()
            self._task = None
        self._to_begin = dict.fromkeys(self._watches)
        self._to_end.clear()

    # ---- inside

    async def _run(self) -> None:
        session = acked = attempt = call = 0
        while True:
            call += 1
            begin = list(self._to_begin)[:BEGIN_MAX]
            end = list(self._to_end)
            request = pd_pb2.WatchRequest(
                session=session,
                acked=acked,
                call=call,
                wait_ms=WAIT_MS,
                begin=[pd_pb2.WatchedStream(stream_id=each, from_index=_NO_RANGES) for each in begin],
                end=end,
            )
            try:
                answer = await self._call(request)
            except RangelogError as error:
                _log.debug("streams are not watched: %s", error)
                self._begin_anew()
                session = acked = 0
                await backoff(attempt)
                attempt += 1
                continue
            attempt = 0
            if answer is None:
                continue  # another stream is added: call at once, under the same session
            if not answer.session:
                self._begin_anew()
                session = acked = 0
                continue
            session, acked = answer.session, answer.sequence
            for stream_id in begin:
                self._to_begin.pop(stream_id, None)
            for stream_id in end:
                self._to_end.pop(stream_id, None)
            self._take(answer)

    async def _call(self, request: pd_pb2.WatchRequest) -> pd_pb2.WatchResponse | None:
        """Call; None when a stream was added meanwhile, which cannot wait for the reply."""
        assert self._hurry is not None
        self._hurry.clear()
        asking = asyncio.ensure_future(self._metadata.pd.watch(request, timeout_s=CALL_TIMEOUT_S))
        hurrying = asyncio.ensure_future(self._hurry.wait())
        try:
            await asyncio.wait((asking, hurrying), return_when=asyncio.FIRST_COMPLETED)
            return asking.result() if asking.done() else None
        finally:
            hurrying.cancel()
            if not asking.done():
                asking.cancel()

    def _begin_anew(self) -> None:
        self._to_begin = dict.fromkeys(self._watches)
        self._to_end.clear()
        for watch in self._watches.values():
            if watch.is_sound:
                watch.note(is_sound=False)

    def _take(self, answer: pd_pb2.WatchResponse) -> None:
        changed = dict.fromkeys(each.stream_id for each in answer.streams)
        changed.update(dict.fromkeys(each.stream_id for each in answer.ranges))
        changed.update(dict.fromkeys(answer.deleted_stream_ids))
        for stream_id in changed:
            watch = self._watches.get(stream_id)
            if watch is not None:
                watch.note()


_NO_RANGES = 0xFFFF_FFFF
"""Readers list the ranges themselves: a watch starts with the stream's row alone."""
