"""Event files in memory, for tests."""

from __future__ import annotations

from rangelog_files.event_file import EndMark, EventBlock, EventFileDecoder, EventFileWriter
from rangelog_files.events import Event

START_MS = 1_401_408_000_000
SAMPLE = [
    (START_MS, [Event(b"alpha"), Event(b"", {"a": b"1", "ü": b""}, b"k", -5)]),
    (START_MS, [Event(b"gamma" * 20, key=b"")]),
    (START_MS + 7, [Event(bytes(range(256)), timestamp_ms=START_MS + 3), Event(b"x"), Event(b"y")]),
]


def file_of(
    blocks: list[tuple[int, list[Event]]], *, closed_ms: int | None = START_MS + 9, file_id: str = "f-1"
) -> bytes:
    """The bytes of a file with these blocks; `closed_ms` None: it has no end mark."""
    file = EventFileWriter(file_id, {"writer": "a"})
    data = file.begin() + b"".join(file.block(*block) for block in blocks)
    return data if closed_ms is None else data + file.end(closed_ms)


def blocks_of(data: bytes, piece: int | None = None) -> tuple[list[EventBlock], EndMark | None]:
    """The blocks of a file's bytes, which are fed in pieces of so many bytes."""
    decoder = EventFileDecoder()
    blocks: list[EventBlock] = []
    step = piece or max(1, len(data))
    for start in range(0, max(1, len(data)), step):
        assert decoder.wanted_offset == start
        decoder.feed(data[start : start + step])
        while (block := decoder.next_block()) is not None:
            blocks.append(block)
    return blocks, decoder.ended


def events_of(blocks: list[EventBlock]) -> list[tuple[int, list[Event]]]:
    """Times and events of blocks."""
    return [(block.timestamp_ms, block.events()) for block in blocks]
