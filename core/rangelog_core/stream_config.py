"""The configuration of a stream, as values: StreamConfig for a new stream, StreamConfigChange for an existing one.

    StreamConfig(retention_seconds=timedelta(days=7), compression="zstd")
    StreamConfigChange(hot_retention_seconds=3600)

What holds: the constructor checks a value, so no request is sent for a bad one. The placement driver checks the cluster's
limits, and fills in the cluster's defaults where a field is None.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from datetime import timedelta
from typing import Any, Literal

from rangelog_core.errors import InvalidArgument
from rangelog_core.labels import check_labels
from rangelog_proto.v1 import common_pb2

Seconds = float | int | timedelta
Durability = Literal["flushed", "memory"]
Compression = Literal["none", "zstd"]
CursorRetention = Literal["none", "keep", "trim", "keep_and_trim"]

_REPLICAS_DEFAULT = 3
_UINT32_MAX = (1 << 32) - 1
_INTEGER_MAX = (1 << 62) - 1
_SECONDS_MAX = 1e12
_MS = timedelta(milliseconds=1)
_FOR_EVER_MS = -1

_INTEGERS = {
    "replicas": (1, _UINT32_MAX),
    "acks": (1, _UINT32_MAX),
    "range_size_bytes_max": (0, _INTEGER_MAX),
    "retention_bytes": (0, _INTEGER_MAX),
    "zones_min": (0, _UINT32_MAX),
}
"""The integer fields, with the lowest value of each and the highest that its message holds."""
_TIMES = {
    "range_age_seconds": "range_age_ms_max",
    "retention_seconds": "retention_ms",
    "hot_retention_seconds": "hot_retention_ms",
    "cursor_expiry_seconds": "cursor_expiry_ms",
}
"""The fields that are times, with their names in the message."""
_WORDS: dict[str, dict[str, int]] = {
    "durability": {"flushed": common_pb2.DURABILITY_FLUSHED, "memory": common_pb2.DURABILITY_MEMORY},
    "compression": {"none": common_pb2.COMPRESSION_NONE, "zstd": common_pb2.COMPRESSION_ZSTD},
    "cursor_retention": {
        "none": common_pb2.CURSOR_RETENTION_UNSPECIFIED,
        "keep": common_pb2.CURSOR_RETENTION_KEEP,
        "trim": common_pb2.CURSOR_RETENTION_TRIM,
        "keep_and_trim": common_pb2.CURSOR_RETENTION_KEEP_AND_TRIM,
    },
}


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamConfig:
    """The configuration of a new stream. Times are seconds or timedeltas.

    Raises:
        InvalidArgument: A value is not valid.

    Example:
        >>> StreamConfig(replicas=3, retention_seconds=timedelta(days=7)).retention_seconds
        datetime.timedelta(days=7)
    """

    replicas: int | None = None
    """Replicas of each range, 1 to 7. None: the cluster's default, 3 unless its placement drivers have another one."""
    acks: int | None = None
    """Replicas that hold a record durably before it is acked, 1 to `replicas`. None: 2, or 1 with a single replica."""
    range_size_bytes_max: int | None = None
    """Size in bytes at which the writer seals a range and opens the next. None: the cluster's default, 256 MiB."""
    range_age_seconds: float | timedelta | None = None
    """Age at which a range that is not empty is sealed and the next one opened. None: the cluster's default, 54 to 60 minutes
    by the stream's name; 0: at no age."""
    retention_seconds: float | timedelta | None = None
    """Age at which records are trimmed. None or 0: never for their age."""
    retention_bytes: int | None = None
    """Size in bytes above which the oldest records are trimmed. None or 0: never for the stream's size."""
    hot_retention_seconds: float | timedelta | None = None
    """Time that a tiered range also stays on range servers; float("inf"): for ever. None: the cluster's default, 600 s."""
    durability: Literal["flushed", "memory"] = "flushed"
    """"flushed": acked records are on disk. "memory": they may be in memory only, so a power cut may lose them."""
    compression: Literal["none", "zstd"] = "none"
    """Compression of the batches that writers send."""
    tiered: bool = True
    """Whether sealed ranges are uploaded to the object store, where the cluster has one."""
    cursor_retention: Literal["none", "keep", "trim", "keep_and_trim"] = "none"
    """What the stream's cursors mean for its retention. "keep": age and size trim nothing that a cursor has not passed, unless
    the cursor has expired. "trim": what all cursors have passed is trimmed, range by range. "keep_and_trim": both."""
    cursor_expiry_seconds: float | timedelta | None = None
    """Time after which a cursor that was not set keeps nothing. None or 0: 7 days."""
    zones_min: int = 0
    """Zones that the replicas of a range span at least, 0 to `replicas`; where they cannot, no range is made. 0: as many as
    there are."""
    server_labels: Sequence[str] = ()
    """Labels, "key=value", that a range server must have, all of them, to get replicas."""

    def __post_init__(self) -> None:
        config_message(self)
        replicas = self.replicas or _REPLICAS_DEFAULT
        if self.acks is not None and self.acks > replicas:
            raise InvalidArgument(f"acks must be 1 to replicas ({replicas}), not {self.acks}")
        if self.zones_min > replicas:
            raise InvalidArgument(f"zones_min must be 0 to replicas ({replicas}), not {self.zones_min}")


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamConfigChange:
    """A change of a stream's configuration. The fields are those of StreamConfig; None leaves a field unchanged.

    `replicas`, `acks`, `range_size_bytes_max`, `zones_min` and `server_labels` hold for ranges that are created after the
    change, and for repairs. An empty sequence of `server_labels` asks for none any more.

    Raises:
        InvalidArgument: A value is not valid.

    Example:
        >>> StreamConfigChange(hot_retention_seconds=3600).replicas is None
        True
    """

    replicas: int | None = None
    acks: int | None = None
    range_size_bytes_max: int | None = None
    range_age_seconds: float | timedelta | None = None
    retention_seconds: float | timedelta | None = None
    retention_bytes: int | None = None
    hot_retention_seconds: float | timedelta | None = None
    durability: Literal["flushed", "memory"] | None = None
    compression: Literal["none", "zstd"] | None = None
    tiered: bool | None = None
    cursor_retention: Literal["none", "keep", "trim", "keep_and_trim"] | None = None
    cursor_expiry_seconds: float | timedelta | None = None
    zones_min: int | None = None
    server_labels: Sequence[str] | None = None

    def __post_init__(self) -> None:
        config_message(self)


