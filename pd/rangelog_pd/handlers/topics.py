"""Calls on namespaces, topics and their shards. Defaults of the cluster are filled in here, by the proposer.

What holds: a page is read from an index; its token names the last row of the page before, so it stays valid whatever is
created and deleted in between.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from rangelog_core.errors import InvalidArgument
from rangelog_core.ids import check_name
from rangelog_core.key_ranges import KEY_BYTES
from rangelog_core.limits import SHARD_PAGE_SIZE_MAX, TAGS_MAX, TOPIC_PAGE_SIZE_MAX
from rangelog_core.net.principals import USERS
from rangelog_core.rights import ANY, Verb
from rangelog_pd.driver import Driver
from rangelog_pd.handlers import audited, needs
from rangelog_pd.handlers.call import BROKERS, Call, proposing
from rangelog_pd.handlers.streams import RANGE_AGE_MS_DEFAULT, check_replicas, fill_replicas
from rangelog_pd.state.topic_config import FIELDS, check_tags, with_topic_defaults
from rangelog_pd.state.topic_tables import ShardMap, full_name
from rangelog_pd.state.versions import LEVEL_BROKERS
from rangelog_proto.v1 import topic_pb2 as pb

_PAIR = re.compile(r"([0-9]{1,19}):([0-9]{1,19})")
_NUMBER = re.compile(r"[0-9]{1,19}")
_KEY = re.compile(rf"[0-9a-f]{{{2 * KEY_BYTES}}}")


create_namespace = proposing("create_namespace", pb.CreateNamespaceResponse)
"""Create a namespace. Raises NamespaceExists, InvalidArgument."""

delete_namespace = proposing("delete_namespace", pb.DeleteNamespaceResponse)
"""Delete an empty namespace. Raises NamespaceNotFound, PreconditionFailed."""


async def list_namespaces(driver: Driver, request: pb.ListNamespacesRequest) -> pb.ListNamespacesResponse:
    """Return one page of the namespaces, by name."""
    await driver.barrier()
    size = _page_size(request.page_size, TOPIC_PAGE_SIZE_MAX)
    with driver.state() as state:
        names = state.topics.namespace_names.page(request.prefix, request.page_token, size + 1)
        return pb.ListNamespacesResponse(
            namespaces=[state.topics.namespaces[name] for name in names[:size]],
            next_page_token=names[size - 1] if len(names) > size else "",
        )


async def create_topic(driver: Driver, request: pb.CreateTopicRequest) -> pb.CreateTopicResponse:
    """Create a topic. Raises NamespaceNotFound, TopicExists, KeyRangeGap, KeyRangeOverlap, InvalidArgument,
    PreconditionFailed (more replicas than servers)."""
    check_name("topic", request.name)
    check_tags(request.tags)
    fill_replicas(driver, request.config.stream)
    with_topic_defaults(request.config)
    _check_no_cursors(request.config)
    stream = request.config.stream
    if not driver.is_repeat("create_topic", request.request_id):
        await check_replicas(driver, stream.replicas)
    if not stream.HasField("tiered"):
        stream.tiered = bool(driver.tier_url()) and request.config.kind != pb.TOPIC_KIND_TABLE
    if not stream.HasField("range_age_ms_max"):
        stream.range_age_ms_max = RANGE_AGE_MS_DEFAULT
    return await driver.propose_request(pb.CreateTopicResponse, request.request_id, create_topic=request)


async def describe_topic(driver: Driver, request: pb.DescribeTopicRequest) -> pb.DescribeTopicResponse:
    """Return a topic, and its plan while it is scaled. Raises TopicNotFound."""
    await driver.barrier()
    with driver.state() as state:
        topic = state.topics.referred(request.topic)
        work = state.topics.work.find(topic.topic_id)
        scale = work.scale if work is not None and work.HasField("scale") else None
        groups = state.cuts.groups.get(topic.topic_id, ())
        return pb.DescribeTopicResponse(topic=topic, scale=scale, consuming_groups=groups)


async def list_topics(driver: Driver, request: pb.ListTopicsRequest) -> pb.ListTopicsResponse:
    """Return one page of the topics, by namespace and name. Raises InvalidArgument."""
    if request.prefix and not request.namespace:
        raise InvalidArgument("a prefix of topics' names goes with a namespace")
    if len(request.tags) > TAGS_MAX:
        raise InvalidArgument(f"{len(request.tags)} tags; the limit is {TAGS_MAX}")
    await driver.barrier()
    size = _page_size(request.page_size, TOPIC_PAGE_SIZE_MAX)
    prefix = full_name(request.namespace, request.prefix) if request.namespace else ""
    with driver.state() as state:
        topics = state.topics
        if request.tags:
            names, token = topics.tags.page(request.tags, prefix, request.page_token, size)
        else:
            names = topics.names.page(prefix, request.page_token, size + 1)
            token = names[size - 1] if len(names) > size else ""
            names = names[:size]
        ids = topics.names.ids()
        return pb.ListTopicsResponse(topics=[topics.topics[ids[name]] for name in names], next_page_token=token)


async def update_topic(driver: Driver, request: pb.UpdateTopicRequest) -> pb.UpdateTopicResponse:
    """Change configuration and tags. Raises TopicNotFound, TopicStateForbids, PreconditionFailed, InvalidArgument."""
    if len(request.fields) > len(FIELDS) or len(request.remove_tags) > TAGS_MAX or len(request.set_tags) > TAGS_MAX:
        raise InvalidArgument("too many fields or tags")
    _check_no_cursors(request.config)
    if "stream.replicas" in request.fields and not driver.is_repeat("update_topic", request.request_id):
        await check_replicas(driver, request.config.stream.replicas)
    return await driver.propose_request(pb.UpdateTopicResponse, request.request_id, update_topic=request)


truncate_topic = proposing("truncate_topic", pb.TruncateTopicResponse)
"""Trim a topic up to a cut. Raises TopicNotFound, TopicStateForbids, ShardNotFound, OffsetOutOfRange, InvalidArgument."""

seal_topic = proposing("seal_topic", pb.SealTopicResponse)
"""Start to seal a topic. Raises TopicNotFound, TopicStateForbids, PreconditionFailed."""

delete_topic = proposing("delete_topic", pb.DeleteTopicResponse)
"""Start to delete a topic. Raises TopicNotFound, TopicStateForbids, PreconditionFailed."""

start_scale = proposing("start_scale", pb.StartScaleResponse)
"""Keep the plan of a scale. Raises what shards.start_scale raises."""

cancel_scale = proposing("cancel_scale", pb.CancelScaleResponse)
"""Drop the plan of a scale. Raises TopicNotFound, TopicStateForbids, PreconditionFailed."""


async def commit_scale(driver: Driver, request: pb.CommitScaleRequest) -> pb.CommitScaleResponse:
    """End the parents of a scale and make its children current. Raises what shards.commit_scale raises.

    The children get owners before the response: until then no broker takes batches for their keys.
    """
    response = await driver.propose_request(pb.CommitScaleResponse, request.request_id, commit_scale=request)
    await driver.assign_owners()
    return response


end_shard = proposing("end_shard", pb.EndShardResponse)
"""End a shard of a topic that is being sealed. Raises what shards.end_shard raises."""


async def report_consumed(driver: Driver, request: pb.ReportConsumedRequest) -> pb.ReportConsumedResponse:
    """Note where a group stands that subscribes for retention. Raises what retention.report_consumed raises."""
    if not driver.knows_level(LEVEL_BROKERS):
        request.ClearField("number")
    return await driver.propose_request(pb.ReportConsumedResponse, request.request_id, report_consumed=request)


ensure_log = proposing("ensure_log", pb.EnsureLogResponse)
"""Return a shard's side log, or a coordinator journal's stream. Raises TopicNotFound, ShardNotFound."""


async def list_shards(driver: Driver, request: pb.ListShardsRequest) -> pb.ListShardsResponse:
    """Return one page of a topic's shards. Raises TopicNotFound, InvalidArgument."""
    if request.selection not in pb.ShardSelection.values():
        raise InvalidArgument("the selection must be current, all or changed")
    await driver.barrier()
    size = _page_size(request.page_size, SHARD_PAGE_SIZE_MAX)
    with driver.state() as state:
        topic = state.topics.referred(request.topic)
        ids = _selected(state.topics.maps.of(topic.topic_id), topic, request, size + 1)
        shards = [state.topics.shards[topic.topic_id, each] for each in ids[:size]]
        token = _token(request.selection, shards[-1]) if len(ids) > size else ""
        found = (state.owners.assignments.find((topic.topic_id, each)) for each in ids[:size])
        owners = [each for each in found if each is not None]
        return pb.ListShardsResponse(topic=topic, shards=shards, next_page_token=token, owners=owners)


