"""Reads the event files of one generation of a stream: does what the merging core asks for. Blocking, for one thread."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from rangelog_core.errors import Corruption, UnsupportedVersion
from rangelog_files.block_filters import OffsetFilter
from rangelog_files.events import Event
from rangelog_files.layout import EventPath
from rangelog_files.merging import FilePosition, Finished, Handed, ListFiles, MergingCore, WaitUntil
from rangelog_files.readable_files import ReadableFiles


class EventBatch(NamedTuple):
    """Events of one block, in the order in which they were written.

    Attributes:
        path: The file that they are from.
        timestamp_ms: When they were written, in ms since 1970.
        offsets: Of each event in its file.
        events: The events.
    """

    path: EventPath
    timestamp_ms: int
    offsets: Sequence[int]
    events: Sequence[Event]


class DamagedFile(NamedTuple):
    """A file that was left because it cannot be read on, the offset from which on, and why."""

    path: str
    offset: int
    reason: str


def system_ms() -> int:
    """Return the time of the system's clock, in ms since 1970."""
    return time.time_ns() // 1_000_000


class EventReader:
    """Reads the events of one generation, merged over its writers.

    Example:
        >>> core = MergingCore("who", 1, times=TimeFilter(from_ms=1_700_000_000_000))  # doctest: +SKIP
        >>> for event in EventReader(LocalFiles(Path("/data")), core):  # doctest: +SKIP
        ...     print(event.body)
    """

    def __init__(
        self,
        files: ReadableFiles,
        core: MergingCore,
        *,
        share: OffsetFilter | None = None,
        leave_damaged: bool = False,
        now_ms: Callable[[], int] = system_ms,
        wait: Callable[[float], object] = time.sleep,
    ) -> None:
        """Begin.

        Args:
            files: Where the files are.
            core: The merge of their writers.
            share: The reader's share of the events; None: all.
            leave_damaged: Whether a file that is damaged, or of another version, is left for the next one of its writer, and
                noted in `damaged`. Without, the error is raised.
            now_ms: The clock, in ms since 1970.
            wait: Waits for so many seconds; where it returns earlier, the reader looks earlier.
        """
        self._files, self._core, self._share = files, core, share
        self._leave_damaged = leave_damaged
        self._now_ms, self._wait = now_ms, wait
        self.bytes_read = 0
        """Of event files and indexes, so far."""
        self.damaged: list[DamagedFile] = []
        """The files that were left."""

    def position(self) -> list[FilePosition]:
        """Return where to go on: all batches that `next_batch` returned are before it, and no event else."""
        return self._core.position()

    def next_batch(self, timeout_s: float | None = None) -> EventBatch | None:
        """Return the next events; None: there are no more, or none came within the time.

        Raises Corruption, UnsupportedVersion, Unavailable, OffsetOutOfRange for a position that is not of these files,
        StreamNotFound without such a generation.
        """
        until_ms = None if timeout_s is None else self._now_ms() + round(timeout_s * 1_000)
        while True:
            try:
                step = self._core.step(self._now_ms())
                if isinstance(step, Handed):
                    batch = self._batch_of(step)
                    if batch.events:
                        return batch
                elif isinstance(step, ListFiles):
                    self._list(step)
                elif isinstance(step, WaitUntil):
                    now_ms = self._now_ms()
                    if until_ms is not None and now_ms >= until_ms:
                        return None
                    self._wait(max(0, min(step.time_ms, until_ms or step.time_ms) - now_ms) / 1_000)
                elif isinstance(step, Finished):
                    return None
                else:
                    data = self._files.read_file(step.path, step.offset, step.length)
                    self.bytes_read += len(data or b"")
                    self._core.read(data, self._now_ms())
            except (Corruption, UnsupportedVersion) as error:
                self._left(error)

    def _left(self, error: Corruption | UnsupportedVersion) -> None:
        """Leave a damaged file, if this is wanted; otherwise raise the error."""
        if not self._leave_damaged:
            raise error
        path, offset = self._core.leave_file()
        self.damaged.append(DamagedFile(path.data_path, error.offset or offset, error.message))

    def _list(self, step: ListFiles) -> None:
        paths = self._files.list_files(self._core.stream, self._core.generation, step.from_ms, step.until_ms)
        self._core.listed(paths, self._now_ms())

    def _batch_of(self, step: Handed) -> EventBatch:
        """Return the events of a block that are behind the position, and the reader's own."""
        offset, events = step.block.offset, step.events
        offsets: Sequence[int] = range(offset, offset + len(events))
        if step.from_offset > offset:
            events, offsets = events[step.from_offset - offset :], offsets[step.from_offset - offset :]
        if self._share is not None:
            kept = [each for each in zip(offsets, events, strict=True) if self._share.takes(each[0])]
            offsets, events = [each for each, _ in kept], [event for _, event in kept]
        return EventBatch(step.path, step.block.timestamp_ms, offsets, events)

    def __iter__(self) -> Iterator[Event]:
        """Yield the events one by one; `position` is behind the whole batch of the last one. Raises as `next_batch`."""
        while (batch := self.next_batch()) is not None:
            yield from batch.events
