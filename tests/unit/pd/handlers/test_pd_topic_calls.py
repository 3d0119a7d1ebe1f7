"""Calls on topics: defaults, pages, tags, and what a watcher of a topic gets."""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from rangelog_core.errors import InvalidArgument, NamespaceNotFound, TopicNotFound, TopicStateForbids, Unavailable
from rangelog_pd.handlers import topics, watch
from rangelog_pd.handlers.service import bound
from rangelog_pd.reconcile import topic_watch
from rangelog_pd.state import tag_index
from rangelog_proto.v1 import common_pb2, pd_pb2, topic_pb2
from rangelog_proto.v1 import topic_pb2 as pb
from tests.support.pd_topics import part, refer, true_end

numbers = itertools.count(1)


def request_id() -> str:
    return f"r{next(numbers)}"


@pytest.fixture
async def calls(api: Any) -> Any:
    """A leader whose cluster knows topics, with namespaces `a` and `b`."""
    await api.driver.reconcile()
    for name in ("b", "a"):
        await topics.create_namespace(api.driver, pb.CreateNamespaceRequest(request_id=request_id(), name=name))
    return api


async def create(api: Any, name: str, namespace: str = "a", **fields: Any) -> pb.Topic:
    request = pb.CreateTopicRequest(request_id=request_id(), namespace=namespace, name=name, **fields)
    return (await topics.create_topic(api.driver, request)).topic


async def scale(api: Any, topic_id: int, parents: list[int], *key_ranges: pb.KeyRange) -> pb.Topic:
    """Start and commit a scale of shards that nobody opened."""
    state = api.machine.state
    start = pb.StartScaleRequest(
        request_id=request_id(),
        topic=refer(topic_id),
        map_version=state.topics.topics[topic_id].map_version,
        parents=parents,
        key_ranges=key_ranges,
    )
    planned = (await topics.start_scale(api.driver, start)).topic
    ends = [pb.ShardEnd(**true_end(state, state.topics.shards[topic_id, each])) for each in parents]
    commit = pb.CommitScaleRequest(request_id=request_id(), topic_id=topic_id, scale_id=planned.scale_id, ends=ends)
    return (await topics.commit_scale(api.driver, commit)).topic


async def test_topics_are_refused_until_all_members_know_them(api: Any) -> None:
    """The error names the cluster version that is needed."""
    with pytest.raises(Unavailable, match="needs cluster version 4"):
        await topics.create_namespace(api.driver, pb.CreateNamespaceRequest(request_id="n", name="a"))


async def test_a_command_without_a_request_id_is_refused(calls: Any) -> None:
    """A retry could have a second effect."""
    for handler, request in (
        (topics.create_namespace, pb.CreateNamespaceRequest(name="x")),
        (topics.delete_namespace, pb.DeleteNamespaceRequest(name="x")),
        (topics.create_topic, pb.CreateTopicRequest(namespace="a", name="x")),
        (topics.update_topic, pb.UpdateTopicRequest()),
        (topics.truncate_topic, pb.TruncateTopicRequest()),
        (topics.seal_topic, pb.SealTopicRequest()),
        (topics.delete_topic, pb.DeleteTopicRequest()),
        (topics.start_scale, pb.StartScaleRequest()),
        (topics.cancel_scale, pb.CancelScaleRequest()),
        (topics.commit_scale, pb.CommitScaleRequest()),
        (topics.end_shard, pb.EndShardRequest()),
    ):
        with pytest.raises(InvalidArgument, match="request id"):
            await handler(calls.driver, request)  # type: ignore[operator]


async def test_the_clusters_defaults_are_in_the_command(calls: Any) -> None:
    """A cluster with a tier uploads; ranges have an age, shards of one topic not all at the same time."""
    made = await create(calls, "t", shard_count=2)
    assert made.config.stream.tiered
    assert made.config.stream.range_age_ms_max == 3_600_000
    ages = [stream.config.range_age_ms_max for stream in calls.machine.state.streams.values()]
    assert ages == [3_600_000, 3_594_375]
    table = await create(calls, "table", config=pb.TopicConfig(kind=pb.TOPIC_KIND_TABLE))
    assert not table.config.stream.tiered
    assert made.config.kind == pb.TOPIC_KIND_RECORDS
    with pytest.raises(NamespaceNotFound):
        await create(calls, "t", namespace="c")