def _selected(shard_map: ShardMap, topic: pb.Topic, request: pb.ListShardsRequest, size: int) -> Sequence[int]:
    """Return the ids of up to `size` shards behind the page token. Raises InvalidArgument."""
    token = request.page_token
    if request.selection == pb.SHARD_SELECTION_ALL:
        first = int(_match(_NUMBER, token)[0]) + 1 if token else 0
        return [each for each in range(first, min(first + size, topic.next_shard_id)) if each in shard_map.ids]
    if request.selection == pb.SHARD_SELECTION_CHANGED:
        after = _match(_PAIR, token) if token else None
        entry = (int(after[1]), int(after[2])) if after is not None else (0, 0)
        return [each for _, each in shard_map.changed_since(request.since_map_version, entry, size)]
    key = bytes.fromhex(_match(_KEY, token)[0]) if token else b""
    return shard_map.current_behind(key, size)


def _token(selection: pb.ShardSelection, last: pb.Shard) -> str:
    """Return the token of the page behind a shard."""
    if selection == pb.SHARD_SELECTION_ALL:
        return str(last.shard_id)
    if selection == pb.SHARD_SELECTION_CHANGED:
        return f"{max(last.created_version, last.ended_version)}:{last.shard_id}"
    return last.key_range.low.hex()


