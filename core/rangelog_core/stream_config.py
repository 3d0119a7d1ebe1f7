"""How a stream is kept, as values: StreamConfig makes a stream, StreamConfigChange changes one.

    StreamConfig(retention_seconds=timedelta(days=7), compression="zstd")
    StreamConfigChange(hot_retention_seconds=3600)

What holds: a value that exists was checked, so nothing is sent for a bad one; what depends on the cluster (its limits, and
its defaults where a field is None) is checked and filled in by the placement driver.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from datetime import timedelta
from typing import Any, Literal

from rangelog_core.errors import InvalidArgument
from rangelog_proto.v1 import common_pb2

Seconds = float | int | timedelta
Durability = Literal["flushed", "memory"]
Compression = Literal["none", "zstd"]

_INTEGER_MAX = (1 << 62) - 1
_SECONDS_MAX = 1e12
_MS = timedelta(milliseconds=1)
_FOR_EVER_MS = -1

_INTEGERS = {"replicas": 1, "acks": 1, "range_size_bytes_max": 0, "retention_bytes": 0}
"""With the least that each may be."""
_TIMES = {
    "range_age_seconds": "range_age_ms_max",
    "retention_seconds": "retention_ms",
    "hot_retention_seconds": "hot_retention_ms",
}
"""With the field of the message."""
_WORDS: dict[str, dict[str, int]] = {
    "durability": {"flushed": common_pb2.DURABILITY_FLUSHED, "memory": common_pb2.DURABILITY_MEMORY},
    "compression": {"none": common_pb2.COMPRESSION_NONE, "zstd": common_pb2.COMPRESSION_ZSTD},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamConfig:
    """How a stream is kept. Times are seconds or timedeltas. Raises InvalidArgument for a value that cannot be right."""

    replicas: int = 3
    """Copies of each record, 1 to 7."""
    acks: int | None = None
    """Durable copies that make an ack, 1 to `replicas`. None: 2, or 1 where there is one replica."""
    range_size_bytes_max: int | None = None
    """A range of this size is sealed and the next one begun. None: the cluster's default, 256 MiB."""
    range_age_seconds: Seconds | None = None
    """A range of this age that is not empty is sealed and the next one begun. None: the cluster's default, 54 to 60 minutes by
    the stream's name; 0: at no age."""
    retention_seconds: Seconds | None = None
    """Records older than this go. None or 0: no record goes for its age."""
    retention_bytes: int | None = None
    """The oldest records go while the stream is larger than this. None or 0: no record goes for the stream's size."""
    hot_retention_seconds: Seconds | None = None
    """How long a tiered range stays on range servers as well; float("inf"): for ever. None: the cluster's default, 600 s."""
    durability: Durability = "flushed"
    """What an ack means: "flushed", on disk; "memory", not yet, so that a power cut may lose what was acked."""
    compression: Compression = "none"
    """Of the batches that writers send."""
    tiered: bool = True
    """Whether sealed ranges are uploaded to the object store, where the cluster has one."""

    def __post_init__(self) -> None:
        config_message(self)
        if self.acks is not None and self.acks > self.replicas:
            raise InvalidArgument(f"acks must be 1 to replicas ({self.replicas}), not {self.acks}")


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamConfigChange:
    """What of a stream's configuration is to change; None: it stays. The fields are those of StreamConfig.

    Replicas, acks and sizes hold for ranges that are made later. Raises InvalidArgument for a value that cannot be right.
    """

    replicas: int | None = None
    acks: int | None = None
    range_size_bytes_max: int | None = None
    range_age_seconds: Seconds | None = None
    retention_seconds: Seconds | None = None
    retention_bytes: int | None = None
    hot_retention_seconds: Seconds | None = None
    durability: Durability | None = None
    compression: Compression | None = None
    tiered: bool | None = None

    def __post_init__(self) -> None:
        config_message(self)


def config_message(config: StreamConfig | StreamConfigChange) -> tuple[common_pb2.StreamConfig, list[str]]:
    """Return the message for the placement driver, and the names of its fields that are set. Raises InvalidArgument."""
    given: dict[str, int] = {}
    for field in fields(config):
        value = getattr(config, field.name)
        if value is not None:
            given[_TIMES.get(field.name, field.name)] = _wire_value(field.name, value)
    return common_pb2.StreamConfig(**given), list(given)  # type: ignore[arg-type]


def _wire_value(name: str, value: Any) -> int:
    if name in _INTEGERS:
        least = _INTEGERS[name]
        if type(value) is not int or not least <= value <= _INTEGER_MAX:
            raise InvalidArgument(f"{name} must be a whole number from {least} up, not {value!r}")
        return value
    if name in _TIMES:
        return _ms(name, value)
    if name in _WORDS:
        words = _WORDS[name]
        if not isinstance(value, str) or value not in words:
            raise InvalidArgument(f"bad {name} {value!r}: choose one of {', '.join(words)}")
        return words[value]
    if not isinstance(value, bool):
        raise InvalidArgument(f"{name} must be True or False, not {value!r}")
    return value


def _ms(name: str, value: Any) -> int:
    if isinstance(value, timedelta):
        if value < timedelta():
            raise InvalidArgument(f"{name} must not be negative, and is {value}")
        return value // _MS
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidArgument(f"{name} must be a number of seconds or a timedelta, not {value!r}")
    if name == "hot_retention_seconds" and value == math.inf:
        return _FOR_EVER_MS
    if not 0 <= value < _SECONDS_MAX:
        raise InvalidArgument(f"{name} must be a number of seconds from 0 up, not {value}")
    return round(value * 1000)
