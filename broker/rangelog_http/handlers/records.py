"""Records in and out of a topic: POST and GET /v1/topics/NAMESPACE/NAME/records, as bare ASGI."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import parse_qsl

from rangelog.errors import InvalidArgument, PreconditionFailed
from rangelog_broker.verbs import read, send
from rangelog_broker.verbs.caller import Caller
from rangelog_broker.verbs.counts import size_of
from rangelog_broker.verbs.read import Reads
from rangelog_broker.verbs.record_filter import RecordFilter
from rangelog_broker.verbs.send import Outcome, Sends
from rangelog_core.errors import RangelogError
from rangelog_http.answers import status_of
from rangelog_http.handlers.aside import Aside
from rangelog_http.settings import HttpSettings
from rangelog_http.wire.encodings import decoded
from rangelog_http.wire.filters import HEADER_START, NAMES, wanted_of
from rangelog_http.wire.json_pointers import parse_pointer
from rangelog_http.wire.records_in import LINES_TYPES, Given, records_of
from rangelog_http.wire.records_out import dumped, lines_of, object_of, outcome_object, start_of, token_of
from rangelog_server_common.http_guard import KeptShare

HEADER_PREFIX = b"x-rangelog-header-"
NAME_HEADER = b"idempotency-key"
ACKS = ("durable", "none")
_SENT = frozenset({"key", "key_pointer", "ack", "shard"})
_READ = frozenset({"from", "limit", "wait_ms"}) | NAMES
ENCODED_WEIGHT = 64
"""So many times its length a compressed body counts."""
_BYTES = "surrogateescape"
"""Keeps the bytes of a key that is no UTF-8."""

Query = dict[str, str]


class RecordsAnswer(NamedTuple):
    """An answer: its status, its type, its body, and further headers."""

    status: int
    content_type: str
    body: bytes
    headers: tuple[tuple[bytes, bytes], ...] = ()


class RecordHandlers:
    """The handlers of records."""

    def __init__(self, sends: Sends, reads: Reads, settings: HttpSettings, aside: Aside) -> None:
        self._sends = sends
        self._reads = reads
        self._aside = aside
        self._kept = frozenset(name.encode("latin-1", "replace") for name in settings.keep_headers)
        self._pointers = {topic: parse_pointer(text) for topic, text in settings.key_pointers.items()}

    async def post(
        self,
        caller: Caller,
        topic: str,
        query: Query,
        headers: Mapping[bytes, bytes],
        body: bytes,
        share: KeptShare,
    ) -> RecordsAnswer:
        """Send the records of a body; `share`: what its bytes count to.

        Raises RangelogError: no record was sent, or the outcome of the only one.
        """
        check_known(query, _SENT)
        ack = query.get("ack", ACKS[0])
        if ack not in ACKS:
            raise InvalidArgument(f"ack={ack[:40]!r}: {' or '.join(ACKS)}")
        shard = number_of(query, "shard", None, 0, (1 << 64) - 1)
        encoding = headers.get(b"content-encoding", b"").decode("latin-1")
        plain, kept_bytes = body, len(body)
        if encoding:
            plain = await self._aside(len(body) * ENCODED_WEIGHT, lambda: decoded(body, encoding, send.BYTES_MAX))
            kept_bytes += len(plain) if plain is not body else 0
            share.keep(kept_bytes)
        content_type = headers.get(b"content-type", b"").decode("latin-1")
        given = self._given(topic, query, headers)
        found = await self._aside(len(plain), lambda: records_of(plain, content_type, given, send.RECORDS_MAX))
        if found.is_batch:
            share.keep(kept_bytes + len(plain))
        name = headers.get(NAME_HEADER)
        if name is not None:
            if ack == "none" or shard is not None:
                raise InvalidArgument("an Idempotency-Key goes with ack=durable, and without shard")
            outcomes = await self._sends.send_once(caller, topic, found.records, name=name.decode("utf-8", _BYTES))
            if isinstance(outcomes[0], PreconditionFailed):
                raise outcomes[0]
        elif ack == "none":
            await self._sends.send_unacked(caller, topic, found.records, shard=shard)
            return _json(202, {"acked": False, "sent": len(found.records)})
        else:
            outcomes = await self._sends.send(caller, topic, found.records, shard=shard)
        if found.is_batch:
            return _json(_status_of_all(outcomes), {
                "failed": sum(isinstance(each, RangelogError) for each in outcomes),
                "outcomes": [outcome_object(each) for each in outcomes],
            })  # fmt: skip
        (outcome,) = outcomes
        if isinstance(outcome, RangelogError):
            raise outcome
        return RecordsAnswer(200, "application/json", b'{"shard":%d,"offset":%d}' % (outcome.shard, outcome.offset))

    async def get(self, caller: Caller, topic: str, query: Query, headers: Mapping[bytes, bytes]) -> RecordsAnswer:
        """Return records from a position on. Raises RangelogError."""
        check_known(query, _READ, HEADER_START)
        found = await self._reads.read(
            caller,
            topic,
            start_of(query.get("from", "earliest")),
            records_max=number_of(query, "limit", 1_000, 1, read.RECORDS_MAX) or 1,
            wait_s=(number_of(query, "wait_ms", 0, 0, int(read.WAIT_S_MAX * 1_000)) or 0) / 1_000,
            wanted=RecordFilter(*wanted_of(query)),
        )
        token = token_of(found.position)
        behind = ((b"x-rangelog-next", token.encode()), *(((b"x-rangelog-more", b"true"),) if found.more else ()))
        size_bytes = sum(map(size_of, found.records))
        if any(each in headers.get(b"accept", b"").decode("latin-1") for each in LINES_TYPES):
            lines = await self._aside(size_bytes, lambda: lines_of(found.records))
            return RecordsAnswer(200, LINES_TYPES[0], lines, behind)
        body = await self._aside(size_bytes, lambda: object_of(found.records, token, found.more))
        return RecordsAnswer(200, "application/json", body, behind)

    def _given(self, topic: str, query: Query, headers: Mapping[bytes, bytes]) -> Given:
        key: bytes | None = query["key"].encode("utf-8", _BYTES) if "key" in query else None
        kept: dict[str, bytes] = {}
        ms: int | None = None
        for name, value in headers.items():
            if name == b"x-rangelog-key" and key is None:
                key = value
            elif name == b"x-rangelog-timestamp-ms":
                ms = number_of({"timestamp_ms": value.decode("latin-1")}, "timestamp_ms", None, 0, 1 << 62)
            elif name.startswith(HEADER_PREFIX):
                kept[name[len(HEADER_PREFIX) :].decode("latin-1")] = value
            elif name in self._kept:
                kept[name.decode("latin-1")] = value
        pointer = parse_pointer(query["key_pointer"]) if "key_pointer" in query else self._pointers.get(topic, ())
        return Given(key, pointer, kept, ms)


def query_of(query_string: bytes) -> Query:
    """Return the parameters of a query. Raises InvalidArgument where one is given twice."""
    if not query_string:
        return {}
    try:
        text = query_string.decode("utf-8", _BYTES)
        pairs = parse_qsl(text, keep_blank_values=True, max_num_fields=16, errors=_BYTES)
    except ValueError as error:
        raise InvalidArgument(f"the query: {error}") from None
    query = dict(pairs)
    if len(query) != len(pairs):
        raise InvalidArgument("a parameter of the query is given twice")
    return query


def check_known(query: Mapping[str, str], known: frozenset[str], start: str = "") -> None:
    """Raise InvalidArgument where a query has another parameter than the known ones, or those that begin with `start`."""
    for name in query:
        if name not in known and not (start and name.startswith(start)):
            raise InvalidArgument(f"the query has no parameter {name[:40]!r}: there are {', '.join(sorted(known))}")


def number_of(query: Mapping[str, str], name: str, default: int | None, least: int, most: int) -> int | None:
    """Return a parameter of a query that is a whole number. Raises InvalidArgument."""
    text = query.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and len(text) <= 20 and least <= int(text) <= most):
        raise InvalidArgument(f"{name}={text[:40]!r}: a whole number from {least} to {most}")
    return int(text)


def _json(status: int, value: Any, headers: tuple[tuple[bytes, bytes], ...] = ()) -> RecordsAnswer:
    return RecordsAnswer(status, "application/json", dumped(value), headers)


def _status_of_all(outcomes: list[Outcome]) -> int:
    """Return 200 where all are in, 207 where some are; else that of an unknown outcome, or the first one's."""
    errors = [each for each in outcomes if isinstance(each, RangelogError)]
    if not errors:
        return 200
    unknown = next((each for each in errors if each.outcome_unknown), errors[0])
    return 207 if len(errors) < len(outcomes) else status_of(unknown)