def config_message(config: StreamConfig | StreamConfigChange) -> tuple[common_pb2.StreamConfig, list[str]]:
    """Return the message for the placement driver, and the names of the fields that are set. Raises InvalidArgument."""
    given: dict[str, int | list[str]] = {}
    for field in fields(config):
        value = getattr(config, field.name)
        if value is not None:
            given[_TIMES.get(field.name, field.name)] = _wire_value(field.name, value)
    return common_pb2.StreamConfig(**given), list(given)  # type: ignore[arg-type]


def cursor_retention_word(config: common_pb2.StreamConfig) -> str:
    """Return what the cursors mean for a stream's retention, as StreamConfig has it."""
    words = {value: word for word, value in _WORDS["cursor_retention"].items()}
    return words.get(config.cursor_retention, str(config.cursor_retention))  # a later one


def _wire_value(name: str, value: Any) -> int | list[str]:
    if name == "server_labels":
        if isinstance(value, str | bytes) or not isinstance(value, Sequence):
            raise InvalidArgument(f'server_labels must be a sequence such as ["disk=ssd"], not {value!r}')
        check_labels(value)
        return list(value)
    if name in _INTEGERS:
        least, most = _INTEGERS[name]
        if type(value) is not int or not least <= value <= most:
            raise InvalidArgument(f"{name} must be a whole number from {least} to {most}, not {value!r}")
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
