"""Index files, format I1: where blocks of some times begin in the event file beside; encoding and lookup without I/O.

    properties   properties.py, with the magic I1: `file`, the id of the event file
    entry        i64 time of a block in ms since 1970, u64 its offset in the event file
    …

What holds: an index only saves time. It may be missing, cut, damaged or that of another file: what it says counts where a block
with this very time begins at this very offset, which the head of the block proves; otherwise the event file is scanned.
"""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from typing import NamedTuple

from rangelog_core.errors import RangelogError
from rangelog_core.limits import TIMESTAMP_MS_MAX
from rangelog_files.properties import encode_properties, parse_properties

MAGIC = b"I1"
FILE = "file"
INTERVAL_BYTES_DEFAULT = 256 * 1024
"""The bytes that a reader scans at most to find a time, beside one block."""
INDEX_BYTES_MAX = 16 << 20
"""What is read of an index: about a million entries; what is behind them is scanned."""
ENTRY_BYTES = 16
_ENTRY = struct.Struct("<qQ")


class IndexEntry(NamedTuple):
    """A block of this time, in ms since 1970, begins at this offset of the event file."""

    timestamp_ms: int
    offset: int


class IndexWriter:
    """The bytes of an index, in the order in which they are written: an entry for each `interval_bytes` of the event file.

    Example:
        >>> index = IndexWriter("0b1e", interval_bytes=1_000)
        >>> data = index.begin() + index.block(1_700_000_000_000, 300) + index.block(1_700_000_000_001, 400)
        >>> parse_index(data, "0b1e").entries
        (IndexEntry(timestamp_ms=1700000000000, offset=300),)
    """

    def __init__(self, file_id: str, interval_bytes: int = INTERVAL_BYTES_DEFAULT) -> None:
        """Begin the index of the event file with this id."""
        self._file_id = file_id
        self._interval_bytes = interval_bytes
        self._next_offset = 0

    def begin(self) -> bytes:
        """Return the first bytes of the index."""
        return encode_properties(MAGIC, {FILE: self._file_id})

    def block(self, timestamp_ms: int, offset: int) -> bytes:
        """Return the entry for a block of this time at this offset of the event file, or no bytes: it needs none."""
        if offset < self._next_offset:
            return b""
        self._next_offset = offset + self._interval_bytes
        return _ENTRY.pack(timestamp_ms, offset)


class EventIndex:
    """The entries of an index, for lookup; the empty one knows nothing."""

    def __init__(self, entries: tuple[IndexEntry, ...] = ()) -> None:
        self.entries = entries
        """By offset; their times never fall."""

    def before_time(self, timestamp_ms: int) -> IndexEntry | None:
        """Return the last entry of an earlier time: no block of this time, or a later one, is before it. None without one."""
        position = bisect_left(self.entries, timestamp_ms, key=lambda entry: entry.timestamp_ms)
        return self.entries[position - 1] if position else None

    def at_offset(self, offset: int) -> IndexEntry | None:
        """Return the last entry whose block begins at this offset or before it; None without one."""
        position = bisect_right(self.entries, offset, key=lambda entry: entry.offset)
        return self.entries[position - 1] if position else None


def parse_index(data: bytes, file_id: str) -> EventIndex:
    """Return what an index says of the event file with this id: nothing where it is damaged, newer or of another file.

    The first entry that is cut, or does not follow the one before it, is left out with all behind it.
    """
    try:
        found = parse_properties(MAGIC, data)
    except RangelogError:
        return EventIndex()
    if found is None or found.values.get(FILE) != file_id:
        return EventIndex()
    entries: list[IndexEntry] = []
    end = len(data) - (len(data) - found.size_bytes) % ENTRY_BYTES
    last = IndexEntry(0, 0)
    for entry in map(IndexEntry._make, _ENTRY.iter_unpack(data[found.size_bytes : end])):
        if not last.timestamp_ms <= entry.timestamp_ms <= TIMESTAMP_MS_MAX or entry.offset <= last.offset:
            break
        entries.append(entry)
        last = entry
    return EventIndex(tuple(entries))
