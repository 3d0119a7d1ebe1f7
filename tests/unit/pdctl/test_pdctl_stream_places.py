"""Places in a stream: what is accepted, what it means, and what is refused rather than guessed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import click
import pytest

from pdctl.stream_places import BeforeEnd, StreamPlace

NOW = datetime(2026, 2, 1, tzinfo=UTC)
PLACE = StreamPlace(now=lambda: NOW)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("earliest", "earliest"),
        ("latest", "latest"),
        ("0", 0),
        ("123456", 123456),
        ("-10", BeforeEnd(10)),
        ("-0", BeforeEnd(0)),
        ("-1h", NOW - timedelta(hours=1)),
        ("@-1h", NOW - timedelta(hours=1)),
        ("-1.5d", NOW - timedelta(hours=36)),
        ("-250ms", NOW - timedelta(milliseconds=250)),
        ("2026-01-31T12:00:00Z", datetime(2026, 1, 31, 12, tzinfo=UTC)),
        ("@2026-01-31T12:00Z", datetime(2026, 1, 31, 12, tzinfo=UTC)),
        ("2026-01-31T12:00:00+02:00", datetime(2026, 1, 31, 12, tzinfo=timezone(timedelta(hours=2)))),
    ],
)
def test_places(text: str, expected: object) -> None:
    """An offset, a word, records before the end, an age, a time; and what click converts twice stays."""
    found = PLACE.convert(text, None, None)
    assert found == expected and PLACE.convert(found, None, None) == expected


@pytest.mark.parametrize(
    "text",
    [
        "-1.5",
        "--1",
        "1h",
        "yesterday",
        "1.5",
        "",
        "@",
        "-",
        "@-1",
        "-1y",
        "2026-13-01",
        "EARLIEST",
        "9" * 30,
        "-" + "9" * 30,
    ],
)
def test_bad_places_are_refused(text: str) -> None:
    """What is none of them is refused with the choices."""
    with pytest.raises(click.BadParameter, match="neither an offset nor earliest, latest, -10"):
        PLACE.convert(text, None, None)


@pytest.mark.parametrize(
    ("text", "written"),
    [("2026-01-31T12:00", "2026-01-31T12:00Z"), ("2026-01-31", "2026-01-31T00:00Z"), ("@20260131", "Z")],
)
def test_a_time_without_a_zone_is_refused(text: str, written: str) -> None:
    """The message shows the same time with one."""
    with pytest.raises(click.BadParameter, match="has no time zone") as caught:
        PLACE.convert(text, None, None)
    assert written in caught.value.message


def test_an_end_is_no_word_and_an_age_before_all_time_no_place() -> None:
    """`--end latest` says nothing; nobody writes of ten thousand years."""
    for text in ("earliest", "latest"):
        with pytest.raises(click.BadParameter, match="neither an offset nor -10"):
            StreamPlace(()).convert(text, None, None)
    for text in ("-9999999d", "-999999999999w"):
        with pytest.raises(click.BadParameter):
            PLACE.convert(text, None, None)
