"""Watches of streams: one call for all readers of a client, with a reply at each change, in place of polling by each reader.

What holds: a sound watch has received every change of its stream up to its version, and its version rises with the next one;
while the placement driver does not answer it is not sound, and readers poll as without a watch. A watch never replaces a
request for the ranges: it only shows when one is needed.
"""

from __future__ import annotations

import asyncio
import contextlib

from rangelog._metadata import Metadata
from rangelog._read.watch_calls import BEGIN_MAX, FALL_BACK_S, WatchCalls
from rangelog_proto.v1 import pd_pb2


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

    async def changed(self, version: int) -> None:
        """Return once the version differs from `version`."""
        if version == self.version:
            await self._changed.wait()

    async def wait(self, version: int, timeout_s: float) -> None:
        """Return once the version differs from `version`, or after the time."""
        if version != self.version:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s if self.is_sound else min(timeout_s, FALL_BACK_S)):
                await self.changed(version)


class StreamWatches(WatchCalls):
    """All watches of one client. Made on any thread, used on one event loop."""

    def __init__(self, metadata: Metadata) -> None:
        super().__init__(metadata)
        self._watches: dict[int, StreamWatch] = {}
        self._to_begin: dict[int, None] = {}
        self._to_end: dict[int, None] = {}

    def join(self, stream_id: int) -> StreamWatch:
        """Watch a stream; `leave` ends it."""
        watch = self._watches.get(stream_id)
        if watch is None:
            watch = self._watches[stream_id] = StreamWatch(stream_id)
            self._to_begin[stream_id] = None
            self._to_end.pop(stream_id, None)
        watch.readers += 1
        self.hurry()
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
        self.stop()
        self._to_begin = dict.fromkeys(self._watches)
        self._to_end.clear()

    # ---- inside

    def _fill(self, request: pd_pb2.WatchRequest) -> None:
        for stream_id in list(self._to_begin)[:BEGIN_MAX]:
            request.begin.add(stream_id=stream_id, from_index=_NO_RANGES)
        request.end.extend(self._to_end)

    def _begin_anew(self) -> None:
        self._to_begin = dict.fromkeys(self._watches)
        self._to_end.clear()
        for watch in self._watches.values():
            if watch.is_sound:
                watch.note(is_sound=False)

    def _arrived(self, request: pd_pb2.WatchRequest, answer: pd_pb2.WatchResponse) -> None:
        for each in request.begin:
            self._to_begin.pop(each.stream_id, None)
        for stream_id in request.end:
            self._to_end.pop(stream_id, None)
        changed = dict.fromkeys(each.stream_id for each in answer.streams)
        changed.update(dict.fromkeys(each.stream_id for each in answer.ranges))
        changed.update(dict.fromkeys(answer.deleted_stream_ids))
        for stream_id in changed:
            watch = self._watches.get(stream_id)
            if watch is not None:
                watch.note()


_NO_RANGES = 0xFFFF_FFFF
"""Readers list the ranges themselves: a watch starts with the stream's row alone."""
