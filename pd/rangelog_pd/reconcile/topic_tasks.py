"""The unfinished work of topics, as tasks for people: read from the rows, so the next leader lists the same dates.

What holds: a listing costs as much as there are topics with something left to do, however many topics there are.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from rangelog_pd.state.store import State
from rangelog_pd.state.topic_states import DELETING, SCALING, SEALING, TRUNCATING
from rangelog_pd.state.topic_tables import full_name
from rangelog_proto.v1 import pd_pb2, topic_pb2

TOPICS_LISTED_MAX = 10_000
"""Topics of one listing: with names of the largest size the response stays below the limit of a gRPC message."""


def topic_tasks(state: State, time_ms: int) -> list[pd_pb2.Task]:
    """Return the tasks of topics, oldest first. `time_ms`: cluster time, as the dates of the state.

    Cluster time lags for a moment after a change of leader, and so do the ages; the dates do not change.
    """
    topics = state.topics
    found = [
        task
        for topic_id in islice(topics.changing, TOPICS_LISTED_MAX)
        for task in _tasks_of(state, topics.topics[topic_id], time_ms)
    ]
    return sorted(found, key=lambda task: task.since_ms)


def _tasks_of(state: State, topic: topic_pb2.Topic, time_ms: int) -> Iterator[pd_pb2.Task]:
    work = state.topics.work.find(topic.topic_id) or topic_pb2.TopicWork()
    if topic.state == SCALING:
        plan = work.scale
        why = plan.reason or f"requested: {_shards(len(plan.parents), 'becomes', 'become')} {len(plan.key_ranges)}"
        yield _task(topic, "scale-topic", len(plan.parents), topic.state_since_ms, time_ms, why)
    elif topic.state == TRUNCATING:
        waits = f"{_shards(len(work.to_trim), 'waits', 'wait')} for a snapshot of the producers"
        yield _task(topic, "truncate-topic", len(work.to_trim), topic.state_since_ms, time_ms, waits)
    elif topic.state == SEALING:
        yield _task(topic, "seal-topic", topic.current_shard_count, topic.state_since_ms, time_ms)
    elif topic.state == DELETING:
        left = len(state.topics.maps.of(topic.topic_id).ids)
        yield _task(topic, "delete-topic", left, topic.state_since_ms, time_ms)
    if work.HasField("configure_from"):
        left = topic.next_shard_id - work.configure_from
        yield _task(topic, "configure-topic", left, work.configure_since_ms, time_ms)


def _shards(count: int, one: str, many: str) -> str:
    """1 shard waits, 2 shards wait."""
    return f"1 shard {one}" if count == 1 else f"{count} shards {many}"


def _task(
    topic: topic_pb2.Topic, kind: str, shards_left: int, since_ms: int, time_ms: int, detail: str = ""
) -> pd_pb2.Task:
    return pd_pb2.Task(
        task_id=f"{kind}/{topic.topic_id}",
        kind=kind,
        since_ms=since_ms,
        age_ms=max(0, time_ms - since_ms) if since_ms else 0,
        topic_id=topic.topic_id,
        topic_name=full_name(topic.namespace, topic.name),
        topic_state=topic.state,
        shards_left=shards_left,
        detail=detail,
    )
