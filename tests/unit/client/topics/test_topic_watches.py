"""The watch that all users of a topic share: its map is always that of one version, and never falls back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from types import MappingProxyType
from typing import Any, cast

import pytest

from rangelog import errors
from rangelog._read import watch_calls
from rangelog._topics.messages import key_range_message, shard_info
from rangelog._topics.watches import TopicShards, TopicWatches
from rangelog_core.key_ranges import KEY_SPACE
from rangelog_proto.v1 import broker_pb2, pd_pb2
from rangelog_proto.v1 import topic_pb2 as pb

pytestmark = pytest.mark.virtual

Answer = pd_pb2.WatchResponse | errors.RangelogError


class FakePd:
    """Answers calls from a queue that the test fills; notes what it was asked. Listings are answered by `listed`."""

    def __init__(self) -> None:
        self.pd = self
        self.asked: list[pd_pb2.WatchRequest] = []
        self.answers: asyncio.Queue[Answer] = asyncio.Queue()
        self.listed: Answer | pb.ListShardsResponse = errors.Unavailable("nobody leads")
        self.listings: list[pb.ListShardsRequest] = []

    async def watch(self, request: pd_pb2.WatchRequest, *, timeout_s: float) -> pd_pb2.WatchResponse:
        self.asked.append(request)
        answer = await self.answers.get()
        if isinstance(answer, errors.RangelogError):
            raise answer
        return answer

    async def call(self, request: Any, response: Any, *, timeout_s: float, **_: Any) -> Any:
        if isinstance(request, pd_pb2.WatchRequest):
            return await self.watch(request, timeout_s=timeout_s)
        self.listings.append(request)
        if isinstance(self.listed, errors.RangelogError):
            raise self.listed
        return self.listed

    def answer(self, sequence: int, *, session: int = 5, **rows: Any) -> None:
        self.answers.put_nowait(pd_pb2.WatchResponse(session=session, sequence=sequence, **rows))


def shard(shard_id: int, *, topic_id: int = 7, successors: Iterable[int] = (), ended: int = 0) -> pb.Shard:
    """A row."""
    return pb.Shard(
        topic_id=topic_id,
        shard_id=shard_id,
        key_range=key_range_message(KEY_SPACE),
        successors=successors,
        ended_version=ended,
    )


def topic(version: int, topic_id: int = 7) -> pb.Topic:
    """A row."""
    return pb.Topic(topic_id=topic_id, map_version=version)


def known(version: int = 1, topic_id: int = 7) -> TopicShards:
    """A map of one shard."""
    return TopicShards(topic_id, version, MappingProxyType({0: shard_info(shard(0, topic_id=topic_id))}))


@pytest.fixture
def pd() -> FakePd:
    return FakePd()


@pytest.fixture
async def watches(pd: FakePd, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[TopicWatches]:
    async def at_once(attempt: int) -> None:
        await asyncio.sleep(0)

    monkeypatch.setattr(watch_calls, "backoff", at_once)
    made = TopicWatches(cast(Any, pd))
    yield made
    made.close()


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def test_shards_count_once_their_topics_row_has_come(pd: FakePd, watches: TopicWatches) -> None:
    """Until then the map is the earlier one, though some of its shards are there in a later form."""
    watch = watches.join(known())
    await settle()
    assert [(each.topic_id, each.map_version) for each in pd.asked[-1].begin_topics] == [(7, 1)]
    version = watch.version
    waiting = asyncio.create_task(watches.changed(watch, version))
    pd.answer(1, shards=[shard(0, successors=(1, 2), ended=2), shard(1)])
    await settle()
    assert watch.map == known() and not watch.is_sound
    pd.answer(2, shards=[shard(2)], topics=[topic(2)])
    await settle()
    assert watch.is_sound and watch.version > version
    assert (watch.map.version, set(watch.map.shards)) == (2, {0, 1, 2})
    assert watch.map.shards[0].successors == (1, 2)
    await asyncio.wait_for(waiting, 1)
    assert pd.asked[-1].acked == 2


async def test_users_of_one_topic_share_its_watch(pd: FakePd, watches: TopicWatches) -> None:
    """With the latest map that any of them had; it ends with the last of them."""
    first = watches.join(known(1))
    second = watches.join(known(3))
    watches.join(known(topic_id=8))
    assert first is second and first.map.version == 3
    watches.join(known(2))
    assert first.map.version == 3
    await settle()
    pd.answer(1, topics=[topic(3), topic(1, 8)])
    await settle()
    for _ in range(3):
        watches.leave(first)
    pd.answer(2)
    await settle()
    assert list(pd.asked[-1].end_topics) == [7]
    again = watches.join(known(3))
    assert again is not first and not again.is_sound


async def test_rows_for_an_earlier_watch_do_not_count(pd: FakePd, watches: TopicWatches) -> None:
    """A later watch of the topic has not got what was sent before: only from its own beginning on all that changes comes."""
    watches.join(known(topic_id=8))
    first = watches.join(known())
    await settle()
    pd.answer(1, topics=[topic(1)])
    await settle()
    watches.leave(first)
    again = watches.join(known())
    watches._hurry.clear()  # the call that waits is answered before the next one is sent
    pd.answer(2, shards=[shard(5)], topics=[topic(9)])
    await settle()
    assert again.map.version == 1 and not again.is_sound
    assert [each.topic_id for each in pd.asked[-1].begin_topics] == [7]


async def test_with_nobody_to_answer_the_map_is_listed(pd: FakePd, watches: TopicWatches) -> None:
    """By the users who wait, together; without an answer it rests."""
    watch = watches.join(known())
    pd.answers.put_nowait(errors.Unavailable("no leader"))
    version = watch.version
    async with asyncio.timeout(20):
        await watches.changed(watch, version)
        assert watch.map == known()
        pd.listed = pb.ListShardsResponse(topic=topic(2), shards=[shard(0, successors=(1,), ended=2), shard(1)])
        listings = len(pd.listings)
        await asyncio.gather(watches.changed(watch, version), watches.changed(watch, version))
    assert (watch.map.version, set(watch.map.shards)) == (2, {0, 1})
    assert len(pd.listings) == listings + 1
    assert (pd.listings[-1].selection, pd.listings[-1].since_map_version) == (pb.SHARD_SELECTION_CHANGED, 1)


async def test_another_leader_does_not_know_the_session(pd: FakePd, watches: TopicWatches) -> None:
    """The topic is watched anew from the map that is there; what came in part is forgotten."""
    watch = watches.join(known())
    await settle()
    pd.answer(1, topics=[topic(2)])
    pd.answer(2, shards=[shard(3)])
    await settle()
    pd.answers.put_nowait(pd_pb2.WatchResponse())
    await settle()
    assert not watch.is_sound
    assert pd.asked[-1].session == 0
    assert [(each.topic_id, each.map_version) for each in pd.asked[-1].begin_topics] == [(7, 2)]
    pd.answer(1, session=6, topics=[topic(3)])
    await settle()
    assert watch.is_sound and set(watch.map.shards) == {0}


@pytest.mark.parametrize("way", ["watch", "listing"])
async def test_a_deletion_ends_the_wait(pd: FakePd, watches: TopicWatches, way: str) -> None:
    """Whoever waits gets TopicNotFound, and so does who waits later."""
    watch = watches.join(known())
    await settle()
    if way == "watch":
        pd.answer(1, deleted_topic_ids=[7])
    else:
        pd.listed = errors.TopicNotFound("gone")
    async with asyncio.timeout(20):
        for _ in range(2):
            with pytest.raises(errors.TopicNotFound):
                await watches.changed(watch, watch.version)


async def test_owners_follow_their_shards(pd: FakePd, watches: TopicWatches) -> None:
    """The latest owner of each shard; none once it has ended."""
    watch = watches.join(known())
    await settle()
    pd.answer(1, topics=[topic(1)], assignments=[broker_pb2.Assignment(topic_id=7, broker="b1", owner_epoch=1)])
    await settle()
    assert watch.owners[0].broker == "b1"
    pd.answer(2, assignments=[broker_pb2.Assignment(topic_id=7), broker_pb2.Assignment(topic_id=9, broker="b2")])
    await settle()
    assert watch.owners == {}


async def test_a_shard_that_ended_while_nothing_was_watched_has_no_owner(pd: FakePd, watches: TopicWatches) -> None:
    """Its row says so, where the message about its owner was missed."""
    watch = watches.join(known())
    await settle()
    pd.answer(1, topics=[topic(1)], assignments=[broker_pb2.Assignment(topic_id=7, broker="b1", owner_epoch=1)])
    await settle()
    pd.answers.put_nowait(pd_pb2.WatchResponse())
    await settle()
    pd.answer(1, session=6, shards=[shard(0, successors=[1], ended=2), shard(1)], topics=[topic(2)])
    await settle()
    assert watch.owners == {}
