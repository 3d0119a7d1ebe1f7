"""Topics: create, update, truncate, seal, delete. A large one is changed in several entries; `continue_topic` is the next one.

What holds: each command is checked wholly before it changes anything. The name of a topic is free again once its last shard is
deleted; its id is not used again. Scales and ends of shards are in shards.py, the legal transitions in topic_states.py.
"""

from __future__ import annotations

from collections.abc import Mapping

from rangelog_core.errors import InvalidArgument, PreconditionFailed, TopicExists
from rangelog_core.ids import check_name
from rangelog_core.key_ranges import KEY_SPACE, KeyRange, check_tiling, equal_key_ranges
from rangelog_core.limits import COMMAND_SHARDS_MAX
from rangelog_pd.state.cuts import check_cut, check_position, positions, whole_of
from rangelog_pd.state.shards import begin_shard, parse_key_ranges
from rangelog_pd.state.store import State
from rangelog_pd.state.tables import copy_of
from rangelog_pd.state.topic_config import check_tags, with_fields, with_topic_defaults
from rangelog_pd.state.topic_states import ACTIVE, DELETING, SEALING, TRUNCATING, check_legal, enter
from rangelog_pd.state.topic_tables import full_name
from rangelog_pd.state.topic_work import NOTHING_COVERED, go_on
from rangelog_proto.v1 import pd_state_pb2, topic_pb2


def create_topic(state: State, request: topic_pb2.CreateTopicRequest, now_ms: int) -> topic_pb2.CreateTopicResponse:
    """Create a topic with its shards and their streams.

    Raises NamespaceNotFound, TopicExists, KeyRangeGap, KeyRangeOverlap, InvalidArgument.
    """
    check_name("topic", request.name)
    state.topics.namespace(request.namespace)
    config = with_topic_defaults(request.config)
    check_tags(request.tags)
    key_ranges = _first_key_ranges(request)
    if full_name(request.namespace, request.name) in state.topics.names:
        raise TopicExists(f"topic {full_name(request.namespace, request.name)!r} exists already")
    topic = topic_pb2.Topic(
        topic_id=state.topics.next_topic_id,
        namespace=request.namespace,
        name=request.name,
        config=config,
        tags=request.tags,
        state=ACTIVE,
        map_version=1,
        created_ms=now_ms,
        state_since_ms=now_ms,
    )
    state.topics.next_topic_id += 1
    for key_range in key_ranges:
        begin_shard(state, topic, key_range, (), now_ms)
    state.topics.put_topic(topic)
    return topic_pb2.CreateTopicResponse(topic=topic)


def update_topic(state: State, request: topic_pb2.UpdateTopicRequest, now_ms: int) -> topic_pb2.UpdateTopicResponse:
    """Change the named fields and tags. Raises TopicNotFound, TopicStateForbids, PreconditionFailed, InvalidArgument."""
    topic = copy_of(state.topics.referred(request.topic))
    check_legal(topic, "update")
    _check_version(topic, request.expected_version)
    if not (request.fields or request.set_tags or request.remove_tags):
        raise InvalidArgument("nothing to update: name the fields to change, or tags")
    config = with_fields(topic.config, request.config, list(request.fields))
    for key in request.remove_tags:
        topic.tags.pop(key, None)
    for key in sorted(request.set_tags):
        topic.tags[key] = request.set_tags[key]
    check_tags(topic.tags)
    of_streams = config.stream != topic.config.stream or config.retention != topic.config.retention
    topic.config.CopyFrom(config)
    state.topics.put_topic(topic)
    if of_streams:
        work = state.topics.work_of(topic.topic_id)
        work.configure_from = 0
        work.configure_since_ms = now_ms
        state.topics.put_work(work)
        go_on(state, topic.topic_id, now_ms)
    return topic_pb2.UpdateTopicResponse(topic=topic)


