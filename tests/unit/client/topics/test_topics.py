"""The administration of topics by the client, over a placement driver in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from rangelog import Client, StreamConfigChange, errors
from rangelog._topics import topics as topics_module
from rangelog._topics.cut import Cut
from rangelog._topics.values import Retention, ScalingPolicy, TopicConfig, TopicConfigChange
from rangelog_core.key_ranges import KEY_SPACE_END, KeyRange
from tests.support.fake_topics import TopicCluster
from tests.support.shard_streams import commit_scale, end_topic, scale, write
from tests.support.waiting import until

pytestmark = pytest.mark.virtual

HALF = KEY_SPACE_END // 2


async def until_scaling(client: Client) -> None:
    """Return once topic `t` is being scaled."""

    async def scaling() -> bool:
        return (await client.topics.describe("t")).state == "scaling"

    await until(scaling, "the scale does not begin")


@pytest.fixture
def cluster() -> TopicCluster:
    """A new one for each test; its pages have two rows."""
    return TopicCluster()


@pytest.fixture
async def client(cluster: TopicCluster) -> AsyncIterator[Client]:
    """A client of it."""
    async with cluster.client() as made:
        yield made


async def test_the_default_namespace_is_made_with_its_first_topic(client: Client) -> None:
    """And no other one is."""
    made = await client.topics.create("flights", shards=3, tags={"team": "air"})
    assert (made.name, made.shard_count, made.tags, made.state) == ("default/flights", 3, {"team": "air"}, "active")
    assert await client.topics.describe("default/flights") == made
    with pytest.raises(errors.NamespaceNotFound):
        await client.topics.create("air/flights")
    await client.topics.create_namespace("air")
    assert (await client.topics.create("air/flights")).name == "air/flights"
    assert [each async for each in client.topics.namespaces()] == ["air", "default"]
    assert [each async for each in client.topics.namespaces(after="air")] == ["default"]
    assert [each.name async for each in client.topics.list(after="air/flights")] == ["default/flights"]
    assert [each.name async for each in client.topics.list(after="flights")] == []
    with pytest.raises(errors.InvalidArgument):
        _ = [each async for each in client.topics.list(after="a/b/c")]
    await client.topics.delete("air/flights", force=True)
    await client.topics.delete_namespace("air")
    assert [each async for each in client.topics.namespaces("a")] == []


async def test_two_clients_make_the_default_namespace(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who is second goes on."""
    made = client.topics.create_namespace

    async def twice(name: str, **options: Any) -> None:
        await made(name, **options)
        await made(name, **options)

    monkeypatch.setattr(client.topics, "create_namespace", twice)
    assert (await client.topics.create("flights")).topic_id


async def test_topics_are_listed_by_namespace_prefix_and_tags(client: Client) -> None:
    """Over several pages, in order."""
    for namespace in ("a", "b"):
        await client.topics.create_namespace(namespace)
        for number in range(3):
            await client.topics.create(f"{namespace}/t{number}", tags={"odd": str(number % 2)})

    async def names(**options: Any) -> list[str]:
        return [each.name async for each in client.topics.list(**options)]

    assert await names() == ["a/t0", "a/t1", "a/t2", "b/t0", "b/t1", "b/t2"]
    assert await names(namespace="b", prefix="t1") == ["b/t1"]
    assert await names(tags={"odd": "1"}) == ["a/t1", "b/t1"]
    with pytest.raises(errors.InvalidArgument):
        await names(prefix="t")


async def test_a_change_leaves_the_rest(client: Client) -> None:
    """Only what is given changes; a change of nothing is refused."""
    before = await client.topics.create("t", TopicConfig(retention=Retention(shard_size_bytes=5)), tags={"a": "1"})
    change = TopicConfigChange(
        stream=StreamConfigChange(compression="zstd"), scaling=ScalingPolicy(kind="events", target_per_s=10)
    )
    after = await client.topics.update("t", change, set_tags={"b": "2"}, remove_tags=["a"])
    assert (after.config.stream.compression, after.config.scaling.target_per_s) == ("zstd", 10)
    assert (after.config.retention, after.tags) == (before.config.retention, {"b": "2"})
    assert after.version > before.version
    with pytest.raises(errors.InvalidArgument):
        await client.topics.update("t")
    with pytest.raises(errors.InvalidArgument):
        await client.topics.update("t", TopicConfigChange())


