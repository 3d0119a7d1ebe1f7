"""Asks the placement driver, beside the reading, whether the ranges behind a reader's position have changed.

What holds: while the watch of the stream is sound nothing is asked but after a change of the stream; a missing reply never
stops the reading, since placement drivers may be away for long; an error in a reply is raised by the next `ask`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from rangelog._read.stream_view import StreamView
from rangelog._read.stream_watches import StreamWatch, StreamWatches
from rangelog_core.errors import Unavailable
from rangelog_proto.v1 import common_pb2


class BackgroundRefresh:
    """Of one reader's view. Used on one event loop, from the reader's task."""

    def __init__(self, view: StreamView, watches: StreamWatches) -> None:
        """`view` is refreshed."""
        self._view = view
        self._watches = watches
        self._watch: StreamWatch | None = None
        self._asked_version = self._seen_version = -1  # of the watch: requested, and replied
        self._asked: asyncio.Future[None] | None = None

    def watch(self) -> StreamWatch:
        """Return the watch of the stream, which the reader joins when it first waits."""
        if self._watch is None:
            self._watch = self._watches.join(self._view.stream.stream_id)
        return self._watch

    def close(self) -> None:
        """End what was asked, and leave the watch. Idempotent."""
        if self._asked is not None:
            self._asked.cancel()
        if self._watch is not None:
            self._watches.leave(self._watch)
            self._watch = None

    def ask(self, position: int) -> None:
        """Ask in the background for a seal that a replica does not know, and for ranges behind `position`.

        Does nothing where the watch of the stream shows no change since the last reply. Raises an error reply that came
        since the last call, but not a missing reply.
        """
        asked = self._asked
        if asked is not None and not asked.done():
            return
        if asked is not None and asked.exception() is None:
            self._seen_version = self._asked_version
        watch = self.watch()
        if watch.is_sound and watch.version == self._seen_version:
            return
        self._asked_version = watch.version
        self._asked = asyncio.ensure_future(self._view.refresh(position))
        self._asked.add_done_callback(lambda ended: ended.cancelled() or ended.exception())  # raised later, or never
        if asked is not None and (error := asked.exception()) is not None and not isinstance(error, Unavailable):
            raise error

    async def until_changed(self, source: common_pb2.Range, position: int, waiting: Coroutine[Any, Any, None]) -> None:
        """Await `waiting`, but no longer than until the stream changes, or `position` lies in another range than `source`."""
        watch, asked = self.watch(), self._asked
        ends = [asyncio.ensure_future(waiting), asyncio.ensure_future(watch.changed(watch.version))]
        try:
            if asked is not None and not asked.done():
                await asyncio.wait((*ends, asked), return_when=asyncio.FIRST_COMPLETED)
                if asked.done() and self._brought_news(asked, source, position):
                    return
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            if ends[0].done():
                ends[0].result()
        finally:
            for each in ends:
                each.cancel()

    def _brought_news(self, asked: asyncio.Future[None], source: common_pb2.Range, position: int) -> bool:
        if asked.cancelled():
            return True
        if (error := asked.exception()) is not None:
            return not isinstance(error, Unavailable)
        located = self._view.locate(position)
        return located is None or self._view.ranges[located.number] != source
