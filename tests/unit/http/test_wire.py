"""What bodies become, and what answers look like."""

from __future__ import annotations

import base64
import gzip
import json
import tracemalloc
import zlib
from typing import Any
from unittest import mock

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from rangelog import AppendRecord, Cut, TopicRecord
from rangelog.errors import InvalidArgument, RecordTooLarge
from rangelog_core.limits import TOPIC_SHARDS_MAX
from rangelog_http.server import HEAD_BYTES_MAX
from rangelog_http.wire.encodings import PARTS_MAX, decoded
from rangelog_http.wire.filters import wanted_of
from rangelog_http.wire.json_pointers import key_at, parse_pointer
from rangelog_http.wire.records_in import LIST_BYTES_MAX, RECORDS_TYPE, Given, records_of
from rangelog_http.wire.records_out import dumped, lines_of, record_object, start_of, token_of
from rangelog_http.wire.subprotocols import take_token

MANY = 1_000
ENCODERS = {
    "gzip": gzip.compress,
    "deflate": zlib.compress,
    "zstd": zstandard.ZstdCompressor().compress,
    "identity": bytes,
    "": bytes,
}


@given(st.sampled_from(sorted(ENCODERS)), st.binary(max_size=3_000))
def test_an_encoding_is_undone(name: str, body: bytes) -> None:
    """Up to the limit exactly."""
    encoded = ENCODERS[name](body)
    assert decoded(encoded, name.upper(), max(1, len(body))) == body
    if body and name not in ("", "identity"):
        with pytest.raises(RecordTooLarge):
            decoded(encoded, name, len(body) - 1)


@given(st.sampled_from(["gzip", "deflate", "zstd"]), st.binary(min_size=1, max_size=300), st.data())
def test_a_body_that_is_cut_is_refused(name: str, body: bytes, data: st.DataObject) -> None:
    """At every byte."""
    encoded = ENCODERS[name](body)
    end = data.draw(st.integers(1, len(encoded) - 1))
    with pytest.raises(InvalidArgument):
        decoded(encoded[:end], name, 10_000)


def test_members_follow_each_other() -> None:
    """As `cat a.gz b.gz` makes them; deflate without its head, as some clients send it."""
    assert decoded(gzip.compress(b"a") + gzip.compress(b"b"), "gzip", 10) == b"ab"
    frames = zstandard.ZstdCompressor().compress(b"a") + zstandard.ZstdCompressor().compress(b"b")
    assert decoded(frames, "zstd", 10) == b"ab"
    bare = zlib.compressobj(wbits=-15)
    assert decoded(bare.compress(b"hello") + bare.flush(), "deflate", 10) == b"hello"
    for name in ("br", "gzip, gzip", "compress", "x" * 1_000):
        with pytest.raises(InvalidArgument, match="content encoding"):
            decoded(b"x", name, 10)


@pytest.mark.parametrize("name", ["gzip", "zstd"])
def test_a_bomb_of_empty_parts_takes_no_time(name: str) -> None:
    """Each is decoded by a decoder of its own, before which what is left of the body is copied."""
    empty = gzip.compress(b"") if name == "gzip" else zstandard.ZstdCompressor().compress(b"")
    whole = gzip.compress(b"a") if name == "gzip" else zstandard.ZstdCompressor().compress(b"a")
    assert decoded(empty * (PARTS_MAX - 1) + whole, name, 10) == b"a"
    with pytest.raises(InvalidArgument, match=f"more than {PARTS_MAX}"):
        decoded(empty * 400_000, name, 10)


@pytest.mark.parametrize("name", ["gzip", "deflate", "zstd"])
def test_a_bomb_takes_no_more_memory_than_the_limit(name: str) -> None:
    """A few KiB that are 64 MiB."""
    if name == "zstd":
        bomb = zstandard.ZstdCompressor(level=1).compress(bytes(1 << 26))
    else:
        one = zlib.compressobj(9, wbits=31 if name == "gzip" else 15)
        bomb = b"".join(one.compress(bytes(1 << 20)) for _ in range(64)) + one.flush()
    tracemalloc.start()
    try:
        with pytest.raises(RecordTooLarge):
            decoded(bomb, name, 1 << 20)
        assert tracemalloc.get_traced_memory()[1] < 24 << 20
    finally:
        tracemalloc.stop()


def test_a_bare_body_is_one_record() -> None:
    """Whatever its type; JSON too, whose key a pointer names."""
    plain = records_of(b"\xff\x00", "image/png", Given(b"k", headers={"a": b"1"}, timestamp_ms=5), MANY)
    assert plain == ([AppendRecord(b"\xff\x00", b"k", {"a": b"1"}, 5)], False)
    found = records_of(b'{"user": {"id": 7}}', "application/json", Given(pointer=("user", "id")), MANY)
    assert found.records[0].key == b"7"
    assert records_of(b"", "", Given(), MANY).records == [AppendRecord(b"", None, {}, None)]
    with pytest.raises(InvalidArgument, match="body is not JSON"):
        records_of(b"{", "application/json", Given(pointer=("id",)), MANY)


