"""The stream routes of Continuuity Reactor (/v2/streams) and CDAP (/v3/namespaces/NAMESPACE/streams): a stream is a topic.

What holds: each route has the status codes of the original. An event is answered with 200 once it is acked; what is refused has
the form of all errors of this door. To truncate gives all keys to new shards first: what is acked before is gone once it is
answered, what is acked behind it stays.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable
from functools import partial

from rangelog import AppendRecord, Client, Cut, Retention, TopicConfig, TopicConfigChange, TopicInfo
from rangelog.errors import (
    InvalidArgument,
    OutcomeUnknown,
    PreconditionFailed,
    RangelogError,
    RequestTimeout,
    ShardEnded,
    TopicExists,
    TopicKindForbids,
    TopicStateForbids,
)
from rangelog_broker.verbs import send
from rangelog_broker.verbs.read import TOPIC
from rangelog_broker.verbs.send import Sends
from rangelog_core.rights import Verb
from rangelog_core.topic_names import TopicName
from rangelog_http.handlers.asked import Asked, Route, json_answer
from rangelog_http.handlers.cdap_dequeue import CdapDequeues
from rangelog_http.handlers.cdap_events import CdapEvents
from rangelog_http.handlers.records import RecordsAnswer, check_known
from rangelog_http.wire.cdap import age_of_ttl, event_headers, events_of, stream_of, ttl_of_age
from rangelog_server_common.http_guard import Refusal

CALL_TIMEOUT_S = 20.0
TRUNCATE_TIMEOUT_S = 60.0
LOOK_AGAIN_S = 0.1
OK = RecordsAnswer(200, "text/plain", b"")

_StreamRoute = Callable[[TopicName, Asked], Awaitable[RecordsAnswer | None]]


class CdapRoutes:
    """The routes of streams."""

    def __init__(self, client: Client, sends: Sends, dequeues: CdapDequeues, events: CdapEvents) -> None:
        self._client = client
        self._sends = sends
        self._routes: dict[str, dict[str, _StreamRoute]] = {
            "": {"PUT": self._create, "POST": self._event, "GET": self._info, "DELETE": self._delete},
            "async": {"POST": self._event_unacked},
            "batch": {"POST": self._batch},
            "consumer-id": {"POST": dequeues.make},
            "dequeue": {"POST": dequeues.dequeue},
            "truncate": {"POST": self._truncate},
            "config": {"PUT": self._configure},
            "properties": {"PUT": self._configure},
            "events": {"GET": events.get},
            "info": {"GET": self._info},
        }

    def find(self, path: str) -> Route | None:
        """Return what answers a path; None: it is another one."""
        found = stream_of(path)
        methods = self._routes.get(found[2]) if found is not None else None
        if found is None or methods is None:
            return None
        return partial(self._answer, found[0], found[1], methods)

    async def _answer(
        self, namespace: str, stream: str, methods: dict[str, _StreamRoute], asked: Asked
    ) -> RecordsAnswer | None:
        asked.check_method(*methods)
        return await methods[asked.method](TopicName(namespace, stream), asked)

    # ---- the stream itself

    async def _create(self, stream: TopicName, asked: Asked) -> RecordsAnswer:
        check_known(asked.query, frozenset())
        config = TopicConfig(retention=Retention(age_seconds=age_of_ttl(asked.json_object()) or 0))
        try:
            await self._client.topics.create(str(stream), config, timeout_s=CALL_TIMEOUT_S)
        except TopicExists:
            await self._described(stream)
        return OK

    async def _delete(self, stream: TopicName, asked: Asked) -> RecordsAnswer:
        check_known(asked.query, frozenset())
        await self._client.topics.delete(str(stream), force=True, timeout_s=CALL_TIMEOUT_S)
        return OK

    async def _info(self, stream: TopicName, asked: Asked) -> RecordsAnswer:
        check_known(asked.query, frozenset())
        found = await self._described(stream)
        return json_answer(200, {"name": stream.name, "ttl": ttl_of_age(_age_s(found))})

    async def _configure(self, stream: TopicName, asked: Asked) -> RecordsAnswer:
        check_known(asked.query, frozenset())
        found = await self._described(stream)
        age_s = age_of_ttl(asked.json_object())
        if age_s is not None:
            retention = dataclasses.replace(found.config.retention, age_seconds=age_s)
            await self._client.topics.update(
                str(stream), TopicConfigChange(retention=retention), timeout_s=CALL_TIMEOUT_S
            )
        return OK

    async def _described(self, stream: TopicName) -> TopicInfo:
        """Return a stream. Raises TopicNotFound, TopicKindForbids: a table has its name."""
        found = await self._client.topics.describe(str(stream), timeout_s=CALL_TIMEOUT_S)
        if found.kind != "records":
            raise TopicKindForbids(f"{stream} is a {found.kind}, and no stream")
        return found

    # ---- events in

    async def _event(self, stream: TopicName, asked: Asked) -> RecordsAnswer:
        check_known(asked.query, frozenset())
        await self._send(stream, asked, [_event_of(stream, asked)])
        return OK

    async def _event_unacked(self, stream: TopicName, asked: Asked) -> RecordsAnswer:
        check_known(asked.query, frozenset())
        await self._sends.send_unacked(asked.caller, str(stream), [_event_of(stream, asked)])
        return OK._replace(status=202)

    async def _batch(self, stream: TopicName, asked: Asked) -> RecordsAnswer:
        check_known(asked.query, frozenset())
        headers = event_headers(stream.name, asked.headers)
        events = events_of(asked.body, asked.header(b"content-type"), headers, send.RECORDS_MAX)
        if events is None:
            raise Refusal(406, InvalidArgument("a batch is text/…, with an event a line: no other type is taken here"))
        await self._send(stream, asked, events)
        return OK

    async def _send(self, stream: TopicName, asked: Asked, events: list[AppendRecord]) -> None:
        """Send events. Raises the error of the first that is not in; OutcomeUnknown where some of several are in."""
        outcomes = await self._sends.send(asked.caller, str(stream), events)
        errors = [each for each in outcomes if isinstance(each, RangelogError)]
        if errors and len(errors) < len(outcomes):
            raise OutcomeUnknown(f"{len(outcomes) - len(errors)} of {len(outcomes)} events are in: {errors[0].message}")
        for error in errors:
            raise error

    # ---- generations

    async def _truncate(self, stream: TopicName, asked: Asked) -> RecordsAnswer:
        check_known(asked.query, frozenset())
        await asked.caller.require_named(Verb.TRIM, TOPIC, str(stream))
        found = await self._described(stream)
        try:
            async with asyncio.timeout(TRUNCATE_TIMEOUT_S):
                is_cut = False
                while True:
                    is_cut = is_cut or await self._begin_to_truncate(stream, found)
                    if is_cut and (await self._described(stream)).state != "truncating":
                        return OK
                    await asyncio.sleep(LOOK_AGAIN_S)
        except TimeoutError:
            raise RequestTimeout(
                f"stream {stream} is not truncated within {TRUNCATE_TIMEOUT_S:g} s; it may be later",
                outcome_unknown=True,
            ) from None

    async def _begin_to_truncate(self, stream: TopicName, found: TopicInfo) -> bool:
        """Give all keys to new shards, and cut before them. Return whether that was possible now: others may change it, too."""
        topics, name = self._client.topics, str(stream)
        try:
            if found.state == "sealed":
                cut = await topics.cut(name, "tail")
            else:
                shards = await topics.shards(name)
                parents, keys = [each.shard_id for each in shards], [each.key_range for each in shards]
                new = await topics.scale(name, parents, keys, timeout_s=CALL_TIMEOUT_S)
                cut = Cut(found.topic_id, {each.shard_id: 0 for each in new})
            await topics.truncate(name, cut, timeout_s=CALL_TIMEOUT_S)
        except (TopicStateForbids, ShardEnded, PreconditionFailed):
            return False
        return True


def _event_of(stream: TopicName, asked: Asked) -> AppendRecord:
    return AppendRecord(asked.body, None, event_headers(stream.name, asked.headers), None)


def _age_s(found: TopicInfo) -> float:
    return float(found.config.retention.age_seconds)  # type: ignore[arg-type]  # as read it is a number
