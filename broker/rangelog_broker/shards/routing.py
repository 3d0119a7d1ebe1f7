"""Which records of a staged batch belong to a shard that follows the one where it was staged.

What holds: of each staged batch every record goes to exactly one of the shards whose key ranges tile the staging shard's. A
record without a key, or with one from elsewhere (its producer named the shard), counts as the lowest key of the staging shard.
"""

from __future__ import annotations

from collections.abc import Callable

from rangelog_core.batch import decode_records, encode_batch, encode_headers
from rangelog_core.key_hash import key_position
from rangelog_core.key_ranges import KeyRange


def position_in(staging: KeyRange, key: bytes | None) -> int:
    """Return where a record lies in the staging shard's part of the key space."""
    position = key_position(key) if key is not None else staging.low
    return position if staging.low <= position < staging.high else staging.low


def records_in(data: bytes, staging: KeyRange, wanted: Callable[[int], bool]) -> bytes | None:
    """Return a batch of the records whose positions are wanted, in order; None if there is none.

    The batch itself is returned where all are wanted. Raises ProtocolViolation, UnsupportedVersion.
    """
    records = decode_records(data)
    chosen = [record for record in records if wanted(position_in(staging, record.key))]
    if not chosen:
        return None
    if len(chosen) == len(records):
        return data
    return encode_batch(
        stream_id=0,
        range_index=0,
        epoch=0,
        base_offset=0,
        timestamps_ms=[record.timestamp_ms for record in chosen],
        values=[record.value for record in chosen],
        keys=[record.key for record in chosen],
        headers=[encode_headers(record.headers) for record in chosen],
    )