async def test_a_topic_is_not_retained_by_cursors(calls: Any) -> None:
    """Its shards have none, so the setting is refused rather than without effect."""
    config = pb.TopicConfig(stream=common_pb2.StreamConfig(cursor_retention=common_pb2.CURSOR_RETENTION_KEEP))
    with pytest.raises(InvalidArgument, match="groups"):
        await create(calls, "t", config=config)
    made = await create(calls, "t")
    change = pb.UpdateTopicRequest(
        request_id=request_id(), topic=refer(made.topic_id), config=config, fields=["stream"]
    )
    with pytest.raises(InvalidArgument, match="groups"):
        await topics.update_topic(calls.driver, change)


async def test_a_topic_is_described_by_name_or_id_with_its_plan(calls: Any) -> None:
    """Who takes over the scale needs the plan."""
    made = await create(calls, "t")
    by_name = pb.DescribeTopicRequest(topic=pb.TopicReference(namespace="a", name="t"))
    by_id = pb.DescribeTopicRequest(topic=refer(made.topic_id))
    found = await topics.describe_topic(calls.driver, by_name)
    assert found == await topics.describe_topic(calls.driver, by_id)
    assert (found.topic, found.HasField("scale")) == (made, False)
    start = pb.StartScaleRequest(
        request_id=request_id(), topic=by_name.topic, map_version=1, parents=[0], key_ranges=[part(0, 8), part(8, 16)]
    )
    await topics.start_scale(calls.driver, start)
    planned = (await topics.describe_topic(calls.driver, by_name)).scale
    assert (list(planned.parents), list(planned.key_ranges)) == ([0], [part(0, 8), part(8, 16)])
    with pytest.raises(TopicStateForbids):
        await topics.seal_topic(calls.driver, pb.SealTopicRequest(request_id=request_id(), topic=by_name.topic))
    for unknown in (pb.TopicReference(), refer(9), pb.TopicReference(namespace="b", name="t")):
        with pytest.raises(TopicNotFound):
            await topics.describe_topic(calls.driver, pb.DescribeTopicRequest(topic=unknown))


async def pages(call: Callable[[str], Awaitable[Any]], field: str) -> list[list[Any]]:
    """The rows of all pages."""
    found, token = [], ""
    while True:
        page = await call(token)
        found.append(list(getattr(page, field)))
        token = page.next_page_token
        if not token:
            return found


async def listed(api: Any, size: int = 2, **fields: Any) -> list[list[str]]:
    """The names on all pages of a listing."""

    async def call(token: str) -> pb.ListTopicsResponse:
        request = pb.ListTopicsRequest(page_token=token, page_size=size, **fields)
        return await topics.list_topics(api.driver, request)

    return [[f"{each.namespace}/{each.name}" for each in page] for page in await pages(call, "topics")]


async def test_topics_come_in_order_page_by_page(calls: Any) -> None:
    """Of all namespaces, of one, and of names with a prefix."""
    for namespace, name in (("a", "x"), ("b", "x"), ("a", "xy"), ("a", "b"), ("a", "y")):
        await create(calls, name, namespace)
    assert await listed(calls) == [["a/b", "a/x"], ["a/xy", "a/y"], ["b/x"]]
    assert await listed(calls, namespace="a") == [["a/b", "a/x"], ["a/xy", "a/y"]]
    assert await listed(calls, namespace="a", prefix="x") == [["a/x", "a/xy"]]
    assert await listed(calls, namespace="c") == [[]]
    with pytest.raises(InvalidArgument):
        await listed(calls, prefix="x")

    async def call(token: str) -> pb.ListNamespacesResponse:
        return await topics.list_namespaces(calls.driver, pb.ListNamespacesRequest(page_token=token, page_size=1))

    assert [[each.name for each in page] for page in await pages(call, "namespaces")] == [["a"], ["b"]]


