"""Messages as plain dictionaries with stable keys, for `-o json`. Offsets and sizes are numbers, states are words."""

from __future__ import annotations

from typing import Any

from rangelog_core.stream_config import cursor_retention_word
from rangelog_core.stream_defaults import CURSOR_EXPIRY_MS_DEFAULT
from rangelog_proto.v1 import common_pb2, pd_pb2, placement_pb2, topic_pb2


def word(enum: Any, value: int) -> str:
    """SERVER_HEALTH_ALIVE → alive."""
    if value not in enum.values():
        return str(value)  # a newer peer's
    full: str = enum.Name(value)
    names = enum.keys()
    prefix = names[0].removesuffix("UNSPECIFIED")
    return full.removeprefix(prefix).lower().replace("_", "-")


def config_view(config: common_pb2.StreamConfig) -> dict[str, Any]:
    """A stream's configuration."""
    return {
        "replicas": config.replicas,
        "acks": config.acks,
        "durability": word(common_pb2.Durability, config.durability),
        "compression": word(common_pb2.Compression, config.compression),
        "range_size_bytes_max": config.range_size_bytes_max,
        "range_age_ms_max": config.range_age_ms_max,
        "retention_ms": config.retention_ms,
        "retention_bytes": config.retention_bytes,
        "hot_retention_ms": config.hot_retention_ms,
        "tiered": config.tiered,
        "zones_min": config.zones_min,
        "server_labels": list(config.server_labels),
    }


def stream_view(stream: common_pb2.Stream) -> dict[str, Any]:
    """A stream."""
    return {
        "name": stream.name,
        "stream_id": stream.stream_id,
        "epoch": stream.epoch,
        "writer": stream.writer,
        "trim_offset": stream.trim_offset,
        "sealed_end_offset": stream.next_offset,
        "range_count": stream.range_count,
        "created_ms": stream.created_ms,
        "config": config_view(stream.config)
        | {
            "cursor_retention": cursor_retention_word(stream.config),
            "cursor_expiry_ms": stream.config.cursor_expiry_ms or CURSOR_EXPIRY_MS_DEFAULT,
        },
    }


def range_view(source: common_pb2.Range) -> dict[str, Any]:
    """A range with its replicas and tier state."""
    sealed = source.state == common_pb2.RANGE_STATE_SEALED
    return {
        "stream_id": source.stream_id,
        "index": source.index,
        "epoch": source.epoch,
        "state": word(common_pb2.RangeState, source.state),
        "start_offset": source.start_offset,
        "end_offset": source.end_offset if sealed else None,
        "tiered_end_offset": source.tiered_end_offset,
        "hot_dropped": source.hot_dropped,
        "lost": source.lost,
        "acks": source.acks,
        "created_ms": source.created_ms,
        "sealed_ms": source.sealed_ms,
        "replicas": [
            {
                "server": replica.server,
                "incarnation": f"{replica.incarnation:016x}",
                "data_address": replica.data_address,
                "health": word(common_pb2.ServerHealth, replica.health),
                "reason": reason_word(replica.reason),
            }
            for replica in source.replicas
        ],
    }


def reason_word(reason: common_pb2.ReplicaReason) -> str:
    """Return why a server was chosen for a replica; empty where it is not known."""
    return word(common_pb2.ReplicaReason, reason).replace("-", " ") if reason else ""


def object_view(found: common_pb2.Object) -> dict[str, Any]:
    """A tiered object."""
    return {
        "object_id": found.object_id,
        "stream_id": found.stream_id,
        "range_index": found.range_index,
        "start_offset": found.start_offset,
        "end_offset": found.end_offset,
        "state": word(common_pb2.ObjectState, found.state),
        "key": found.key,
        "size_bytes": found.size_bytes,
        "digest": found.digest,
        "encryption_key_id": found.encryption_key_id,
        "row_group_count": len(found.row_groups),
        "server": found.server,
        "committed_ms": found.committed_ms,
    }


def server_view(server: common_pb2.Server) -> dict[str, Any]:
    """A range server."""
    return {
        "name": server.name,
        "health": word(common_pb2.ServerHealth, server.health),
        "health_reason": server.health_reason,
        "mode": word(common_pb2.ServerMode, server.mode or common_pb2.SERVER_MODE_ACTIVE),
        "incarnation": f"{server.incarnation:016x}",
        "boot": server.boot,
        "zone": server.zone,
        "rack": server.rack,
        "host": server.host,
        "labels": list(server.labels),
        "data_address": server.data_address,
        "control_address": server.control_address,
        "replica_count": server.replica_count,
        "used_bytes": server.used_bytes,
        "capacity_bytes": server.capacity_bytes,
        "last_heartbeat_ms": server.last_heartbeat_ms,
        "version": server.version,
    }


def task_view(task: pd_pb2.Task) -> dict[str, Any]:
    """A task of a range server, or of a topic; the other's fields are empty or 0."""
    return {
        "task_id": task.task_id,
        "kind": task.kind,
        "stream": task.stream_name,
        "range_index": task.range_index,
        "server": task.server,
        "since_ms": task.since_ms,
        "age_ms": task.age_ms,
        "topic": task.topic_name,
        "state": word(topic_pb2.TopicState, task.topic_state) if task.topic_name else "",
        "shards_left": task.shards_left,
        "detail": task.detail,
        "attempts": task.attempts,
        "last_error": task.last_error,
        "done": task.done,
        "done_ms": task.done_ms,
        "result": task.result,
        "can_be_cancelled": task.can_be_cancelled,
    }


def placement_view(response: placement_pb2.ExplainPlacementResponse) -> dict[str, Any]:
    """Where a new range would be put, and why not elsewhere."""
    return {
        "stream": response.stream.name,
        "replicas": response.stream.config.replicas,
        "acks": response.stream.config.acks,
        "zones_min": response.stream.config.zones_min,
        "server_labels": list(response.stream.config.server_labels),
        "refusal": response.refusal,
        "servers": [
            {
                "server": each.server,
                "chosen": each.chosen,
                "reason": reason_word(each.reason),
                "why_not": each.why_not,
                "zone": each.zone,
                "rack": each.rack,
                "host": each.host,
                "labels": list(each.labels),
                "health": word(common_pb2.ServerHealth, each.health),
                "open_ranges": each.open_ranges,
                "replicas": each.replicas,
                "bytes_per_s": each.bytes_per_s,
                "used_percent": each.used_percent,
            }
            for each in response.servers
        ],
    }
