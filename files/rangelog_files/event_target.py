"""The files of one writer, one after the other, which a group commit writes and flushes.

What holds:
- nothing is appended to a file of an earlier run: the first event opens the next sequence of its partition;
- partitions follow the writer's clock, which is held: back in time it changes neither the time of blocks nor the partition;
- before each write the properties are looked at: a group is written in the generation of that moment, so an event that is
  appended after a truncation has returned is in the new generation;
- after an error the file is given up, and the next group opens the next sequence.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from rangelog_core.errors import RangelogError, WriterClosed
from rangelog_files.events import Event
from rangelog_files.layout import (
    EventPath,
    TimePartition,
    generation_folder,
    next_path,
    parse_file,
    parse_partition,
)
from rangelog_files.open_file import OpenEventFile
from rangelog_files.stream_properties import EventStreamProperties
from rangelog_files.writable_files import WritableFiles, typed_errors


class EventAck(NamedTuple):
    """The event is on the disk.

    Attributes:
        path: The path of its file, relative to the directory of all streams.
        offset: The event's offset in its file; rises, and is not dense.
        timestamp_ms: When it was written, by the writer's clock, in ms since 1970.
    """

    path: str
    offset: int
    timestamp_ms: int


class EventTarget:
    """See the module. One thread at a time."""

    def __init__(
        self,
        files: WritableFiles,
        root: Path,
        stream: str,
        prefix: str,
        *,
        look: Callable[[], EventStreamProperties],
        clock_ms: Callable[[], int],
        number: int | None = None,
    ) -> None:
        """`number`: of a writer without a prefix of its own, from 0: it ends where the stream has fewer writers. Else None."""
        self.stream = stream
        self.prefix = prefix
        self.groups = 0
        """How many groups were written and flushed, so far."""
        self._files = files
        self._root = root
        self._look = look
        self._clock_ms = clock_ms
        self._number = number
        self._file: OpenEventFile | None = None
        self._last_ms = 0

    def write(self, events: Sequence[Event]) -> list[EventAck]:
        """Write a group. Raises WriterClosed: the stream has fewer writers now; StorageFull, AccessDenied, Unavailable, …"""
        properties = self._look()
        if self._number is not None and self._number >= properties.writers:
            raise WriterClosed(
                f"the stream {self.stream!r} has {properties.writers} writers now, and this one is number {self._number}: "
                f"nothing of this is written"
            )
        now_ms = max(self._clock_ms(), self._last_ms)
        file = self._file_for(properties, now_ms)
        timestamp_ms = max(now_ms, file.path.partition.start_s * 1_000)
        offsets = file.write(timestamp_ms, events)
        self._last_ms = timestamp_ms
        path = file.path.data_path
        return [EventAck(path, offset, timestamp_ms) for offset in offsets]

    def flush(self) -> None:
        """Flush what was written. Raises StorageFull, Unavailable: whether it is on the disk is unknown."""
        assert self._file is not None
        self._file.flush()
        self.groups += 1

    def close(self) -> None:
        """Write the end mark; idempotent. Raises StorageFull, Unavailable: all acked events are on the disk nevertheless."""
        file, self._file = self._file, None
        if file is not None:
            file.end(max(self._clock_ms(), self._last_ms))

    def _file_for(self, properties: EventStreamProperties, now_ms: int) -> OpenEventFile:
        """Return the file for a group that is written now."""
        file = self._file
        if (
            file is not None
            and not file.given_up
            and (file.path.generation == properties.generation and now_ms < file.path.partition.end_s * 1_000)
        ):
            return file
        with suppress(RangelogError):  # without an end mark readers go on by the next file
            self.close()
        self._file = None
        with typed_errors(f"the stream {self.stream!r}"):
            existing = self._own_files(properties.generation)
        path = next_path(self.stream, properties.generation, self.prefix, existing, now_ms, properties.partition_s)
        about = {"writer": self.prefix, "host": os.uname().nodename}
        self._file = OpenEventFile(
            self._files, self._root, path, about, index_interval_bytes=properties.index_interval_bytes
        )
        return self._file

    def _own_files(self, generation: int) -> list[EventPath]:
        """Return the files of this writer in its latest partition. Raises OSError."""
        folder = generation_folder(self.stream, generation)
        partitions = [parse_partition(name) for name in self._files.names(self._root / folder)]
        for partition in sorted((each for each in partitions if each is not None), reverse=True):
            own = list(self._own_in(folder, generation, partition))
            if own:
                return own
        return []

    def _own_in(self, folder: str, generation: int, partition: TimePartition) -> Iterable[EventPath]:
        for name in self._files.names(self._root / folder / partition.text):
            named = parse_file(name)
            if named is not None and named[0] == self.prefix:
                yield EventPath(self.stream, generation, partition, self.prefix, named[1])
