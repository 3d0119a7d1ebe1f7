"""The check of batches that a replica sent; reads, seals and copies all use it.

What holds: every batch is whole, its checksum fits, it belongs to the requested range; the first batch holds the requested
offset, and each further one starts where the one before ended.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rangelog_core.batch import BatchHeader, check_batch, split_batches
from rangelog_core.errors import Corruption


class CheckedBatches(NamedTuple):
    """Consecutive batches of one range, each with its header. `end_offset`: the next offset to read."""

    batches: Sequence[tuple[BatchHeader, bytes]]
    end_offset: int

    def before(self, end_offset: int) -> list[tuple[BatchHeader, bytes]]:
        """Return the batches that start below `end_offset`."""
        return [each for each in self.batches if each[0].base_offset < end_offset]


def check_batches(payload: bytes, *, stream_id: int, range_index: int, offset: int) -> CheckedBatches:
    """Split a payload into its batches and check all of it; an empty payload holds none.

    Raises Corruption where a checksum, the range or the offsets do not fit, ProtocolViolation where the bytes are no batches,
    UnsupportedVersion where a batch is whole and of a newer version.
    """
    batches: list[tuple[BatchHeader, bytes]] = []
    end = offset
    for data in split_batches(payload):
        header = check_batch(data)
        if header.stream_id != stream_id or header.range_index != range_index:
            raise Corruption(f"the reply holds a batch of another range, {header.stream_id}/{header.range_index}")
        fits = header.base_offset == end if batches else header.base_offset <= offset < header.end_offset
        if not fits:
            raise Corruption(f"batches are not contiguous: one starts at {header.base_offset}, expected {end}")
        end = header.end_offset
        batches.append((header, data))
    return CheckedBatches(batches, end)
