"""How a member stays in its group: it joins, sends heartbeats, takes over what it is handed, and joins again if it is out.

What holds: the time of the last heartbeat that was answered is that of its request, so the group has not given anything away
before that time plus the session's. A heartbeat that waits is given up for one that has news for the group. A member whose id
another instance has taken ends with MemberFenced, and does not join again. One that loses its last shard as all its topics were
deleted ends with TopicNotFound.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

from rangelog._consume.group_calls import CALL_TIMEOUT_S, GroupCalls, position_message
from rangelog._consume.group_core import GroupPosition, GroupShard, MemberCore
from rangelog._consume.group_records import ShardOfTopic
from rangelog._consume.group_shards import GroupShards, GroupStart
from rangelog._metadata import backoff
from rangelog_core.errors import (
    GroupNotFound,
    InvalidArgument,
    MemberFenced,
    MemberNotFound,
    RangelogError,
    TopicNotFound,
)
from rangelog_core.topic_names import parse_topic_name
from rangelog_proto.v1 import group_pb2
from rangelog_proto.v1 import group_service_pb2 as pb

WAIT_MS_MAX = 4_000

_log = logging.getLogger("rangelog.group")


class Membership:
    """See the module. `join` it, then have `run` run; for one event loop."""

    def __init__(
        self,
        calls: GroupCalls,
        shards: GroupShards,
        core: MemberCore,
        group: str,
        member_id: str,
        *,
        start: GroupStart,
        session_s: float,
        changed: Callable[[], None],
    ) -> None:
        """`changed`: called when the core has taken over something, or the group cannot be reached any more."""
        self._calls = calls
        self._shards = shards
        self._core = core
        self._group = group
        self._member_id = member_id
        self._start = start
        self._session_s = session_s
        self._changed = changed
        self._topic_ids: list[int] = []
        self._names: dict[int, str] = {}
        self._is_member = self._had_shards = False
        self._token = 0
        self._heard_s = 0.0
        self._hurry = asyncio.Event()
        self.joined = 0
        """The generation in which the member joined: its commands carry it."""
        self.failed: RangelogError | None = None
        """Why the member cannot stay."""

    @property
    def is_heard(self) -> bool:
        """Whether the group has confirmed this member within its session's time. Otherwise others may have its shards."""
        return time.monotonic() - self._heard_s < self._session_s

    def hurry(self) -> None:
        """Send a heartbeat now."""
        self._hurry.set()

    def of_topic(self, shard: GroupShard) -> ShardOfTopic:
        """Return a shard by its topic's name."""
        return ShardOfTopic(self._names.get(shard.topic_id, str(shard.topic_id)), shard.shard_id)

    def topic_id_of(self, topic: str) -> int:
        """Return the id of a topic that the member subscribes to. Raises InvalidArgument."""
        name = str(parse_topic_name(topic))
        for topic_id, each in self._names.items():
            if each == name:
                return topic_id
        raise InvalidArgument(f"the member does not read topic {name!r}, or is not open")

    async def resolve(self, topics: Sequence[str]) -> None:
        """Look up the topics that the member subscribes to. Raises TopicNotFound."""
        self._names = await self._shards.resolve(topics)
        self._topic_ids = list(self._names)

    def expel(self) -> None:
        """The group has taken this member out: everything is lost, and it joins again."""
        self._is_member = False
        self._core.expelled()
        self._token = 0
        self._hurry.set()
        self._changed()

    @contextmanager
    def speaking(self) -> Iterator[int]:
        """Yield `joined` for one command of the member, and note where the group has taken it out.

        Raises MemberNotFound (it joins again by itself), MemberFenced (it does not: the two would take turns).
        """
        joined = self.joined
        try:
            yield joined
        except MemberNotFound:
            self.expel()
            raise
        except MemberFenced as error:
            if joined != self.joined:  # by itself, which has joined again meanwhile
                raise MemberNotFound(error.message) from error
            self._end(error)
            raise

    def _end(self, error: RangelogError) -> None:
        self._is_member = False
        self._core.expelled()
        self.failed = error
        self._changed()

    async def run(self) -> None:
        """Send heartbeats; join again where the group has taken this member out."""
        attempt = 0
        try:
            while True:
                try:
                    if self._is_member:
                        await self._heartbeat()
                    else:
                        await self.join()
                    attempt = 0
                except MemberNotFound:
                    self.expel()
                except MemberFenced as error:
                    self._end(error)
                    return
                except RangelogError as error:
                    if isinstance(error, GroupNotFound) or not error.retriable:
                        raise
                    _log.info("group %s: %s", self._group, error)
                    await backoff(attempt)
                    attempt += 1
        except RangelogError as error:
            self.failed = error
            self._changed()

    async def join(self) -> None:
        """Join the group. Raises Overloaded, RequestTimeout."""
        starts = await self._starts()
        join = group_pb2.GroupJoin(
            member=self._member_id,
            session_ms=max(1, round(self._session_s * 1000)),
            topic_ids=self._topic_ids,
            starts=starts,
        )
        begun_s = time.monotonic()
        response = await self._calls.join(self._group, join, CALL_TIMEOUT_S)
        self._is_member, self.joined = True, response.joined
        await self._take(response.view, response.token, begun_s)

    async def _starts(self) -> list[group_pb2.GroupPosition]:
        """Where to begin in topics that the group has not read yet."""
        if self._start == "earliest":
            return []
        try:
            known = {each.topic_id for each in (await self._calls.describe(self._group, CALL_TIMEOUT_S)).state.topics}
        except GroupNotFound:
            known = set()
        found: dict[GroupShard, int] = {}
        for topic_id in self._topic_ids:
            if topic_id not in known:
                found |= await self._shards.positions(topic_id, self._start)
        return [position_message(GroupPosition(shard, 0, offset)) for shard, offset in found.items()]

    async def _heartbeat(self) -> None:
        ended = [group_pb2.GroupShard(topic_id=topic, shard_id=shard) for topic, shard in self._core.ended()]
        request = pb.HeartbeatGroupRequest(
            group=self._group,
            member=self._member_id,
            token=self._token,
            wait_ms=0 if not self.is_heard else min(WAIT_MS_MAX, max(1, round(self._session_s * 1000 / 4))),
            ended=ended,
            joined=self.joined,
        )
        self._hurry.clear()
        begun_s = time.monotonic()
        asking = asyncio.ensure_future(self._calls.heartbeat(request, CALL_TIMEOUT_S))
        hurrying = asyncio.ensure_future(self._hurry.wait())
        try:
            await asyncio.wait((asking, hurrying), return_when=asyncio.FIRST_COMPLETED)
            if not asking.done():
                return  # there is news for the group: it is asked again at once
            response = asking.result()
        finally:
            hurrying.cancel()
            asking.cancel()
        await self._take(response.view if response.HasField("view") else None, response.token, begun_s)

    async def _take(self, view: group_pb2.GroupView | None, token: int, begun_s: float) -> None:
        if view is not None:
            for topic_id in dict.fromkeys(each.shard.topic_id for each in view.assigned):
                if topic_id not in self._names:
                    with suppress(TopicNotFound):  # deleted meanwhile: it is taken away soon
                        self._names[topic_id] = await self._shards.name_of(topic_id)
            self._core.viewed(view)
            if view.assigned:
                self._had_shards = True
            elif self._had_shards and not await self._shards.is_any_there(self._topic_ids):
                names = ", ".join(self._names[topic_id] for topic_id in self._topic_ids[:5])
                raise TopicNotFound(f"every topic that the member reads was deleted: {names}")
        was_heard = self.is_heard
        self._heard_s = begun_s
        if view is not None or not was_heard:
            self._changed()
        self._token = token
