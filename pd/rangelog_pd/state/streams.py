"""Streams: create, update, delete, trim; and the epoch of their writers."""

from __future__ import annotations

from rangelog_core.errors import InvalidArgument, OffsetOutOfRange, PreconditionFailed, StreamExists, StreamSealed
from rangelog_core.ids import AUDIT_STREAM_NAME, check_name, is_internal_name, topic_of_stream_name
from rangelog_core.stream_defaults import set_field, with_defaults
from rangelog_pd.state.store import State
from rangelog_pd.state.tables import copy_of
from rangelog_pd.state.versions import LEVEL_OPERATIONS, LEVEL_PACKING
from rangelog_proto.v1 import common_pb2, pd_pb2, topic_pb2

WRITER_LENGTH_MAX = 200
"""Of a writer's name, which is for people: more of it is cut."""

_FIELDS = tuple(field.name for field in common_pb2.StreamConfig.DESCRIPTOR.fields)


def check_version(stream: common_pb2.Stream, expected: int) -> None:
    """Raise PreconditionFailed when the caller expects another version of the stream; 0 expects none."""
    if expected and expected != stream.version:
        raise PreconditionFailed(
            f"stream {stream.name!r} has version {stream.version}, not {expected}: it was changed meanwhile"
        )


def check_own(stream: common_pb2.Stream) -> None:
    """Raise PreconditionFailed for the stream of a shard, which is changed with its topic only."""
    if is_internal_name(stream.name):
        if stream.name == AUDIT_STREAM_NAME:
            raise PreconditionFailed(f"stream {stream.name!r} is the audit log, which nobody changes")
        raise PreconditionFailed(f"stream {stream.name!r} belongs to a topic: change the topic")


def check_not_sealed(stream: common_pb2.Stream) -> None:
    """Raise StreamSealed for a stream that is sealed for good."""
    if stream.sealed_for_good:
        raise StreamSealed(
            f"stream {stream.name!r} is sealed for good at {stream.next_offset}: its shard has ended",
            offset=stream.next_offset,
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
    check_own(stream)
    check_version(stream, request.expected_version)
    if not request.fields:
        raise InvalidArgument("nothing to update: name the fields to change")
    config = common_pb2.StreamConfig()
    config.CopyFrom(stream.config)
    for name in request.fields:
        if name not in _FIELDS:
            raise InvalidArgument(f"unknown field {name!r}: choose from {', '.join(_FIELDS)}")
        set_field(config, name, request.config)
    stream.config.CopyFrom(with_defaults(config))
    stream.version += 1
    state.put_stream(stream)
    return pd_pb2.UpdateStreamResponse(stream=stream)


def delete_stream(state: State, request: pd_pb2.DeleteStreamRequest, now_ms: int) -> pd_pb2.DeleteStreamResponse:
    """Delete a stream. Its name is free again, its id is not. Raises StreamNotFound."""
    stream = state.stream(request.name)
    check_own(stream)
    check_version(stream, request.expected_version)
    last = state.ranges.of(stream.stream_id).last()
    is_open = last is not None and last.state == common_pb2.RANGE_STATE_OPEN
    response = pd_pb2.DeleteStreamResponse(stream=stream, open_range=last if is_open else None)
    state.remove_stream(stream.stream_id)
    return response


def trim_stream(state: State, request: pd_pb2.TrimStreamRequest, now_ms: int) -> pd_pb2.TrimStreamResponse:
    """Raise the trim offset of a stream by name, or by id; whole ranges below it are removed.

    The last range stays, so that offsets continue from it.
    Trimming less than before changes nothing. Raises StreamNotFound, OffsetOutOfRange.
    """
    stream = state.stream_by_id(request.stream_id) if request.stream_id else state.stream(request.name)
    if not request.stream_id or stream.name == AUDIT_STREAM_NAME or _holds_records(state, stream):
        check_own(stream)
    check_version(stream, request.expected_version)
    if request.trim_offset > stream.next_offset:
        raise OffsetOutOfRange(
            f"cannot trim to {request.trim_offset}: sealed ranges end at {stream.next_offset}",
            offset=stream.next_offset,
        )
    return pd_pb2.TrimStreamResponse(stream=trim(state, stream, request.trim_offset))


def _holds_records(state: State, stream: common_pb2.Stream) -> bool:
    """Whether a stream is that of a topic's shard, which is trimmed at a cut; that of a table is trimmed by its owner."""
    topic_id = topic_of_stream_name(stream.name)
    return topic_id is not None and state.topics.topics[topic_id].config.kind != topic_pb2.TOPIC_KIND_TABLE


def trim(state: State, stream: common_pb2.Stream, trim_offset: int) -> common_pb2.Stream:
    """Raise the trim offset up to `trim_offset`, which is at most the stream's end; return the stream's row."""
    if trim_offset > stream.trim_offset:
        stream = copy_of(stream)
        stream.trim_offset = trim_offset
        stream.version += 1
        state.put_stream(stream)
    state.forget_trimmed(stream)
    if state.cluster_version >= LEVEL_PACKING:
        state.bury_trimmed(stream)
    return stream


def open_writer(state: State, request: pd_pb2.OpenWriterRequest, now_ms: int) -> pd_pb2.OpenWriterResponse:
    """Raise the epoch, which fences all earlier writers at the placement driver.

    Raises StreamNotFound, StreamSealed, PreconditionFailed (another stream or epoch than expected).
    """
    stream = copy_of(state.stream(request.name))
    check_not_sealed(stream)
    if request.stream_id not in (0, stream.stream_id):
        raise PreconditionFailed(f"{request.name!r} is another stream now: {stream.stream_id}, not {request.stream_id}")
    if request.expected_epoch not in (0, stream.epoch):
        raise PreconditionFailed(
            f"{request.name!r} was opened meanwhile: its epoch is {stream.epoch}, not {request.expected_epoch}"
        )
    stream.epoch += 1
    stream.version += 1
    if state.cluster_version >= LEVEL_OPERATIONS:
        stream.writer = request.writer[:WRITER_LENGTH_MAX]
    state.put_stream(stream)
    return pd_pb2.OpenWriterResponse(stream=stream, last_range=state.ranges.of(stream.stream_id).last())
