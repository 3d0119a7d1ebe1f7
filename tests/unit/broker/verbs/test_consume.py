"""Consumers over a cluster in memory: each record at least once, in order, to one member at a time; whose a consumer is."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from unittest import mock

import pytest

from rangelog import Client, GroupRecord
from rangelog._consume.group_calls import GroupCalls
from rangelog.errors import (
    InvalidArgument,
    MemberNotFound,
    Overloaded,
    PreconditionFailed,
    RequestTimeout,
    RightMissing,
    ShardLost,
    TopicNotFound,
    Unavailable,
)
from rangelog.testing import FakeCluster
from rangelog_broker.verbs import consume as consuming
from rangelog_broker.verbs.caller import Caller
from rangelog_broker.verbs.consume import Consumes, Dequeued
from rangelog_core.net.principals import Principal, Role
from rangelog_core.rights import Verb
from rangelog_server_common.quotas.guard import QuotaGuard
from rangelog_server_common.rights.guard import RightsGuard
from tests.support.waiting import until

CALLER = Caller(RightsGuard(), lambda *_: None)
WAIT_S = 20.0


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    """A client of a cluster with a topic "t" of two shards."""
    with FakeCluster(brokers=1) as cluster:
        async with cluster.client() as made:
            await made.topics.create("t", shards=2)
            yield made


@pytest.fixture
async def consumes(client: Client) -> AsyncIterator[Consumes]:
    """The verb."""
    made = Consumes(client, QuotaGuard(), "b1")
    yield made
    await made.close()


def caller(name: str) -> Caller:
    """A client that is known."""
    made = Caller(RightsGuard(), lambda *_: None)
    made.admitted(Principal(Role.CLIENT, name))
    return made


async def send(client: Client, *values: bytes, topic: str = "t") -> None:
    """Send records, in turn to all shards."""
    async with client.producer(topic) as producer:
        for number, value in enumerate(values):
            await producer.send(value, key=b"%d" % (number % 7))


async def taken(consumes: Consumes, one: str, *, group: str = "g", by: Caller = CALLER, limit: int = 1_000) -> Dequeued:
    """Dequeue until something comes."""
    return await consumes.dequeue(by, group, one, records_max=limit, wait_s=WAIT_S)


def values(found: Dequeued) -> list[bytes]:
    """Of a batch."""
    return [each.value for each in found.records]


async def positions(client: Client) -> int:
    """The sum of the positions that are committed."""
    return sum(each.offset or 0 for each in (await client.groups.describe("g")).shards)


async def test_batches_follow_each_other_to_the_end(client: Client, consumes: Consumes) -> None:
    """Each is committed with the next dequeue; then nothing comes, and the group is at the end."""
    await send(client, *[b"%02d" % number for number in range(40)])
    one = await consumes.join(CALLER, "g", ["t"])
    found: list[GroupRecord] = []
    batch = 0
    while len(found) < 40:
        answer = await consumes.dequeue(CALLER, "g", one, records_max=7, wait_s=WAIT_S, commit=batch)
        assert 1 <= len(answer.records) <= 7 and answer.batch == batch + 1
        batch = answer.batch
        found += answer.records
    assert sorted(each.value for each in found) == [b"%02d" % number for number in range(40)]
    for shard in (0, 1):
        offsets = [each.offset for each in found if each.shard_id == shard]
        assert offsets == list(range(len(offsets)))
    assert await positions(client) < 40
    assert await consumes.dequeue(CALLER, "g", one, commit=batch) == (0, (), [])
    assert await positions(client) == 40
    assert (consumes.counts.dequeued_records, consumes.counts.commits) == (40, batch)


async def test_a_batch_is_repeated_until_it_is_committed(client: Client, consumes: Consumes) -> None:
    """Whatever limit the repeats have; a commit names the batch, and its repeat changes nothing."""
    one = await consumes.join(CALLER, "g", ["t"])
    await send(client, b"a", b"b", b"c")
    first = await taken(consumes, one, limit=1)
    assert await taken(consumes, one) == first
    for number in (first.batch + 1, 0, -1):
        with pytest.raises(PreconditionFailed):
            await consumes.commit(CALLER, "g", one, number)
    assert await positions(client) == 0
    for _ in range(2):
        await consumes.commit(CALLER, "g", one, first.batch)
    second = await taken(consumes, one)
    assert second.batch == first.batch + 1 and not set(values(second)) & set(values(first))
    assert await consumes.dequeue(CALLER, "g", one, commit=first.batch) == second, "the same request again"
    await consumes.commit(CALLER, "g", one, first.batch)
    assert await positions(client) == 1


async def test_a_client_that_went_away_loses_nothing(client: Client, consumes: Consumes) -> None:
    """Its dequeue is cancelled in the midst; what was taken comes with the next one."""
    one = await consumes.join(CALLER, "g", ["t"])
    waiting = asyncio.ensure_future(consumes.dequeue(CALLER, "g", one, wait_s=60.0))
    await until(lambda: consumes._consumers[one].waiting is not None, "it waits")
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    await send(client, b"a")
    assert values(await taken(consumes, one)) == [b"a"]


async def test_what_was_not_committed_goes_to_the_next_one(client: Client, consumes: Consumes) -> None:
    """At the end of a consumer, at once; what was committed does not."""
    await send(client, *[b"%d" % number for number in range(10)])
    one = await consumes.join(CALLER, "g", ["t"])
    first = await taken(consumes, one, limit=3)
    await consumes.commit(CALLER, "g", one, first.batch)
    open_batch = await taken(consumes, one)
    await consumes.end(CALLER, "g", one)
    for again in (consumes.dequeue(CALLER, "g", one), consumes.commit(CALLER, "g", one, 2)):
        with pytest.raises(MemberNotFound, match="join here"):
            await again
    other, found = await consumes.join(CALLER, "g", ["t"]), set[bytes]()
    while len(found) < 7:
        answer = await taken(consumes, other)
        found |= set(values(answer))
        await consumes.commit(CALLER, "g", other, answer.batch)
    assert not found & set(values(first)) and found >= set(values(open_batch))


async def test_a_second_member_gets_its_share(client: Client, consumes: Consumes) -> None:
    """Once the first one has committed; both go on, and nothing is lost."""
    await send(client, *[b"%d" % number for number in range(20)])
    one = await consumes.join(CALLER, "g", ["t"])
    found = [each.value for each in (await taken(consumes, one, limit=5)).records]
    two = await consumes.join(CALLER, "g", ["t"])
    batches = {one: 1, two: 0}
    async with asyncio.timeout(60):
        while len(set(found)) < 20 or len((await client.groups.describe("g")).members) < 2:
            for each in (one, two):
                answer = await consumes.dequeue(CALLER, "g", each, commit=batches[each])
                assert not answer.lost
                batches[each], found = answer.batch, found + values(answer)
    held = {shard.member_id for shard in (await client.groups.describe("g")).shards}
    assert len(found) == 20 and len(held) == 2


async def test_shards_that_others_have_are_told_of(client: Client, consumes: Consumes) -> None:
    """The group was reset: the records come again; neither answer nor commit is silent about it."""
    await send(client, b"a", b"b")
    one = await consumes.join(CALLER, "g", ["t"])
    first = await taken(consumes, one)
    await client.groups.reset("g", "earliest")
    core = consumes._consumers[one].core
    await until(lambda: not _holds(consumes, one, first), "the shards were handed out anew")
    with pytest.raises(ShardLost, match="default/t/"):
        await consumes.commit(CALLER, "g", one, first.batch)
    with pytest.raises(ShardLost):
        await consumes.commit(CALLER, "g", one, first.batch)
    again = await taken(consumes, one)
    assert again.batch == 2 and core.is_open
    await client.groups.reset("g", "earliest")
    await until(lambda: not _holds(consumes, one, again), "the shards were handed out anew")
    third = await taken(consumes, one)
    assert third.lost and third.records


def _holds(consumes: Consumes, one: str, found: Dequeued) -> bool:
    """Whether a consumer has all shards of a batch, as they were when it was handed out."""
    ends = {(each.topic, each.shard_id): each.offset + 1 for each in found.records}
    return (
        ends.items() <= {tuple(shard): end for shard, end in consumes._consumers[one].member.position().items()}.items()
    )


async def test_a_commit_without_an_answer_is_made_again(client: Client, consumes: Consumes) -> None:
    """Its batch stays until it is known to be committed."""
    await send(client, b"a")
    one = await consumes.join(CALLER, "g", ["t"])
    first = await taken(consumes, one)
    with (
        mock.patch.object(GroupCalls, "commit", mock.AsyncMock(side_effect=RequestTimeout("no answer"))),
        pytest.raises(RequestTimeout),
    ):
        await consumes.commit(CALLER, "g", one, first.batch)
    assert await taken(consumes, one) == first
    await consumes.commit(CALLER, "g", one, first.batch)
    assert await positions(client) == 1


async def test_silence_ends_a_consumer(client: Client, consumes: Consumes) -> None:
    """Requests keep it; a dequeue that waits is one."""
    with pytest.raises(InvalidArgument):
        await consumes.join(CALLER, "g", ["t"], session_s=0.5)
    one = await consumes.join(CALLER, "g", ["t"], session_s=1.0)
    assert not (await consumes.dequeue(CALLER, "g", one, wait_s=1.5)).records
    assert consumes.consumer_count == 1
    await until(lambda: not consumes.consumer_count, "it has ended")
    assert consumes.counts.expired == 1
    with pytest.raises(MemberNotFound):
        await consumes.dequeue(CALLER, "g", one)

    async def is_gone() -> bool:
        return not (await client.groups.describe("g")).members

    await until(is_gone, "the group knows it")


async def test_a_stop_hands_over_at_once(client: Client, consumes: Consumes) -> None:
    """Who waits is answered, nobody joins, and the members of another broker have everything."""
    await send(client, b"a", b"b")
    one = await consumes.join(CALLER, "g", ["t"])
    first = await taken(consumes, one)
    waits = await consumes.join(CALLER, "other", ["t"], start="latest")
    waiting = asyncio.ensure_future(consumes.dequeue(CALLER, "other", waits, wait_s=60.0))
    await until(lambda: consumes._consumers[waits].waiting is not None, "it waits")
    other = Consumes(client, QuotaGuard(), "b2")
    async with asyncio.timeout(30):
        consumes.leave()
        assert await waiting == (0, (), [])
        with pytest.raises(Unavailable):
            await consumes.join(CALLER, "g", ["t"])
        await consumes.close()
        two = await other.join(CALLER, "g", ["t"])
        assert values(await taken(other, two)) and first.records
    with pytest.raises(MemberNotFound):
        await other.dequeue(CALLER, "g", one)
    await other.close()


async def test_a_consumer_is_of_its_principal(client: Client, consumes: Consumes) -> None:
    """Another one can neither read, commit nor end it, nor can who gives another group; all is answered alike."""
    await send(client, b"a")
    ann, bob = caller("ann"), caller("bob")
    one = await consumes.join(ann, "g", ["t"])
    first = await taken(consumes, one, by=ann)
    told = set()
    for by, group in ((bob, "g"), (CALLER, "g"), (ann, "h")):
        for attempt in (
            consumes.dequeue(by, group, one), consumes.commit(by, group, one, first.batch), consumes.end(by, group, one),
        ):  # fmt: skip
            with pytest.raises(MemberNotFound) as refused:
                await attempt
            told.add(refused.value.message)
    assert len(told) == 1 and await positions(client) == 0
    assert await taken(consumes, one, by=ann) == first
    assert len(one.partition(".")[2]) == 32 and one.startswith("b1.")


@pytest.mark.parametrize("missing", [("g", Verb.READ), ("default/t", Verb.READ)])
async def test_rights_are_those_of_a_native_member(
    client: Client, consumes: Consumes, missing: tuple[str, Verb], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the group and each topic, at every request: a right may be taken away."""
    await send(client, b"a")
    one = await consumes.join(CALLER, "g", ["t"])
    batch = (await taken(consumes, one)).batch

    async def require(self: Caller, verbs: Verb, kind: int, name: str) -> None:
        if (name, verbs) == missing:
            raise RightMissing(name)

    monkeypatch.setattr(Caller, "require_named", require)
    for attempt in (
        consumes.join(CALLER, "g", ["t"]), consumes.dequeue(CALLER, "g", one), consumes.commit(CALLER, "g", one, batch),
    ):  # fmt: skip
        with pytest.raises(RightMissing):
            await attempt
    assert consumes.consumer_count == 1 and await positions(client) == 0


