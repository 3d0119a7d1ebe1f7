"""Names, keys, policies, tags and positions as users type them."""

from __future__ import annotations

import random

import click
import pytest

from pdctl.topics.text import (
    KeyRangeType,
    KeyType,
    PositionType,
    ScalingChoice,
    ScalingType,
    TagType,
    TopicNameType,
    show_key,
    show_key_range,
)
from pdctl.units import show_age
from rangelog_core.key_ranges import KEY_SPACE, KEY_SPACE_END, KeyRange
from rangelog_core.topic_names import TopicName


def test_names() -> None:
    """A bare name is in the namespace `default`."""
    assert TopicNameType().convert("t", None, None) == TopicName("default", "t")
    assert str(TopicNameType().convert("a.b/c-d", None, None)) == "a.b/c-d"
    for bad in ("", "/", "a/", "/a", "a/b/c", "a b", "_a", "a/_b", "x" * 201):
        with pytest.raises(click.UsageError, match="NAMESPACE/NAME"):
            TopicNameType().convert(bad, None, None)


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("0", 0),
        ("8", KEY_SPACE_END // 2),
        ("C", KEY_SPACE_END // 4 * 3),
        ("00000001", 1 << 96),
        ("end", KEY_SPACE_END),
        ("0x1" + "0" * 32, KEY_SPACE_END),
        ("0x" + "0" * 31 + "8", 8),
        ("f" * 32, KEY_SPACE_END - 1),
    ],
)
def test_keys(text: str, key: int) -> None:
    """Leading digits; all digits with 0x, as in JSON."""
    assert KeyType().convert(text, None, None) == key


@pytest.mark.parametrize(
    "text", ["", "g", "0x8", "0x", "-1", "8 8", "f" * 33, "0x2" + "0" * 32, "0x1" + "0" * 31 + "1", "²"]
)
def test_what_is_no_key(text: str) -> None:
    """A short number with 0x would be another key than its digits without it."""
    with pytest.raises(click.UsageError, match="is not a key"):
        KeyType().convert(text, None, None)


def test_a_key_that_is_shown_is_read_again() -> None:
    """Any key, short or long."""
    dice = random.Random(1)
    keys = [0, 1, KEY_SPACE_END, KEY_SPACE_END - 1, *(dice.randrange(KEY_SPACE_END) for _ in range(200))]
    keys += [dice.randrange(1 << 8) << 120 for _ in range(50)]
    for key in keys:
        assert KeyType().convert(show_key(key), None, None) == key
        assert KeyType().convert(f"{key:#034x}", None, None) == key


def test_key_ranges() -> None:
    """Open ends are those of the key space."""
    convert = KeyRangeType().convert
    assert convert("..", None, None) == KEY_SPACE == convert("0..end", None, None)
    assert show_key_range(convert("4..", None, None)) == "4..end"
    assert convert("..8", None, None) == KeyRange(0, KEY_SPACE_END // 2)
    for bad in ("4", "4-8", "8..4", "4..4", "end..", "x..", "..x", "1..2..3"):
        with pytest.raises(click.UsageError):
            convert(bad, None, None)


@pytest.mark.parametrize(
    ("text", "policy"),
    [
        ("fixed", ScalingChoice("fixed")),
        ("events:1000", ScalingChoice("events", 1_000)),
        ("EVENTS:1,min=3000", ScalingChoice("events", 1, 0, 3_000)),
        ("bytes:1MiB,factor=4,min=2", ScalingChoice("bytes", 1 << 20, 4, 2)),
        ("bytes:500,min=2,factor=64", ScalingChoice("bytes", 500, 64, 2)),
        ("events:500,max=8", ScalingChoice("events", 500, 0, 0, 8)),
    ],
)
def test_policies(text: str, policy: ScalingChoice) -> None:
    """By events or bytes, with a target."""
    assert ScalingType().convert(text, None, None) == policy


@pytest.mark.parametrize(
    "text",
    [
        "",
        "events",
        "events:",
        "events:0",
        "events:-1",
        "events:1k",
        "events:9007199254740993",
        "bytes:",
        "bytes:0",
        "bytes:x",
        "records:5",
        "fixed,min=2",
        "fixed:5",
        "events:5,factor=1",
        "events:5,factor=65",
        "events:5,min=0",
        "events:5,min=3001",
        "events:5,max=0",
        "events:5,most=2",
        "events:5,min",
        "events:5,min=1,min=2",
        "events:5,",
    ],
)
def test_what_is_no_policy(text: str) -> None:
    """Nothing is guessed."""
    with pytest.raises(click.UsageError):
        ScalingType().convert(text, None, None)


def test_tags_and_positions() -> None:
    """The value of a tag may be empty and contain the sign; both numbers of a position are checked."""
    assert TagType().convert("a=b=c", None, None) == ("a", "b=c")
    assert TagType().convert("a=", None, None) == ("a", "")
    assert PositionType().convert("3=1200", None, None) == (3, 1_200)
    for kind, bad in ((TagType(), "a"), (TagType(), "=a"), (PositionType(), "3"), (PositionType(), "3=")):
        with pytest.raises(click.UsageError):
            kind.convert(bad, None, None)
    for text in ("=3", "-1=3", "1=-3", f"1={1 << 63}", "1=2=3", "²=1"):
        with pytest.raises(click.UsageError):
            PositionType().convert(text, None, None)


def test_ages() -> None:
    """In the largest unit that fits."""
    ages = (-5, 0, 59_999, 60_000, 3_599_999, 3_600_000, 86_399_999, 86_400_000, 20 * 86_400_000)
    assert [show_age(each) for each in ages] == ["0s", "0s", "59s", "1m", "59m", "1h", "23h", "1d", "20d"]
