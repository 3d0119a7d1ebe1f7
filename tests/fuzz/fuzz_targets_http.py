"""The door for plain HTTP: bodies with their encodings and types, queries, positions, paths.

What holds: what is accepted is what a producer takes, or the refusal is one of InvalidArgument and RecordTooLarge; whatever a
body claims, no more is decompressed than the limit.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import zlib

import zstandard

from rangelog import Cut
from rangelog.errors import InvalidArgument
from rangelog_http.app import route_of
from rangelog_http.handlers.records import query_of
from rangelog_http.wire.encodings import decoded
from rangelog_http.wire.json_pointers import parse_pointer
from rangelog_http.wire.records_in import LINES_TYPES, RECORDS_TYPE, Given, records_of
from rangelog_http.wire.records_out import start_of, token_of
from tests.fuzz.fuzz_engine import MIB, Target
from tests.fuzz.fuzz_targets_text import DEEP, words

BYTES_MAX = 64 * 1024
RECORDS_MAX = 100
ENCODINGS = ("identity", "gzip", "deflate", "zstd", "br", "")
TYPES = (LINES_TYPES[0], RECORDS_TYPE, "application/json", "")
_LINES = b'{"user": {"id": 7}}\n\n[1]\n{"user": null}\r\n"x"'
_LIST = json.dumps(
    {"records": [{"value": "a", "key": "k", "headers": {"h": "1"}, "timestamp_ms": 1}, {"value_base64": "/w=="}]}
).encode()


def run_body(data: bytes) -> bool:
    """Two bytes choose encoding and type; the rest is the body."""
    encoding = ENCODINGS[data[0] % len(ENCODINGS)] if data else ""
    kind = TYPES[data[1] % len(TYPES)] if len(data) > 1 else ""
    try:
        plain = decoded(data[2:], encoding, BYTES_MAX)
        found = records_of(plain, kind, Given(pointer=("user", "id")), RECORDS_MAX)
    except InvalidArgument:
        return False
    assert len(plain) <= BYTES_MAX and 1 <= len(found.records) <= RECORDS_MAX
    for record in found.records:
        assert type(record.value) is bytes and (record.key is None or type(record.key) is bytes)
        assert all(type(value) is bytes for value in (record.headers or {}).values())
    return True


def run_address(data: bytes) -> bool:
    """The parts of an address: a path, a query, a position, a pointer; accepted where the query is one of the last two."""
    path, _, query = data.partition(b"?")
    route_of(path.decode("latin-1"))
    with contextlib.suppress(InvalidArgument):
        query_of(query)
    text = query.decode("latin-1")
    accepted = False
    with contextlib.suppress(InvalidArgument):
        start = start_of(text)
        accepted = True
        assert not isinstance(start, Cut) or start_of(token_of(start)) == start
    with contextlib.suppress(InvalidArgument):
        parse_pointer(text)
        accepted = True
    return accepted


def _bodies() -> list[bytes]:
    """Each encoding with each type."""
    pack = (bytes, gzip.compress, zlib.compress, zstandard.ZstdCompressor().compress)
    return [
        bytes([number, kind]) + encode(body)
        for number, encode in enumerate(pack)
        for kind, body in enumerate((_LINES, _LIST, b'{"user": {"id": "x"}}', b"\xff\x00"))
    ] + [b"\x00\x01" + DEEP, b"\x01\x00" + gzip.compress(bytes(1 << 20)) * 3]


TARGETS = (
    Target(
        "http-body", _bodies, run_body, None,
        words('"records"', '"value"', '"value_base64"', '"headers"', '"key"', '"timestamp_ms"', "null", "NaN", "1e999", "\n",
              "\\ud800"),
        peak_bytes_max=24 * MIB,
    ),
    Target(
        "http-address",
        lambda: [
            b"/v1/topics/a/b/records?from=earliest&limit=1", b"/v1/topics/a/b/tail?" + token_of(Cut(7, {1: 2})).encode(),
            b"?2026-01-01T00:00:00Z", b"?/customer/a~1b/0", b"?" + token_of(Cut(7, dict.fromkeys(range(200), 5))).encode(),
        ],
        run_address, None,
        words("&", "=", "%00", "%ff", "..", "/", "~1", "~0", "earliest", "+00:00", ";", "eJx"),
    ),
)  # fmt: skip
