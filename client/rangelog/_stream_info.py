"""StreamInfo: the state and configuration of a stream, as the client returns them."""

from __future__ import annotations

from dataclasses import dataclass

from rangelog_core.stream_config import cursor_retention_word
from rangelog_core.stream_defaults import CURSOR_EXPIRY_MS_DEFAULT
from rangelog_proto.v1 import common_pb2


@dataclass(frozen=True, slots=True)
class StreamInfo:
    """The state and configuration of a stream.

    Attributes:
        name: The name.
        stream_id: The id; never reused, unlike the name.
        epoch: The epoch of the latest writer; 0 before the first.
        trim_offset: The first offset that is not trimmed.
        next_offset: The end of the last sealed range. `Client.end_offset` includes the open range.
        range_count: Its ranges, without those that were trimmed.
        created_ms: Time of creation, milliseconds since the Unix epoch.
        replicas: Replicas of each range.
        acks: Replicas that hold a record durably before it is acked.
        range_size_bytes_max: Size in bytes at which the writer seals a range.
        retention_ms: Age in milliseconds at which records are trimmed; 0: never.
        retention_bytes: Size in bytes above which the oldest records are trimmed; 0: never.
        hot_retention_ms: Time in milliseconds that a tiered range stays on range servers; -1: for ever.
        durability: "flushed" or "memory".
        compression: "none" or "zstd".
        tiered: Whether sealed ranges are uploaded to the object store.
        cursor_retention: "none", "keep", "trim" or "keep_and_trim": what the cursors mean for retention.
        cursor_expiry_ms: Time in milliseconds after which a cursor that was not set keeps nothing.
        zones_min: Zones that the replicas of a range span at least; 0: as many as there are.
        server_labels: Labels that a range server must have to get replicas.
    """

    name: str
    stream_id: int
    epoch: int
    trim_offset: int
    next_offset: int
    range_count: int
    created_ms: int
    replicas: int
    acks: int
    range_size_bytes_max: int
    retention_ms: int
    retention_bytes: int
    hot_retention_ms: int
    durability: str
    compression: str
    tiered: bool
    cursor_retention: str
    cursor_expiry_ms: int
    zones_min: int = 0
    server_labels: tuple[str, ...] = ()


def stream_info(stream: common_pb2.Stream) -> StreamInfo:
    """Return a StreamInfo for the placement driver's message."""
    config = stream.config
    return StreamInfo(
        name=stream.name,
        stream_id=stream.stream_id,
        epoch=stream.epoch,
        trim_offset=stream.trim_offset,
        next_offset=stream.next_offset,
        range_count=stream.range_count,
        created_ms=stream.created_ms,
        replicas=config.replicas,
        acks=config.acks,
        range_size_bytes_max=config.range_size_bytes_max,
        retention_ms=config.retention_ms,
        retention_bytes=config.retention_bytes,
        hot_retention_ms=config.hot_retention_ms,
        durability="memory" if config.durability == common_pb2.DURABILITY_MEMORY else "flushed",
        compression="zstd" if config.compression == common_pb2.COMPRESSION_ZSTD else "none",
        tiered=config.tiered,
        cursor_retention=cursor_retention_word(config),
        cursor_expiry_ms=config.cursor_expiry_ms or CURSOR_EXPIRY_MS_DEFAULT,
        zones_min=config.zones_min,
        server_labels=tuple(config.server_labels),
    )
