"""The configuration of a stream as the cluster keeps it: complete, and within the cluster's limits."""

from __future__ import annotations

from rangelog_core.errors import InvalidArgument
from rangelog_core.labels import check_labels
from rangelog_core.limits import RANGE_SIZE_BYTES_MAX_DEFAULT, RANGE_SIZE_BYTES_MIN
from rangelog_proto.v1 import common_pb2

REPLICAS_DEFAULT = 3
REPLICAS_MAX = 7
HOT_RETENTION_MS_DEFAULT = 600_000
RANGE_SIZE_BYTES_MAX = 1 << 40
"""A range is uploaded, copied and dropped as a whole."""
CURSOR_EXPIRY_MS_DEFAULT = 7 * 24 * 3_600_000
"""Longer than a consumer is down over a weekend; it bounds what one that never comes back keeps."""
_AGE_MS_MAX = 1 << 53


def with_defaults(config: common_pb2.StreamConfig) -> common_pb2.StreamConfig:
    """Fill in unset fields, then check. Raises InvalidArgument."""
    full = common_pb2.StreamConfig()
    full.CopyFrom(config)
    full.replicas = config.replicas or REPLICAS_DEFAULT
    full.acks = config.acks or min(2, full.replicas)
    full.range_size_bytes_max = config.range_size_bytes_max or RANGE_SIZE_BYTES_MAX_DEFAULT
    if not config.HasField("hot_retention_ms"):
        full.hot_retention_ms = HOT_RETENTION_MS_DEFAULT
    full.durability = config.durability or common_pb2.DURABILITY_FLUSHED
    full.compression = config.compression or common_pb2.COMPRESSION_NONE
    _check(full)
    return full


def _check(config: common_pb2.StreamConfig) -> None:
    if not 1 <= config.replicas <= REPLICAS_MAX:
        raise InvalidArgument(f"replicas must be 1 to {REPLICAS_MAX}, not {config.replicas}")
    if not 1 <= config.acks <= config.replicas:
        raise InvalidArgument(f"acks must be 1 to replicas ({config.replicas}), not {config.acks}")
    if not RANGE_SIZE_BYTES_MIN <= config.range_size_bytes_max <= RANGE_SIZE_BYTES_MAX:
        raise InvalidArgument(f"range_size_bytes_max must be {RANGE_SIZE_BYTES_MIN} to {RANGE_SIZE_BYTES_MAX}")
    if config.range_age_ms_max > _AGE_MS_MAX:
        raise InvalidArgument(f"range_age_ms_max must be at most {_AGE_MS_MAX}")
    if config.retention_ms < 0 or config.retention_bytes < 0:
        raise InvalidArgument("retention cannot be negative; 0 keeps everything")
    if config.hot_retention_ms < -1:
        raise InvalidArgument("hot_retention_ms must be a number of ms, or -1 for ever")
    if config.cursor_retention not in common_pb2.CursorRetention.values():
        raise InvalidArgument("cursor_retention must be none, keep, trim or keep_and_trim")
    if not 0 <= config.cursor_expiry_ms <= _AGE_MS_MAX:
        raise InvalidArgument(f"cursor_expiry_ms must be 0 to {_AGE_MS_MAX}; 0 is the default")
    if config.durability not in (common_pb2.DURABILITY_FLUSHED, common_pb2.DURABILITY_MEMORY):
        raise InvalidArgument("durability must be flushed or memory")
    if config.compression not in (common_pb2.COMPRESSION_NONE, common_pb2.COMPRESSION_ZSTD):
        raise InvalidArgument("compression must be none or zstd")
    if config.zones_min > config.replicas:
        raise InvalidArgument(f"zones_min must be 0 to replicas ({config.replicas}), not {config.zones_min}")
    check_labels(config.server_labels)


def set_field(config: common_pb2.StreamConfig, name: str, source: common_pb2.StreamConfig) -> None:
    """Give a field the value that it has in another configuration."""
    value = getattr(source, name)
    if name == "server_labels":
        del config.server_labels[:]
        config.server_labels.extend(value)
    else:
        setattr(config, name, value)
