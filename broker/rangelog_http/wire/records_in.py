"""The records of a request's body. No I/O.

What holds: all of a body is checked before any record of it is returned; an error names the line or entry at fault. No more
JSON is parsed in one piece than LIST_BYTES_MAX: nothing else runs in the process meanwhile, whichever thread it is on.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from typing import Any, NamedTuple, NoReturn

from rangelog import AppendRecord
from rangelog.errors import InvalidArgument, RecordTooLarge
from rangelog_core.limits import RECORD_SIZE_BYTES_MAX
from rangelog_http.wire.json_pointers import key_at

RECORDS_TYPE = "application/vnd.rangelog.records+json"
"""A batch with keys, headers and times: {"records": [{"value": …}]}."""
LINES_TYPES = ("application/x-ndjson", "application/jsonl")
LIST_BYTES_MAX = 1024 * 1024
"""Of a batch that is one JSON value: a tenth of a second of parsing."""
_FIELDS = frozenset({"value", "value_base64", "key", "key_base64", "headers", "timestamp_ms"})


class Given(NamedTuple):
    """The parts of a request that are of all its records.

    Args:
        key: The key; None: none is given.
        pointer: Where in a JSON value the key is; (): nowhere.
        headers: The headers that are kept.
        timestamp_ms: The time of the event; None: now.
    """

    key: bytes | None = None
    pointer: tuple[str, ...] = ()
    headers: Mapping[str, bytes] = {}
    timestamp_ms: int | None = None


class Body(NamedTuple):
    """The records of a body; `is_batch`: the answer lists their outcomes."""

    records: list[AppendRecord]
    is_batch: bool


def records_of(body: bytes, content_type: str, given: Given, records_max: int) -> Body:
    """Return the records of a body. Raises InvalidArgument, RecordTooLarge.

    Example:
        >>> records_of(b'{"n": 1}\\n{"n": 2}\\n', "application/x-ndjson", Given(pointer=("n",)), 10).records[1].key
        b'2'
    """
    kind = content_type.partition(";")[0].strip().lower()
    if kind in LINES_TYPES:
        return Body(_lines(body, given, records_max), is_batch=True)
    if kind == RECORDS_TYPE:
        if len(body) > LIST_BYTES_MAX:
            raise RecordTooLarge(
                f"a list has up to {LIST_BYTES_MAX} bytes, and this one {len(body)}: send lines, {LINES_TYPES[0]}"
            )
        return Body(_listed(_parsed(body, "the body"), given, records_max), is_batch=True)
    key = given.key
    if given.pointer and key is None and len(body) <= RECORD_SIZE_BYTES_MAX:  # a larger one is refused, and not parsed
        key = key_at(_parsed(body, "the body"), given.pointer)
    return Body([AppendRecord(body, key, given.headers, given.timestamp_ms)], is_batch=False)


def _lines(body: bytes, given: Given, records_max: int) -> list[AppendRecord]:
    records: list[AppendRecord] = []
    for number, line in enumerate(body.split(b"\n"), 1):
        text = line.strip()
        if not text:
            continue
        if len(records) >= records_max:
            raise InvalidArgument(f"more than {records_max} lines: no line was sent")
        key = given.key
        if len(text) <= RECORD_SIZE_BYTES_MAX:  # a larger one is refused, and not parsed
            value = _parsed(text, f"line {number}")
            if given.pointer and key is None:
                key = _at(f"line {number}", value, given.pointer)
        records.append(AppendRecord(text, key, given.headers, given.timestamp_ms))
    if not records:
        raise InvalidArgument("the body has no lines")
    return records


def _listed(parsed: Any, given: Given, records_max: int) -> list[AppendRecord]:
    listed = parsed.get("records") if isinstance(parsed, dict) and parsed.keys() == {"records"} else None
    if not isinstance(listed, list) or not listed:
        raise InvalidArgument('the body is {"records": [{"value": "…"}, …]}, with at least one record')
    if len(listed) > records_max:
        raise InvalidArgument(f"{len(listed)} records: {records_max} are allowed; no record was sent")
    return [_entry(f"record {index}", each, given) for index, each in enumerate(listed)]


def _entry(where: str, entry: Any, given: Given) -> AppendRecord:
    if not isinstance(entry, dict) or not entry.keys() <= _FIELDS:
        raise InvalidArgument(f"{where}: an object with {', '.join(sorted(_FIELDS))}; no record was sent")
    value = _bytes_of(where, entry, "value")
    if value is None:
        raise InvalidArgument(f"{where} has neither value nor value_base64; no record was sent")
    key = _bytes_of(where, entry, "key")
    if key is None:
        key = given.key
    if key is None and given.pointer:
        key = _at(where, _parsed(value, f"the value of {where}"), given.pointer)
    headers = entry.get("headers", {})
    if not isinstance(headers, dict) or not all(isinstance(each, str) for each in headers.values()):
        raise InvalidArgument(f"{where}: headers is an object of texts; no record was sent")
    ms = entry.get("timestamp_ms", given.timestamp_ms)
    if ms is not None and type(ms) is not int:
        raise InvalidArgument(f"{where}: timestamp_ms is a whole number; no record was sent")
    kept = {name: _utf8(where, text) for name, text in headers.items()}
    return AppendRecord(value, key, {**given.headers, **kept}, ms)


def _bytes_of(where: str, entry: dict[str, Any], name: str) -> bytes | None:
    """Return a field that is text, or base64 under another name; None: neither is there."""
    text, encoded = entry.get(name), entry.get(f"{name}_base64")
    if text is not None and encoded is not None:
        raise InvalidArgument(f"{where} has {name} and {name}_base64: give one; no record was sent")
    if text is None and encoded is None:
        return None
    if not isinstance(text if encoded is None else encoded, str):
        raise InvalidArgument(f"{where}: {name} is a text; no record was sent")
    if encoded is None:
        return _utf8(where, text)
    try:
        return base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError) as error:
        raise InvalidArgument(f"{where}: {name}_base64 is not base64: {error}; no record was sent") from None


def _utf8(where: str, text: Any) -> bytes:
    try:
        return str(text).encode()
    except UnicodeEncodeError:
        raise InvalidArgument(f"{where}: a text is not valid Unicode; no record was sent") from None


def _at(where: str, value: Any, pointer: tuple[str, ...]) -> bytes | None:
    try:
        return key_at(value, pointer)
    except InvalidArgument as error:
        raise InvalidArgument(f"{where}: {error.message}; no record was sent") from None


def _parsed(text: bytes, what: str) -> Any:
    """Return a JSON value as other programs read it: UTF-8, without the numbers that only Python knows."""
    try:
        return json.loads(text.decode(), parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise InvalidArgument(f"{what} is not JSON ({str(error)[:100]}): no record was sent") from None


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no number")
