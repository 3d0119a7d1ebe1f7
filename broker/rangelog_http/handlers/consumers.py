"""Consumers of groups: /v1/groups/GROUP/consumers, by the verb of consumers. A client keeps its consumer by asking in time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from rangelog import ShardOfTopic
from rangelog.errors import InvalidArgument
from rangelog_broker.verbs import consume, read
from rangelog_broker.verbs.consume import Consumes
from rangelog_http.handlers.aside import Aside
from rangelog_http.handlers.asked import Asked, Route, json_answer
from rangelog_http.handlers.records import RecordsAnswer, check_known, number_of
from rangelog_http.wire.records_in import LINES_TYPES
from rangelog_http.wire.records_out import dequeued_object, dumped, grouped_object, start_of

_JOINED = frozenset({"topics", "start", "session_s", "skip_trimmed"})
_DEQUEUED = frozenset({"limit", "wait_ms", "commit"})
_NUMBER_MAX = 1 << 62


class ConsumerRoutes:
    """The routes of consumers."""

    def __init__(self, consumes: Consumes, aside: Aside) -> None:
        self._consumes = consumes
        self._aside = aside

    def find(self, path: str) -> Route | None:
        """Return what answers a path; None: it is another one."""
        parts = path.split("/")
        if parts[1:3] != ["v1", "groups"] or len(parts) not in (5, 6, 7) or parts[4] != "consumers":
            return None
        if len(parts) == 5:
            return partial(self._join, parts[3])
        if len(parts) == 6:
            return partial(self._end, parts[3], parts[5])
        work = {"dequeue": self._dequeue, "commit": self._commit}.get(parts[6])
        return None if work is None else partial(work, parts[3], parts[5])

    async def _join(self, group: str, asked: Asked) -> RecordsAnswer:
        asked.check_method("POST")
        check_known(asked.query, frozenset())
        given = asked.json_object()
        check_known(given, _JOINED)
        topics, session_s = given.get("topics"), given.get("session_s", consume.SESSION_S)
        if not isinstance(topics, list) or not all(isinstance(each, str) for each in topics):
            raise InvalidArgument('topics is a list of names: {"topics": ["shop/orders"]}')
        if isinstance(session_s, bool) or not isinstance(session_s, int | float):
            raise InvalidArgument("session_s is a number of seconds")
        found = await self._consumes.join(
            asked.caller,
            group,
            topics,
            start=start_of(_text(given, "start", "earliest")),
            session_s=session_s,
            skip_trimmed=_yes(given, "skip_trimmed"),
        )
        return json_answer(201, {"consumer": found, "group": group, "session_s": session_s})

    async def _dequeue(self, group: str, consumer: str, asked: Asked) -> RecordsAnswer:
        asked.check_method("POST")
        check_known(asked.query, _DEQUEUED)
        found = await self._consumes.dequeue(
            asked.caller,
            group,
            consumer,
            records_max=number_of(asked.query, "limit", 1_000, 1, consume.RECORDS_MAX) or 1,
            wait_s=(number_of(asked.query, "wait_ms", 0, 0, int(read.WAIT_S_MAX * 1_000)) or 0) / 1_000,
            commit=number_of(asked.query, "commit", 0, 0, _NUMBER_MAX) or 0,
        )
        size_bytes = sum(len(each.value) for each in found.records)
        if any(each in asked.header(b"accept") for each in LINES_TYPES):
            lines = await self._aside(
                size_bytes, lambda: b"".join(dumped(grouped_object(each)) + b"\n" for each in found.records)
            )
            more = ((b"x-rangelog-batch", b"%d" % found.batch), (b"x-rangelog-lost", b"%d" % len(found.lost)))
            return RecordsAnswer(200, LINES_TYPES[0], lines, more)
        return RecordsAnswer(
            200,
            "application/json",
            await self._aside(size_bytes, lambda: dequeued_object(found.batch, found.records, _shards(found.lost))),
        )

    async def _commit(self, group: str, consumer: str, asked: Asked) -> RecordsAnswer:
        asked.check_method("POST")
        check_known(asked.query, frozenset({"batch"}))
        batch = number_of(asked.query, "batch", None, 1, _NUMBER_MAX)
        if batch is None:
            raise InvalidArgument("?batch= is missing: the number of the batch that is processed")
        await self._consumes.commit(asked.caller, group, consumer, batch)
        return json_answer(200, {"committed": batch})

    async def _end(self, group: str, consumer: str, asked: Asked) -> RecordsAnswer:
        asked.check_method("DELETE")
        check_known(asked.query, frozenset())
        await self._consumes.end(asked.caller, group, consumer)
        return RecordsAnswer(204, "", b"")


def _shards(shards: Sequence[ShardOfTopic]) -> list[dict[str, Any]]:
    return [{"topic": topic, "shard": shard} for topic, shard in shards]


def _text(given: Mapping[str, Any], name: str, default: str) -> str:
    value = given.get(name, default)
    if not isinstance(value, str):
        raise InvalidArgument(f"{name} is a text")
    return value


def _yes(given: Mapping[str, Any], name: str) -> bool:
    value = given.get(name, False)
    if not isinstance(value, bool):
        raise InvalidArgument(f"{name} is true or false")
    return value
