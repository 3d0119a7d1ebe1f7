"""The checker of Spark's copies in a chaos run sees each kind of damage; what names of kinds stand for on its command line."""

from __future__ import annotations

import pytest

from tests.chaos import run
from tests.chaos.chaos_faults import REGISTRY
from tests.chaos.chaos_spark_check import CopiedRecord, CopyVerdict, compare

A0, A1, A2 = (CopiedRecord(b"a", 5, b"a:%d" % number) for number in range(3))
B0 = CopiedRecord(b"b", 5, b"b:0", (("lap", b"1"),))
SOURCE = [A0, B0, A1, A2]


def judged(copy: list[CopiedRecord], *, by_key: bool = True, source: list[CopiedRecord] = SOURCE) -> CopyVerdict:
    """The verdict on a copy."""
    verdict = CopyVerdict(begun=True)
    compare(verdict, "the source", source, copy, by_key=by_key)
    return verdict


@pytest.mark.parametrize("by_key", [False, True])
def test_a_copy_that_equals_its_source_is_sound(by_key: bool) -> None:
    """Also when the source itself has a record twice."""
    assert not judged(SOURCE, by_key=by_key).problems
    assert not judged([*SOURCE, A0], by_key=by_key, source=[*SOURCE, A0]).problems


@pytest.mark.parametrize("by_key", [False, True])
@pytest.mark.parametrize(
    ("copy", "counts"),
    [
        (SOURCE[1:], {"lost": 1}),
        (SOURCE[:3], {"lost": 1}),
        ([], {"lost": 4}),
        ([A0, A0, B0, A1, A2], {"duplicated": 1}),
        ([*SOURCE, A0], {"duplicated": 1}),
        ([A0, B0, A2, A1], {"misordered": 1}),
        ([A2, B0, A0, A1, A1], {"misordered": 2, "duplicated": 1}),
        ([*SOURCE, A0._replace(value=b"a:7")], {"damaged": 1}),
        ([A0._replace(timestamp_ms=6), B0, A1, A2], {"damaged": 1, "lost": 1}),
        ([A0, B0._replace(headers=()), A1, A2], {"damaged": 1, "lost": 1}),
    ],
)
def test_damage_is_seen(copy: list[CopiedRecord], counts: dict[str, int], by_key: bool) -> None:
    """Records that are gone, there twice, in another order, nobody's, or with another time or other headers."""
    verdict = judged(copy, by_key=by_key)
    if not by_key and copy[:2] == [A2, B0]:
        counts = counts | {"misordered": 3}  # B0 as well: without keys it has a place
    assert verdict.counts == counts
    assert verdict.problems
    assert verdict.figures()["spark_lost"] == counts.get("lost", 0)


def test_records_of_several_keys_have_an_order_in_a_stream_only() -> None:
    """In a topic the order of each key counts."""
    assert judged([B0, A0, A1, A2], by_key=False).counts == {"misordered": 1}
    assert not judged([B0, A0, A1, A2], by_key=True).problems


def test_a_run_without_spark_has_no_figures_of_it() -> None:
    """And no words."""
    assert CopyVerdict().figures() == {}
    assert CopyVerdict().last_words() == ""


def test_a_word_stands_for_the_kinds_that_begin_with_it() -> None:
    """Each kind once, a kind of that name alone; kinds of Spark and of operators only when asked for."""
    of_spark = [name for name in REGISTRY if name.startswith("spark-")]
    assert len(of_spark) == 4
    assert run.kinds_of("spark") == run.kinds_of(f"{of_spark[0]},spark") == of_spark
    assert run.kinds_of("disk-lost,spark-driver-killed") == ["disk-lost", "spark-driver-killed"]
    of_operators = ["pd-replaced", "tier-away", "tier-moved-and-restored"]
    assert run.kinds_of("") == [name for name in REGISTRY if name not in of_spark and name not in of_operators]
    with pytest.raises(ValueError, match="unknown kind 'spar'"):
        run.kinds_of("disk-lost,spar")