async def test_a_topic_that_others_added_needs_a_right_as_well(
    client: Client, consumes: Consumes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A member has shards of all topics of its group: who may not read one is handed nothing of it, and ends."""
    await client.topics.create("secret")
    await send(client, b"s", topic="secret")
    one = await consumes.join(CALLER, "g", ["t"])
    two = await consumes.join(CALLER, "g", ["secret"])
    await consumes.end(CALLER, "g", two)

    async def require(self: Caller, verbs: Verb, kind: int, name: str) -> None:
        if name == "default/secret":
            raise RightMissing(name)

    monkeypatch.setattr(Caller, "require_named", require)
    with pytest.raises(RightMissing):
        while True:
            assert not (await consumes.dequeue(CALLER, "g", one, wait_s=1.0)).records
    assert consumes.consumer_count == 0


async def test_bounds(client: Client, consumes: Consumes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a broker, of a principal, of a batch and of all batches; a place that was not used is free again."""
    for topics in ([], ["t"] * 3 + [f"t{number}" for number in range(100)]):
        with pytest.raises(InvalidArgument):
            await consumes.join(CALLER, "g", topics)
    for options in ({"records_max": 0}, {"records_max": 10_001}, {"wait_s": 61.0}, {"wait_s": -1.0}):
        with pytest.raises(InvalidArgument):
            await consumes.dequeue(CALLER, "g", "x", **options)  # type: ignore[arg-type]
    for bad in ("", "a/b", "x" * 300):
        with pytest.raises(InvalidArgument):
            await consumes.join(CALLER, bad, ["t"])
    with pytest.raises(TopicNotFound):
        await consumes.join(CALLER, "g", ["missing"])
    monkeypatch.setattr(consuming, "CONSUMERS_OF_ONE_MAX", 1)
    monkeypatch.setattr(consuming, "CONSUMERS_MAX", 2)
    ann = caller("ann")
    one = await consumes.join(ann, "g", ["t"])
    with pytest.raises(Overloaded, match="client:ann"):
        await consumes.join(ann, "g", ["t"])
    await consumes.join(caller("bob"), "h", ["t"])
    with pytest.raises(Overloaded, match="limit"):
        await consumes.join(CALLER, "h", ["t"])
    monkeypatch.setattr(consuming, "BYTES_MAX", 100)
    await send(client, bytes(99), bytes(99), bytes(99))
    assert len((await taken(consumes, one, by=ann)).records) <= 2
    await consumes.commit(ann, "g", one, 1)
    monkeypatch.setattr(consuming, "BYTES_MAX", 1 << 20)
    await send(client, *[b"x"] * 12)
    monkeypatch.setattr(consuming, "KEPT_BYTES_MAX", 1)
    for _ in range(6):
        found = await taken(consumes, one, by=ann)
        assert len(found.records) == 1
        await consumes.commit(ann, "g", one, found.batch)


async def test_requests_of_one_consumer_take_turns(client: Client, consumes: Consumes) -> None:
    """A second dequeue does not wait behind one that waits."""
    one = await consumes.join(CALLER, "g", ["t"])
    waiting = asyncio.ensure_future(consumes.dequeue(CALLER, "g", one, wait_s=60.0))
    await until(lambda: consumes._consumers[one].waiting is not None, "it waits")
    with pytest.raises(Overloaded):
        await consumes.dequeue(CALLER, "g", one)
    await send(client, b"a")
    assert values(await waiting) == [b"a"]


async def test_records_that_are_not_wanted(client: Client, consumes: Consumes) -> None:
    """They are passed over, and committed with the others, or with the next dequeue."""
    await send(client, *[b"%d" % number for number in range(10)])
    one = await consumes.join(CALLER, "g", ["t"])
    batch, found = 0, list[bytes]()
    while len(found) < 5:
        answer = await consumes.dequeue(
            CALLER, "g", one, records_max=2, wait_s=WAIT_S, commit=batch, wanted=lambda each: int(each.value) % 2 == 0
        )
        batch, found = answer.batch, found + values(answer)
    assert sorted(found) == [b"0", b"2", b"4", b"6", b"8"]
    while await positions(client) < 10:
        answer = await consumes.dequeue(CALLER, "g", one, commit=batch, wanted=lambda each: False)
        assert answer == (0, (), [])
        batch = 0
