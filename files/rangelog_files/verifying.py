"""Checks the event files of a generation, byte by byte, and the index beside each.

What holds: every block of every file is read, its checksums are compared, its events are decoded, and its time is one of its
partition; a damaged file hides no other one. Left unfinished by a writer is no damage: a file without an end mark, and a block
that was written in part behind the last whole one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from rangelog_core.errors import Corruption, UnsupportedVersion
from rangelog_files.event_file import FILE_ID, EventBlock, EventFileDecoder
from rangelog_files.index_file import INDEX_BYTES_MAX, IndexEntry, parse_index
from rangelog_files.layout import EventPath
from rangelog_files.readable_files import ReadableFiles

_PIECE_BYTES = 1 << 20
CLOSED, OPEN, TORN, DAMAGED = "closed", "open", "torn", "damaged"


class VerifiedFile(NamedTuple):
    """The content of a file, and what is wrong with it.

    Attributes:
        path: Its path, relative to the directory of all streams.
        events: How many events its whole blocks have.
        blocks: How many whole blocks it has.
        size_bytes: How many bytes of it were read.
        state: "closed"; "open": without an end mark, it is being written or its writer has died; "torn": besides, it ends
            within a block; "damaged".
        reason: The first damage, and where it is.
        index_reason: The first error of its index, which only costs time; "" without an index.
    """

    path: str
    events: int
    blocks: int
    size_bytes: int
    state: str
    reason: str = ""
    index_reason: str = ""


def verify_files(files: ReadableFiles, paths: list[EventPath]) -> Iterator[VerifiedFile]:
    """Yield the content of each of these files. Raises Unavailable."""
    for path in paths:
        yield _Verification(files, path).run()


class _Verification:
    """The check of one file."""

    def __init__(self, files: ReadableFiles, path: EventPath) -> None:
        self._files, self._path = files, path
        self._decoder = EventFileDecoder()
        self._events = self._size_bytes = 0
        self._blocks: set[IndexEntry] = set()

    def run(self) -> VerifiedFile:
        """Read the file, and its index. Raises Unavailable."""
        try:
            for block in self._read():
                self._events += len(block.events())
                self._blocks.add(IndexEntry(block.timestamp_ms, block.offset))
                if not self._path.partition.holds(block.timestamp_ms):
                    reason = f"the time of the block at byte {block.offset} is not one of its partition"
                    return self._result(DAMAGED, reason)
        except (Corruption, UnsupportedVersion) as error:
            return self._result(DAMAGED, error.message)
        decoder = self._decoder
        state = CLOSED if decoder.ended is not None else OPEN if decoder.offset == self._size_bytes else TORN
        return self._result(state, "", self._check_index())

    def _result(self, state: str, reason: str, index_reason: str = "") -> VerifiedFile:
        counts = (self._events, len(self._blocks), self._size_bytes)
        return VerifiedFile(self._path.data_path, *counts, state, reason, index_reason)

    def _read(self) -> Iterator[EventBlock]:
        """Yield the blocks of the file, up to the bytes that are there now."""
        while data := self._files.read_file(self._path.data_path, self._decoder.wanted_offset, _PIECE_BYTES):
            self._decoder.feed(data)
            self._size_bytes += len(data)
            while (block := self._decoder.next_block()) is not None:
                yield block

    def _check_index(self) -> str:
        """Return what is wrong with the index: a whole one leads to blocks alone, as far as the file goes."""
        data = self._files.read_file(self._path.index_path, 0, INDEX_BYTES_MAX)
        properties = self._decoder.properties
        if data is None or properties is None:
            return ""
        entries = parse_index(data, properties.values.get(FILE_ID, "")).entries
        if not entries and self._blocks:
            return "the index is damaged, cut, or of another file"
        for entry in entries:
            if entry.offset < self._decoder.offset and entry not in self._blocks:
                return f"no block of the time {entry.timestamp_ms} ms begins at byte {entry.offset}"
        return ""