def test_lines() -> None:
    """Empty ones are left out; a value is its line as it was sent."""
    body = b'{"id": 1}\r\n\n  {"id":  2}\n[3]'
    found = records_of(body, "application/x-ndjson; charset=utf-8", Given(pointer=("id",)), MANY)
    assert [(each.value, each.key) for each in found.records] == [
        (b'{"id": 1}', b"1"), (b'{"id":  2}', b"2"), (b"[3]", None),
    ]  # fmt: skip
    assert found.is_batch
    for bad, where in (
        (b'{"id": 1}\n{"id": \n{"id": 3}', "line 2 is not JSON.*no record"),
        (b"\n \n", "no lines"),
        (b"1\n" * 4, "more than 3 lines"),
        (b'1\n{"id": NaN}', "line 2 is not JSON"),
        (b"-Infinity", "line 1 is not JSON"),
        (b"1\n2\x00", "line 2 is not JSON"),
        (b'"\xed\xa0\x80"', "line 1 is not JSON"),
        (b"\xef\xbb\xbf1", "line 1 is not JSON"),
        (b'{"id": {}}', "line 1: the key.*no record was sent"),
    ):
        with pytest.raises(InvalidArgument, match=where):
            records_of(bad, "application/x-ndjson", Given(pointer=("id",)), 3)


def test_a_list_of_records() -> None:
    """Text or base64, each with key, headers and time of its own."""
    body = {"records": [
        {"value": "ä", "key": "k", "headers": {"h": "1"}, "timestamp_ms": 7},
        {"value_base64": "/w==", "key_base64": "AA=="},
        {"value": '{"id": 3}'},
    ]}  # fmt: skip
    found = records_of(json.dumps(body).encode(), RECORDS_TYPE, Given(None, ("id",), {"all": b"x"}, 9), MANY)
    assert found.records == [
        AppendRecord("ä".encode(), b"k", {"all": b"x", "h": b"1"}, 7),
        AppendRecord(b"\xff", b"\0", {"all": b"x"}, 9),
        AppendRecord(b'{"id": 3}', b"3", {"all": b"x"}, 9),
    ]


@pytest.mark.parametrize(
    "entry",
    [
        None, 5, [], {}, {"value": 5}, {"value": "x", "value_base64": "AA=="}, {"value_base64": "!"}, {"value": "x", "more": 1},
        {"value": "x", "headers": []}, {"value": "x", "headers": {"a": 1}}, {"value": "x", "timestamp_ms": "1"},
        {"value": "x", "timestamp_ms": True}, {"value": "\ud800"}, {"value": "x", "key": 5}, {"value": None},
    ],
)  # fmt: skip
def test_a_strange_entry(entry: Any) -> None:
    """Refused by its place, and nothing is sent."""
    body = json.dumps({"records": [{"value": "good"}, entry]}).encode()
    with pytest.raises(InvalidArgument, match=r"record 1.*no record was sent"):
        records_of(body, RECORDS_TYPE, Given(), MANY)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"{}",
        b'{"records": []}',
        b'{"records": 1}',
        b'{"records": [{"value": ""}], "x": 1}',
        b"[" * 200_000,
    ],
)
def test_a_strange_list(body: bytes) -> None:
    """With one sentence."""
    with pytest.raises(InvalidArgument):
        records_of(body, RECORDS_TYPE, Given(), MANY)


def test_pointers() -> None:
    """As RFC 6901 has them."""
    value = {"a/b": {"~": [10, {"": "x"}]}, "n": None, "t": True, "f": 1.5}
    assert key_at(value, parse_pointer("/a~1b/~0/0")) == b"10"
    assert key_at(value, parse_pointer("/a~1b/~0/1/")) == b"x"
    for nothing in ("/n", "/zz", "/a~1b/~0/7", "/a~1b/~0/-1", "/f/x"):
        assert key_at(value, parse_pointer(nothing)) is None
    for other in ("/t", "/f", "/a~1b"):
        with pytest.raises(InvalidArgument):
            key_at(value, parse_pointer(other))
    for bad in ("", "a", "/" + "x" * 300):
        with pytest.raises(InvalidArgument):
            parse_pointer(bad)


