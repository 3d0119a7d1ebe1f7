"""Checks event files from end to end: every checksum, every event, every time, and the index beside each.

What holds: a file without a problem gives all its events to every reader. A file without an end mark is no problem: it is
written to, or its writer died; the bytes of a block that was not finished are counted.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from rangelog_core.errors import Corruption, UnsupportedVersion
from rangelog_files.event_file import FILE_ID, EventBlock, EventFileDecoder
from rangelog_files.index_file import INDEX_BYTES_MAX, IndexEntry, parse_index
from rangelog_files.layout import EventPath
from rangelog_files.readable_files import ReadableFiles

READ_BYTES = 1 << 20


class FileReport(NamedTuple):
    """The result for one file.

    Attributes:
        path: The file.
        blocks: Whole blocks.
        events: The events in them.
        size_bytes: Up to the end of the last whole block, or of the end mark.
        unfinished_bytes: Of a block that is not whole, at the end of the file.
        closed_ms: When the file was closed, in ms since 1970; None: it has no end mark.
        problem: The first thing that is wrong; "" without one.
        index_problem: The same of its index, which only costs time; "" without one, and without an index.
    """

    path: EventPath
    blocks: int
    events: int
    size_bytes: int
    unfinished_bytes: int
    closed_ms: int | None
    problem: str
    index_problem: str


def verify_file(files: ReadableFiles, path: EventPath) -> FileReport:
    """Check one file and its index. Raises Unavailable, and InvalidArgument for a path that leads elsewhere."""
    decoder = EventFileDecoder()
    blocks = events = 0
    problem = ""
    places: set[IndexEntry] = set()
    try:
        for block in _blocks(files, path, decoder):
            if not path.partition.holds(block.timestamp_ms):
                problem = (
                    problem
                    or f"the time {block.timestamp_ms} ms of the block at byte {block.offset} is not of its partition"
                )
            blocks, events = blocks + 1, events + len(block.events())
            places.add(IndexEntry(block.timestamp_ms, block.offset))
        if decoder.properties is None:
            problem = "the file has no properties yet"
    except (Corruption, UnsupportedVersion) as error:
        problem = problem or error.message
    size_bytes = decoder.offset
    return FileReport(
        path,
        blocks,
        events,
        size_bytes,
        0 if problem else decoder.wanted_offset - size_bytes,
        decoder.ended.closed_ms if decoder.ended is not None else None,
        problem,
        _index_problem(files, path, decoder, places) if not problem else "",
    )


def _blocks(files: ReadableFiles, path: EventPath, decoder: EventFileDecoder) -> Iterator[EventBlock]:
    """Yield the blocks of a file, up to the bytes that are there now."""
    while data := files.read_file(path.data_path, decoder.wanted_offset, READ_BYTES):
        decoder.feed(data)
        while (block := decoder.next_block()) is not None:
            yield block


def _index_problem(files: ReadableFiles, path: EventPath, decoder: EventFileDecoder, places: set[IndexEntry]) -> str:
    """Return what is wrong with an index: a whole one leads to blocks alone."""
    data = files.read_file(path.index_path, 0, INDEX_BYTES_MAX)
    if data is None:
        return ""
    assert decoder.properties is not None
    entries = parse_index(data, decoder.properties.values.get(FILE_ID, "")).entries
    if not entries and places:
        return "the index is damaged, cut, or of another file"
    for entry in entries:
        if entry.offset < decoder.offset and entry not in places:
            return f"no block of the time {entry.timestamp_ms} ms begins at byte {entry.offset}"
    return ""


def verify_stream(files: ReadableFiles, stream: str, generation: int) -> Iterator[FileReport]:
    """Yield a report for each file of a generation, by partition and path. Raises StreamNotFound, Unavailable."""
    for path in sorted(files.list_files(stream, generation)):
        yield verify_file(files, path)
