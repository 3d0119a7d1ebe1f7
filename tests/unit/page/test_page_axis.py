"""The offset axis: monotone from 0 to 100 %, every range can be seen, and a lost range takes no room from the others."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rangelog_page.axis import RESERVED_MAX, SHARE_MIN, Axis, extents_of


def made(index: int, start: int, end: int | None, *, lost: bool = False) -> dict[str, Any]:
    """A range as range_view has it, as far as the axis looks at it."""
    return {"index": index, "start_offset": start, "end_offset": end, "lost": lost}


def chain(lengths: list[int], *, start: int = 0, open_last: bool = False) -> list[dict[str, Any]]:
    """Ranges behind each other."""
    found = []
    for index, length in enumerate(lengths):
        is_open = open_last and index == len(lengths) - 1
        found.append(made(index, start, None if is_open else start + length))
        start += length
    return found


def test_a_range_has_its_share() -> None:
    """Widths are those of the records, beside the least width that each range has."""
    axis, extents = extents_of(chain([100, 300]), None)
    assert [each.place for each in extents] == [0.0, pytest.approx(2 + 96 / 4)]
    assert sum(each.width for each in extents) == pytest.approx(100)
    assert axis.at(0) == 0.0 and axis.at(400) == 100.0 and axis.at(100) == extents[1].place
    assert axis.at(50) == pytest.approx(extents[0].width / 2)
    assert axis.span(100, 250) == (extents[1].place, pytest.approx(extents[1].width / 2))


def test_small_ranges_can_be_seen_beside_a_large_one() -> None:
    """One record beside a billion still has a width to tap; forty of them leave room for it."""
    _, extents = extents_of(chain([1, 10**9, 1]), None)
    assert min(each.width for each in extents) >= SHARE_MIN
    _, many = extents_of(chain([1] * 39 + [10**9]), None)
    assert min(each.width for each in many) >= RESERVED_MAX / 40 and many[-1].width > 100 - RESERVED_MAX


def test_a_lost_range_takes_no_room() -> None:
    """It has 2^41 offsets, none of which was given out; what lies behind it is still drawn to scale."""
    lost = made(1, 100, 100 + 2**41, lost=True)
    axis, extents = extents_of([made(0, 0, 100), lost, made(2, 100 + 2**41, 200 + 2**41)], None)
    assert extents[1].width == pytest.approx(SHARE_MIN)
    assert extents[0].width == pytest.approx(extents[2].width)
    assert axis.at(100 + 2**40) == pytest.approx(extents[1].place + SHARE_MIN / 2)


def test_an_open_range() -> None:
    """It reaches to the proved end; where that is not known it has a width of its own, and says so."""
    _, known = extents_of(chain([100, 50], open_last=True), 130)
    assert (known[1].end, known[1].end_known) == (130, True)
    axis, unknown = extents_of(chain([100, 50], open_last=True), None)
    assert unknown[1].end_known is False and unknown[1].width > SHARE_MIN and axis.at(10**9) == 100.0
    _, behind = extents_of(chain([100, 50], open_last=True), 90)  # an end from before the range was made
    assert behind[1].end == 100


def test_nothing_and_only_empty_ranges() -> None:
    """No range is no axis; ranges without records share the width."""
    assert extents_of([], None) == (Axis((), ()), [])
    axis, extents = extents_of(chain([0, 0]), None)
    assert [each.width for each in extents] == [50.0, 50.0]
    assert axis.at(0) == 50.0 and axis.at(1) == 100.0


def test_a_stream_that_was_trimmed_does_not_begin_at_0() -> None:
    """The axis begins with the first range that is drawn; what lies before is at its left end."""
    axis, _ = extents_of(chain([10, 10], start=5_000), None)
    assert axis.at(3) == 0.0 and axis.at(5_000) == 0.0 and axis.at(5_010) == 50.0


@given(
    lengths=st.lists(st.integers(0, 2**62), min_size=1, max_size=60),
    start=st.integers(0, 2**40),
    lost=st.sets(st.integers(0, 59)),
    open_last=st.booleans(),
    known=st.one_of(st.none(), st.integers(0, 2**63)),
    asked=st.lists(st.integers(0, 2**64), min_size=2, max_size=20),
)
def test_every_axis_is_monotone_and_whole(
    lengths: list[int], start: int, lost: set[int], open_last: bool, known: int | None, asked: list[int]
) -> None:
    """For any ranges: places rise with offsets, stay within 0 and 100, widths tile the axis, no range vanishes."""
    ranges = chain(lengths, start=start, open_last=open_last)
    for index in lost & set(range(len(ranges) - 1)):
        ranges[index]["lost"] = True
    axis, extents = extents_of(ranges, known)
    places = [axis.at(each) for each in sorted(asked)]
    assert places == sorted(places) and all(0.0 <= each <= 100.0 for each in places)
    assert sum(each.width for each in extents) == pytest.approx(100)
    for before, after in pairwise(extents):
        assert after.place == pytest.approx(before.place + before.width)
    assert min(each.width for each in extents) >= min(SHARE_MIN, RESERVED_MAX / len(ranges)) - 1e-9
    for each in extents:
        if each.end > each.start:
            assert axis.at(each.start) == pytest.approx(each.place, abs=1e-6)
