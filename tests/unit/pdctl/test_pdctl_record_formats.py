"""Records to bytes and back: a stream copied by a pipe is the same stream; a terminal is never told what to do."""

from __future__ import annotations

import json
import unicodedata
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdctl.record_formats import (
    JSON_LINE_BYTES_MAX,
    PrefixSplitter,
    WholeInput,
    escaped,
    parse_record,
    prefixed,
    renderer,
)
from rangelog import Record
from rangelog_core.errors import InvalidArgument, RecordTooLarge
from rangelog_core.limits import RECORD_SIZE_BYTES_MAX, TIMESTAMP_MS_MAX, TIMESTAMP_MS_MIN

_BYTES = st.one_of(st.binary(max_size=40), st.text(max_size=20).map(lambda text: text.encode("utf-8", "surrogatepass")))
_NAMES = st.text(st.characters(codec="utf-8"), min_size=1, max_size=8)
_TIMES = st.integers(TIMESTAMP_MS_MIN, TIMESTAMP_MS_MAX)
_RECORDS = st.builds(Record, st.integers(0, 1 << 62), _TIMES, st.none() | _BYTES, _BYTES,
                     st.dictionaries(_NAMES, _BYTES, max_size=3))  # fmt: skip


@given(_RECORDS)
def test_json_and_back_is_the_same_record(record: Record) -> None:
    """Key, value, headers and timestamp, whatever bytes they have; one line, which a terminal may show."""
    line = renderer("json", on_terminal=False)(record)
    assert line.endswith(b"\n") and line.count(b"\n") == 1
    assert not any(ord(each) < 32 or 127 <= ord(each) < 160 for each in line.decode()[:-1])
    found = parse_record(line)
    assert (found.key, found.value, dict(found.headers or {}), found.timestamp_ms) == (
        record.key, record.value, dict(record.headers), record.timestamp_ms,
    )  # fmt: skip


@given(st.lists(st.binary(max_size=30), max_size=6), st.lists(st.integers(1, 9), min_size=1))
def test_prefixed_and_back_is_the_same_list(values: list[bytes], sizes: list[int]) -> None:
    """However the bytes come; empty values too."""
    data = b"".join(map(prefixed, values))
    splitter, found, place, turn = PrefixSplitter(), [], 0, 0
    while place < len(data):
        size = sizes[turn % len(sizes)]
        found += splitter.feed(data[place : place + size])
        place, turn = place + size, turn + 1
    assert found + splitter.close() == values


def test_damaged_prefixed_input() -> None:
    """A text taken for it is refused at its first record, before memory is used; a cut one after the last whole record."""
    with pytest.raises(RecordTooLarge, match="record 1 has the length"):
        PrefixSplitter().feed(b"this is a text")
    splitter = PrefixSplitter()
    assert splitter.feed(prefixed(b"whole") + prefixed(b"cut")[:-1]) == [b"whole"]
    with pytest.raises(InvalidArgument, match="within record 2"):
        splitter.close()
    assert PrefixSplitter().feed(prefixed(b"x" * RECORD_SIZE_BYTES_MAX)) == [b"x" * RECORD_SIZE_BYTES_MAX]


def test_the_whole_input_is_one_record() -> None:
    """Line ends and all; nothing is none; too much is refused before it is all there."""
    whole = WholeInput()
    assert whole.feed(b"a\r\n") == whole.feed(b"\x00b") == [] and whole.close() == [b"a\r\n\x00b"]
    assert WholeInput().close() == []
    whole.feed(b"x" * (RECORD_SIZE_BYTES_MAX - 5))
    with pytest.raises(RecordTooLarge):
        whole.feed(b"x")


@pytest.mark.parametrize(
    ("line", "part"),
    [
        (b"{", "not JSON"),
        (b"\xff", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"[]", '"value"'),
        (b'{"key": "k"}', '"value"'),
        (b'{"value": null}', "value is neither"),
        (b'{"value": 1}', "value is neither"),
        (b'{"value": {"base64": "!"}}', "value is neither"),
        (b'{"value": {"base64": "YQ==", "x": 1}}', "value is neither"),
        (b'{"value": "\\ud800"}', "value is neither"),
        (b'{"value": "", "key": []}', "key is neither"),
        (b'{"value": "", "headers": []}', None),
        (b'{"value": "", "headers": [1]}', "headers is an object"),
        (b'{"value": "", "headers": {"a": 1}}', "header 'a' is neither"),
        (b'{"value": "", "timestamp_ms": "now"}', "timestamp_ms is a whole number"),
        (b'{"value": "", "timestamp_ms": true}', "timestamp_ms is a whole number"),
        (b'{"value": "", "vlaue": ""}', "no field 'vlaue'"),
    ],
)
def test_lines_that_describe_no_record(line: bytes, part: str | None) -> None:
    """Each is refused in words; a misspelt field is not passed over. Empty headers are none."""
    if part is None:
        assert not parse_record(line).headers
        return
    with pytest.raises(InvalidArgument, match=part):
        parse_record(line)


def test_a_line_may_be_as_long_as_json_makes_a_record() -> None:
    """The largest value of the worst bytes is below the bound of a line."""
    for worst in (b"\x01", b"\xff", "\u2028".encode()):
        value = worst * (RECORD_SIZE_BYTES_MAX // len(worst))
        assert len(renderer("json", on_terminal=False)(Record(0, 0, None, value))) < JSON_LINE_BYTES_MAX


@given(st.binary(max_size=60))
def test_a_terminal_gets_no_control_characters(data: bytes) -> None:
    """Whatever the bytes, in each format that a terminal may get; in a pipe a value is as it is."""
    record: Any = Record(7, 0, data, data, {"h": data})
    for shape in ("value", "text", "json"):
        shown = renderer(shape, on_terminal=True)(record).decode()
        assert shown.endswith("\n")
        assert not any(unicodedata.category(each) == "Cc" and each != "\t" for each in shown[:-1])
    assert renderer("value", on_terminal=False)(record) == data + b"\n"
    assert renderer("raw", on_terminal=False)(record) == data
    assert renderer("text", on_terminal=False)(record).endswith(b"  " + data + b"\n")


def test_escapes_are_those_of_python() -> None:
    """Text stays readable."""
    assert escaped("café\t\x1b[31m".encode()).decode() == "café\t\\x1b[31m"
    assert escaped(b"a\nb\x00\xff\xc2\x9b").decode() == "a\\nb\\x00\\xff\\x9b"
    assert json.loads(renderer("json", on_terminal=True)(Record(0, 0, None, b"\xc2\x9b31m")))["value"] == "\x9b31m"
