"""Topics and shards as values: what a caller gives to configure a topic, and what the client returns.

What holds: the constructors check their values, so no request is sent for a bad one. The placement driver checks the cluster's
limits and fills in what is None.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal

from rangelog._topics.cut import Cut
from rangelog_core.errors import InvalidArgument
from rangelog_core.key_ranges import KeyRange
from rangelog_core.limits import TOPIC_SHARDS_MAX
from rangelog_core.stream_config import StreamConfig, StreamConfigChange

ScalingKind = Literal["fixed", "events", "bytes"]
TopicKind = Literal["records", "table", "other"]
TopicState = Literal["active", "scaling", "truncating", "sealing", "sealed", "deleting"]

SCALING_KINDS = ("fixed", "events", "bytes")
_DEFAULT_STREAM = StreamConfig()
_TARGET_MAX = 1 << 53
_FACTOR_MAX = 64


def _check_number(name: str, value: Any, low: int, high: int) -> None:
    if type(value) is not int or not low <= value <= high:
        raise InvalidArgument(f"{name} must be a whole number from {low} to {high}, not {value!r}")


def _check_types(stream: Any, scaling: Any, retention: Any, stream_type: type[Any]) -> None:
    """Refuse values of other types, None where the stream's type has no default, and a retention of the streams."""
    may_lack = (type(None),) if stream_type is StreamConfigChange else ()
    for name, value, kind in (
        ("stream", stream, stream_type),
        ("scaling", scaling, ScalingPolicy),
        ("retention", retention, Retention),
    ):
        if not isinstance(value, (kind, *may_lack)):
            raise InvalidArgument(f"{name} must be a {kind.__name__}, not {value!r}")
    if stream is not None and (stream.retention_seconds or stream.retention_bytes):
        raise InvalidArgument("the retention of a topic is given as TopicConfig(retention=…), not in its stream")


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingPolicy:
    """When shards are split and merged.

    Raises:
        InvalidArgument: A value is not valid.

    Example:
        >>> ScalingPolicy(kind="events", target_per_s=10_000).factor
        2
    """

    kind: Literal["fixed", "events", "bytes"] = "fixed"
    """"fixed": on request only. "events", "bytes": by events or bytes per second."""
    target_per_s: int = 0
    """Events or bytes per second of one shard, above 0; 0 with "fixed"."""
    factor: int = 2
    """A hot shard is split into so many, 2 to 64."""
    shards_min: int = 1
    """Merges leave at least so many shards."""
    shards_max: int = TOPIC_SHARDS_MAX
    """Splits leave at most so many shards."""

    def __post_init__(self) -> None:
        if self.kind not in SCALING_KINDS:
            raise InvalidArgument(f"bad kind of scaling {self.kind!r}: choose one of {', '.join(SCALING_KINDS)}")
        least = 0 if self.kind == "fixed" else 1
        _check_number("target_per_s", self.target_per_s, least, 0 if self.kind == "fixed" else _TARGET_MAX)
        _check_number("factor", self.factor, 2, _FACTOR_MAX)
        _check_number("shards_min", self.shards_min, 1, TOPIC_SHARDS_MAX)
        _check_number("shards_max", self.shards_max, self.shards_min, TOPIC_SHARDS_MAX)


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """How long the records of a topic stay. Nothing is trimmed by default; what any of these allows is trimmed.

    A topic is trimmed at cuts that are taken from time to time, so it keeps somewhat more.

    Raises:
        InvalidArgument: A value is not valid.

    Example:
        >>> Retention(age_seconds=7 * 86_400).shard_size_bytes
        0
    """

    age_seconds: float | timedelta = 0
    """Age at which records are trimmed, in seconds or as a timedelta; 0: never for their age."""
    shard_size_bytes: int = 0
    """Bytes per current shard above which the topic's oldest records are trimmed; 0: never for their size."""
    consumed: bool = False
    """Whether what all groups that retain have committed is trimmed, if there is such a group: `client.groups.retain`."""

    def __post_init__(self) -> None:
        StreamConfigChange(retention_seconds=self.age_seconds, retention_bytes=self.shard_size_bytes)
        if not isinstance(self.consumed, bool):
            raise InvalidArgument(f"consumed must be True or False, not {self.consumed!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfig:
    """The configuration of a new topic.

    Raises:
        InvalidArgument: `stream` has a retention, which is the topic's.

    Example:
        >>> TopicConfig(stream=StreamConfig(compression="zstd"), retention=Retention(age_seconds=3600)).scaling.kind
        'fixed'
    """

    stream: StreamConfig = _DEFAULT_STREAM
    """The configuration of the shards' streams; without a retention."""
    scaling: ScalingPolicy = ScalingPolicy()
    retention: Retention = Retention()

    def __post_init__(self) -> None:
        _check_types(self.stream, self.scaling, self.retention, StreamConfig)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfigChange:
    """A change of a topic's configuration; None leaves a part unchanged. A scaling policy or a retention is replaced wholly.

    Raises:
        InvalidArgument: `stream` has a retention, which is the topic's.

    Example:
        >>> TopicConfigChange(retention=Retention(age_seconds=3600)).stream is None
        True
    """

    stream: StreamConfigChange | None = None
    scaling: ScalingPolicy | None = None
    retention: Retention | None = None

    def __post_init__(self) -> None:
        _check_types(self.stream, self.scaling, self.retention, StreamConfigChange)


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """The state and configuration of a topic.

    Attributes:
        name: "namespace/name".
        topic_id: The id; never reused, unlike the name.
        state: "active", "scaling", "truncating", "sealing", "sealed" or "deleting".
        config: The configuration, with the cluster's defaults filled in.
        tags: The tags.
        map_version: The version of the shard map; raised whenever shards become current or end.
        shard_count: The number of current shards.
        scale_id: The id of the last scale that was started; 0: none was.
        committed_scale_id: The id of the last scale that was committed; 0: none was.
        version: Raised by each change of the topic, for `expected_version`.
        created_ms: Time of creation, milliseconds since the Unix epoch.
        kind: "records", "table", or "other": of a kind that a later version has.
    """

    name: str
    topic_id: int
    state: Literal["active", "scaling", "truncating", "sealing", "sealed", "deleting"]
    config: TopicConfig
    tags: Mapping[str, str]
    map_version: int
    shard_count: int
    scale_id: int
    committed_scale_id: int
    version: int
    created_ms: int
    kind: Literal["records", "table", "other"] = "records"


@dataclass(frozen=True, slots=True)
class ShardInfo:
    """One shard of a topic, and what preceded and followed it.

    Attributes:
        shard_id: The number of the shard in its topic, from 0; never reused.
        key_range: The part [low, high) of the key space 0 … 2^128.
        stream_id: The id of the stream that holds its records.
        created_version: The map version from which it is current.
        ended_version: The map version from which it is no longer; 0: it is current.
        predecessors: The shards that ended in the scale in which it became current, where key ranges overlap.
        successors: The shards that took its place, where key ranges overlap.
        end_offset: One past its last record, once it has ended; None before.
        truncated: Whether it lies wholly before a cut that the topic was truncated to.
    """

    shard_id: int
    key_range: KeyRange
    stream_id: int
    created_version: int
    ended_version: int = 0
    predecessors: tuple[int, ...] = ()
    successors: tuple[int, ...] = ()
    end_offset: int | None = None
    truncated: bool = False

    @property
    def is_current(self) -> bool:
        """Whether records are still added to it."""
        return self.ended_version == 0


@dataclass(frozen=True, slots=True)
class Watermark:
    """What a topic's producers had promised of event times, at a position. Watermarks never go back, in time and in cut.

    Attributes:
        number: Rises by one from watermark to watermark of a topic, from 1.
        lower_ms: Each record behind the cut has this event time or a later one, in ms since the Unix epoch, if it is of a
            producer that was noting times then.
        upper_ms: No producer had noted a later time then.
        cut: The position: behind all records that these producers had sent before they noted their times.
    """

    number: int
    lower_ms: int
    upper_ms: int
    cut: Cut