async def test_topics_are_found_by_all_of_some_tags(calls: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A page looks at a bounded number of names, so it may be short and not be the last one."""
    for number in range(12):
        tags = {"even": str(number % 2 == 0), "third": str(number % 3)}
        await create(calls, f"t{number:02d}", "ab"[number // 6], tags=tags)
    wanted = {"even": "True", "third": "0"}
    assert await listed(calls, size=9, tags=wanted) == [["a/t00", "b/t06"]]
    assert await listed(calls, size=9, tags=wanted, namespace="b") == [["b/t06"]]
    assert await listed(calls, size=9, tags={"even": "None"}) == [[]]
    monkeypatch.setattr(tag_index, "LOOKED_AT_MAX", 3)
    assert len(await listed(calls, size=9, tags=wanted)) > 1
    flat = [name for page in await listed(calls, size=9, tags=wanted) for name in page]
    assert flat == ["a/t00", "b/t06"]
    reference = pb.TopicReference(namespace="a", name="t00")
    update = pb.UpdateTopicRequest(request_id=request_id(), topic=reference, remove_tags=["third"])
    await topics.update_topic(calls.driver, update)
    assert [name for page in await listed(calls, tags=wanted) for name in page] == ["b/t06"]


async def shards(api: Any, topic_id: int, size: int, selection: int, **fields: Any) -> list[list[int]]:
    """The shard ids on all pages of a listing."""

    async def call(token: str) -> pb.ListShardsResponse:
        request = pb.ListShardsRequest(
            topic=refer(topic_id),
            selection=selection,
            page_token=token,
            page_size=size,
            **fields,  # type: ignore[arg-type]
        )
        return await topics.list_shards(api.driver, request)

    return [[each.shard_id for each in page] for page in await pages(call, "shards")]


async def test_shards_are_listed_by_key_by_id_or_by_change(calls: Any) -> None:
    """The current ones tile the key space; who has seen a map version asks for what changed after it."""
    topic_id = (await create(calls, "t", key_ranges=[part(0, 8), part(8, 16)])).topic_id
    await scale(calls, topic_id, [0], part(0, 4), part(4, 8))
    await scale(calls, topic_id, [3, 1], part(4, 16))
    assert await shards(calls, topic_id, 1, pb.SHARD_SELECTION_CURRENT) == [[2], [4]]
    assert await shards(calls, topic_id, 1_000, pb.SHARD_SELECTION_UNSPECIFIED) == [[2, 4]]
    assert await shards(calls, topic_id, 2, pb.SHARD_SELECTION_ALL) == [[0, 1], [2, 3], [4]]
    changed = pb.SHARD_SELECTION_CHANGED
    assert await shards(calls, topic_id, 2, changed) == [[0, 2], [1, 3], [4]]
    assert await shards(calls, topic_id, 2, changed, since_map_version=2) == [[1, 3], [4]]
    assert await shards(calls, topic_id, 2, changed, since_map_version=3) == [[]]
    for selection in pb.ShardSelection.values():
        for token in ("x", "-1", "1:2:3", "٣", "0" * 31):
            request = pb.ListShardsRequest(topic=refer(topic_id), selection=selection, page_token=token)
            with pytest.raises(InvalidArgument):
                await topics.list_shards(calls.driver, request)
    with pytest.raises(InvalidArgument):
        await shards(calls, topic_id, 2, 9)


# ---- watching


async def ask(api: Any, session: int = 0, acked: int = 0, **fields: Any) -> pd_pb2.WatchResponse:
    request = pd_pb2.WatchRequest(session=session, acked=acked, call=next(numbers), **fields)
    return await watch.watch(api.driver, request)


def told(answer: pd_pb2.WatchResponse) -> tuple[list[int], list[int]]:
    """The map versions of topics and the ids of shards in an answer."""
    return [each.map_version for each in answer.topics], [each.shard_id for each in answer.shards]


async def test_a_watcher_of_a_topic_gets_its_map_and_then_what_changes(calls: Any) -> None:
    """From the version that it has; what is not acked comes again."""
    topic_id = (await create(calls, "t", key_ranges=[part(0, 8), part(8, 16)])).topic_id
    await scale(calls, topic_id, [0], part(0, 4), part(4, 8))
    whole = await ask(calls, begin_topics=[pd_pb2.WatchedTopic(topic_id=topic_id)])
    assert told(whole) == ([2], [1, 0, 2, 3])
    rest = await ask(calls, begin_topics=[pd_pb2.WatchedTopic(topic_id=topic_id, map_version=1)])
    assert told(rest) == ([2], [0, 2, 3])
    await scale(calls, topic_id, [1], part(8, 16))
    lost = await ask(calls, rest.session, rest.sequence)
    assert told(lost) == ([3], [1, 4])
    again = await ask(calls, rest.session, rest.sequence)
    assert sorted(told(again)[1]) == [1, 4] and told(again)[0] == [3]
    assert told(await ask(calls, rest.session, again.sequence)) == ([], [])
    await topics.delete_topic(
        calls.driver, pb.DeleteTopicRequest(request_id=request_id(), topic=refer(topic_id), force=True)
    )
    gone = await ask(calls, whole.session, whole.sequence)
    assert list(gone.deleted_topic_ids) == [topic_id] and not gone.topics and not gone.shards


async def test_a_topic_comes_after_its_shards(calls: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """In an answer or a later one: who has the topic's row has all of its map."""
    monkeypatch.setattr(topic_watch, "TOPIC_ROWS_PER_ANSWER", 2)
    topic_id = (await create(calls, "t", shard_count=5)).topic_id
    answer = await ask(calls, begin_topics=[pd_pb2.WatchedTopic(topic_id=topic_id)])
    found = [told(answer)]
    while not answer.topics:
        answer = await ask(calls, answer.session, answer.sequence)
        found.append(told(answer))
    assert found == [([], [0, 1]), ([], [2, 3]), ([1], [4])]


async def test_a_watch_of_a_topic_ends_and_is_bounded(calls: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of it is sent afterwards; nothing is left of a session that is closed."""
    topic_id = (await create(calls, "t")).topic_id
    begun = await ask(calls, begin_topics=[pd_pb2.WatchedTopic(topic_id=topic_id)])
    await scale(calls, topic_id, [0], part(0, 16))
    assert told(await ask(calls, begun.session, begun.sequence, end_topics=[topic_id])) == ([], [])
    await scale(calls, topic_id, [1], part(0, 16))
    assert told(await ask(calls, begun.session, begun.sequence)) == ([], [])
    assert not calls.driver.watches._by_topic
    with pytest.raises(InvalidArgument):
        await ask(calls, begin_topics=[pd_pb2.WatchedTopic(topic_id=1)] * 10_001)
    again = await ask(calls, begin_topics=[pd_pb2.WatchedTopic(topic_id=topic_id)])
    calls.driver.watches.close(again.session)
    assert not calls.driver.watches._by_topic


async def test_changes_of_topics_that_were_missed_are_made_up_for(calls: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the state was replaced, or more changed than is remembered, the whole map is sent again."""
    topic_id = (await create(calls, "t", shard_count=3)).topic_id
    begun = await ask(calls, begin_topics=[pd_pb2.WatchedTopic(topic_id=topic_id)])
    calls.machine.restore(calls.machine.snapshot())
    assert told(await ask(calls, begun.session, begun.sequence)) == ([1], [0, 1, 2])


def test_every_message_of_a_command_has_a_request_id() -> None:
    """The client retries what has one, and knows by it that an outcome may be unknown."""
    reads = {"ListNamespaces", "DescribeTopic", "ListTopics", "ListShards"}
    for method in topic_pb2.DESCRIPTOR.services_by_name["Topics"].methods:
        assert ("request_id" in method.input_type.fields_by_name) == (method.name not in reads)


def test_every_call_of_the_service_has_a_handler(api: Any) -> None:
    """None ends as unimplemented."""
    service = bound(api.driver, "Topics")
    for method in topic_pb2.DESCRIPTOR.services_by_name["Topics"].methods:
        assert method.name in vars(service)