def _match(pattern: re.Pattern[str], token: str) -> re.Match[str]:
    found = pattern.fullmatch(token)
    if found is None:
        raise InvalidArgument("the page token is not one of this listing")
    return found


def _check_no_cursors(config: pb.TopicConfig) -> None:
    """Raise InvalidArgument for a configuration that would have no effect: shards have no cursors."""
    if config.stream.cursor_retention or config.stream.cursor_expiry_ms:
        raise InvalidArgument("a topic has no cursors: its retention may wait for groups (consumed)")


def _page_size(requested: int, limit: int) -> int:
    return min(requested or limit, limit)


CALLS = (
    Call("CreateNamespace", create_namespace, USERS, needs=needs.of_namespace, audit=audited.named("namespace")),
    Call("DeleteNamespace", delete_namespace, USERS, needs=needs.of_namespace, audit=audited.named("namespace")),
    Call("ListNamespaces", list_namespaces, USERS, needs=needs.NAMESPACES, hidden_by_restore=True),
    Call(
        "CreateTopic",
        create_topic,
        USERS,
        needs=needs.new_topic,
        audit=lambda request: f"topic {request.namespace}/{request.name}",
    ),
    Call("DescribeTopic", describe_topic, USERS, needs=needs.of_topic(ANY), hidden_by_restore=True),
    Call("ListTopics", list_topics, USERS, needs=needs.TOPICS, hidden_by_restore=True),
    Call("UpdateTopic", update_topic, USERS, needs=needs.of_topic(Verb.ADMIN), audit=audited.of_topic),
    Call("TruncateTopic", truncate_topic, USERS, needs=needs.of_topic(Verb.TRIM), audit=audited.of_topic),
    Call("SealTopic", seal_topic, USERS, needs=needs.of_topic(Verb.SEAL), audit=audited.of_topic),
    Call("DeleteTopic", delete_topic, USERS, needs=needs.of_topic(Verb.ADMIN), audit=audited.of_topic),
    Call("ListShards", list_shards, USERS, needs=needs.of_topic(ANY), hidden_by_restore=True),
    Call("StartScale", start_scale, USERS, needs=needs.of_topic(Verb.ADMIN), audit=audited.of_topic),
    Call(
        "CancelScale",
        cancel_scale,
        USERS,
        needs=needs.of_topic_id,
        audit=lambda request: f"topic id {request.topic_id}",
    ),
    Call("CommitScale", commit_scale, BROKERS),
    Call("EndShard", end_shard, BROKERS),
    Call("EnsureLog", ensure_log, BROKERS),
    Call("ReportConsumed", report_consumed, BROKERS),
)
