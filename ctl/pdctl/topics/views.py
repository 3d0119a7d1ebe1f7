"""Namespaces, topics, shards and brokers as plain dictionaries with stable keys, for `-o json`; and how tables show them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pdctl.topics.text import show_key_range
from pdctl.views import config_view, word
from rangelog_core.ids import shard_stream_name
from rangelog_core.key_ranges import KeyRange, key_range_from_bytes
from rangelog_proto.v1 import broker_pb2, topic_pb2

if TYPE_CHECKING:
    from pdctl.topics.calls import Listing


def namespace_view(namespace: topic_pb2.Namespace) -> dict[str, Any]:
    """A namespace."""
    return {"name": namespace.name, "created_ms": namespace.created_ms}


def topic_view(topic: topic_pb2.Topic) -> dict[str, Any]:
    """A topic."""
    stream = config_view(topic.config.stream)
    del stream["retention_ms"], stream["retention_bytes"]
    scaling, retention = topic.config.scaling, topic.config.retention
    return {
        "name": f"{topic.namespace}/{topic.name}",
        "topic_id": topic.topic_id,
        "kind": word(topic_pb2.TopicKind, topic.config.kind or topic_pb2.TOPIC_KIND_RECORDS),
        "state": word(topic_pb2.TopicState, topic.state),
        "state_since_ms": topic.state_since_ms,
        "shard_count": topic.current_shard_count,
        "map_version": topic.map_version,
        "tags": {key: topic.tags[key] for key in sorted(topic.tags)},
        "config": {
            "stream": stream,
            "scaling": {
                "kind": word(topic_pb2.ScalingKind, scaling.kind),
                "target_per_s": scaling.target_per_s,
                "factor": scaling.factor,
                "shards_min": scaling.shards_min,
                "shards_max": scaling.shards_max,
            },
            "retention": {
                "age_ms": retention.age_ms,
                "shard_size_bytes": retention.shard_size_bytes,
                "consumed": retention.consumed,
            },
        },
        "scale_id": topic.scale_id,
        "committed_scale_id": topic.committed_scale_id,
        "version": topic.version,
        "created_ms": topic.created_ms,
    }


def plan_view(plan: topic_pb2.ScalePlan) -> dict[str, Any]:
    """The plan of a scale."""
    return {
        "scale_id": plan.scale_id,
        "map_version": plan.map_version,
        "parents": list(plan.parents),
        "key_ranges": [key_range_view(each) for each in plan.key_ranges],
        "started_ms": plan.started_ms,
    }


def key_range_view(key_range: topic_pb2.KeyRange) -> dict[str, str]:
    """A key range: both ends in 32 digits, the high one 33 where it is the end of the key space."""
    found = key_range_of(key_range)
    return {"low": f"{found.low:#034x}", "high": f"{found.high:#034x}"}


def key_range_of(sent: topic_pb2.KeyRange) -> KeyRange:
    """Return a key range as it was sent."""
    return key_range_from_bytes(sent.low, sent.high)


def show_view_of_key_range(view: dict[str, str]) -> str:
    """4..8"""
    return show_key_range(KeyRange(int(view["low"], 16), int(view["high"], 16)))


def shard_view(shard: topic_pb2.Shard, owner: dict[str, Any] | None) -> dict[str, Any]:
    """A shard, with `owner` from owner_view."""
    ended = bool(shard.ended_version)
    return {
        "shard_id": shard.shard_id,
        "state": "ended" if ended else "current",
        "key_range": key_range_view(shard.key_range),
        "predecessors": list(shard.predecessors),
        "successors": list(shard.successors),
        "created_version": shard.created_version,
        "ended_version": shard.ended_version if ended else None,
        "end_offset": shard.end_offset if ended else None,
        "truncated": shard.truncated,
        "stream": shard_stream_name(shard.topic_id, shard.shard_id),
        "stream_id": shard.stream_id,
        "owner": None if ended else owner,
    }


def owner_view(assignment: broker_pb2.Assignment, brokers: dict[str, broker_pb2.Broker]) -> dict[str, Any] | None:
    """The broker that a shard or journal is assigned to; None without an owner."""
    if not assignment.broker:
        return None
    return {
        "broker": assignment.broker,
        "incarnation": f"{assignment.incarnation:016x}",
        "owner_epoch": assignment.owner_epoch,
        "alive": is_alive(brokers.get(assignment.broker), assignment.incarnation),
    }


def is_alive(broker: broker_pb2.Broker | None, incarnation: int) -> bool:
    """Whether this incarnation is the registered one, and not lost."""
    return broker is not None and broker.incarnation == incarnation and not broker.lost


def show_owner(owner: dict[str, Any] | None) -> str:
    """The broker's name, marked if it is gone."""
    if owner is None:
        return "-"
    return str(owner["broker"]) + ("" if owner["alive"] else " (lost)")


def broker_view(broker: broker_pb2.Broker, owned: broker_pb2.OwnedCount) -> dict[str, Any]:
    """A broker, with how much is assigned to it."""
    return {
        "name": broker.name,
        "state": "lost" if broker.lost else "alive",
        "incarnation": f"{broker.incarnation:016x}",
        "address": broker.address,
        "zone": broker.zone,
        "host": broker.host,
        "version": broker.version,
        "registered_ms": broker.registered_ms,
        "shards": owned.shards,
        "journals": owned.journals,
        "doors": {each.door: each.address for each in broker.endpoints},
    }


def shard_views(listed: Listing, brokers: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the shards of a listing as they are printed."""
    owners = {each: owner_view(row, brokers) for each, row in listed.owners.items()}
    return [shard_view(row, owners.get(each)) for each, row in listed.shards.items()]
