"""Streams: create, update, delete, trim; and the epoch of their writers."""

from __future__ import annotations

from rangelog_core.errors import InvalidArgument, OffsetOutOfRange, PreconditionFailed, StreamExists
from rangelog_core.ids import check_name
from rangelog_core.limits import RANGE_SIZE_BYTES_MAX_DEFAULT, RANGE_SIZE_BYTES_MIN
from rangelog_pd.state.store import State
from rangelog_pd.state.tables import copy_of
from rangelog_proto.v1 import common_pb2, pd_pb2

REPLICAS_MAX = 7
HOT_RETENTION_MS_DEFAULT = 600_000
RANGE_SIZE_BYTES_MAX = 1 << 40
"""A range is uploaded, copied and dropped as a whole."""
_AGE_MS_MAX = 1 << 53
_FIELDS = tuple(field.name for field in common_pb2.StreamConfig.DESCRIPTOR.fields)


def with_defaults(config: common_pb2.StreamConfig) -> common_pb2.StreamConfig:
    """Fill in unset fields, then check. Raises InvalidArgument."""
    full = common_pb2.StreamConfig()
    full.CopyFrom(config)
    full.replicas = config.replicas or 3
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
    if config.durability not in (common_pb2.DURABILITY_FLUSHED, common_pb2.DURABILITY_MEMORY):
        raise InvalidArgument("durability must be flushed or memory")
    if config.compression not in (common_pb2.COMPRESSION_NONE, common_pb2.COMPRESSION_ZSTD):
        raise InvalidArgument("compression must be none or zstd")


def check_version(stream: common_pb2.Stream, expected: int) -> None:
    """Raise PreconditionFailed when the caller expects another version of the stream; 0 expects none."""
    if expected and expected != stream.version:
        raise PreconditionFailed(
            f"stream {stream.name!r} has version {stream.version}, not {expected}: it was changed meanwhile"
        )


def create_stream(state: State, request: pd_pb2.CreateStreamRequest, now_ms: int) -> pd_pb2.CreateStreamResponse:
    """Create a stream. Raises StreamExists, InvalidArgument."""
    check_name("stream", request.name)
    config = with_defaults(request.config)
    if request.name in state.names:
        raise StreamExists(f"stream {request.name!r} exists already")
    stream = common_pb2.Stream(
        stream_id=state.next_stream_id, name=request.name, config=config, created_ms=now_ms, version=1
    )
    state.next_stream_id += 1
    state.put_stream(stream)
    return pd_pb2.CreateStreamResponse(stream=stream)


def update_stream(state: State, request: pd_pb2.UpdateStreamRequest, now_ms: int) -> pd_pb2.UpdateStreamResponse:
    """Change the named fields. Raises StreamNotFound, InvalidArgument."""
    stream = copy_of(state.stream(request.name))
    check_version(stream, request.expected_version)
    if not request.fields:
        raise InvalidArgument("nothing to update: name the fields to change")
    config = common_pb2.StreamConfig()
    config.CopyFrom(stream.config)
    for name in request.fields:
        if name not in _FIELDS:
            raise InvalidArgument(f"unknown field {name!r}: choose from {', '.join(_FIELDS)}")
        setattr(config, name, getattr(request.config, name))
    stream.config.CopyFrom(with_defaults(config))
    stream.version += 1
    state.put_stream(stream)
    return pd_pb2.UpdateStreamResponse(stream=stream)


def delete_stream(state: State, request: pd_pb2.DeleteStreamRequest, now_ms: int) -> pd_pb2.DeleteStreamResponse:
    """Delete a stream. Its name is free again, its id is not. Raises StreamNotFound."""
    stream = state.stream(request.name)
    check_version(stream, request.expected_version)
    last = state.last_range(stream.stream_id)
    is_open = last is not None and last.state == common_pb2.RANGE_STATE_OPEN
    response = pd_pb2.DeleteStreamResponse(stream=stream, open_range=last if is_open else None)
    for each in state.ranges.of(stream.stream_id).values():
        state.remove_range(each)
    state.streams.remove(stream.stream_id)
    return response


def trim_stream(state: State, request: pd_pb2.TrimStreamRequest, now_ms: int) -> pd_pb2.TrimStreamResponse:
    """Raise the trim offset of a stream by name, or by id; whole ranges below it are removed.

    The last range stays, so that offsets continue from it.
    Trimming less than before changes nothing. Raises StreamNotFound, OffsetOutOfRange.
    """
    stream = state.stream_by_id(request.stream_id) if request.stream_id else state.stream(request.name)
    check_version(stream, request.expected_version)
    if request.trim_offset > stream.next_offset:
        raise OffsetOutOfRange(
            f"cannot trim to {request.trim_offset}: sealed ranges end at {stream.next_offset}",
            offset=stream.next_offset,
        )
    if request.trim_offset > stream.trim_offset:
        stream = copy_of(stream)
        stream.trim_offset = request.trim_offset
        stream.version += 1
        state.put_stream(stream)
    state.forget_trimmed(stream)
    return pd_pb2.TrimStreamResponse(stream=stream)


def open_writer(state: State, request: pd_pb2.OpenWriterRequest, now_ms: int) -> pd_pb2.OpenWriterResponse:
    """Raise the epoch, which fences all earlier writers at the placement driver. Raises StreamNotFound."""
    stream = copy_of(state.stream(request.name))
    stream.epoch += 1
    stream.version += 1
    state.put_stream(stream)
    return pd_pb2.OpenWriterResponse(stream=stream, last_range=state.last_range(stream.stream_id))
