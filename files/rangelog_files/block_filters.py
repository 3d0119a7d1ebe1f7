"""Filters of a reader: blocks by their time, events by their offset.

What holds: a block is taken or left out by its time alone, so a block that is left out is passed over without its payload. Of
readers that share a stream by offsets, each event has exactly one.
"""

from __future__ import annotations

from typing import NamedTuple

import google_crc32c

from rangelog_core.errors import InvalidArgument

READERS_MAX = 10_000


class TimeFilter(NamedTuple):
    """Takes the blocks with `from_ms` <= time < `until_ms`, and of these what is younger than `ttl_ms`.

    Attributes:
        from_ms: The first time that is taken, in ms since 1970; None: without a bound.
        until_ms: The first time that is not taken any more; None: without a bound.
        ttl_ms: How long events are read after they were written, in ms; None: for ever.

    Example:
        >>> TimeFilter(from_ms=5, until_ms=9, ttl_ms=3).first_ms(now_ms=10)
        7
    """

    from_ms: int | None = None
    until_ms: int | None = None
    ttl_ms: int | None = None

    def first_ms(self, now_ms: int) -> int | None:
        """Return the first time that is taken now; None: without a bound."""
        if self.ttl_ms is None:
            return self.from_ms
        return max(self.from_ms or 0, now_ms - self.ttl_ms)

    def is_over(self, timestamp_ms: int) -> bool:
        """Return whether blocks of this time, and all later ones, are left out."""
        return self.until_ms is not None and timestamp_ms >= self.until_ms


class OffsetFilter(NamedTuple):
    """Takes the events of one reader among `readers` that share a stream: those whose hash falls to its number.

    The hash is the crc32c of the event's offset as 8 bytes, little-endian. The shares are nearly even, and not in turn.

    Attributes:
        number: The reader's, from 0.
        readers: How many there are.

    Example:
        >>> [each for each in range(1_000, 1_008) if OffsetFilter(0, 2).takes(each)]
        [1001, 1003, 1004, 1006]
    """

    number: int
    readers: int

    def takes(self, offset: int) -> bool:
        """Return whether the event at this offset is this reader's."""
        crc: int = google_crc32c.value(offset.to_bytes(8, "little"))
        return crc % self.readers == self.number


def checked_offset_filter(number: int, readers: int) -> OffsetFilter:
    """Return the filter of reader `number` of `readers`. Raises InvalidArgument for a number that none of them has."""
    if not 0 < readers <= READERS_MAX or not 0 <= number < readers:
        raise InvalidArgument(
            f"reader {number} of {readers}: numbers count from 0, up to {READERS_MAX} readers share a stream"
        )
    return OffsetFilter(number, readers)
