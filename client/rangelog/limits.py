"""The limits that a program may need; `rangelog_core.limits` has the reason of each. In bytes, unless the name has a unit."""

from __future__ import annotations

from rangelog_core.limits import (
    BATCH_RECORDS_MAX,
    BATCH_SIZE_BYTES_MAX,
    HEADERS_PER_RECORD_MAX,
    INFLIGHT_BYTES_MAX,
    NAME_LENGTH_MAX,
    OFFSET_MAX,
    RANGE_SIZE_BYTES_MAX_DEFAULT,
    RANGE_SIZE_BYTES_MIN,
    RECORD_SIZE_BYTES_MAX,
    TIMESTAMP_MS_MAX,
    TIMESTAMP_MS_MIN,
)

__all__ = [
    "BATCH_RECORDS_MAX",
    "BATCH_SIZE_BYTES_MAX",
    "HEADERS_PER_RECORD_MAX",
    "INFLIGHT_BYTES_MAX",
    "NAME_LENGTH_MAX",
    "OFFSET_MAX",
    "RANGE_SIZE_BYTES_MAX_DEFAULT",
    "RANGE_SIZE_BYTES_MIN",
    "RECORD_SIZE_BYTES_MAX",
    "TIMESTAMP_MS_MAX",
    "TIMESTAMP_MS_MIN",
]
