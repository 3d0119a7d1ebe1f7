"""Sizes, durations and starts as people write them, and how they are shown again."""

from __future__ import annotations

import click
import pytest

from pdctl.units import Duration, Size, show_bytes, show_count, show_ms, show_time


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", 0),
        ("17", 17),
        ("17b", 17),
        ("64MiB", 64 << 20),
        ("64 mib", 64 << 20),
        (" 1.5GiB ", 3 << 29),
        ("1kb", 1000),
        ("2TB", 2 * 10**12),
    ],
)
def test_sizes_are_bytes(text: str, expected: int) -> None:
    """A size takes decimal and binary units, in any case, with or without a space."""
    assert Size().convert(text, None, None) == expected


@pytest.mark.parametrize(
    "text", ["", "MiB", "-1", "1XB", "1e9", "64MiBs", "9" * 400, "10000000TiB", "1.MiB", "٣MiB"[1:]]
)
def test_bad_sizes_are_refused(text: str) -> None:
    """What is no size, or more than any disk, is refused in words that show how to write one."""
    with pytest.raises(click.BadParameter, match="write for example 64MiB"):
        Size().convert(text, None, None)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("500ms", 500), ("90s", 90_000), ("5m", 300_000), ("12h", 43_200_000), ("7d", 604_800_000), ("2w", 1_209_600_000)],
)
def test_durations_are_ms(text: str, expected: int) -> None:
    """A duration needs a unit and becomes milliseconds."""
    assert Duration().convert(text, None, None) == expected


@pytest.mark.parametrize("text", ["7", "0", "20", "1.5"])
def test_a_duration_without_a_unit_is_refused_with_what_to_write(text: str) -> None:
    """A retention of 7 would trim at seven seconds where days were meant. Only where an option counts in seconds it is one."""
    with pytest.raises(
        click.BadParameter, match=f"'{text}' has no unit: write {text}s for seconds, or for example 12h"
    ):
        Duration().convert(text, None, None)
    assert Duration(bare_seconds=True).convert(text, None, None) == float(text) * 1_000


@pytest.mark.parametrize("text", ["", "7y", "-7d", "d", "never", "9" * 400 + "d", "99999999d"])
def test_bad_durations_are_refused(text: str) -> None:
    """`never` is not for every option."""
    with pytest.raises(click.BadParameter, match="write for example 90s"):
        Duration().convert(text, None, None)


def test_never_is_minus_one_where_it_is_allowed() -> None:
    """Hot retention takes `never`, in any case, and says so when something else is wrong."""
    assert Duration(never=True).convert("Never", None, None) == -1
    with pytest.raises(click.BadParameter, match="or never"):
        Duration(never=True).convert("always", None, None)


def test_a_long_bad_value_is_shown_short() -> None:
    """An error line does not repeat a page of nonsense."""
    with pytest.raises(click.BadParameter) as caught:
        Size().convert("x" * 10_000, None, None)
    assert len(caught.value.message) < 200


def test_shown_again() -> None:
    """Bytes, durations and times are shown in the largest unit that fits."""
    assert [show_bytes(each) for each in (0, 1023, 1024, 3 << 29, 5 << 40)] == [
        "0 B",
        "1023 B",
        "1.0 KiB",
        "1.5 GiB",
        "5.0 TiB",
    ]
    assert [show_ms(each, "default") for each in (-1, 0, 1, 90_000, 3_600_000, 604_800_000)] == [
        "never",
        "default",
        "1ms",
        "90s",
        "1h",
        "7d",
    ]
    assert show_time(0) == "-"
    assert show_time(1_356_998_400_000) == "2013-01-01T00:00:00Z"
    assert show_time(1 << 62) == f"{1 << 62} ms"


def test_counts_agree_with_their_nouns() -> None:
    """One of a thing is singular; none and many are plural."""
    assert [show_count(count, "record") for count in (0, 1, 2)] == ["0 records", "1 record", "2 records"]
