"""Every object key, in one place.

    object_key(7, 3, 1000, 2000, 42) -> "streams/7/ranges/00000003/00000000000000001000-00000000000000002000-42.parquet"

A key is never reused, because its object id is not. Sorted by name, a range's objects are sorted by offset.
"""

from __future__ import annotations


def object_key(stream_id: int, range_index: int, start_offset: int, end_offset: int, object_id: int) -> str:
    """Return the key of one tiered object, below the store's prefix."""
    return f"{range_prefix(stream_id, range_index)}{start_offset:020d}-{end_offset:020d}-{object_id}.parquet"


def stream_prefix(stream_id: int) -> str:
    """Return the common prefix of a stream's keys."""
    return f"streams/{stream_id}/"


def range_prefix(stream_id: int, range_index: int) -> str:
    """Return the common prefix of a range's keys."""
    return f"{stream_prefix(stream_id)}ranges/{range_index:08d}/"
