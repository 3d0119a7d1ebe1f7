"""Which objects are put into one: bounded amplification, whatever comes in whatever order."""

from __future__ import annotations

import math
import random
from itertools import pairwise

import pytest

from rangelog_core.repack_choice import COUNT_MIN, RepackRules, RepackUnit, choose, joinable
from rangelog_proto.v1 import common_pb2

RULES = RepackRules(target_bytes=1_000, min_age_ms=60_000, trimmed_fraction=0.5)
NOW_MS = 1_000_000


def units(*sizes: int, committed_ms: int = NOW_MS, trim_offset: int = 0, start: int = 0) -> list[RepackUnit]:
    """Objects of ten records each, one behind the other."""
    objects = [
        common_pb2.Object(
            object_id=number + 1, start_offset=start + 10 * number, end_offset=start + 10 * number + 10,
            size_bytes=size, committed_ms=committed_ms,
        )
        for number, size in enumerate(sizes)
    ]  # fmt: skip
    return [RepackUnit.of([each], 1, trim_offset) for each in objects]


def spans(found: list[list[RepackUnit]]) -> list[tuple[int, int]]:
    """From which to which offset each repack is."""
    return [(some[0].start_offset, some[-1].end_offset) for some in found]


def test_many_small_neighbours_are_joined_at_once() -> None:
    """A few wait for others, until the youngest of them is old."""
    assert spans(choose(units(*[10] * COUNT_MIN), RULES, NOW_MS).repacks) == [(0, 10 * COUNT_MIN)]
    few = units(*[10] * (COUNT_MIN - 1))
    young = choose(few, RULES, NOW_MS + RULES.min_age_ms - 1)
    assert young.repacks == [] and young.due_ms == NOW_MS + RULES.min_age_ms
    assert spans(choose(few, RULES, NOW_MS + RULES.min_age_ms).repacks) == [(0, 10 * COUNT_MIN - 10)]


def test_what_fills_an_object_does_not_wait() -> None:
    """More than half of the target is as large as it gets."""
    assert spans(choose(units(300, 300), RULES, NOW_MS).repacks) == [(0, 20)]
    assert choose(units(200, 200), RULES, NOW_MS).repacks == []


def test_what_is_near_the_target_is_left_alone() -> None:
    """Nor is one that has more than half of all bytes rewritten for the rest, which is joined by itself."""
    assert choose(units(501, 10, committed_ms=0), RULES, NOW_MS).repacks == []
    assert spans(choose(units(400, 10, 10, committed_ms=0), RULES, NOW_MS).repacks) == [(10, 30)]
    assert spans(choose(units(10, 10, 400, 10, 10, committed_ms=0), RULES, NOW_MS).repacks) == [(0, 20), (30, 50)]


def test_an_object_is_written_again_for_its_trimmed_rows_only_above_a_share() -> None:
    """Whatever its size; one that is joined with others loses them on the way; one that is wholly trimmed is no work."""
    assert choose(units(5_000, trim_offset=5), RULES, NOW_MS).repacks == []
    assert spans(choose(units(5_000, trim_offset=6), RULES, NOW_MS).repacks) == [(0, 10)]
    assert spans(choose(units(600, 240, trim_offset=6, committed_ms=0), RULES, NOW_MS).repacks) == [(0, 20)]
    assert choose(units(5_000, trim_offset=10), RULES, NOW_MS).repacks == []


def test_sizes_are_those_of_the_rows_that_stay() -> None:
    """A large object of which most is trimmed is a small one."""
    (trimmed, other) = units(1_000, 100, trim_offset=9, committed_ms=0)
    assert (trimmed.size_bytes, trimmed.trimmed_share) == (100, 0.9)
    assert spans(choose([trimmed, other], RULES, NOW_MS).repacks) == [(0, 20)]


def test_a_gap_divides() -> None:
    """Nothing is joined over offsets that are not in the tier."""
    some = [*units(10, 10, committed_ms=0), *units(10, 10, committed_ms=0, start=30)]
    assert spans(choose(some, RULES, NOW_MS).repacks) == [(0, 20), (30, 50)]


@pytest.mark.parametrize("seed", range(20))
def test_no_byte_is_rewritten_more_often_than_its_object_can_double(seed: int) -> None:
    """Objects come one by one, of any sizes, and somebody looks each time: at most log2(target / size) rewrites of each."""
    chance = random.Random(seed)
    target = 1 << 12
    rewritten: dict[int, int] = {}
    first_size: dict[int, int] = {}
    live: list[tuple[int, int, int]] = []  # start, end, size
    for number in range(600):
        size = chance.choice([1, 3, 10, 100])
        live.append((number, number + 1, size))
        rewritten[number], first_size[number] = 0, size
        if chance.random() < 0.5:
            continue
        now_ms = chance.choice([0, RULES.min_age_ms])
        made = [
            RepackUnit.of([common_pb2.Object(object_id=start + 1, start_offset=start, end_offset=end, size_bytes=size)])
            for start, end, size in live
        ]
        rules = RepackRules(target_bytes=target, min_age_ms=RULES.min_age_ms)
        for some in choose(made, rules, now_ms).repacks:
            start, end = some[0].start_offset, some[-1].end_offset
            total = sum(each.size_bytes for each in some)
            assert total <= target
            live = [each for each in live if not start <= each[0] < end] + [(start, end, total)]
            live.sort()
            for record in range(start, end):
                rewritten[record] += 1
    assert all(before[1] == after[0] for before, after in pairwise(live))
    for record, count in rewritten.items():
        assert count <= math.log2(target / first_size[record])
    assert len(live) < 150, "and few objects are left"


def test_nothing_is_joined_twice() -> None:
    """Each unit is in one repack at most."""
    chance = random.Random(5)
    some = units(*[chance.choice([1, 50, 499, 501]) for _ in range(300)])
    ids = [each.objects[0].object_id for repack in joinable(some, 1_000) for each in repack]
    assert len(ids) == len(set(ids)) > 50
