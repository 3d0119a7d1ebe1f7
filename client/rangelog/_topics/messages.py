"""Topics and shards between the client's values and the placement driver's messages."""

from __future__ import annotations

import math
from types import MappingProxyType
from typing import Any, cast

from rangelog._topics.values import (
    SCALING_KINDS,
    Retention,
    ScalingKind,
    ScalingPolicy,
    ShardInfo,
    TopicConfig,
    TopicConfigChange,
    TopicInfo,
    TopicKind,
    TopicState,
)
from rangelog_core.key_ranges import KeyRange, key_range_from_bytes
from rangelog_core.limits import TOPIC_SHARDS_MAX
from rangelog_core.stream_config import StreamConfig, StreamConfigChange, config_message
from rangelog_core.topic_names import TopicName
from rangelog_proto.v1 import common_pb2
from rangelog_proto.v1 import topic_pb2 as pb

_KINDS = dict(zip(SCALING_KINDS, (pb.SCALING_KIND_FIXED, pb.SCALING_KIND_EVENTS, pb.SCALING_KIND_BYTES), strict=True))
_TOPIC_KINDS: dict[int, TopicKind] = {
    pb.TOPIC_KIND_UNSPECIFIED: "records",
    pb.TOPIC_KIND_RECORDS: "records",
    pb.TOPIC_KIND_TABLE: "table",
}
_KIND_NAMES = {kind: name for name, kind in _KINDS.items()}


def topic_config_message(config: TopicConfig | TopicConfigChange) -> tuple[pb.TopicConfig, list[str]]:
    """Return the message of a configuration, and the names of the fields that are set, as an update names them."""
    message = pb.TopicConfig()
    fields: list[str] = []
    if config.stream is not None:
        stream, names = config_message(config.stream)
        stream.ClearField("retention_ms")
        stream.ClearField("retention_bytes")
        message.stream.CopyFrom(stream)
        fields += [f"stream.{name}" for name in names if name not in ("retention_ms", "retention_bytes")]
    if config.scaling is not None:
        scaling = config.scaling
        message.scaling.CopyFrom(
            pb.ScalingPolicy(
                kind=_KINDS[scaling.kind],
                target_per_s=scaling.target_per_s,
                factor=scaling.factor,
                shards_min=scaling.shards_min,
                shards_max=scaling.shards_max,
            )
        )
        fields.append("scaling")
    if config.retention is not None:
        of_stream, _ = config_message(
            StreamConfigChange(
                retention_seconds=config.retention.age_seconds, retention_bytes=config.retention.shard_size_bytes
            )
        )
        message.retention.CopyFrom(
            pb.Retention(
                age_ms=of_stream.retention_ms,
                shard_size_bytes=of_stream.retention_bytes,
                consumed=config.retention.consumed,
            )
        )
        fields.append("retention")
    return message, fields


def key_range_message(key_range: KeyRange) -> pb.KeyRange:
    """Return the message of a key range."""
    low, high = key_range.to_bytes()
    return pb.KeyRange(low=low, high=high)


def topic_info(topic: pb.Topic) -> TopicInfo:
    """Return a TopicInfo for the placement driver's message."""
    config = topic.config
    return TopicInfo(
        name=str(TopicName(topic.namespace, topic.name)),
        topic_id=topic.topic_id,
        state=cast(TopicState, pb.TopicState.Name(topic.state).removeprefix("TOPIC_STATE_").lower()),
        config=TopicConfig(
            stream=_stream_config(config.stream),
            scaling=ScalingPolicy(
                kind=cast(ScalingKind, _KIND_NAMES.get(config.scaling.kind, "fixed")),
                target_per_s=config.scaling.target_per_s,
                factor=config.scaling.factor,
                shards_min=config.scaling.shards_min,
                shards_max=config.scaling.shards_max or TOPIC_SHARDS_MAX,
            ),
            retention=Retention(
                age_seconds=config.retention.age_ms / 1000,
                shard_size_bytes=config.retention.shard_size_bytes,
                consumed=config.retention.consumed,
            ),
        ),
        tags=MappingProxyType(dict(sorted(topic.tags.items()))),
        map_version=topic.map_version,
        shard_count=topic.current_shard_count,
        scale_id=topic.scale_id,
        committed_scale_id=topic.committed_scale_id,
        version=topic.version,
        created_ms=topic.created_ms,
        kind=_TOPIC_KINDS.get(topic.config.kind, "other"),
    )


def shard_info(shard: pb.Shard) -> ShardInfo:
    """Return a ShardInfo for the placement driver's message."""
    return ShardInfo(
        shard_id=shard.shard_id,
        key_range=key_range_from_bytes(shard.key_range.low, shard.key_range.high),
        stream_id=shard.stream_id,
        created_version=shard.created_version,
        ended_version=shard.ended_version,
        predecessors=tuple(shard.predecessors),
        successors=tuple(shard.successors),
        end_offset=shard.end_offset if shard.ended_version else None,
        truncated=shard.truncated,
    )


def _stream_config(config: common_pb2.StreamConfig) -> StreamConfig:
    """Return the configuration of the shards' streams as a value."""
    given: dict[str, Any] = {}
    if config.HasField("range_age_ms_max"):
        given["range_age_seconds"] = config.range_age_ms_max / 1000
    if config.HasField("hot_retention_ms"):
        for_ever = config.hot_retention_ms < 0
        given["hot_retention_seconds"] = math.inf if for_ever else config.hot_retention_ms / 1000
    return StreamConfig(
        replicas=config.replicas,
        acks=config.acks,
        range_size_bytes_max=config.range_size_bytes_max,
        durability="memory" if config.durability == common_pb2.DURABILITY_MEMORY else "flushed",
        compression="zstd" if config.compression == common_pb2.COMPRESSION_ZSTD else "none",
        tiered=config.tiered,
        zones_min=config.zones_min,
        server_labels=tuple(config.server_labels),
        **given,
    )