@given(
    st.binary(max_size=50),
    st.none() | st.binary(max_size=20),
    st.dictionaries(st.text(max_size=5), st.binary(max_size=5), max_size=3),
)
def test_nothing_of_a_record_is_lost(value: bytes, key: bytes | None, headers: dict[str, bytes]) -> None:
    """What is no text is base64, and the line is one line."""
    record = TopicRecord(3, 5, 7, key, value, headers)
    line = lines_of([record])
    assert line.count(b"\n") == 1 and line.endswith(b"\n")
    made = json.loads(line)
    assert made == json.loads(dumped(record_object(record)))

    def back(fields: dict[str, Any], name: str) -> bytes | None:
        if name in fields:
            return str(fields[name]).encode()
        return base64.b64decode(fields[f"{name}_base64"]) if f"{name}_base64" in fields else None

    assert (back(made, "value"), back(made, "key")) == (value, key)
    found = {name: text.encode() for name, text in made.get("headers", {}).items()}
    found |= {name: base64.b64decode(text) for name, text in made.get("headers_base64", {}).items()}
    assert found == headers


@given(st.dictionaries(st.integers(0, 1 << 40), st.integers(0, 1 << 40), min_size=1, max_size=5))
def test_a_position_comes_back(offsets: dict[int, int]) -> None:
    """As a text that needs no quoting."""
    cut = Cut(7, offsets)
    token = token_of(cut)
    assert token.replace("-", "").replace("_", "").isalnum()
    assert start_of(token) == cut


def test_a_position_in_many_shards_fits_a_head() -> None:
    """A topic has up to TOPIC_SHARDS_MAX of them; a packed position that is no such thing is refused, unpacked to a bound."""
    cut = Cut(7, {(1 << 30) + 3 * each: (each * 7_919_777) % (1 << 32) for each in range(TOPIC_SHARDS_MAX)})
    token = token_of(cut)
    assert len(token) < HEAD_BYTES_MAX - 1_000
    assert start_of(token) == cut
    for packed in (zlib.compress(bytes(1 << 28)), zlib.compress(b"{}"), b"x", b"x\x9c", zlib.compress(b"\xff" * 600)):
        with pytest.raises(InvalidArgument):
            start_of(base64.urlsafe_b64encode(packed).decode().rstrip("="))


@pytest.mark.parametrize("text", ["", "first", "2026-01-01T00:00:00", "5", "eyJ", "ä", "%00", "e30", "x" * 100_000])
def test_a_strange_start(text: str) -> None:
    """Refused with what there is."""
    with pytest.raises(InvalidArgument):
        start_of(text)


def test_a_list_is_not_parsed_beyond_its_limit() -> None:
    """Nothing else runs while one JSON value is parsed; lines have no such limit, and one that is too large is not parsed."""
    with mock.patch.object(json, "loads", side_effect=AssertionError("it is parsed")):
        with pytest.raises(RecordTooLarge, match="ndjson"):
            records_of(b" " * (LIST_BYTES_MAX + 1), RECORDS_TYPE, Given(), MANY)
        large = b"[" * (1 << 20) + b"["
        assert records_of(large, "application/x-ndjson", Given(pointer=("id",)), MANY).records[0].value == large
    rest = b'{"records": [{"value": "x"}]}'
    assert len(records_of(rest.rjust(LIST_BYTES_MAX), RECORDS_TYPE, Given(), MANY).records) == 1


def test_what_is_wanted() -> None:
    """Every byte of a key and of a header's value; a time with a zone, exactly."""
    found = wanted_of({"key": "\udcffé", "header.": "", "header.a.b": "\udcfe", "from": "x"})
    assert found == (b"\xff\xc3\xa9", {"": b"", "a.b": b"\xfe"}, None)
    assert wanted_of({"until": "1970-01-01T00:00:00.0005Z"}).until_ms == 1
    assert wanted_of({"until": "1969-12-31T23:59:59.999Z"}).until_ms == -1
    assert wanted_of({"until": "1970-01-01T01:00:00.007+01:00"}).until_ms == 7
    for bad in ("", "2026-01-01", "2026-01-01T00:00:00", "7", "latest"):
        with pytest.raises(InvalidArgument):
            wanted_of({"until": bad})


def test_a_token_among_the_subprotocols() -> None:
    """Is the request's own, unless it has one; what is malformed is refused."""
    headers = {b"sec-websocket-protocol": b"rangelog.bearer.YS9iP2M_, rangelog.v1"}
    assert take_token(headers) == "rangelog.v1" and headers == {b"authorization": b"Bearer a/b?c?"}
    headers = {b"sec-websocket-protocol": b"rangelog.v1, rangelog.bearer.YQ", b"authorization": b"Bearer own"}
    assert take_token(headers) == "rangelog.v1" and headers == {b"authorization": b"Bearer own"}
    assert take_token({}) == ""
    for bad in (
        b"chat",
        b"rangelog.bearer.YQ",
        b"rangelog.v1, rangelog.bearer.Y",
        b"rangelog.v1, rangelog.bearer.\xff",
    ):
        with pytest.raises(InvalidArgument):
            take_token({b"sec-websocket-protocol": bad})
