"""Event files, format E1: properties, then blocks of events, then an end mark; encoding and decoding without I/O.

    properties   properties.py, with the magic E1: `schema` (events, as Avro's JSON), `id` (of this file), and any others
    block        head of 20 bytes, payload
    …
    end mark     a head with a negative time: that at which the file was closed, times -1

    head:    0   time               i64: ms since 1970, when the block was written
             8   size               u32: of the payload, in bytes
            12   payload checksum   u32: crc32c of the payload
            16   head checksum      u32: crc32c, begun with the file's salt, of the head's offset in the file (u64) and
                                  these 16 bytes

What holds: a reader gets whole blocks as they were written, or a typed error. An end of the bytes within a block means that the
rest is not written yet; it is never an error, and never a part of a block. A head counts only at its own offset of its file, so
a wrong index leads to no block. The times of the blocks of one file never fall.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import google_crc32c

from rangelog_core.errors import Corruption, InvalidArgument, UnsupportedVersion
from rangelog_core.limits import TIMESTAMP_MS_MAX
from rangelog_files.event_schema import EVENT_SCHEMA, SchemaOfEvents
from rangelog_files.events import BLOCK_BYTES_MAX, Event, decode_events, encode_events, schema_of
from rangelog_files.properties import FileProperties, encode_properties, parse_properties

MAGIC = b"E1"
SCHEMA = "schema"
FILE_ID = "id"
HEAD_BYTES = 20
_HEAD = struct.Struct("<qIII")
_PLACE = struct.Struct("<Q")
_CHECKED_BYTES = 16


class EventBlock(NamedTuple):
    """One whole block, whose checksums fit.

    The offset of an event is the block's offset plus the event's number in the block: unique in its file, and rising.
    """

    offset: int
    timestamp_ms: int
    payload: bytes
    schema: SchemaOfEvents

    @property
    def end_offset(self) -> int:
        """The offset of the byte behind the block."""
        return self.offset + HEAD_BYTES + len(self.payload)

    def events(self) -> list[Event]:
        """Decode the events. Raises Corruption: the checksum fits, and yet they do not fit the file's schema."""
        return decode_events(self.schema, self.payload)


class EndMark(NamedTuple):
    """The end of a file that was closed, and when, in ms since 1970."""

    offset: int
    closed_ms: int


class Head(NamedTuple):
    """The head of a block or of the end mark, whose checksum fits."""

    timestamp_ms: int
    size: int
    payload_crc: int


class EventFileWriter:
    """The bytes of one event file, in the order in which they are written. It writes nothing itself.

    Example:
        >>> file = EventFileWriter("0b1e", {"writer": "a"})
        >>> data = file.begin() + file.block(1_700_000_000_000, [Event(b"on")]) + file.end(1_700_000_000_500)
        >>> len(data) == file.offset
        True
    """

    def __init__(self, file_id: str, properties: Mapping[str, str] | None = None) -> None:
        """Begin a file.

        Args:
            file_id: Differs for every file, so that an index of another file is recognized: such as a random UUID.
            properties: Other properties, by name.

        Raises InvalidArgument.
        """
        if not file_id:
            raise InvalidArgument("an event file has an id")
        head = encode_properties(MAGIC, {**(properties or {}), SCHEMA: EVENT_SCHEMA, FILE_ID: file_id})
        parsed = parse_properties(MAGIC, head)
        assert parsed is not None
        self._head, self._salt = head, parsed.salt
        self._last_ms, self._closed = 0, False
        self.offset = 0
        """The number of bytes that were encoded: where the next block begins."""

    @property
    def last_ms(self) -> int:
        """The time of the last block; the next one has this time or a later one."""
        return self._last_ms

    def begin(self) -> bytes:
        """Return the first bytes of the file."""
        assert not self.offset
        self.offset = len(self._head)
        return self._head

    def block(self, timestamp_ms: int, events: Sequence[Event]) -> bytes:
        """Return the next block.

        Args:
            timestamp_ms: When it is written, in ms since 1970; a clock that went back is the caller's to hold at `last_ms`.
            events: Its events, at least one.

        Raises InvalidArgument for a time below that of the block before, RecordTooLarge. Nothing is changed then.
        """
        assert self.offset and not self._closed
        if not self._last_ms <= timestamp_ms <= TIMESTAMP_MS_MAX:
            raise InvalidArgument(f"a block of the time {timestamp_ms} ms after one of {self._last_ms} ms")
        payload = encode_events(events)
        data = self._headed(timestamp_ms, payload)
        self._last_ms = timestamp_ms
        return data

    def end(self, closed_ms: int) -> bytes:
        """Return the end mark. `closed_ms`: the time, in ms since 1970; it is not below that of the last block."""
        assert self.offset and not self._closed
        self._closed = True
        return self._headed(-max(1, self._last_ms, min(closed_ms, TIMESTAMP_MS_MAX)), b"")

    def _headed(self, timestamp_ms: int, payload: bytes) -> bytes:
        head = _HEAD.pack(timestamp_ms, len(payload), google_crc32c.value(payload), 0)[:_CHECKED_BYTES]
        head += _head_crc(self._salt, self.offset, head).to_bytes(4, "little")
        self.offset += HEAD_BYTES + len(payload)
        return head + payload


