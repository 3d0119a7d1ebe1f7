"""Watches of topics: one session for all readers, producers and groups of a client, with the latest shard map of each topic.

What holds: the map of a watch is that of one version, with all shards that the topic ever had, and its version never falls. A
sound watch has the latest map but for what is on its way; one that is not sound is refreshed by `changed`, by a listing.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from rangelog._metadata import Metadata
from rangelog._read.watch_calls import BEGIN_MAX, FALL_BACK_S, WatchCalls
from rangelog._topics.messages import shard_info
from rangelog._topics.topic_calls import ListedShards, TopicCalls, by_id
from rangelog._topics.values import ShardInfo
from rangelog_core.errors import TopicNotFound, Unavailable
from rangelog_proto.v1 import broker_pb2, pd_pb2
from rangelog_proto.v1 import topic_pb2 as pb

IDLE_WAIT_S = 5.0
"""How long `changed` waits for a change of a sound watch."""

_log = logging.getLogger("rangelog.topics")


class TopicShards(NamedTuple):
    """All shards that a topic had up to a map version, by id."""

    topic_id: int
    version: int
    shards: Mapping[int, ShardInfo]


def topic_shards(listed: ListedShards) -> TopicShards:
    """Return the map of a listing of all shards."""
    shards = MappingProxyType({shard.shard_id: shard for shard in listed.shards})
    return TopicShards(listed.topic.topic_id, listed.topic.map_version, shards)


class ShardMapWatch:
    """One topic, watched by any number of users."""

    def __init__(self, known: TopicShards) -> None:
        self.map = known
        self.owners: dict[int, broker_pb2.Assignment] = {}
        """The owner of each current shard that has one, by shard id; while the watch is sound."""
        self.is_sound = False
        self.is_deleted = False
        self.version = 0
        self.users = 0
        self._arriving: dict[int, ShardInfo] = {}  # of a version whose topic row has not come yet
        self._changed = asyncio.Event()

    def note(self) -> None:
        """Raise the version: something changed, or may have."""
        self.version += 1
        self._changed.set()
        self._changed = asyncio.Event()

    async def wait(self, version: int, timeout_s: float) -> None:
        """Return once the version differs from `version`, or after the time; soon where the watch is not sound."""
        if version != self.version:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s if self.is_sound else min(timeout_s, FALL_BACK_S)):
                await self._changed.wait()

    def take_map(self, version: int, shards: Iterable[ShardInfo]) -> None:
        """Take over the shards that changed up to a map version. An earlier version is ignored."""
        if version > self.map.version:
            merged = {**self.map.shards, **{shard.shard_id: shard for shard in shards}}
            self.map = TopicShards(self.map.topic_id, version, MappingProxyType(merged))
            self.note()

    def take_shard(self, shard: pb.Shard) -> None:
        """Keep a changed shard until the topic's row says of which map version it is."""
        self._arriving[shard.shard_id] = shard_info(shard)

    def take_topic(self, topic: pb.Topic) -> None:
        """All shards that changed up to the version of this row have come."""
        self.take_map(topic.map_version, self._arriving.values())
        self._arriving.clear()
        shards = self.map.shards
        for shard_id in [each for each in self.owners if each in shards and not shards[each].is_current]:
            del self.owners[shard_id]
        self.is_sound = True
        self.note()

    def take_owner(self, assignment: broker_pb2.Assignment) -> None:
        """Take over who owns a shard."""
        if assignment.broker:
            self.owners[assignment.shard_id] = assignment
        else:
            self.owners.pop(assignment.shard_id, None)
        self.note()

    def begin_anew(self) -> None:
        """Changes may have been missed."""
        self._arriving.clear()
        if self.is_sound:
            self.is_sound = False
            self.note()

    def delete(self) -> None:
        """The topic is gone."""
        self.is_deleted = True
        self.note()


