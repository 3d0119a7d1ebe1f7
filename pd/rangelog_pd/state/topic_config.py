"""The configuration of a topic, complete and checked; and the configuration of its shards' streams, which follows from it.

What holds: the rules are those of feature level 4; the proposer fills in what is a default of the cluster rather than a rule.
The stream of a table's partition is the log of a journal: it is trimmed by the journal's owner only, and never tiered.
"""

from __future__ import annotations

from collections.abc import Mapping

from rangelog_core.errors import InvalidArgument
from rangelog_core.limits import NAME_LENGTH_MAX, TAGS_BYTES_MAX, TAGS_MAX, TOPIC_SHARDS_MAX
from rangelog_core.stream_defaults import set_field, with_defaults
from rangelog_proto.v1 import common_pb2, topic_pb2

FACTOR_DEFAULT = 2
FACTOR_MAX = 64
TARGET_MAX = 1 << 53
_AGE_STEPS = 64
_RANGES_PER_AGE = 8
_RANGE_AGE_MS_MIN = 1_000

STREAM_FIELDS = tuple(
    field.name
    for field in common_pb2.StreamConfig.DESCRIPTOR.fields
    if field.name not in ("retention_ms", "retention_bytes", "cursor_retention", "cursor_expiry_ms")
)
FIELDS = (*(f"stream.{name}" for name in STREAM_FIELDS), "scaling", "retention")
"""What an update may name."""


def with_topic_defaults(config: topic_pb2.TopicConfig) -> topic_pb2.TopicConfig:
    """Fill in unset fields, then check. Raises InvalidArgument."""
    if config.stream.retention_ms or config.stream.retention_bytes:
        raise InvalidArgument("a topic's retention is set for the topic, not for its streams")
    full = topic_pb2.TopicConfig(
        stream=with_defaults(config.stream),
        scaling=config.scaling,
        retention=config.retention,
        kind=config.kind or topic_pb2.TOPIC_KIND_RECORDS,
    )
    full.scaling.kind = full.scaling.kind or topic_pb2.SCALING_KIND_FIXED
    full.scaling.factor = full.scaling.factor or FACTOR_DEFAULT
    full.scaling.shards_min = full.scaling.shards_min or 1
    full.scaling.shards_max = full.scaling.shards_max or TOPIC_SHARDS_MAX
    if full.scaling.kind not in topic_pb2.ScalingKind.values():
        raise InvalidArgument("the scaling policy must be fixed, by events or by bytes")
    if (full.scaling.kind == topic_pb2.SCALING_KIND_FIXED) != (not full.scaling.target_per_s):
        raise InvalidArgument(
            "a scaling policy by events or bytes has a target for each shard, and a fixed one has none"
        )
    if full.scaling.target_per_s > TARGET_MAX:
        raise InvalidArgument(f"target_per_s must be at most {TARGET_MAX}")
    if not 2 <= full.scaling.factor <= FACTOR_MAX:
        raise InvalidArgument(f"factor must be 2 to {FACTOR_MAX}, not {full.scaling.factor}")
    if not 1 <= full.scaling.shards_min <= TOPIC_SHARDS_MAX:
        raise InvalidArgument(f"shards_min must be 1 to {TOPIC_SHARDS_MAX}, not {full.scaling.shards_min}")
    if not full.scaling.shards_min <= full.scaling.shards_max <= TOPIC_SHARDS_MAX:
        raise InvalidArgument(
            f"shards_max must be shards_min ({full.scaling.shards_min}) to {TOPIC_SHARDS_MAX}, not {full.scaling.shards_max}"
        )
    if full.retention.age_ms < 0 or full.retention.shard_size_bytes < 0:
        raise InvalidArgument("retention cannot be negative; 0 keeps everything")
    if full.kind not in topic_pb2.TopicKind.values():
        raise InvalidArgument("the kind of a topic must be records or table")
    if full.kind == topic_pb2.TOPIC_KIND_TABLE:
        _check_table(full)
    return full


def _check_table(config: topic_pb2.TopicConfig) -> None:
    """Raise InvalidArgument for what would remove or copy the log of a table's partition."""
    if config.scaling.kind != topic_pb2.SCALING_KIND_FIXED:
        raise InvalidArgument("the partitions of a table are fixed: it has no scaling policy")
    retention = config.retention
    if retention.age_ms or retention.shard_size_bytes or retention.consumed:
        raise InvalidArgument("a table has no retention: its rows stay until they are removed")
    if config.stream.tiered:
        raise InvalidArgument("a table is not tiered")


def with_fields(
    config: topic_pb2.TopicConfig, wanted: topic_pb2.TopicConfig, fields: list[str]
) -> topic_pb2.TopicConfig:
    """Return a copy of a configuration with the named fields of another one, checked. Raises InvalidArgument."""
    changed = topic_pb2.TopicConfig()
    changed.CopyFrom(config)
    for name in fields:
        if name not in FIELDS:
            raise InvalidArgument(f"unknown field {name!r}: choose from {', '.join(FIELDS)}")
        if name == "scaling":
            changed.scaling.CopyFrom(wanted.scaling)
        elif name == "retention":
            changed.retention.CopyFrom(wanted.retention)
        else:
            set_field(changed.stream, name.removeprefix("stream."), wanted.stream)
    return with_topic_defaults(changed)


def stream_config_of(config: topic_pb2.TopicConfig, shard_id: int) -> common_pb2.StreamConfig:
    """Return the configuration of one shard's stream.

    It has no retention of its own, since a topic is trimmed at cuts; the bound on bytes is there to have its size measured.
    Only what is sealed is trimmed, so its ranges are younger than the topic's records may be.
    Its ranges reach their age up to a tenth sooner than the topic's, by the shard's id, so that the streams of a topic do
    not roll together.
    """
    made = common_pb2.StreamConfig()
    made.CopyFrom(config.stream)
    made.retention_bytes = config.retention.shard_size_bytes
    if config.retention.age_ms:
        often_ms = max(_RANGE_AGE_MS_MIN, config.retention.age_ms // _RANGES_PER_AGE)
        made.range_age_ms_max = min(made.range_age_ms_max or often_ms, often_ms)
    if made.range_age_ms_max:
        made.range_age_ms_max -= made.range_age_ms_max // 10 * (shard_id % _AGE_STEPS) // _AGE_STEPS
    return made


def check_tags(tags: Mapping[str, str]) -> None:
    """Raise InvalidArgument for too many tags, too long ones or an empty key."""
    if len(tags) > TAGS_MAX:
        raise InvalidArgument(f"{len(tags)} tags; the limit is {TAGS_MAX}")
    size = sum(len(key.encode()) + len(tags[key].encode()) for key in tags)
    if size > TAGS_BYTES_MAX:
        raise InvalidArgument(f"the tags have {size} bytes; the limit is {TAGS_BYTES_MAX}")
    if "" in tags or any(len(key) > NAME_LENGTH_MAX for key in tags):
        raise InvalidArgument(f"the key of a tag has 1 to {NAME_LENGTH_MAX} characters")
