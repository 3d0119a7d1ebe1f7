"""The comparison of copies by their batches' checksums: what each copy holds decides, whatever the others say."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from pdctl.inspection.compare_sums import BEHIND, DIFFERS, MISSING, OK, UNREACHABLE, Sum, SumComparison, Verdict, worst


def _sums(*borders: int, crc: int = 7) -> list[Sum]:
    return [Sum(low, high, crc + low) for low, high in itertools.pairwise(borders)]


def _run(copies: dict[str, list[Sum]], start: int, end: int, page: int = 2) -> SumComparison:
    """Feed each copy's batches page by page, as its server would answer."""
    comparison = SumComparison(list(copies), start, end)
    for _ in range(1_000):
        wanted = comparison.wanted()
        if not wanted:
            return comparison
        for name, position in wanted:
            rest = [each for each in copies[name] if each.end_offset > position]
            comparison.page(name, rest[:page])
    raise AssertionError("the comparison does not end")


def _words(comparison: SumComparison) -> dict[str, str]:
    return {name: verdict.result for name, verdict in comparison.verdicts().items()}


def test_equal_copies_are_right() -> None:
    """Page sizes do not matter, nor that the first batch begins before the span."""
    for page in (1, 2, 10):
        copies = {name: _sums(0, 10, 20, 30) for name in ("a", "b", "c")}
        assert set(_words(_run(copies, 5, 30, page)).values()) == {OK}


def test_a_copy_that_ends_early_is_missing_from_there() -> None:
    """What it does not hold is not taken from the others, nor from anybody's list."""
    found = _run({"a": _sums(0, 10, 20, 30), "b": _sums(0, 10, 20), "c": []}, 0, 30).verdicts()
    assert (found["b"].result, found["b"].offset) == (MISSING, 20)
    assert (found["c"].result, found["c"].offset) == (MISSING, 0) and found["a"].result == OK


def test_the_majority_is_right() -> None:
    """One of three with another checksum differs, at that batch."""
    wrong = [*_sums(0, 10), Sum(10, 20, 99), *_sums(20, 30)]
    found = _run({"a": wrong, "b": _sums(0, 10, 20, 30), "c": _sums(0, 10, 20, 30)}, 0, 30).verdicts()
    assert (found["a"].result, found["a"].offset) == (DIFFERS, 10) and "b, c" in found["a"].why
    assert found["b"].result == found["c"].result == OK


def test_without_a_majority_nobody_is_right() -> None:
    """Two copies that differ: both are named."""
    found = _run({"a": [Sum(0, 10, 1)], "b": [Sum(0, 10, 2)]}, 0, 10)
    assert _words(found) == {"a": DIFFERS, "b": DIFFERS}


def test_a_gap_differs() -> None:
    """Batches that do not follow one another are no copy."""
    found = _run({"a": [Sum(0, 10, 1), Sum(12, 20, 1)]}, 0, 20).verdicts()
    assert (found["a"].result, found["a"].offset) == (DIFFERS, 10)


def test_other_borders_are_left_to_the_records() -> None:
    """A copy with other batches is compared with a right one from there on."""
    found = _run({"a": _sums(0, 10, 30), "b": _sums(0, 10, 20, 30), "c": _sums(0, 10, 20, 30)}, 0, 30)
    assert found.by_records == [("a", "b", 10)] and set(_words(found).values()) == {OK}


def test_the_word_of_a_range() -> None:
    """An open range needs as many copies as acks do; a sealed one all its members."""
    right, behind, gone = Verdict(), Verdict(BEHIND, 3), Verdict(UNREACHABLE)
    assert worst([right, right, behind], is_open=True, acks=2) == OK
    assert worst([right, behind, behind], is_open=True, acks=2) == MISSING
    assert worst([right, right, gone], is_open=True, acks=2) == OK
    assert worst([right, right, gone], is_open=False, acks=2) == UNREACHABLE
    assert worst([right, Verdict(DIFFERS, 1), gone], is_open=False, acks=2) == DIFFERS


@given(
    st.lists(st.integers(1, 5), min_size=1, max_size=12),
    st.integers(1, 4),
    st.integers(0, 2),
    st.data(),
)
def test_any_one_changed_batch_of_three_copies_is_found(
    counts: Sequence[int], page: int, who: int, data: st.DataObject
) -> None:
    """Whichever batch of whichever copy is changed, that copy differs there and the others are right."""
    borders = [0]
    for count in counts:
        borders.append(borders[-1] + count)
    copies = {name: _sums(*borders) for name in ("a", "b", "c")}
    name = "abc"[who]
    number = data.draw(st.integers(0, len(counts) - 1))
    copies[name][number] = copies[name][number]._replace(crc=1_000)
    found = _run(copies, 0, borders[-1], page).verdicts()
    assert (found[name].result, found[name].offset) == (DIFFERS, borders[number])
    assert all(verdict.result == OK for each, verdict in found.items() if each != name)