async def test_a_topic_is_scaled_and_its_shards_remember_how(client: Client) -> None:
    """A split by number, a merge, and any division by key ranges; the call returns the new shards once it is committed."""
    topic_id = (await client.topics.create("t")).topic_id
    await write(client, topic_id, 0, [b"a"])
    left, right = await scale(client, "t", [0], 2)
    assert (left.key_range, right.key_range) == (KeyRange(0, HALF), KeyRange(HALF, KEY_SPACE_END))
    assert (left.predecessors, left.is_current, left.end_offset) == ((0,), True, None)
    (both,) = await scale(client, "t", [2, 1], 1)
    assert both.predecessors == (1, 2)
    await scale(client, "t", [3], [KeyRange(5, KEY_SPACE_END), KeyRange(0, 5)])
    assert [each.key_range.low for each in await client.topics.shards("t")] == [0, 5]
    first, *_ = await client.topics.shards("t", include_ended=True)
    assert (first.ended_version, first.end_offset, first.successors) == (2, 1, (1, 2))
    info = await client.topics.describe("t")
    assert (info.map_version, info.shard_count, info.scale_id, info.committed_scale_id) == (4, 2, 3, 3)


async def test_a_scale_that_cannot_be_is_refused(client: Client) -> None:
    """Unknown and ended parents, key ranges that do not tile theirs, parents that are no neighbours; nothing is started."""
    await client.topics.create("t", shards=3)
    await scale(client, "t", [0], 2)
    wrong: list[tuple[list[int], Any, type[errors.RangelogError]]] = [
        ([9], 2, errors.ShardNotFound),
        ([0], 2, errors.ShardEnded),
        ([], 2, errors.InvalidArgument),
        ([1, 3], 1, errors.KeyRangeGap),
        ([1], [KeyRange(0, KEY_SPACE_END)], errors.KeyRangeOverlap),
        ([1], 0, errors.InvalidArgument),
        ([1], 1_001, errors.InvalidArgument),
        ([1], "ab", errors.InvalidArgument),
        ([1], [(0, 1)], errors.InvalidArgument),
        ([1], True, errors.InvalidArgument),
    ]
    for parents, key_ranges, error in wrong:
        with pytest.raises(error):
            await client.topics.scale("t", parents, key_ranges)
    assert (await client.topics.describe("t")).scale_id == 1


async def test_a_scale_that_nobody_carries_out_can_be_cancelled(client: Client) -> None:
    """The call that waits for it ends with its time, the plan stays; who waits learns of the cancellation."""
    await client.topics.create("t")
    with pytest.raises(errors.RequestTimeout):
        await client.topics.scale("t", [0], 2, timeout_s=0.01)
    assert (await client.topics.describe("t")).state == "scaling"
    with pytest.raises(errors.TopicStateForbids):
        await client.topics.scale("t", [0], 2)
    assert (await client.topics.cancel_scale("t")).state == "active"
    with pytest.raises(errors.TopicStateForbids):
        await client.topics.cancel_scale("t")
    async with asyncio.timeout(30):
        scaling = asyncio.create_task(client.topics.scale("t", [0], 2))
        await until_scaling(client)
        await client.topics.cancel_scale("t")
        with pytest.raises(errors.PreconditionFailed):
            await scaling


