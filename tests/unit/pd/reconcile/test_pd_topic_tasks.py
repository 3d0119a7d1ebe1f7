"""What topics have left to do is listed from the state: each kind, with its age, at a cost that follows the work."""

from __future__ import annotations

from typing import Any

import pytest

from rangelog_pd.handlers import cluster
from rangelog_pd.handlers import topics as handlers
from rangelog_pd.reconcile import topic_tasks as module
from rangelog_pd.reconcile.topic_tasks import topic_tasks
from rangelog_pd.state import topic_work
from rangelog_pd.state.topic_states import ACTIVE, DELETING, SCALING, SEALED, SEALING, TRUNCATING
from rangelog_proto.v1 import pd_pb2, topic_pb2
from tests.support.pd_topics import TopicCalls, part


@pytest.fixture
def topics(pd: Any) -> TopicCalls:
    return TopicCalls(pd)


def listed(topics: TopicCalls) -> list[tuple[str, str, int, int, int]]:
    """(kind, topic, its state, shards left, age in ms) of each task."""
    found = topic_tasks(topics.pd.state, topics.pd.wall_ms)
    return [(each.kind, each.topic_name, each.topic_state, each.shards_left, each.age_ms) for each in found]


def test_each_workflow_is_listed_until_it_is_over(topics: TopicCalls, monkeypatch: pytest.MonkeyPatch) -> None:
    """Scale, truncation, seal and deletion, with the shards that are left and the time since each began."""
    topic_id = topics.create(shards=2).topic_id
    assert listed(topics) == []
    topics.pd.pass_ms(500)
    topics.start_scale(topic_id, [0, 1], part(0, 16))
    topics.pd.pass_ms(7)
    assert listed(topics) == [("scale-topic", "ns/t", SCALING, 2, 7)]
    topics.commit_scale(topic_id)
    assert listed(topics) == []
    topics.scale(topic_id, [2], part(0, 8), part(8, 16))
    monkeypatch.setattr(topic_work, "STREAMS_PER_ENTRY", 1)
    topics.truncate(topic_id, {3: 0, 4: 0})
    topics.pd.pass_ms(3)
    assert listed(topics) == [("truncate-topic", "ns/t", TRUNCATING, 4, 3)]
    for _ in range(4):
        topics.go_on(topic_id)
    assert (listed(topics), topics.topic(topic_id).state) == ([], ACTIVE)
    topics.seal(topic_id)
    topics.pd.pass_ms(2)
    topics.end(topic_id, 3)
    assert listed(topics) == [("seal-topic", "ns/t", SEALING, 1, 2)], "the end of one shard is no other state"
    topics.end(topic_id, 4)
    assert (listed(topics), topics.topic(topic_id).state) == ([], SEALED)
    topics.delete(topic_id)
    topics.pd.pass_ms(9)
    assert listed(topics) == [("delete-topic", "ns/t", DELETING, 4, 9)]
    for _ in range(4):
        topics.go_on(topic_id)
    assert listed(topics) == []


def test_a_changed_configuration_is_listed_while_it_spreads(
    topics: TopicCalls, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside the topic's state, since a topic is sealed while an update still spreads."""
    monkeypatch.setattr(topic_work, "STREAMS_PER_ENTRY", 2)
    topic_id = topics.create(shards=5).topic_id
    topics.update(topic_id, "retention", config=topic_pb2.TopicConfig(retention=topic_pb2.Retention(age_ms=7)))
    topics.pd.pass_ms(4)
    topics.seal(topic_id)
    assert listed(topics) == [("configure-topic", "ns/t", SEALING, 3, 4), ("seal-topic", "ns/t", SEALING, 5, 0)]
    topics.go_on(topic_id)
    topics.go_on(topic_id)
    assert [kind for kind, *_ in listed(topics)] == ["seal-topic"]
    assert not topics.pd.state.topics.work, "the row is gone with its date"


def test_the_next_leader_lists_the_same(topics: TopicCalls) -> None:
    """Dates are in the state: an old workflow does not look new after a change of leader."""
    for number in range(3):
        topics.seal(topics.create(f"t{number}").topic_id)
        topics.pd.pass_ms(1_000)
    before = topic_tasks(topics.pd.state, topics.pd.wall_ms)
    assert [(each.task_id, each.age_ms) for each in before] == [
        ("seal-topic/1", 3_000),
        ("seal-topic/2", 2_000),
        ("seal-topic/3", 1_000),
    ]
    topics.pd.reload()
    assert topic_tasks(topics.pd.state, topics.pd.wall_ms) == before


def test_the_cost_follows_the_topics_that_have_something_to_do(
    topics: TopicCalls, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A topic that rests is not looked at, and a listing is bounded."""
    for number in range(20):
        topics.create(f"idle{number}")
    for number in range(3):
        topics.seal(topics.create(f"busy{number}").topic_id)
    looked_at: list[int] = []
    tasks_of = module._tasks_of
    monkeypatch.setattr(
        module, "_tasks_of", lambda state, topic, now: looked_at.append(topic.topic_id) or tasks_of(state, topic, now)
    )
    assert [each.topic_name for each in topic_tasks(topics.pd.state, 0)] == ["ns/busy0", "ns/busy1", "ns/busy2"]
    assert looked_at == [21, 22, 23]
    monkeypatch.setattr(module, "TOPICS_LISTED_MAX", 2)
    assert len(topic_tasks(topics.pd.state, 0)) == 2


def test_a_clock_behind_the_state_gives_no_negative_age(topics: TopicCalls) -> None:
    """An age is unsigned for whoever reads it."""
    topics.seal(topics.create().topic_id)
    assert [each.age_ms for each in topic_tasks(topics.pd.state, 5)] == [0]


async def test_tasks_of_topics_and_of_servers_are_one_list(ready: Any, make_report: Any) -> None:
    """Work of topics has no error, so it is not among what fails."""
    calls = ready
    await calls.driver.reconcile()
    await handlers.create_namespace(calls.driver, topic_pb2.CreateNamespaceRequest(request_id="n", name="a"))
    create = topic_pb2.CreateTopicRequest(request_id="t", namespace="a", name="t")
    await handlers.create_topic(calls.driver, create)
    name = topic_pb2.TopicReference(namespace="a", name="t")
    await handlers.seal_topic(calls.driver, topic_pb2.SealTopicRequest(request_id="s", topic=name))
    await calls.seal(10)
    told = await calls.beat("rs1", make_report(1, 0, "OPEN", end=10))
    calls.silence(250)
    found = (await cluster.list_tasks(calls.driver, pd_pb2.ListTasksRequest())).tasks
    assert [(each.kind, each.age_ms) for each in found if each.topic_id] == [("seal-topic", 250)]
    assert [(each.task_id, each.age_ms) for each in found if not each.topic_id] == [
        (each.task_id, 250) for each in told.directives
    ]
    assert told.directives
    assert not (await cluster.list_tasks(calls.driver, pd_pb2.ListTasksRequest(failing_only=True))).tasks
