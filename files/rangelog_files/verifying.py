"""Checks the event files of a generation, byte by byte.

What holds: every block of every file is read and its checksums are compared; a damaged file hides no other one. What a writer
left unfinished is no damage: a file without an end mark, and a block that was written in part behind the last whole one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from rangelog_core.errors import Corruption, UnsupportedVersion
from rangelog_files.event_file import EventFileDecoder
from rangelog_files.layout import EventPath
from rangelog_files.readable_files import ReadableFiles

_PIECE_BYTES = 1 << 20
CLOSED, OPEN, TORN, DAMAGED = "closed", "open", "torn", "damaged"


class VerifiedFile(NamedTuple):
    """What a file holds.

    Attributes:
        path: Its path, relative to the directory of all streams.
        events: How many events its whole blocks have.
        blocks: How many whole blocks it has.
        size_bytes: How many bytes of it were read.
        state: "closed"; "open": without an end mark, it is being written or its writer has died; "torn": besides, it ends
            within a block; "damaged".
        reason: What is damaged, and where.
    """

    path: str
    events: int
    blocks: int
    size_bytes: int
    state: str
    reason: str = ""


def verify_files(files: ReadableFiles, paths: list[EventPath]) -> Iterator[VerifiedFile]:
    """Yield what each of these files holds. Raises Unavailable."""
    for path in paths:
        yield _verified(files, path.data_path)


def _verified(files: ReadableFiles, path: str) -> VerifiedFile:
    decoder = EventFileDecoder()
    events = blocks = size_bytes = 0
    try:
        while data := files.read_file(path, decoder.wanted_offset, _PIECE_BYTES):
            decoder.feed(data)
            size_bytes += len(data)
            while (block := decoder.next_block()) is not None:
                events += len(block.events())
                blocks += 1
    except (Corruption, UnsupportedVersion) as error:
        return VerifiedFile(path, events, blocks, size_bytes, DAMAGED, error.message)
    state = CLOSED if decoder.ended is not None else OPEN if decoder.offset == size_bytes else TORN
    return VerifiedFile(path, events, blocks, size_bytes, state)
