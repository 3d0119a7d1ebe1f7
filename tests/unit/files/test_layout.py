"""R3, R5: names of event files, and which of them a time range needs."""

from __future__ import annotations

import doctest
import importlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rangelog_core.errors import InvalidArgument
from rangelog_files.layout import (
    NUMBER_MAX,
    EventPath,
    TimePartition,
    checked_name,
    checked_path,
    next_path,
    parse_file,
    parse_generation,
    parse_partition,
    parse_path,
    partition_for_writing,
    partitions_between,
)

DAY_S = 86_400
NAMES = st.from_regex(r"\A[A-Za-z0-9_-][A-Za-z0-9._-]{0,30}\Z")
PARTITIONS = st.builds(TimePartition, st.integers(0, 4_000_000_000), st.integers(1, 10 * DAY_S))
PATHS = st.builds(
    EventPath,
    NAMES,
    st.integers(0, NUMBER_MAX),
    PARTITIONS,
    NAMES,
    st.one_of(st.integers(0, 3), st.integers(0, NUMBER_MAX)),
)


@pytest.mark.parametrize("module", ["layout", "events", "event_file", "index_file"])
def test_the_examples_of_the_format_give_what_they_show(module: str) -> None:
    """Examples in docstrings run as they are printed."""
    from rangelog_files.events import Event

    results = doctest.testmod(importlib.import_module(f"rangelog_files.{module}"), extraglobs={"Event": Event})
    assert results.attempted and not results.failed


@given(PATHS)
def test_r3_a_path_is_parsed_to_what_it_was_built_from(path: EventPath) -> None:
    """Also with wide numbers, and with dots in the writer's name."""
    assert checked_path(path) == parse_path(path.data_path) == parse_path(path.index_path) == path


@given(st.text(alphabet="abc019._/-\0 ", max_size=60) | PATHS.map(lambda path: path.data_path.replace("0", "00", 1)))
def test_r3_each_path_has_one_spelling(text: str) -> None:
    """What is parsed is printed as it was; everything else is refused."""
    try:
        found = parse_path(text)
    except InvalidArgument:
        return
    assert text in (found.data_path, found.index_path)


def test_r3_the_path_of_the_example() -> None:
    """30 May 2014, and numbers with more digits than usual."""
    path = EventPath("who", 1, TimePartition(1_401_408_000, DAY_S), "file.0", 0)
    assert path.data_path == "who/00001/1401408000.86400/file.0.000000.dat"
    assert path.index_path == "who/00001/1401408000.86400/file.0.000000.idx"
    wide = path._replace(generation=1_234_567, sequence=12_345_678)
    assert parse_path("who/1234567/1401408000.86400/file.0.12345678.dat") == wide


@pytest.mark.parametrize(
    "text",
    [
        "../00001/0.1/a.000000.dat", "who/00001/0.1/../a.000000.dat", "/who/00001/0.1/a.000000.dat",
        "who/00001/0.1/a.000000.dat\0", "who/00001/0.1/a\0.000000.dat", "who/1/0.1/a.000000.dat",
        "who/000001/0.1/a.000000.dat", "who/00001/00.1/a.000000.dat", "who/00001/0.0/a.000000.dat",
        "who/00001/-1.5/a.000000.dat", "who/00001/0.1/a.0.dat", "who/00001/0.1/a.0000000.dat", "who/00001/0.1/a.000000.tmp",
        "who/00001/0.1/.000000.dat", "who/00001/0.1/.a.000000.dat", "who/00001/0.1/a.٠٠٠٠٠٠.dat",
        "who/00001/0.99999999999999999999/a.000000.dat", "who/00001/0.1/a.000000.dat\n", "", "who", "who/00001",
    ],
)  # fmt: skip
def test_r3_a_path_that_leads_elsewhere_is_refused(text: str) -> None:
    """Parents, zero bytes, missing and surplus digits, foreign digits."""
    with pytest.raises(InvalidArgument):
        parse_path(text)


