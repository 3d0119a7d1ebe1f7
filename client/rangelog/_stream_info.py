"""What the SDK returns of a stream."""

from __future__ import annotations

from dataclasses import dataclass

from rangelog_proto.v1 import common_pb2


@dataclass(frozen=True, slots=True)
class StreamInfo:
    """A stream as the placement driver has it. Sizes in bytes, times in ms; 0 is "no bound"."""

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


def stream_info(stream: common_pb2.Stream) -> StreamInfo:
    """Translate from the wire."""
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
    )
