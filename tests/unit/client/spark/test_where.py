"""The option `where`: what it means, and what is refused with a word on why."""

from __future__ import annotations

import pytest

from rangelog import errors
from rangelog.spark.filters import Condition, Interval
from rangelog.spark.options import parse_options
from rangelog.spark.where import parse_where

NOON_US = 1_769_860_800_000_000


def test_conditions() -> None:
    """All columns, all comparisons; keywords in any case."""
    text = (
        "offset >= 10 and OFFSET<20 AND timestamp > '2026-01-31T12:00:00Z' AND timestamp <= '2026-01-31 13:00+01:00' "
        "AND key IN ('it''s', X'00fF') AND shard = 3"
    )
    selection = parse_where(text, of_topic=True)
    assert selection.conditions == [
        Condition("offset", "GreaterThanOrEqual", (10,)),
        Condition("offset", "LessThan", (20,)),
        Condition("timestamp", "GreaterThan", (NOON_US,)),
        Condition("timestamp", "LessThanOrEqual", (NOON_US,)),
        Condition("key", "In", (b"it's", b"\x00\xff")),
        Condition("shard", "EqualTo", (3,)),
    ]
    assert selection.offsets == Interval(10, 20)
    assert parse_where("  ", of_topic=False).conditions == []
    assert parse_where("timestamp = '2026-01-31T12:00:00'", of_topic=False).conditions[0].values == (NOON_US,)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("value = 'a'", "'value' is none of offset"),
        ("offset", "it ends too early"),
        ("offset = ", "it ends too early"),
        ("offset LIKE 3", "'LIKE' is no comparison"),
        ("offset = 3 OR offset = 4", "AND is expected, not 'OR'"),
        ("offset = 3 AND", "it ends too early"),
        ("offset = 9223372036854775808", "9223372036854775808 is no offset"),
        ("offset = 'a'", "'a' is no offset"),
        ("timestamp = 17", "17 is no timestamp"),
        ("timestamp = 'noon'", "'noon' is no timestamp"),
        ("key > 'a'", "compared with = or IN"),
        ("key = X'abc'", "X'abc' is no key"),
        ("key IN ()", "is no key"),
        ("key IN ('a' 'b')", ", or \\) is expected"),
        ("shard = 1", "a stream has no column shard"),
        ("offset = 3; DROP", "'; DROP' is not understood"),
        ("offset = 1 AND " * 10_000 + "offset = 1", "longer than"),
    ],
)
def test_what_is_refused(text: str, why: str) -> None:
    """With what was expected."""
    with pytest.raises(errors.ConfigInvalid, match="option where .*" + why):
        parse_options({"pd": "a:1", "stream": "s", "where": text})