@pytest.mark.parametrize("name", ["", ".", "..", ".x", "a/b", "a\0", "ä", "a b", "a\n", "x" * 201])
def test_r3_a_name_that_is_no_part_of_a_path_is_refused(name: str) -> None:
    """Of a stream and of a writer."""
    with pytest.raises(InvalidArgument):
        checked_name(name)
    with pytest.raises(InvalidArgument):
        checked_path(EventPath(name, 1, TimePartition(0, 1), "a", 0))


@pytest.mark.parametrize(
    "path",
    [
        EventPath("a", -1, TimePartition(0, 1), "a", 0), EventPath("a", 1, TimePartition(0, 0), "a", 0),
        EventPath("a", 1, TimePartition(-1, 1), "a", 0), EventPath("a", 1, TimePartition(0, 1), "a", 2**63),
    ],
)  # fmt: skip
def test_r3_numbers_out_of_bounds_are_refused(path: EventPath) -> None:
    """A path that could not be parsed again is never built."""
    with pytest.raises(InvalidArgument):
        checked_path(path)


def test_r3_a_time_range_needs_only_the_partitions_that_it_touches() -> None:
    """The bounds are exact to the millisecond."""
    days = [TimePartition(day * DAY_S, DAY_S) for day in range(30)]
    assert partitions_between(reversed(days)) == days
    day_ms = DAY_S * 1_000
    assert partitions_between(days, 7 * day_ms, 8 * day_ms) == [days[7]]
    assert partitions_between(days, 7 * day_ms - 1, 8 * day_ms + 1) == days[6:9]
    assert partitions_between(days, 30 * day_ms) == []
    assert partitions_between(days, None, 1) == [days[0]]


def test_r5_the_next_file_has_the_next_sequence_of_its_writer() -> None:
    """Other writers, generations and partitions do not count; a gap is not filled."""
    day = TimePartition(0, DAY_S)
    files = [EventPath("s", 1, day, "a", 0), EventPath("s", 1, day, "a", 4), EventPath("s", 1, day, "b", 9)]
    assert next_path("s", 1, "a", files, 5, DAY_S) == EventPath("s", 1, day, "a", 5)
    assert next_path("s", 1, "c", files, 5, DAY_S).sequence == 0
    assert next_path("s", 2, "a", files, 5, DAY_S) == EventPath("s", 2, day, "a", 0)
    tomorrow = next_path("s", 1, "a", files, DAY_S * 1_000, DAY_S)
    assert tomorrow == EventPath("s", 1, TimePartition(DAY_S, DAY_S), "a", 0)


def test_a_clock_that_goes_back_an_hour_stays_in_the_latest_partition() -> None:
    """A reader that has reached a partition would never look into an earlier one."""
    latest = EventPath("s", 1, TimePartition(DAY_S, DAY_S), "a", 2)
    assert next_path("s", 1, "a", [latest], DAY_S * 1_000 - 3_600_000, DAY_S) == latest._replace(sequence=3)


@given(st.lists(st.tuples(st.integers(0, 10**9), st.integers(1, 10**6)), max_size=12))
def test_the_partitions_of_a_writer_never_overlap(openings: list[tuple[int, int]]) -> None:
    """Whatever the clock does, and however often the duration changes."""
    latest: TimePartition | None = None
    for time_ms, duration_s in openings:
        found = partition_for_writing(time_ms, duration_s, latest)
        assert found == latest or latest is None or found.start_s >= latest.end_s
        assert found.holds(time_ms) or (latest == found and time_ms < found.start_s * 1_000)
        latest = found


@pytest.mark.parametrize(("time_ms", "duration_s"), [(-1, 1), (2**63, 1), (0, 0), (0, -5), (0, 2**63)])
def test_no_partition_for_a_senseless_time(time_ms: int, duration_s: int) -> None:
    """Before 1970, beyond the calendar, and of no length."""
    with pytest.raises(InvalidArgument):
        partition_for_writing(time_ms, duration_s, None)


@pytest.mark.parametrize("text", ["", "1", "00001", "a.b", "1.", ".1", "1.2.3", "+1.2", "²", "1" * 40])
def test_parts_of_paths_that_are_none(text: str) -> None:
    """Foreign names in a directory are passed over, not guessed at."""
    assert parse_partition(text) is None and parse_file(text) is None
    assert (parse_generation(text) is None) == (text != "00001")
