"""A datetime as ms since 1970: whole numbers, rounded down on both sides of 1970."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta, timezone

import pytest

from rangelog._append.batch_builder import check_record
from rangelog_core.errors import InvalidArgument
from rangelog_core.limits import TIMESTAMP_MS_MAX, TIMESTAMP_MS_MIN
from rangelog_core.record import ms_of

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MS = timedelta(milliseconds=1)


def test_every_ms_comes_back() -> None:
    """The datetime of a whole ms, before and after 1970 and in any zone, gives that ms."""
    chosen = random.Random(10)
    values = [TIMESTAMP_MS_MIN, -1001, -1000, -999, -1, 0, 1, 999, 1000, 1001, TIMESTAMP_MS_MAX]
    values += [chosen.randrange(-(2**41), 2**41) for _ in range(5000)]
    for ms in values:
        assert ms_of(EPOCH + ms * MS) == ms
    zone = timezone(-timedelta(hours=3, minutes=30, microseconds=7))
    for ms in values[1:-1]:
        assert ms_of((EPOCH + ms * MS).astimezone(zone)) == ms


def test_microseconds_are_rounded_down() -> None:
    """A part of a ms is cut off towards the past, so a later time never has a smaller ms."""
    for ms in (TIMESTAMP_MS_MIN, -86_400_000, -2, -1, 0, 1, 1_700_000_000_123, TIMESTAMP_MS_MAX):
        for microseconds in (1, 499, 500, 999):
            assert ms_of(EPOCH + ms * MS + timedelta(microseconds=microseconds)) == ms


@pytest.mark.parametrize("moment", [datetime(2024, 1, 15, 12), datetime.min, datetime.max])
def test_a_datetime_without_a_zone_is_refused(moment: datetime) -> None:
    """Nobody knows which moment is meant: where the program runs decides. The message says what to write."""
    with pytest.raises(InvalidArgument, match=r"has no time zone: use datetime\.now\(UTC\)"):
        ms_of(moment)


def test_times_outside_the_calendar_of_utc() -> None:
    """A time with a zone always has its ms, even where UTC is in the year 0 or 10000; a record refuses those."""
    east, west = timezone(timedelta(hours=2)), timezone(-timedelta(hours=2))
    hours_ms = 2 * 3_600_000
    early, late = datetime.min.replace(tzinfo=east), datetime.max.replace(tzinfo=west)
    assert ms_of(early) == TIMESTAMP_MS_MIN - hours_ms
    assert ms_of(late) == TIMESTAMP_MS_MAX + hours_ms
    for moment in (early, late):
        with pytest.raises(InvalidArgument, match="bad timestamp"):
            check_record(b"x", None, None, moment)
