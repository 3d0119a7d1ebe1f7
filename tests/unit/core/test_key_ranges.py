"""Key ranges: their bytes, equal parts, and whether parts tile a cover."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rangelog_core.errors import InvalidArgument, KeyRangeGap, KeyRangeOverlap
from rangelog_core.key_ranges import (
    KEY_SPACE,
    KEY_SPACE_END,
    KeyRange,
    check_tiling,
    equal_key_ranges,
    key_range_from_bytes,
    overlapping,
)

ENDS = st.sets(st.integers(0, 24), min_size=2, max_size=9).map(sorted)
PARTS = st.lists(st.tuples(st.integers(0, 8), st.integers(1, 4)).map(lambda x: KeyRange(x[0], x[0] + x[1])), max_size=6)


@given(low=st.integers(0, KEY_SPACE_END - 1), size=st.integers(1, KEY_SPACE_END))
def test_bytes_and_back(low: int, size: int) -> None:
    """Each key range has one form on the wire."""
    made = KeyRange(low, min(low + size, KEY_SPACE_END))
    assert key_range_from_bytes(*made.to_bytes()) == made


@pytest.mark.parametrize(
    ("low", "high"),
    [(b"", b""), (b"\0" * 15, b""), (b"\1" * 16, b"\0" * 16), (b"\1" * 16, b"\1" * 16), (b"\0" * 16, b"\1")],
)
def test_bytes_that_are_no_key_range(low: bytes, high: bytes) -> None:
    """Another length, an empty range or one that ends before its start is refused."""
    with pytest.raises(InvalidArgument):
        key_range_from_bytes(low, high)


@given(count=st.integers(1, 1_000))
def test_equal_parts_tile_the_key_space(count: int) -> None:
    """Their sizes differ by one key at most."""
    parts = equal_key_ranges(count)
    assert check_tiling(parts, [KEY_SPACE]) == parts
    sizes = {part.high - part.low for part in parts}
    assert max(sizes) - min(sizes) <= 1


def test_more_parts_than_keys_are_refused() -> None:
    """No part is empty."""
    assert equal_key_ranges(3, KeyRange(4, 7)) == [KeyRange(4, 5), KeyRange(5, 6), KeyRange(6, 7)]
    with pytest.raises(InvalidArgument):
        equal_key_ranges(4, KeyRange(4, 7))
    with pytest.raises(InvalidArgument):
        equal_key_ranges(0)


@given(parts=PARTS, cover=ENDS)
def test_tiling_is_what_counting_keys_says(parts: list[KeyRange], cover: list[int]) -> None:
    """Every key of the cover once, no other key; the error names which of both fails."""
    covers = [KeyRange(low, high) for low, high in zip(cover[::2], cover[1::2], strict=False)]
    wanted = {key for each in covers for key in range(*each)}
    keys = [key for each in parts for key in range(*each)]
    try:
        assert check_tiling(parts, covers) == sorted(parts)
    except KeyRangeGap:
        assert wanted - set(keys)
    except KeyRangeOverlap:
        assert len(keys) > len(set(keys)) or set(keys) - wanted
    else:
        assert sorted(keys) == sorted(wanted)


@given(first=ENDS, second=ENDS)
def test_overlapping_pairs(first: list[int], second: list[int]) -> None:
    """All pairs that share a key, and no others."""
    one = [KeyRange(low, high) for low, high in pairwise(first)]
    two = [KeyRange(low, high) for low, high in zip(second[::2], second[1::2], strict=False)]
    expected = [(i, j) for i, a in enumerate(one) for j, b in enumerate(two) if a.overlaps(b)]
    assert sorted(overlapping(one, two)) == expected
