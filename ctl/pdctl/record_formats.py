"""Records as bytes of a file, a pipe or a terminal, in both directions.

    value      the value and a line end; of input: a line is a value
    text       offset, time, key and value, for people; output only
    json       an object per line, with key, value, headers and timestamp; what is not UTF-8 as {"base64": …}
    raw        the values' bytes and nothing else; of input: all of it is one value
    prefixed   each value behind its length, four bytes, the highest first

What holds: what `json` writes it reads again as the same keys, values, headers and timestamps. On a terminal nothing of a
record is a control character.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable
from typing import Any

from pdctl.record_text import json_line, shown_bytes, shown_headers, yaml_item
from pdctl.units import quoted, show_time
from rangelog_core.errors import InvalidArgument, RecordTooLarge
from rangelog_core.limits import RECORD_SIZE_BYTES_MAX
from rangelog_core.record import AppendRecord

INPUTS = ("value", "json", "raw", "prefixed")
OUTPUTS = ("value", "text", "json", "raw", "prefixed")
BINARY = ("raw", "prefixed")
JSON_LINE_BYTES_MAX = 8 * RECORD_SIZE_BYTES_MAX
"""Of one byte JSON makes up to six."""
_PREFIX_BYTES = 4
_FIELDS = {"key", "value", "headers", "timestamp_ms", "offset", "shard_id"}


class WholeInput:
    """All of the input is one record; empty input has no record."""

    def __init__(self) -> None:
        self._data = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """Keep it. Raises RecordTooLarge."""
        self._data += data
        if len(self._data) > RECORD_SIZE_BYTES_MAX:
            raise RecordTooLarge(
                f"the input is over {RECORD_SIZE_BYTES_MAX} bytes: store it as an object and append a reference"
            )
        return []

    def close(self) -> list[bytes]:
        """Return it."""
        return [bytes(self._data)] if self._data else []


class PrefixSplitter:
    """Each record is behind its length."""

    def __init__(self) -> None:
        self._rest = bytearray()
        self._count = 0

    def feed(self, data: bytes) -> list[bytes]:
        """Return the records that are whole. Raises RecordTooLarge."""
        self._rest += data
        found: list[bytes] = []
        place = 0
        while len(self._rest) - place >= _PREFIX_BYTES:
            begin = place + _PREFIX_BYTES
            length = int.from_bytes(self._rest[place:begin], "big")
            if length > RECORD_SIZE_BYTES_MAX:
                raise RecordTooLarge(
                    f"record {self._count + 1} has the length {length}, over {RECORD_SIZE_BYTES_MAX} bytes: are four bytes of "
                    "length, the highest first, before each value?"
                )
            if len(self._rest) < begin + length:
                break
            found.append(bytes(self._rest[begin : begin + length]))
            place, self._count = begin + length, self._count + 1
        del self._rest[:place]
        return found

    def close(self) -> list[bytes]:
        """Raise InvalidArgument where the last record is not whole."""
        if self._rest:
            raise InvalidArgument(f"the input ends within record {self._count + 1}: it is not appended")
        return []


def prefixed(value: bytes) -> bytes:
    """Return a value behind its length."""
    return len(value).to_bytes(_PREFIX_BYTES, "big") + value


def record_view(record: Any) -> dict[str, Any]:
    """Return a record for JSON and YAML."""
    shard = {} if (shard_id := getattr(record, "shard_id", None)) is None else {"shard_id": shard_id}
    return shard | {
        "offset": record.offset,
        "timestamp_ms": record.timestamp_ms,
        "key": None if record.key is None else shown_bytes(record.key),
        "value": shown_bytes(record.value),
        "headers": shown_headers(record.headers),
    }


def parse_record(line: bytes) -> AppendRecord:
    """Return the record that a line of JSON describes; `offset` and `shard_id` are passed over. Raises InvalidArgument."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InvalidArgument(
            "this is not JSON: a line is an object as `pdctl stream read` and `topic consume` print it with --format json"
        ) from error
    if not isinstance(found, dict) or "value" not in found:
        raise InvalidArgument('this is not a JSON object with a "value"')
    unknown = sorted(set(found) - _FIELDS)
    if unknown:
        raise InvalidArgument(f"there is no field {quoted(unknown[0])}: there are key, value, headers and timestamp_ms")
    key, headers, timestamp_ms = found.get("key"), found.get("headers") or {}, found.get("timestamp_ms")
    if not isinstance(headers, dict):
        raise InvalidArgument("headers is an object of names and values")
    if timestamp_ms is not None and type(timestamp_ms) is not int:
        raise InvalidArgument("timestamp_ms is a whole number, milliseconds since 1970")
    return AppendRecord(
        parse_bytes("value", found["value"]),
        None if key is None else parse_bytes("key", key),
        {name: parse_bytes(f"header {quoted(name)}", each) for name, each in headers.items()},
        timestamp_ms,
    )


def parse_bytes(what: str, shown: object) -> bytes:
    """Return the bytes that `shown_bytes` shows. Raises InvalidArgument."""
    try:
        if isinstance(shown, str):
            return shown.encode()
        if isinstance(shown, dict) and set(shown) == {"base64"} and isinstance(shown["base64"], str):
            return base64.b64decode(shown["base64"], validate=True)
    except (UnicodeEncodeError, binascii.Error, ValueError):
        pass
    raise InvalidArgument(f'{what} is neither text nor {{"base64": …}}')


def renderer(shape: str, *, on_terminal: bool) -> Callable[[Any], bytes]:
    """Return what renders a record."""
    plain = escaped if on_terminal else bytes
    renderers: dict[str, Callable[[Any], bytes]] = {
        "value": lambda record: plain(record.value) + b"\n",
        "text": lambda record: _text(record, plain(record.value)),
        "json": lambda record: json_line(record_view(record)),
        "yaml": lambda record: yaml_item(record_view(record)),
        "raw": lambda record: record.value,
        "prefixed": lambda record: prefixed(record.value),
    }
    return renderers[shape]


def _text(record: Any, value: bytes) -> bytes:
    key = b"-" if record.key is None else escaped(record.key)
    shard_id = getattr(record, "shard_id", None)
    shard = "" if shard_id is None else f"{shard_id}  "
    return b"  ".join((f"{shard}{record.offset}  {show_time(record.timestamp_ms)}".encode(), key, value)) + b"\n"


def escaped(data: bytes) -> bytes:
    """Return text on one line without control characters: other bytes are written as Python writes them in a string.

    >>> escaped(b"caf\\xc3\\xa9\\x1b[31m\\xff\\n").decode()
    'café\\\\x1b[31m\\\\xff\\\\n'
    """
    text = data.decode("utf-8", "backslashreplace")
    if text.isprintable():
        return text.encode()
    return "".join(each if each.isprintable() or each == "\t" else repr(each)[1:-1] for each in text).encode()
