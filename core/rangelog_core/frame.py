"""The frame of the data plane: a fixed header, a small protobuf message, a payload of raw bytes.

     0      2       3      4          8              12             16            20           24
     ┌──────┬───────┬──────┬──────────┬──────────────┬──────────────┬─────────────┬────────────┐
     │magic │version│opcode│request id│message length│payload length│message crc  │header crc  │  message …  payload …
     │u16   │u8     │u8    │u32       │u32           │u32           │u32 (crc32c) │u32 (crc32c)│
     └──────┴───────┴──────┴──────────┴──────────────┴──────────────┴─────────────┴────────────┘

Little-endian. The header's crc covers its first 20 bytes, so a length is verified and a limit applied before anything is
buffered. Batches carry their own checksums, so the payload has none. Pure: bytes in, frames out; FrameError closes the
connection.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import NamedTuple

import google_crc32c

MAGIC = 0x4C52  # "RL" on the wire
VERSION = 1
HEADER_BYTES = 24

_HEADER = struct.Struct("<HBBIIIII")
_UNCHECKED = struct.Struct("<HBBIIII")
_CRC = struct.Struct("<I")
_BUFFER_BYTES = 256 * 1024
_SMALL_IN_A_ROW = 64
"""After so many frames without a large one the large buffer is released."""


class Opcode(IntEnum):
    """The kind of a frame's message."""

    HELLO = 1
    HELLO_REPLY = 2
    APPEND = 3
    APPEND_REPLY = 4
    CONFIRM = 5
    FETCH = 6
    FETCH_REPLY = 7
    LOOKUP_TIMESTAMP = 8
    LOOKUP_TIMESTAMP_REPLY = 9
    SEAL = 10
    SEAL_REPLY = 11
    COMMIT_END = 12
    COMMIT_END_REPLY = 13
    ERROR = 14
    PRODUCE = 17
    PRODUCE_REPLY = 18
    FIND_BATCH = 19
    FIND_BATCH_REPLY = 20
    STAGE = 21


RESERVED_OPCODES = {15: "GRANT", 16: "GRANT_REPLY"}
"""Assigned and not in use yet; data.proto lists them."""

_OPCODES = {int(opcode): opcode for opcode in Opcode}


class FrameError(ValueError):
    """Bytes that are not a frame of this protocol, or one above the limits."""


class Frame(NamedTuple):
    """One whole frame. `request_id` 0: the frame is no reply."""

    opcode: Opcode
    request_id: int
    message: bytes
    payload: bytes


def encode_head(opcode: Opcode, request_id: int, message: bytes, payload_bytes: int) -> bytes:
    """Return header and message; the caller writes `payload_bytes` of payload right after, uncopied."""
    head = _UNCHECKED.pack(
        MAGIC, VERSION, opcode, request_id, len(message), payload_bytes, google_crc32c.value(message)
    )
    return b"".join((head, _CRC.pack(google_crc32c.value(head)), message))


def encode_frame(opcode: Opcode, request_id: int, message: bytes, payload: bytes = b"") -> bytes:
    """Return the whole frame as one bytes object."""
    head = encode_head(opcode, request_id, message, len(payload))
    return head + payload if payload else head


class FrameDecoder:
    """Splits a byte stream into frames, for `asyncio.BufferedProtocol`: `get_buffer`, then `received`.

    Holds one buffer of 256 KiB, or of the largest frame among the last few, whichever is more: a fresh one for each large
    frame would have to be zeroed first.
    """

    def __init__(self, *, message_bytes_max: int, payload_bytes_max: int) -> None:
        self._message_bytes_max = message_bytes_max
        self._payload_bytes_max = payload_bytes_max
        self._view = memoryview(bytearray(_BUFFER_BYTES))
        self._start = 0  # of what is not yet cut
        self._end = 0  # of what was received
        self._need = HEADER_BYTES  # bytes of the frame at _start, as far as known
        self._small_count = 0  # times in a row that the buffer was emptied without a frame that needed its size

    def get_buffer(self, sizehint: int = -1) -> memoryview:
        """Return the buffer for the next bytes received; never empty. See asyncio.BufferedProtocol."""
        view, start, end = self._view, self._start, self._end
        if start + self._need > len(view) or end == len(view):
            held = end - start
            fresh = view if self._need <= len(view) else memoryview(bytearray(self._need))
            fresh[:held] = bytes(view[start:end])
            self._view, self._start, self._end = fresh, 0, held
        return self._view[self._end :]

    def received(self, count: int) -> list[Frame]:
        """Take `count` bytes that were put into the buffer; return the frames they complete.

        Raises FrameError on bad magic, version, opcode, checksum or size: no later frame can be found then.
        """
        self._end += count
        frames: list[Frame] = []
        while self._end - self._start >= self._need:
            if self._need == HEADER_BYTES:
                self._need += self._check_header()
                if self._end - self._start < self._need:
                    break
            if self._need > _BUFFER_BYTES:
                self._small_count = 0
            frames.append(self._cut())
        if self._start == self._end:
            self._start = self._end = 0
            if len(self._view) > _BUFFER_BYTES:
                self._small_count += 1
                if self._small_count > _SMALL_IN_A_ROW:
                    self._view = memoryview(bytearray(_BUFFER_BYTES))
        return frames

    def feed(self, data: bytes) -> list[Frame]:
        """Decode bytes that no socket received, for tests, fuzzing and tools. Raises FrameError."""
        frames: list[Frame] = []
        position = 0
        while position < len(data):
            buffer = self.get_buffer()
            count = min(len(buffer), len(data) - position)
            buffer[:count] = data[position : position + count]
            frames += self.received(count)
            position += count
        return frames

    def _check_header(self) -> int:
        """Check the header at `_start`; return how many bytes follow it."""
        header = bytes(self._view[self._start : self._start + HEADER_BYTES])
        magic, version, opcode, _, message_bytes, payload_bytes, _, crc = _HEADER.unpack(header)
        if magic != MAGIC:
            raise FrameError("these bytes do not start a rangelog frame")
        if google_crc32c.value(header[:20]) != crc:
            raise FrameError("the frame header's checksum does not fit")
        if version != VERSION:
            raise FrameError(f"frame version {version}; this side supports {VERSION}")
        if opcode not in _OPCODES:
            raise FrameError(f"unknown opcode {opcode}")
        if message_bytes > self._message_bytes_max:
            raise FrameError(f"a message of {message_bytes} bytes; the limit is {self._message_bytes_max}")
        if payload_bytes > self._payload_bytes_max:
            raise FrameError(f"a payload of {payload_bytes} bytes; the limit is {self._payload_bytes_max}")
        return int(message_bytes + payload_bytes)

    def _cut(self) -> Frame:
        start = self._start
        _, _, opcode, request_id, message_bytes, _, message_crc, _ = _HEADER.unpack_from(self._view, start)
        middle = start + HEADER_BYTES + message_bytes
        message = bytes(self._view[start + HEADER_BYTES : middle])
        if google_crc32c.value(message) != message_crc:
            raise FrameError("the frame message's checksum does not fit")
        end = start + self._need
        payload = bytes(self._view[middle:end])
        self._start = end
        self._need = HEADER_BYTES
        return Frame(_OPCODES[opcode], request_id, message, payload)
