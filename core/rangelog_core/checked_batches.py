"""The check of the batches of a payload: of what a replica sent (reads, seals and copies all use it), and of appends.

What holds: every batch is whole, its checksum fits, it belongs to the requested range; the first batch holds the requested
offset, and each further one starts where the one before ended.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import google_crc32c

from rangelog_core.batch import LENGTH_AT, WHOLE_CRC, BatchHeader, check_batch, extension_of, peek_header
from rangelog_core.errors import Corruption, ProtocolViolation, UnsupportedVersion


class CheckedBatch(NamedTuple):
    """A whole batch whose checksum fits, and its extension's fields by tag."""

    header: BatchHeader
    data: bytes
    fields: Mapping[int, bytes]


class CheckedBatches(NamedTuple):
    """Consecutive batches of one range. `end_offset`: the next offset to read."""

    batches: Sequence[CheckedBatch]
    end_offset: int

    def before(self, end_offset: int) -> list[CheckedBatch]:
        """Return the batches that start below `end_offset`."""
        return [each for each in self.batches if each.header.base_offset < end_offset]


def checked_batches(payload: bytes) -> Iterator[CheckedBatch]:
    """Split a payload into its consecutive batches, and check each as `check_batch` does; a header is read once.

    Raises the errors of `check_batch` at the first batch that is damaged; the batches before it are whole.
    """
    position, size = 0, len(payload)
    while position < size:
        try:
            header = peek_header(payload, position)
        except UnsupportedVersion:
            length = int.from_bytes(payload[position + LENGTH_AT : position + LENGTH_AT + 4], "little")
            check_batch(payload[position : position + length])  # damaged, or really newer?
            raise
        if header.length > size - position:
            raise ProtocolViolation("a record batch is cut short")
        data = payload if header.length == size else payload[position : position + header.length]
        if google_crc32c.value(data) != WHOLE_CRC:
            raise Corruption(f"the checksum of the batch at offset {header.base_offset} does not fit")
        yield CheckedBatch(header, data, extension_of(data, header))
        position += header.length


def split_batches(payload: bytes) -> list[bytes]:
    """Return the batches of a payload. Raises as `checked_batches`."""
    return [each.data for each in checked_batches(payload)]


def check_batches(payload: bytes, *, stream_id: int, range_index: int, offset: int) -> CheckedBatches:
    """Split a payload into its batches and check all of it; an empty payload holds none.

    Raises Corruption where a checksum, the range or the offsets do not fit, ProtocolViolation where the bytes are no batches,
    UnsupportedVersion where a batch is whole and of a newer version.
    """
    batches: list[CheckedBatch] = []
    end = offset
    for each in checked_batches(payload):
        header = each.header
        if header.stream_id != stream_id or header.range_index != range_index:
            raise Corruption(f"the reply holds a batch of another range, {header.stream_id}/{header.range_index}")
        fits = header.base_offset == end if batches else header.base_offset <= offset < header.end_offset
        if not fits:
            raise Corruption(f"batches are not contiguous: one starts at {header.base_offset}, expected {end}")
        end = header.end_offset
        batches.append(each)
    return CheckedBatches(batches, end)
