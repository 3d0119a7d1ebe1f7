"""The options of Spark's data source: what a topic's positions may be, and what is refused by name."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from rangelog import Cut, errors
from rangelog.spark.options import parse_options

CUT = Cut(7, {1: 250, 2: 0})


def test_a_topic_in_place_of_a_stream() -> None:
    """A bare name is in the namespace "default"; by default all of it is read."""
    options = parse_options({"pd": "a:1", "topic": "flights"})
    assert (options.topic, options.stream, options.start, options.end) == ("default/flights", "", "earliest", "latest")
    assert parse_options({"pd": "a:1", "topic": "air/flights"}).topic == "air/flights"
    assert parse_options({"pd": "a:1", "stream": "flights"}).topic == ""


def test_cuts_and_times() -> None:
    """A cut in its text form; a time in UTC, unless it names another offset."""
    options = parse_options({"pd": "a:1", "topic": "t", "start": CUT.to_json(), "end": "2026-01-31T12:00:00+02:00"})
    assert options.start == CUT
    assert options.end == datetime(2026, 1, 31, 10, tzinfo=UTC)
    assert parse_options({"pd": "a:1", "topic": "t", "end": "2026-01-31 12:00"}).end == datetime(
        2026, 1, 31, 12, tzinfo=UTC
    )


def test_times_of_a_stream_and_times_ago() -> None:
    """Both kinds of times are instants; what is so long ago is counted from `load()`."""
    options = parse_options({"pd": "a:1", "stream": "s", "start": "2026-01-31T12:00:00+02:00", "end": "17"})
    assert (options.start, options.end) == (datetime(2026, 1, 31, 10, tzinfo=UTC), 17)
    for text, ago in (("-90m", timedelta(minutes=90)), ("-2d", timedelta(days=2)), ("-5ms", timedelta(milliseconds=5))):
        start = parse_options({"pd": "a:1", "topic": "t", "start": text}).start
        assert isinstance(start, datetime)
        assert timedelta() <= datetime.now(UTC) - ago - start < timedelta(minutes=1)


@pytest.mark.parametrize(("text", "size"), [("1000", 1000), ("64m", 64 << 20), ("1G", 1 << 30), ("8kb", 8192)])
def test_sizes(text: str, size: int) -> None:
    """Of partitions, in bytes or a multiple."""
    assert parse_options({"pd": "a:1", "stream": "s", "bytes_per_partition": text}).bytes_per_partition == size


@pytest.mark.parametrize(
    ("given", "error", "text"),
    [
        ({"topic": "t", "stream": "s"}, errors.ConfigInvalid, "both a stream and a topic"),
        ({"topic": "t", "path": "s"}, errors.ConfigInvalid, "both a stream and a topic"),
        ({}, errors.ConfigInvalid, "option.'topic'"),
        ({"topic": "a/b/c"}, errors.InvalidArgument, "b/c"),
        ({"topic": "t", "start": "latest"}, errors.ConfigInvalid, "option start of a topic is 'earliest', a cut"),
        ({"topic": "t", "end": "earliest"}, errors.ConfigInvalid, "option end of a topic is 'latest', a cut"),
        ({"topic": "t", "start": "17"}, errors.ConfigInvalid, "option start"),
        ({"stream": "s", "start": "-1y"}, errors.ConfigInvalid, "option start is 'earliest', an offset, or a time"),
        ({"stream": "s", "start": "-999999999d"}, errors.ConfigInvalid, "option start"),
        ({"stream": "s", "bytes_per_partition": "0"}, errors.ConfigInvalid, "bytes_per_partition is a number of bytes"),
        ({"stream": "s", "bytes_per_partition": "many"}, errors.ConfigInvalid, "bytes_per_partition"),
        ({"stream": "s", "tier_url": "ftp://x"}, errors.ConfigInvalid, "bad tier URL"),
        ({"stream": "s", "startingOffset": "5"}, errors.ConfigInvalid, "did you mean 'startingOffsets'"),
        ({"option.stream": "s", "stream": "s", "provider": "rangelog"}, errors.ConfigInvalid, "make a view"),
        ({"stream": "s", "strat": "5"}, errors.ConfigInvalid, "did you mean 'start'"),
        (
            {"stream": "s", "colour": "5"},
            errors.ConfigInvalid,
            "choose from pd, .*; for spark.readStream also startingOff",
        ),
        ({"topic": "t", "start": "{"}, errors.ConfigInvalid, "option start"),
        ({"topic": "t", "end": '{"cut":1,"topic_id":7,"offsets":{}}'}, errors.ConfigInvalid, "option end"),
        ({"topic": "t", "end": '{"cut":2}'}, errors.UnsupportedVersion, "version 2"),
        (
            {"stream": "s", "start": CUT.to_json()},
            errors.ConfigInvalid,
            "option start is 'earliest', an offset, or a time",
        ),
    ],
)
def test_what_is_refused(given: dict[str, str], error: type[Exception], text: str) -> None:
    """With the option's name, and what it may be."""
    with pytest.raises(error, match=text):
        parse_options({"pd": "a:1", **given})
