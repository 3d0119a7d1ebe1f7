"""What the placement driver assigns to this broker, and the rows of its topics: one watch session, kept for the broker's life.

What holds: `assigned` is what the placement driver had assigned at some moment, and is brought up to date as soon as it can be
reached. It is a hint: the epoch of a shard's stream decides who owns it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from rangelog.errors import RangelogError
from rangelog_core.net.pd_client import PdClient
from rangelog_proto.v1 import broker_pb2, pd_pb2, topic_pb2

WAIT_MS = 2_000
CALL_TIMEOUT_S = 4.0
TOPICS_PER_CALL = 5_000
PAUSE_S = (0.02, 1.0)
ALL_VERSIONS = (1 << 63) - 1
"""A map version above any: no shards are sent, only the topic's row."""

OwnedKey = tuple[int, int]

_log = logging.getLogger("rangelog.broker")


class AssignmentWatch:
    """The session. `run` it as a task; for one event loop."""

    def __init__(self, pd: PdClient, name: str, incarnation: int) -> None:
        self.assigned: dict[OwnedKey, int] = {}
        """The owner epoch of what is assigned to this broker in this incarnation."""
        self.topics: dict[int, topic_pb2.Topic] = {}
        """The rows of the topics of those shards."""
        self.on_assigned: Callable[[OwnedKey], object] = lambda key: None
        self.on_withdrawn: Callable[[OwnedKey], object] = lambda key: None
        self.on_topic: Callable[[topic_pb2.Topic], object] = lambda topic: None
        self.on_topic_gone: Callable[[int], object] = lambda topic_id: None
        self._pd = pd
        self._name = name
        self._incarnation = incarnation
        self._shards_of: dict[int, int] = {}  # assigned shards by topic
        self._to_begin: dict[int, None] = {}
        self._to_end: dict[int, None] = {}
        self._stale: dict[OwnedKey, None] = {}  # assigned before this session, and not listed in it yet
        self._begun = False
        self._nothing = asyncio.Event()
        self._nothing.set()

    async def wait_for_nothing(self) -> None:
        """Return once nothing is assigned to this broker."""
        await self._nothing.wait()

    async def run(self) -> None:
        """Watch until cancelled."""
        session = acked = call = attempt = 0
        while True:
            call += 1
            begin = list(self._to_begin)[:TOPICS_PER_CALL]
            end = list(self._to_end)
            request = pd_pb2.WatchRequest(
                session=session,
                acked=acked,
                call=call,
                wait_ms=0 if begin or end or not session else WAIT_MS,
                begin_topics=[pd_pb2.WatchedTopic(topic_id=each, map_version=ALL_VERSIONS) for each in begin],
                end_topics=end,
                begin_broker="" if session else self._name,
            )
            try:
                answer = await self._pd.call(request, pd_pb2.WatchResponse, timeout_s=CALL_TIMEOUT_S)
            except RangelogError as error:
                _log.debug("assignments are not watched: %s", error)
                session = acked = 0
                self._begin_anew()
                await asyncio.sleep(min(PAUSE_S[1], PAUSE_S[0] * 2.0 ** min(attempt, 8)))
                attempt += 1
                continue
            attempt = 0
            if not answer.session:
                session = acked = 0
                self._begin_anew()
                continue
            session, acked = answer.session, answer.sequence
            for topic_id in begin:
                self._to_begin.pop(topic_id, None)
            for topic_id in end:
                self._to_end.pop(topic_id, None)
            self._take(answer)

    # ---- inside

    def _begin_anew(self) -> None:
        self._stale = dict.fromkeys(self.assigned)
        self._to_begin = dict.fromkeys(self._shards_of)
        self._to_end.clear()
        self._begun = False

    def _take(self, answer: pd_pb2.WatchResponse) -> None:
        for row in answer.assignments:
            self._note(row)
        if not answer.more and not self._begun:
            self._begun = True
            for key in self._stale:
                self._withdraw(key)
            self._stale.clear()
        for topic in answer.topics:
            if topic.topic_id in self._shards_of:
                self.topics[topic.topic_id] = topic
                self.on_topic(topic)
        for topic_id in answer.deleted_topic_ids:
            self.topics.pop(topic_id, None)

    def _note(self, row: broker_pb2.Assignment) -> None:
        key = (row.topic_id, row.shard_id)
        if row.broker != self._name or row.incarnation != self._incarnation:
            self._withdraw(key)
            return
        self._stale.pop(key, None)
        known = self.assigned.get(key)
        if known == row.owner_epoch:
            return
        self.assigned[key] = row.owner_epoch
        self._nothing.clear()
        if known is None and row.topic_id:
            count = self._shards_of.get(row.topic_id, 0)
            self._shards_of[row.topic_id] = count + 1
            if not count:  # also where the session has the topic still: its row was forgotten, and is sent again
                self._to_end.pop(row.topic_id, None)
                self._to_begin[row.topic_id] = None
        self.on_assigned(key)

    def _withdraw(self, key: OwnedKey) -> None:
        if self.assigned.pop(key, None) is None:
            return
        if not self.assigned:
            self._nothing.set()
        if key[0]:
            self._shards_of[key[0]] -= 1
            if not self._shards_of[key[0]]:
                del self._shards_of[key[0]]
                self.topics.pop(key[0], None)
                self.on_topic_gone(key[0])
                self._to_begin.pop(key[0], None)
                self._to_end[key[0]] = None
        self.on_withdrawn(key)