def truncate_topic(
    state: State, request: topic_pb2.TruncateTopicRequest, now_ms: int, covered: Mapping[int, int] = NOTHING_COVERED
) -> topic_pb2.TruncateTopicResponse:
    """Trim the shards of a cut below their offsets, and all that precede them wholly: each as soon as a snapshot of its
    producers covers what goes. `covered`: the offsets up to which snapshots cover shards already.

    Raises TopicNotFound, TopicStateForbids, ShardNotFound, OffsetOutOfRange, KeyRangeGap, KeyRangeOverlap, InvalidArgument.
    """
    topic = copy_of(state.topics.referred(request.topic))
    check_legal(topic, "truncate")
    for shard, each in zip(check_cut(state, topic.topic_id, request.cut), request.cut, strict=True):
        check_position(state, shard, each.offset)
    work = state.topics.work_of(topic.topic_id)
    cut = {each.shard_id: each.offset for each in request.cut}
    work.to_trim.extend(positions(whole_of(state, topic.topic_id, cut)))
    enter(topic, "truncate", TRUNCATING, now_ms)
    state.topics.put_work(work)
    state.topics.put_topic(topic)
    go_on(state, topic.topic_id, now_ms, covered)
    return topic_pb2.TruncateTopicResponse(topic=state.topics.topics[topic.topic_id])


def seal_topic(state: State, request: topic_pb2.SealTopicRequest, now_ms: int) -> topic_pb2.SealTopicResponse:
    """Start to seal a topic: its shards are ended one by one. Raises TopicNotFound, TopicStateForbids, PreconditionFailed."""
    topic = copy_of(state.topics.referred(request.topic))
    check_legal(topic, "seal")
    _check_version(topic, request.expected_version)
    enter(topic, "seal", SEALING, now_ms)
    state.topics.put_topic(topic)
    return topic_pb2.SealTopicResponse(topic=topic)


def delete_topic(state: State, request: topic_pb2.DeleteTopicRequest, now_ms: int) -> topic_pb2.DeleteTopicResponse:
    """Start to delete a topic with its shards and their streams; the records are gone from here on.

    Raises TopicNotFound, TopicStateForbids, PreconditionFailed.
    """
    topic = copy_of(state.topics.referred(request.topic))
    operation = "force the deletion of" if request.force else "delete"
    check_legal(topic, operation)
    _check_version(topic, request.expected_version)
    enter(topic, operation, DELETING, now_ms)
    state.topics.work.remove(topic.topic_id)
    state.cuts.remove_topic(topic.topic_id)
    state.topics.put_topic(topic)
    go_on(state, topic.topic_id, now_ms)
    return topic_pb2.DeleteTopicResponse(topic=state.topics.topics.get(topic.topic_id, topic))


def continue_topic(state: State, command: pd_state_pb2.ContinueTopic, now_ms: int) -> None:
    """Do the next part of what is left of a truncation, an update or a deletion. Without any of them, nothing."""
    go_on(state, command.topic_id, now_ms, {each.shard_id: each.offset for each in command.covered})


def _first_key_ranges(request: topic_pb2.CreateTopicRequest) -> list[KeyRange]:
    """Return the key ranges of a new topic. Raises KeyRangeGap, KeyRangeOverlap, InvalidArgument."""
    if request.shard_count and request.key_ranges:
        raise InvalidArgument("a topic is created with a number of shards or with key ranges, not both")
    count = len(request.key_ranges) or request.shard_count or 1
    if count > COMMAND_SHARDS_MAX:
        raise InvalidArgument(f"{count} shards; one command creates at most {COMMAND_SHARDS_MAX}")
    if request.key_ranges:
        return check_tiling(parse_key_ranges(request.key_ranges), [KEY_SPACE])
    return equal_key_ranges(count)


def _check_version(topic: topic_pb2.Topic, expected: int) -> None:
    if expected and expected != topic.version:
        raise PreconditionFailed(
            f"topic {topic.name!r} has version {topic.version}, not {expected}: it was changed meanwhile"
        )
