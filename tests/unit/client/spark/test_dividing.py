"""Spans of tasks: whole, disjoint, of the wanted size."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import pytest

from rangelog.spark.dividing import Limits, PlannedPart, cut, divide, join
from rangelog.spark.filters import ALL_OFFSETS, Interval, Selection
from rangelog_proto.v1 import common_pb2

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


def stored(start: int, end: int, *times_ms: tuple[int, int]) -> common_pb2.Object:
    """An object with row groups of ten records each, of these times."""
    groups = [
        common_pb2.RowGroup(start_offset=start + 10 * number, count=10, timestamp_ms_min=low, timestamp_ms_max=high)
        for number, (low, high) in enumerate(times_ms)
    ]
    return common_pb2.Object(start_offset=start, end_offset=end, size_bytes=10 * (end - start), row_groups=groups)


async def spans(objects: list[common_pb2.Object], end: int, selection: Selection) -> list[tuple[int, int]]:
    """The spans of a stream of one sealed range that is in the object store."""

    async def listed(stream_id: int, start: int, page_size: int) -> list[common_pb2.Object]:
        return [each for each in objects if each.end_offset > start]

    sealed = common_pb2.Range(
        start_offset=0, end_offset=end, tiered_end_offset=end, state=common_pb2.RANGE_STATE_SEALED
    )
    client: Any = SimpleNamespace(metadata=SimpleNamespace(objects=listed), connections=None)
    view: Any = SimpleNamespace(stream=SimpleNamespace(stream_id=1), ranges=[sealed])
    return await divide(client, view, 0, end, selection, LIMITS)


def at_times(low: int, end: int) -> Selection:
    """Of timestamps in [low, end)."""
    return Selection([], ALL_OFFSETS, Interval(low, end))


async def test_row_groups_that_no_record_is_wanted_of_are_left_out() -> None:
    """Their last record counts as well; an object that does not tell its times is read."""
    objects = [stored(0, 20, (100, 199), (150, 300)), stored(20, 30, (300, 400)), stored(30, 40)]
    assert await spans(objects, 40, Selection()) == [(0, 40)]
    assert await spans(objects, 40, at_times(300, 301)) == [(10, 40)]
    assert await spans(objects, 40, at_times(301, 400)) == [(20, 40)]
    assert await spans(objects, 40, at_times(0, 150)) == [(0, 10), (30, 40)]
    assert await spans(objects, 40, at_times(199, 200)) == [(0, 20), (30, 40)]


async def test_what_no_object_is_listed_for_is_read() -> None:
    """It may have been repacked since."""
    objects = [stored(10, 20, (100, 199)), stored(30, 40, (300, 400))]
    assert await spans(objects, 50, Selection()) == [(0, 50)]
    assert await spans(objects, 50, at_times(300, 400)) == [(0, 10), (20, 50)]
