"""Key ranges: parts [low, high) of the key space 0 … 2^128, and whether some of them tile others.

What holds: a KeyRange is not empty and lies inside the key space. Key ranges tile a cover when each key of the cover is in
exactly one of them, and no other key is in any.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

from rangelog_core.errors import InvalidArgument, KeyRangeGap, KeyRangeOverlap

KEY_BYTES = 16
KEY_SPACE_END = 1 << (8 * KEY_BYTES)


class KeyRange(NamedTuple):
    """The keys from `low` up to, and without, `high`."""

    low: int
    high: int

    def __str__(self) -> str:
        return f"[{self.low:#034x}, {self.high:#034x})"

    def overlaps(self, other: KeyRange) -> bool:
        """Whether a key is in both."""
        return self.low < other.high and other.low < self.high

    def to_bytes(self) -> tuple[bytes, bytes]:
        """Return both ends as they are sent: 16 bytes, big endian; no bytes for a high end of 2^128."""
        high = self.high.to_bytes(KEY_BYTES, "big") if self.high < KEY_SPACE_END else b""
        return self.low.to_bytes(KEY_BYTES, "big"), high


KEY_SPACE = KeyRange(0, KEY_SPACE_END)


def key_range_from_bytes(low: bytes, high: bytes) -> KeyRange:
    """Return a key range from its ends as they are sent. Raises InvalidArgument."""
    if len(low) != KEY_BYTES or len(high) not in (0, KEY_BYTES):
        raise InvalidArgument(f"the ends of a key range have {KEY_BYTES} bytes each, or none for a high end of 2^128")
    made = KeyRange(int.from_bytes(low, "big"), int.from_bytes(high, "big") if high else KEY_SPACE_END)
    if made.low >= made.high:
        raise InvalidArgument(f"a key range is empty: it starts at {made.low:#034x} and ends at {made.high:#034x}")
    return made


def equal_key_ranges(count: int, whole: KeyRange = KEY_SPACE) -> list[KeyRange]:
    """Return `count` parts of a key range, as equal as whole numbers allow. Raises InvalidArgument.

    Example:
        >>> equal_key_ranges(2, KeyRange(0, 5))
        [KeyRange(low=0, high=2), KeyRange(low=2, high=5)]
    """
    size = whole.high - whole.low
    if not 1 <= count <= size:
        raise InvalidArgument(f"a key range of {size} keys cannot have {count} parts")
    ends = [whole.low + size * number // count for number in range(count + 1)]
    return [KeyRange(low, high) for low, high in pairwise(ends)]


def check_tiling(parts: Iterable[KeyRange], cover: Iterable[KeyRange]) -> list[KeyRange]:
    """Return `parts` in order of keys, if they tile `cover`, whose key ranges are disjoint and may come in any order.

    Raises KeyRangeGap (a key of the cover is in no part), KeyRangeOverlap (a key is in two parts, or not in the cover).
    """
    ordered = sorted(parts)
    position = 0
    for whole in _joined(sorted(cover)):
        expected = whole.low
        while expected < whole.high:
            if position == len(ordered) or ordered[position].low > expected:
                raise KeyRangeGap(f"no key range covers the keys from {expected:#034x} on")
            part = ordered[position]
            if part.low < expected or part.high > whole.high:
                raise KeyRangeOverlap(f"the key range {part} covers keys of another one")
            expected = part.high
            position += 1
    if position < len(ordered):
        raise KeyRangeOverlap(f"the key range {ordered[position]} covers keys of another one")
    return ordered


def overlapping(first: Sequence[KeyRange], second: Sequence[KeyRange]) -> list[tuple[int, int]]:
    """Return the places (in the first, in the second) of all pairs that overlap; both are disjoint and in order of keys.

    Example:
        >>> overlapping([KeyRange(0, 4)], [KeyRange(0, 2), KeyRange(2, 4)])
        [(0, 0), (0, 1)]
    """
    pairs: list[tuple[int, int]] = []
    i = j = 0
    while i < len(first) and j < len(second):
        if first[i].overlaps(second[j]):
            pairs.append((i, j))
        if first[i].high <= second[j].high:
            i += 1
        else:
            j += 1
    return pairs


def _joined(ordered: Iterable[KeyRange]) -> list[KeyRange]:
    """Return disjoint key ranges with neighbours made one."""
    joined: list[KeyRange] = []
    for each in ordered:
        if joined and joined[-1].high == each.low:
            joined[-1] = KeyRange(joined[-1].low, each.high)
        else:
            joined.append(each)
    return joined
