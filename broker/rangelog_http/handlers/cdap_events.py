"""Events of a stream by their times: GET …/events?start&end&limit, as one list of JSON, in parts.

What holds: each event of [start, end) that was acked when the request came is in the list, however many there are. A client
that reads slowly holds back its own request. A list that could not be read to its end is broken off.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

from rangelog import Client, Cut, TopicRecord
from rangelog.errors import InvalidArgument
from rangelog_broker.verbs.counts import size_of
from rangelog_broker.verbs.read import Reads, ReadStart
from rangelog_core.topic_names import TopicName
from rangelog_http.handlers.aside import Aside
from rangelog_http.handlers.asked import Asked
from rangelog_http.handlers.records import RecordsAnswer, check_known, number_of
from rangelog_http.wire.cdap import event_object

AT_A_TIME = 1_000
"""Events of one read."""
TIME_MAX = (1 << 63) - 1
_DATE_MS_MAX = 253_402_300_799_000
"""The last second of the year 9999."""
_KNOWN = frozenset({"start", "end", "limit"})


class CdapEvents:
    """The handler of events by time."""

    def __init__(self, client: Client, reads: Reads, aside: Aside) -> None:
        self._client = client
        self._reads = reads
        self._aside = aside

    async def get(self, stream: TopicName, asked: Asked) -> RecordsAnswer | None:
        """Send the events; without one the answer is 204. Raises RangelogError before the first byte."""
        first_ms, end_ms, left = _asked_for(asked.query)
        topic, position = str(stream), _start(first_ms)
        is_begun = False
        tail: Cut | None = None
        while left:
            found = await self._reads.read(asked.caller, topic, position, records_max=AT_A_TIME)
            tail = tail or await self._client.topics.cut(topic, "tail")
            events = [each for each in found.records if first_ms <= each.timestamp_ms < end_ms][:left]
            if events:
                left -= len(events)
                if not is_begun:
                    head = [(b"content-type", b"application/json")]
                    await asked.send({"type": "http.response.start", "status": 200, "headers": head})
                part = await self._aside(sum(map(size_of, events)), lambda events=events: _listed(events))  # type: ignore[misc]
                await _part(asked, (b"," if is_begun else b"[") + part)
                is_begun = True
            position = found.position
            if not found.records or _is_behind(found.position, tail):
                break
        if not is_begun:
            return RecordsAnswer(204, "", b"")
        await asked.send({"type": "http.response.body", "body": b"]"})
        return None


async def _part(asked: Asked, data: bytes) -> None:
    await asked.send({"type": "http.response.body", "body": data, "more_body": True})


def _listed(events: list[TopicRecord]) -> bytes:
    return b",".join(map(event_object, events))


def _asked_for(query: Mapping[str, str]) -> tuple[int, int, int]:
    """Return the first time, the end, and how many events at most. Raises InvalidArgument."""
    check_known(query, _KNOWN)
    first_ms = number_of(query, "start", 0, 0, TIME_MAX) or 0
    end_ms = number_of(query, "end", TIME_MAX, 0, TIME_MAX) or 0
    if first_ms >= end_ms:
        raise InvalidArgument("start is a time before end, both in milliseconds")
    return first_ms, end_ms, number_of(query, "limit", TIME_MAX, 1, TIME_MAX) or 0


def _start(first_ms: int) -> ReadStart:
    if not first_ms:
        return "earliest"
    return datetime.fromtimestamp(min(first_ms, _DATE_MS_MAX) / 1_000, UTC)


def _is_behind(position: Cut, tail: Cut) -> bool:
    """Whether all that was acked at first is read: later events could keep the request for ever."""
    return all(position.offsets.get(shard, -1) >= end for shard, end in tail.offsets.items())
