"""A stream's configuration in the SDK's words, and what the SDK tells of a stream."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal

from rangelog_core.errors import InvalidArgument
from rangelog_proto.v1 import common_pb2

Seconds = float | int | timedelta
Durability = Literal["flushed", "memory"]
Compression = Literal["none", "zstd"]

_SECONDS_MAX = 1e12

_DURABILITY = {"flushed": common_pb2.DURABILITY_FLUSHED, "memory": common_pb2.DURABILITY_MEMORY}
_COMPRESSION = {"none": common_pb2.COMPRESSION_NONE, "zstd": common_pb2.COMPRESSION_ZSTD}


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


def _ms(name: str, value: Seconds | None) -> int:
    if value is None:
        return 0
    seconds = value.total_seconds() if isinstance(value, timedelta) else float(value)
    if name == "hot_retention_ms" and math.isinf(seconds):
        return -1  # for ever
    if not 0 <= seconds < _SECONDS_MAX:
        raise InvalidArgument(f"bad {name}: a number of seconds from 0 up, not {value}")
    return int(seconds * 1000)


def _choice(name: str, value: str, choices: dict[str, int]) -> int:
    if value not in choices:
        raise InvalidArgument(f"bad {name} {value!r}: choose one of {', '.join(choices)}")
    return choices[value]


def stream_config(
    *,
    replicas: int | None,
    acks: int | None,
    range_size_bytes_max: int | None,
    range_age_seconds: Seconds | None,
    retention_seconds: Seconds | None,
    retention_bytes: int | None,
    hot_retention_seconds: Seconds | None,
    durability: str | None,
    compression: str | None,
    tiered: bool | None,
) -> tuple[common_pb2.StreamConfig, list[str]]:
    """Return the configuration and the names of the fields that were given. Raises InvalidArgument."""
    given: dict[str, int | bool] = {}
    plain = {
        "replicas": replicas,
        "acks": acks,
        "range_size_bytes_max": range_size_bytes_max,
        "retention_bytes": retention_bytes,
        "tiered": tiered,
    }
    for name, value in plain.items():
        if value is not None:
            if not isinstance(value, bool) and not 0 <= value < 1 << 62:
                raise InvalidArgument(f"{name} must be a number from 0 up, not {value}")
            given[name] = value
    times = (
        ("range_age_ms_max", range_age_seconds),
        ("retention_ms", retention_seconds),
        ("hot_retention_ms", hot_retention_seconds),
    )
    for name, seconds in times:
        if seconds is not None:
            given[name] = _ms(name, seconds)
    if durability is not None:
        given["durability"] = _choice("durability", durability, dict(_DURABILITY))
    if compression is not None:
        given["compression"] = _choice("compression", compression, dict(_COMPRESSION))
    return common_pb2.StreamConfig(**given), list(given)  # type: ignore[arg-type]