class TopicWatches(WatchCalls):
    """All watches of topics of one client."""

    def __init__(self, metadata: Metadata) -> None:
        super().__init__(metadata)
        self._calls = TopicCalls(metadata.pd)
        self._watches: dict[int, ShardMapWatch] = {}
        self._to_begin: dict[int, None] = {}
        self._to_end: dict[int, None] = {}
        self._refreshing: dict[ShardMapWatch, asyncio.Future[None]] = {}

    def join(self, known: TopicShards) -> ShardMapWatch:
        """Watch a topic from a map on; `leave` ends it."""
        watch = self._watches.get(known.topic_id)
        if watch is None:
            watch = self._watches[known.topic_id] = ShardMapWatch(known)
            self._to_begin[known.topic_id] = None
            self._to_end.pop(known.topic_id, None)
        else:
            watch.take_map(known.version, known.shards.values())
        watch.users += 1
        self.hurry()
        return watch

    def leave(self, watch: ShardMapWatch) -> None:
        """End a user's watch."""
        watch.users -= 1
        topic_id = watch.map.topic_id
        if watch.users or self._watches.get(topic_id) is not watch:
            return
        del self._watches[topic_id]
        if self._to_begin.pop(topic_id, 0) == 0:
            self._to_end[topic_id] = None
        if not self._watches:
            self.close()

    def close(self) -> None:
        """End the call."""
        self.stop()
        self._to_begin = dict.fromkeys(self._watches)
        self._to_end.clear()

    async def changed(self, watch: ShardMapWatch, version: int) -> None:
        """Return when the version of a watch differs from `version`, or after a while.

        Raises TopicNotFound (the topic was deleted). A placement driver that does not answer is no error.
        """
        await watch.wait(version, IDLE_WAIT_S)
        if not watch.is_sound and not watch.is_deleted:
            await self._refresh(watch)
        if watch.is_deleted:
            raise TopicNotFound(f"the topic with id {watch.map.topic_id} was deleted")

    # ---- inside

    async def _refresh(self, watch: ShardMapWatch) -> None:
        """List what changed, once for all users who wait."""
        refreshing = self._refreshing.get(watch)
        if refreshing is None:
            refreshing = self._refreshing[watch] = asyncio.ensure_future(self._list_changes(watch))
            refreshing.add_done_callback(lambda ended: self._refreshed(watch, ended))
        await asyncio.shield(refreshing)

    def _refreshed(self, watch: ShardMapWatch, ended: asyncio.Future[None]) -> None:
        self._refreshing.pop(watch, None)
        if not ended.cancelled():
            ended.exception()  # raised where it is awaited, if anybody still waits

    async def _list_changes(self, watch: ShardMapWatch) -> None:
        known = watch.map
        try:
            listed = await self._calls.shards(by_id(known.topic_id), pb.SHARD_SELECTION_CHANGED, known.version)
        except TopicNotFound:
            watch.delete()
        except Unavailable as error:
            _log.info("the placement driver does not answer; the map of topic %d rests: %s", known.topic_id, error)
        else:
            watch.take_map(listed.topic.map_version, listed.shards)

    def _fill(self, request: pd_pb2.WatchRequest) -> None:
        for topic_id in list(self._to_begin)[:BEGIN_MAX]:
            request.begin_topics.add(topic_id=topic_id, map_version=self._watches[topic_id].map.version)
        request.end_topics.extend(self._to_end)

    def _begin_anew(self) -> None:
        self._to_begin = dict.fromkeys(self._watches)
        self._to_end.clear()
        for watch in self._watches.values():
            watch.begin_anew()

    def _arrived(self, request: pd_pb2.WatchRequest, answer: pd_pb2.WatchResponse) -> None:
        for each in request.begin_topics:
            watch = self._watches.get(each.topic_id)
            if watch is None or each.map_version <= watch.map.version:
                self._to_begin.pop(each.topic_id, None)
        for topic_id in request.end_topics:
            self._to_end.pop(topic_id, None)
        # What has not begun is left out: some of its rows may have been sent for an earlier watch of the topic.
        begun = {topic_id: watch for topic_id, watch in self._watches.items() if topic_id not in self._to_begin}
        for shard in answer.shards:
            if shard.topic_id in begun:
                begun[shard.topic_id].take_shard(shard)
        for topic in answer.topics:
            if topic.topic_id in begun:
                begun[topic.topic_id].take_topic(topic)
        for assignment in answer.assignments:
            if assignment.topic_id in begun:
                begun[assignment.topic_id].take_owner(assignment)
        for topic_id in answer.deleted_topic_ids:
            if topic_id in begun:
                begun[topic_id].delete()
