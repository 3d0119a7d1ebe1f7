"""One event file that is being written, with its index.

What holds: what `flush` has returned for is on the disk, under a name that is on the disk. After any error the file is given
up: it gets no further byte, and no end mark. Readers go on at the next file of its writer; whole blocks in front of the error
may be read, which is why an event of a failed write or flush is of unknown outcome.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from rangelog_files.event_file import EventFileWriter
from rangelog_files.events import BLOCK_BYTES_MAX, BLOCK_EVENTS_MAX, Event, check_event
from rangelog_files.index_file import INTERVAL_BYTES_DEFAULT, IndexWriter
from rangelog_files.layout import EventPath
from rangelog_files.writable_files import WritableFiles, make_directories, typed_errors, write_all


class OpenEventFile:
    """An event file from its creation to its end mark."""

    def __init__(
        self,
        files: WritableFiles,
        root: Path,
        path: EventPath,
        properties: Mapping[str, str],
        *,
        index_interval_bytes: int = INTERVAL_BYTES_DEFAULT,
    ) -> None:
        """Make the file, and the directories that lead to it. Raises StorageFull, AccessDenied, Unavailable."""
        self.path = path
        self.given_up = False
        """Whether a call has failed: the next event belongs in the next file."""
        self._files = files
        file_id = uuid.uuid4().hex
        self._blocks = EventFileWriter(file_id, properties)
        self._index = IndexWriter(file_id, index_interval_bytes)
        with typed_errors(path.data_path):
            self._folder = make_directories(files, root, path.folder)
            self._data = files.create(root / path.data_path)
            self._entries: int | None = None
            try:
                self._entries = files.create(root / path.index_path)
                write_all(files, self._data, self._blocks.begin())
                write_all(files, self._entries, self._index.begin())
                files.flush_directory(self._folder)
            except BaseException:
                self.give_up()
                self._remove(root)
                raise

    @property
    def last_ms(self) -> int:
        """The time of its last block, in ms since 1970; 0 without one."""
        return self._blocks.last_ms

    def write(self, timestamp_ms: int, events: Sequence[Event]) -> list[int]:
        """Write events as blocks of this time; return the offset of each. Raises StorageFull, AccessDenied, Unavailable."""
        offsets: list[int] = []
        data: list[bytes] = []
        entries: list[bytes] = []
        for block in _split(events):
            begin = self._blocks.offset
            entries.append(self._index.block(timestamp_ms, begin))
            data.append(self._blocks.block(timestamp_ms, block))
            offsets += range(begin, begin + len(block))
        try:
            with typed_errors(self.path.data_path, outcome_unknown=True):
                write_all(self._files, self._data, b"".join(data))
                self._note(b"".join(entries))
        except BaseException:
            self.give_up()
            raise
        return offsets

    def _note(self, entries: bytes) -> None:
        """Write entries of the index. It only saves time: where it cannot be written, it ends here."""
        if entries and self._entries is not None:
            try:
                write_all(self._files, self._entries, entries)
            except OSError:
                self._close_index()

    def flush(self) -> None:
        """Return once all blocks are on the disk. Raises StorageFull, Unavailable: whether they are is unknown."""
        try:
            with typed_errors(self.path.data_path, outcome_unknown=True):
                self._files.flush(self._data)
        except BaseException:
            self.give_up()
            raise

    def end(self, now_ms: int) -> None:
        """Write the end mark, and close. Raises StorageFull, Unavailable: without it readers look for the next file."""
        if self.given_up:
            return
        try:
            with typed_errors(self.path.data_path):
                write_all(self._files, self._data, self._blocks.end(now_ms))
                self._files.flush(self._data)
        finally:
            self.give_up()

    def give_up(self) -> None:
        """Close it as it is; idempotent."""
        if not self.given_up:
            self.given_up = True
            self._close_index()
            with suppress(OSError):
                self._files.close(self._data)

    def _remove(self, root: Path) -> None:
        """Remove a file that never had a block: a full disk is not filled with them."""
        for path in (self.path.index_path, self.path.data_path):
            with suppress(OSError):
                self._files.remove(root / path)

    def _close_index(self) -> None:
        entries, self._entries = self._entries, None
        if entries is not None:
            with suppress(OSError):
                self._files.close(entries)


def _split(events: Sequence[Event]) -> list[Sequence[Event]]:
    """Return the events of each block: as few blocks as the limits of one allow."""
    blocks: list[Sequence[Event]] = []
    begin, size_bytes = 0, 0
    for number, event in enumerate(events):
        size = check_event(event)
        if number > begin and (size_bytes + size > BLOCK_BYTES_MAX - 64 or number - begin == BLOCK_EVENTS_MAX):
            blocks.append(events[begin:number])
            begin, size_bytes = number, 0
        size_bytes += size
    blocks.append(events[begin:])
    return blocks