def _head_crc(salt: int, offset: int, checked: bytes) -> int:
    crc: int = google_crc32c.extend(salt, _PLACE.pack(offset) + checked)
    return crc


class EventFileDecoder:
    """Decodes one event file from pieces of it, which may end anywhere.

    Feed it the bytes that begin at `wanted_offset`, then ask for blocks until it returns None. A block that is left out is not
    waited for: `wanted_offset` goes on behind it.
    """

    def __init__(self) -> None:
        self._data = b""
        self._at = 0  # what was consumed of the data
        self._offset = 0  # of the byte at `_at`, in the file
        self._last_ms = 0
        self._schema: SchemaOfEvents | None = None
        self.properties: FileProperties | None = None
        """Those of the file, once they are decoded."""
        self.ended: EndMark | None = None
        """The end mark, once it is decoded."""

    @property
    def offset(self) -> int:
        """Where in the file the next block begins that was not handed out or left out."""
        return self._offset

    @property
    def wanted_offset(self) -> int:
        """Where in the file the next bytes to feed begin."""
        return self._offset + len(self._data) - self._at

    def feed(self, data: bytes) -> None:
        """Take the bytes of the file that begin at `wanted_offset`."""
        self._data = self._data[self._at :] + data if self._at < len(self._data) else data
        self._at = 0

    def jump(self, offset: int, last_ms: int = 0) -> None:
        """Go on at this offset of the file, once the properties are decoded; what was fed is forgotten."""
        assert self.properties is not None
        self._data, self._at = b"", 0
        self._offset, self._last_ms = offset, last_ms
        self.ended = None

    def read_properties(self) -> FileProperties | None:
        """Return the file's properties; None: more bytes are needed. Raises Corruption, UnsupportedVersion."""
        if self.properties is None:
            found = parse_properties(MAGIC, self._data)
            if found is None:
                return None
            if SCHEMA not in found.values:
                raise UnsupportedVersion("the file has no schema of events")
            self._schema = schema_of(found.values[SCHEMA])
            self.properties = found
            self._at = self._offset = found.size_bytes
        return self.properties

    def peek(self) -> Head | None:
        """Return the head at `offset`, without going on; None: more bytes are needed. Raises Corruption."""
        properties = self.read_properties()
        if properties is None or len(self._data) - self._at < HEAD_BYTES:
            return None
        timestamp_ms, size, payload_crc, head_crc = _HEAD.unpack_from(self._data, self._at)
        checked = self._data[self._at : self._at + _CHECKED_BYTES]
        if _head_crc(properties.salt, self._offset, checked) != head_crc:
            raise Corruption(f"the head of the block at byte {self._offset} is damaged", offset=self._offset)
        self._check_head(timestamp_ms, size)
        return Head(timestamp_ms, size, payload_crc)

    def _check_head(self, timestamp_ms: int, size: int) -> None:
        """Check a head whose checksum fits: a writer may have made it wrong."""
        if size > BLOCK_BYTES_MAX or not -TIMESTAMP_MS_MAX <= timestamp_ms <= TIMESTAMP_MS_MAX:
            raise Corruption(
                f"the block at byte {self._offset} claims {size} bytes, of {timestamp_ms} ms", offset=self._offset
            )
        if abs(timestamp_ms) < self._last_ms or (timestamp_ms < 0 and size):
            raise Corruption(
                f"the time of the block at byte {self._offset} is below that before it", offset=self._offset
            )

    def next_block(self, accepts: Callable[[int], bool] | None = None, begin: int = 0) -> EventBlock | None:
        """Return the next whole block; None: more bytes are needed, or `ended` is set.

        Args:
            accepts: Called with the time of a block, in ms: False leaves the block out, and its payload is not waited for.
            begin: Blocks that end here or before are left out as well.

        Raises Corruption where a checksum does not fit, UnsupportedVersion; the same again when it is called again.
        """
        while self.ended is None:
            head = self.peek()
            if head is None:
                return None
            if head.timestamp_ms < 0:
                self.ended = EndMark(self._offset, -head.timestamp_ms)
                self._pass(HEAD_BYTES)
                break
            is_behind = self._offset + HEAD_BYTES + head.size <= begin
            if is_behind or (accepts is not None and not accepts(head.timestamp_ms)):
                self._last_ms = head.timestamp_ms
                self._pass(HEAD_BYTES + head.size)
                continue
            return self._whole(head)
        if self._at < len(self._data):
            raise Corruption(f"there are bytes behind the end mark, from byte {self._offset} on", offset=self._offset)
        return None

    def _whole(self, head: Head) -> EventBlock | None:
        """Return the block behind a head, once all of it is there."""
        start = self._at + HEAD_BYTES
        if len(self._data) - start < head.size:
            return None
        payload = self._data[start : start + head.size]
        if google_crc32c.value(payload) != head.payload_crc:
            raise Corruption(f"the block at byte {self._offset} is damaged", offset=self._offset)
        assert self._schema is not None
        block = EventBlock(self._offset, head.timestamp_ms, payload, self._schema)
        self._last_ms = head.timestamp_ms
        self._pass(HEAD_BYTES + head.size)
        return block

    def _pass(self, size: int) -> None:
        """Go on so many bytes later, which may be beyond the bytes that are there."""
        self._offset += size
        self._at += size
        if self._at > len(self._data):
            self._data, self._at = b"", 0
