"""One row of a restore: checked against the rows before it, put, or removed again.

What holds: what is put keeps the invariants of `State.validate`, as far as one row and those before it can show it. A restored
range is sealed, wholly in the tier, and on no server.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from operator import attrgetter
from typing import Any, NamedTuple

from google.protobuf.message import Message

from rangelog_core.errors import InvalidArgument, RangelogError
from rangelog_core.ids import check_name, is_internal_name, shard_of_stream_name, shard_stream_name
from rangelog_core.limits import CURSORS_PER_STREAM_MAX, OFFSET_MAX
from rangelog_core.object_keys import object_key
from rangelog_core.stream_defaults import with_defaults
from rangelog_pd.state.store import State
from rangelog_pd.state.tables import Table
from rangelog_pd.state.topic_config import check_tags, with_topic_defaults
from rangelog_pd.state.topic_states import ACTIVE, SEALED, SEALING
from rangelog_pd.state.topic_tables import full_name, key_range_of
from rangelog_proto.v1 import common_pb2, cursor_pb2, topic_pb2

EPOCH_MAX = (1 << 63) - 1
INDEX_MAX = (1 << 32) - 1
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}\Z")


def check_row(state: State, kind: str, row: Message) -> None:
    """Raise InvalidArgument for a row that cannot follow those before it."""
    problem = ""
    try:
        problem = KINDS[kind].check(state, row)
    except RangelogError as error:
        problem = error.message
    if problem:
        raise InvalidArgument(f"a row of a restore, of its {kind.replace('_', ' ')}, does not fit: {problem}")


def put_row(state: State, kind: str, row: Any, *, remove: bool = False) -> None:
    """Put a row, or remove it."""
    table, key = KINDS[kind].table(state), KINDS[kind].key(row)
    if remove:
        table.remove(key)
        return
    if kind == "cursors":
        row.set_ms = 0  # dated from here on: its consumer could not set it while the cluster was lost
    table.put(key, row)


def _namespace(state: State, row: topic_pb2.Namespace) -> str:
    check_name("namespace", row.name)
    return ""


def _topic(state: State, row: topic_pb2.Topic) -> str:
    check_name("topic", row.name)
    check_tags(row.tags)
    with_topic_defaults(row.config)
    state.topics.namespace(row.namespace)
    if not 0 < row.topic_id < state.topics.next_topic_id or row.topic_id in state.topics.topics:
        return f"the topic id {row.topic_id} is taken, or not given out yet"
    if full_name(row.namespace, row.name) in state.topics.names:
        return f"there is a topic {full_name(row.namespace, row.name)} already"
    if row.state not in (ACTIVE, SEALING, SEALED):
        return f"topic {row.topic_id} is in the middle of a change"
    return ""


def _stream(state: State, row: common_pb2.Stream) -> str:
    shard = shard_of_stream_name(row.name)
    if shard is None:
        check_name("stream", row.name)
    with_defaults(row.config)
    if not 0 < row.stream_id < state.next_stream_id or row.stream_id in state.streams:
        return f"the stream id {row.stream_id} is taken, or not given out yet"
    if row.name in state.names:
        return f"there is a stream {row.name} already"
    if shard is not None and shard[0] not in state.topics.topics:
        return f"stream {row.name} is that of no topic"
    if not row.trim_offset <= row.next_offset <= OFFSET_MAX:
        return f"stream {row.name} ends at {row.next_offset} and is trimmed to {row.trim_offset}"
    if row.epoch > EPOCH_MAX or row.range_count > INDEX_MAX:
        return f"stream {row.name} has no room for further epochs or ranges"
    if row.sealed_for_good and not is_internal_name(row.name):
        return f"stream {row.name} is sealed for good and no shard's"
    return ""


def _range(state: State, row: common_pb2.Range) -> str:
    stream = state.stream_by_id(row.stream_id)
    what = f"range {row.index} of stream {row.stream_id}"
    if row.state != common_pb2.RANGE_STATE_SEALED or row.replicas or not row.hot_dropped or row.HasField("packed_in"):
        return f"{what} is open, or on servers, or in the object of another one"
    if not row.start_offset <= row.end_offset <= stream.next_offset or row.tiered_end_offset != row.end_offset:
        return f"{what} is not wholly in the tier, or ends behind its stream"
    if row.index >= stream.range_count or row.epoch > stream.epoch or row.floor_offset > row.end_offset:
        return f"{what} is later than its stream"
    last = state.ranges.of(row.stream_id).last()
    if last is not None and (row.index <= last.index or row.start_offset != last.end_offset):
        return f"{what} does not follow range {last.index}"
    if last is None and row.start_offset > stream.trim_offset:
        return f"{what} is the first and starts behind the trim offset"
    return ""


def _object(state: State, row: common_pb2.Object) -> str:
    what = f"object {row.object_id}"
    if not 0 < row.object_id < state.next_object_id or row.object_id in state.objects:
        return f"the object id {row.object_id} is taken, or not given out yet"
    holder = state.range(row.stream_id, row.range_index)
    if row.key != object_key(row.stream_id, row.range_index, row.start_offset, row.end_offset, row.object_id):
        return f"{what} has the key of another one"
    if not row.size_bytes or not _DIGEST.match(row.digest) or row.state != common_pb2.OBJECT_STATE_COMMITTED:
        return f"{what} is not committed with a size and a digest"
    before = state.objects_of(row.stream_id, row.range_index)
    start = before[-1].end_offset if before else holder.start_offset
    if row.start_offset != start or not start < row.end_offset <= holder.end_offset:
        return f"{what} does not follow in its range at {start}"
    return ""


def _shard(state: State, row: topic_pb2.Shard) -> str:
    topic, stream = state.topics.topic(row.topic_id), state.stream_by_id(row.stream_id)
    what = f"shard {row.shard_id} of topic {row.topic_id}"
    key_range_of(row)
    if row.shard_id >= topic.next_shard_id or (row.topic_id, row.shard_id) in state.topics.shards:
        return f"{what} is there already, or was never"
    if stream.name != shard_stream_name(row.topic_id, row.shard_id):
        return f"{what} has the stream of another one"
    if stream.sealed_for_good != bool(row.ended_version) or (
        row.ended_version and row.end_offset != stream.next_offset
    ):
        return f"{what} ends elsewhere than its stream"
    if not 0 < row.created_version <= topic.map_version or row.ended_version > topic.map_version:
        return f"{what} is of a later map version"
    return ""


def _work(state: State, row: topic_pb2.TopicWork) -> str:
    state.topics.topic(row.topic_id)
    wrong = row.HasField("scale") or row.to_trim or not row.HasField("configure_from")
    return f"topic {row.topic_id} has more left to do than its configuration" if wrong else ""


def _cut(state: State, row: topic_pb2.RetentionCut) -> str:
    state.topics.topic(row.topic_id)
    known = state.cuts.numbers.get(row.topic_id, [])
    if len(row.shard_ids) != len(row.offsets) or not row.shard_ids or (known and known[-1] >= row.number):
        return f"cut {row.number} of topic {row.topic_id} cannot follow"
    for shard_id in row.shard_ids:
        state.topics.shard(row.topic_id, shard_id)
    return ""


def _cursor(state: State, row: cursor_pb2.Cursor) -> str:
    check_name("cursor", row.name)
    stream = state.stream_by_id(row.stream_id)
    names = state.cursors.names.get(row.stream_id, {})
    what = f"cursor {row.name} of stream {row.stream_id}"
    if is_internal_name(stream.name) or row.name in names or len(names) >= CURSORS_PER_STREAM_MAX:
        return f"{what} is there already, or one too many"
    if row.offset > stream.next_offset or not 0 < row.version < state.cursors.next_version:
        return f"{what} is beyond its stream, or of a later version"
    return ""


class RowKind(NamedTuple):
    """One kind of rows: its check, its table, and the fields of a row that are its key."""

    check: Callable[[State, Any], str]
    table: Callable[[State], Table[Any, Any]]
    key: Callable[[Any], Any]


KINDS = {
    "namespaces": RowKind(_namespace, lambda state: state.topics.namespaces, attrgetter("name")),
    "topics": RowKind(_topic, lambda state: state.topics.topics, attrgetter("topic_id")),
    "streams": RowKind(_stream, lambda state: state.streams, attrgetter("stream_id")),
    "ranges": RowKind(_range, lambda state: state.ranges, attrgetter("stream_id", "index")),
    "objects": RowKind(_object, lambda state: state.objects, attrgetter("object_id")),
    "shards": RowKind(_shard, lambda state: state.topics.shards, attrgetter("topic_id", "shard_id")),
    "topic_work": RowKind(_work, lambda state: state.topics.work, attrgetter("topic_id")),
    "retention_cuts": RowKind(_cut, lambda state: state.cuts.cuts, attrgetter("topic_id", "number")),
    "cursors": RowKind(_cursor, lambda state: state.cursors.rows, attrgetter("stream_id", "name")),
}
"""In the order in which rows are put: each names rows of kinds before it only."""
