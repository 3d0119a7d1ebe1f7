"""Spans of tasks: whole, disjoint, of the wanted size."""

from __future__ import annotations

import random

import pytest

from rangelog.spark.dividing import Limits, PlannedPart, cut, join

LIMITS = Limits(records=100, bytes=1_000)


def test_small_pieces_are_joined_and_large_ones_cut() -> None:
    """By records and by bytes, whichever comes first; a piece of unknown size is taken for an average one."""
    assert cut([PlannedPart(0, 10, 100), PlannedPart(10, 40, 300)], LIMITS) == [PlannedPart(0, 40, 400)]
    assert cut([PlannedPart(0, 90, 90), PlannedPart(90, 180, 90)], LIMITS) == [
        PlannedPart(0, 90, 90),
        PlannedPart(90, 180, 90),
    ]
    assert [(each.start, each.end) for each in cut([PlannedPart(0, 250, 250)], LIMITS)] == [
        (0, 84),
        (84, 168),
        (168, 250),
    ]
    assert [(each.start, each.end) for each in cut([PlannedPart(0, 4, 2_500)], LIMITS)] == [(0, 2), (2, 4)]
    assert len(cut([PlannedPart(0, 80, 0.0)], LIMITS, mean=50.0)) == 4
    assert cut([PlannedPart(7, 8, 90_000)], LIMITS) == [PlannedPart(7, 8, 90_000)]


def test_what_is_left_out_is_not_joined_over() -> None:
    """A gap between two pieces stays one."""
    assert cut([PlannedPart(0, 10, 10), PlannedPart(20, 30, 10)], LIMITS) == [
        PlannedPart(0, 10, 10),
        PlannedPart(20, 30, 10),
    ]


@pytest.mark.parametrize("seed", range(100))
def test_nothing_is_lost_or_repeated(seed: int) -> None:
    """Whatever the pieces are: their offsets, each once and in order."""
    draw = random.Random(seed)
    pieces: list[PlannedPart] = []
    position = draw.randrange(1_000)
    for _ in range(draw.randrange(1, 30)):
        position += draw.choice([0, 0, 0, 17])
        count = draw.choice([1, 3, 40, 100, 333])
        pieces.append(PlannedPart(position, position + count, draw.choice([0.0, 10.0, 900.0, 5_000.0])))
        position += count
    spans = cut(pieces, LIMITS, mean=draw.choice([0.0, 3.0]))
    offsets = [offset for each in pieces for offset in range(each.start, each.end)]
    assert [offset for each in spans for offset in range(each.start, each.end)] == offsets
    assert [offset for each in join(spans, LIMITS) for offset in range(each.start, each.end)] == offsets
    assert all(each.end - each.start <= LIMITS.records for each in spans)