async def test_another_scale_in_place_of_a_cancelled_one(
    cluster: TopicCluster, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who waited for the first does not take the second for it, though it is committed."""
    await client.topics.create("t")

    async def replaced(attempt: int) -> None:
        await client.topics.cancel_scale("t")
        monkeypatch.setattr(topics_module, "backoff", lambda attempt: asyncio.sleep(0.001))
        await scale(client, "t", [0], 3)

    monkeypatch.setattr(topics_module, "backoff", replaced)
    with pytest.raises(errors.PreconditionFailed, match="another one"):
        await client.topics.scale("t", [0], 2)
    assert len(await client.topics.shards("t")) == 3


async def test_cuts_of_a_topic(client: Client) -> None:
    """The head is before what is not trimmed, the tail behind what is acked; shards without records are passed over."""
    topic_id = (await client.topics.create("t", shards=2)).topic_id
    assert (await client.topics.cut("t", "head")).offsets == {0: 0, 1: 0}
    await write(client, topic_id, 0, [b"a", b"b"])
    await scale(client, "t", [0], 2)
    await scale(client, "t", [1], 2)
    await write(client, topic_id, 5, [b"c"])
    assert await client.topics.cut("t", "tail") == Cut(topic_id, {2: 0, 3: 0, 4: 0, 5: 1})
    head = await client.topics.cut("t", "head")
    assert head == Cut(topic_id, {0: 0, 4: 0, 5: 0})
    truncated = await client.topics.truncate("t", Cut(topic_id, {0: 2, 4: 0, 5: 0}))
    assert truncated.topic_id == topic_id
    assert (await client.topics.cut("t", "head")).offsets == {2: 0, 3: 0, 4: 0, 5: 0}
    with pytest.raises(errors.OffsetOutOfRange):
        await client.topics.truncate("t", Cut(topic_id, {0: 2, 4: 0, 5: 9}))
    with pytest.raises(errors.InvalidArgument):
        await client.topics.truncate("t", Cut(topic_id + 1, {0: 0, 1: 0}))
    for place in ("middle", None, 3):
        with pytest.raises(errors.InvalidArgument):
            await client.topics.cut("t", place)  # type: ignore[arg-type]


async def test_the_tail_of_a_sealed_topic_is_its_end(client: Client) -> None:
    """And it can be deleted then, not before; its name is free again."""
    topic_id = (await client.topics.create("t", shards=2)).topic_id
    await write(client, topic_id, 1, [b"a"])
    with pytest.raises(errors.TopicStateForbids):
        await client.topics.delete("t")
    assert (await client.topics.seal("t")).state == "sealing"
    await end_topic(client, "t")
    assert (await client.topics.describe("t")).state == "sealed"
    assert (await client.topics.cut("t", "tail")).offsets == {0: 0, 1: 1}
    await client.topics.delete("t")
    assert (await client.topics.create("t")).topic_id > topic_id


async def test_what_does_not_exist_is_not_found(client: Client) -> None:
    """Every verb on a topic that is not there raises TopicNotFound."""
    topics = client.topics
    for call in (
        topics.describe("t"),
        topics.update("t", set_tags={"a": "b"}),
        topics.seal("t"),
        topics.delete("t"),
        topics.truncate("t", Cut(1, {0: 0})),
        topics.shards("t"),
        topics.cut("t", "tail"),
        topics.scale("t", [0], 2),
        topics.cancel_scale("t"),
    ):
        with pytest.raises(errors.TopicNotFound):
            await call


async def test_a_table_is_not_read_as_records(client: Client) -> None:
    """It has no cut, is not truncated, and neither a reader nor a member of a group begins."""
    table_id = (await client.tables.create("t")).table_id
    reader = client.topic_reader("t")
    for call in (
        client.topics.cut("t", "tail"),
        client.topics.truncate("t", Cut(table_id, {0: 0})),
        anext(aiter(reader)),
        client.group("g", "t").open(),
    ):
        with pytest.raises(errors.TopicKindForbids):
            await call


async def test_tables_are_told_apart(client: Client) -> None:
    """A listing has topics of records, with `include_tables` both kinds; a table is deleted as a table only."""
    await client.topics.create("flights")
    await client.tables.create("counts")
    assert [each.name async for each in client.topics.list()] == ["default/flights"]
    both = {each.name: each.kind async for each in client.topics.list(include_tables=True)}
    assert both == {"default/counts": "table", "default/flights": "records"}
    with pytest.raises(errors.TopicKindForbids, match="is a table"):
        await client.topics.delete("counts", force=True)
    with pytest.raises(errors.TopicKindForbids, match="is a table"):
        await client.topics.truncate("counts", Cut(2, {0: 0}))
    assert (await client.topics.describe("counts")).kind == "table"
    await client.tables.delete("counts")


async def test_a_topic_that_is_deleted_while_its_cut_is_looked_for(client: Client) -> None:
    """The error names the topic, not a stream."""
    await client.topics.create("t")
    known = await client.topics.shard_map("t")
    await client.topics.delete("t", force=True)
    for place in ("head", "tail"):
        with pytest.raises(errors.TopicNotFound):
            await client.topics.cut_in(known, place)


async def test_a_listing_that_is_overtaken_begins_anew(
    cluster: TopicCluster, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All shards that are returned are of one map version."""
    await client.topics.create("t", shards=4)
    listed = cluster.topics.ListShards
    answers = 0

    def overtaken(request: Any) -> Any:
        nonlocal answers
        answers += 1
        if answers == 2:
            cluster.topics.topics[1].map_version += 1
        return listed(request)

    monkeypatch.setattr(cluster.topics, "ListShards", overtaken)
    found = await client.topics.shard_map("t")
    assert (found.version, list(found.shards), answers) == (2, [0, 1, 2, 3], 4)

    def always_overtaken(request: Any) -> Any:
        cluster.topics.topics[1].map_version += 1
        return listed(request)

    monkeypatch.setattr(cluster.topics, "ListShards", always_overtaken)
    with pytest.raises(errors.Unavailable):
        await client.topics.shard_map("t")


async def test_a_scale_that_was_committed_is_committed(client: Client) -> None:
    """The commit by its owners is what the call waits for, however long that takes."""
    await client.topics.create("t")
    async with asyncio.timeout(30):
        scaling = asyncio.create_task(client.topics.scale("t", [0], 2))
        await until_scaling(client)
        assert not scaling.done()
        await commit_scale(client, "t")
        assert [each.shard_id for each in await scaling] == [1, 2]
