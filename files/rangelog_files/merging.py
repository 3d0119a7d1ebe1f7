"""The files of all writers of one generation, merged by the time of their blocks; a core without I/O.

What holds: of the blocks that are there, the earliest is handed out first, of one time that of the first path. A writer that
has nothing new holds nothing up: where no file is written to meanwhile, all blocks come in the order of their times; where
files are followed, a block that is written late comes when it is there. The position is exact: all events that were handed out
are before it, and no others.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from rangelog_core.errors import Corruption, InvalidArgument, Overloaded
from rangelog_files.block_filters import TimeFilter
from rangelog_files.event_file import EventBlock
from rangelog_files.events import Event
from rangelog_files.layout import EventPath, checked_name, parse_path
from rangelog_files.writer_cursor import POLL_MS_MAX, POLL_MS_MIN, FileRead, WriterCursor

WRITERS_MAX = 1_000
"""Of one generation: a reader holds a piece of a file of each."""
LATE_MS = 2 * 3_600_000
"""Files of a partition that was over so long ago are not looked for any more: clocks of writers differ by less."""


class FilePosition(NamedTuple):
    """Where reading goes on in the files of one writer: at the event at `offset` of the file at `path`.

    Example:
        >>> FilePosition("who/00001/1401408000.86400/a.000000.dat", 0).offset
        0
    """

    path: str
    offset: int


class ListFiles(NamedTuple):
    """Wanted: the files of the partitions from this time on, in ms since 1970, and up to the other; None: without a bound."""

    from_ms: int | None
    until_ms: int | None


class Handed(NamedTuple):
    """The next block; of its events those from `from_offset` on are wanted."""

    path: EventPath
    block: EventBlock
    events: list[Event]
    from_offset: int


class WaitUntil(NamedTuple):
    """There is nothing to do before this time, in ms since 1970."""

    time_ms: int


class Finished(NamedTuple):
    """All blocks were handed out, and none are waited for."""


Step = ListFiles | FileRead | Handed | WaitUntil | Finished


class MergingCore:
    """Merges the writers of one generation of a stream."""

    def __init__(
        self,
        stream: str,
        generation: int,
        *,
        times: TimeFilter = TimeFilter(),  # noqa: B008 (a NamedTuple)
        start: Sequence[FilePosition] = (),
        follow: bool = False,
    ) -> None:
        """Begin.

        Args:
            stream: The name of the stream of events.
            generation: Its generation that is read.
            times: Which blocks are wanted.
            start: A former `position`; a writer that it does not name is read from its first file on.
            follow: Whether to wait for what is written later. Without: what the first listing has.

        Raises InvalidArgument for a position of another stream, and for a bounded time with `follow`.
        """
        if follow and times.until_ms is not None:
            raise InvalidArgument("a reader that follows has no end: leave out the time until which to read")
        self.stream, self.generation = checked_name(stream, "name of a stream"), generation
        self._times, self._follow = times, follow
        self._cursors: dict[str, WriterCursor] = {}
        for position in start:
            path = parse_path(position.path)
            if (path.stream, path.generation) != (stream, generation) or path.prefix in self._cursors:
                raise InvalidArgument(f"the position {position.path} is not one of generation {generation} of {stream}")
            self._cursors[path.prefix] = WriterCursor(path, position.offset, times, follow=follow)
        self._awake = list(self._cursors.values())  # without a block, and not asleep
        self._asleep: list[tuple[int, str]] = []
        self._blocks: list[tuple[int, EventPath]] = []
        self._reading: WriterCursor | None = None
        self._list_ms: int | None = 0
        self._listed_ms: int | None = None

    def position(self) -> list[FilePosition]:
        """Return where to go on: every event before it was handed out, and no other one was."""
        return [FilePosition(each.path.data_path, each.offset) for _, each in sorted(self._cursors.items())]

    def step(self, now_ms: int) -> Step:
        """Return what to do next. Raises as `read`.

        A ListFiles is answered by `listed`, a FileRead by `read`; otherwise the same step comes again.
        """
        if self._list_ms is not None and now_ms >= self._list_ms:
            return self._listing(now_ms)
        while self._asleep and self._asleep[0][0] <= now_ms:
            self._awake.append(self._cursors[heapq.heappop(self._asleep)[1]])
        while self._awake:
            self._reading = cursor = self._awake[-1]
            wanted = cursor.wants(now_ms)
            if wanted is not None:
                return wanted
            self._settle(cursor)
        if self._blocks:
            return self._hand_out()
        if not self._follow:
            return Finished()
        return WaitUntil(min([self._list_ms or 0, *(wake_ms for wake_ms, _ in self._asleep[:1])]))

    def _hand_out(self) -> Handed:
        """Take the earliest block. Where its events cannot be decoded, it stays."""
        path = self._blocks[0][1]
        self._reading = cursor = self._cursors[path.prefix]
        assert cursor.block is not None
        from_offset = max(cursor.offset, cursor.block.offset)
        try:
            events = cursor.block.events()
        except Corruption as error:
            raise Corruption(
                f"{path.data_path}, byte {cursor.block.offset}: {error.message}", offset=from_offset
            ) from error
        heapq.heappop(self._blocks)
        self._awake.append(cursor)
        return Handed(path, cursor.take(), events, from_offset)

    def _settle(self, cursor: WriterCursor) -> None:
        """Put a cursor that wants no read where it belongs."""
        self._awake.pop()
        if cursor.block is not None:
            heapq.heappush(self._blocks, (cursor.block.timestamp_ms, cursor.path))
        elif not cursor.finished:
            heapq.heappush(self._asleep, (cursor.wake_ms, cursor.path.prefix))
            if self._list_ms is not None:  # a writer without news may have begun its next file
                self._list_ms = min(self._list_ms, max(cursor.wake_ms, (self._listed_ms or 0) + POLL_MS_MIN))

    def _listing(self, now_ms: int) -> ListFiles:
        """Return which partitions may have files that are not known."""
        from_ms = self._times.first_ms(now_ms)
        if self._listed_ms is not None:
            from_ms = max(from_ms or 0, now_ms - LATE_MS)
        return ListFiles(from_ms, self._times.until_ms)

    def listed(self, paths: Iterable[EventPath], now_ms: int) -> None:
        """Take the files that exist, in any order. Raises Overloaded for too many writers; nothing is changed then."""
        by_writer: dict[str, list[EventPath]] = {}
        for path in paths:
            if (path.stream, path.generation) == (self.stream, self.generation):
                by_writer.setdefault(path.prefix, []).append(path)
        new = [prefix for prefix in by_writer if prefix not in self._cursors]
        if len(new) + len(self._cursors) > WRITERS_MAX:
            raise Overloaded(f"generation {self.generation} of {self.stream} has more than {WRITERS_MAX} writers")
        for prefix in new:
            cursor = WriterCursor(min(by_writer[prefix]), 0, self._times, follow=self._follow)
            self._cursors[prefix] = cursor
            self._awake.append(cursor)
        for prefix, found in by_writer.items():
            self._cursors[prefix].seen(found)
        self._listed_ms = now_ms
        self._list_ms = now_ms + POLL_MS_MAX if self._follow else None

    def read(self, data: bytes | None, now_ms: int) -> None:
        """Take the result of the read that was wanted: bytes, none at the end of the file, None where there is no file.

        Raises Corruption, UnsupportedVersion: `leave_file` goes on behind the file. OffsetOutOfRange: the position is wrong.
        """
        assert self._reading is not None
        self._reading.got(data, now_ms)

    def leave_file(self) -> tuple[EventPath, int]:
        """Go on with the file behind the one that cannot be read on; return this one, and where it was left."""
        cursor = self._reading
        assert cursor is not None
        if cursor.block is not None:  # its events cannot be decoded
            heapq.heappop(self._blocks)
            self._awake.append(cursor)
        return cursor.leave()
