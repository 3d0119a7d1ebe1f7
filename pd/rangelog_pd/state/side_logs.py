"""Streams that brokers keep beside the records: the side log of a shard, and the stream of a coordinator journal.

What holds: each has a name that follows from what it belongs to, so there is at most one. They are not tiered. A side log is
created when it is first needed and goes with its topic; the stream of a journal stays. In the entry that ends a shard its side
log has no open range, and its owner is fenced: what owners staged there is known, and nothing is added to it.
"""

from __future__ import annotations

from rangelog_core.errors import PreconditionFailed, ShardNotFound, TopicNotFound
from rangelog_core.ids import journal_stream_name, side_log_name
from rangelog_core.stream_defaults import with_defaults
from rangelog_pd.state.owner_tables import JOURNALS
from rangelog_pd.state.store import State
from rangelog_pd.state.topic_states import DELETING
from rangelog_proto.v1 import common_pb2, topic_pb2


def ensure_log(state: State, request: topic_pb2.EnsureLogRequest, now_ms: int) -> topic_pb2.EnsureLogResponse:
    """Return the stream, which is created unless it exists. Raises TopicNotFound, ShardNotFound."""
    if not request.topic_id:
        if request.shard_id >= JOURNALS:
            raise ShardNotFound(
                f"there is no coordinator journal {request.shard_id}: they are numbered below {JOURNALS}"
            )
        name = journal_stream_name(request.shard_id)
    else:
        topic = state.topics.topics.find(request.topic_id)
        if topic is None or topic.state == DELETING:
            raise TopicNotFound(f"there is no topic with the id {request.topic_id}")
        shard = state.topics.shards.find((request.topic_id, request.shard_id))
        if shard is None:
            raise ShardNotFound(f"topic {request.topic_id} has no shard {request.shard_id}")
        name = side_log_name(request.topic_id, request.shard_id)
    known = state.names.get(name)
    if known is None:
        known = state.next_stream_id
        config = with_defaults(common_pb2.StreamConfig(tiered=False))
        state.put_stream(common_pb2.Stream(stream_id=known, name=name, config=config, created_ms=now_ms, version=1))
        state.next_stream_id += 1
    return topic_pb2.EnsureLogResponse(stream=state.streams[known])


def remove_side_log(state: State, topic_id: int, shard_id: int) -> None:
    """Remove the side log of a shard, if there is one."""
    known = state.names.get(side_log_name(topic_id, shard_id))
    if known is not None:
        state.remove_stream(known)


def check_side_log(state: State, topic_id: int, shard_id: int) -> None:
    """Raise PreconditionFailed where something may still be added to a shard's side log."""
    known = state.names.get(side_log_name(topic_id, shard_id))
    last = state.ranges.of(known).last() if known is not None else None
    if last is not None and last.state != common_pb2.RANGE_STATE_SEALED:
        raise PreconditionFailed(f"the side log of shard {shard_id} is still open: range {last.index}")


def fence_side_log(state: State, topic_id: int, shard_id: int) -> None:
    """Fence the writer of a shard's side log. From here on it is opened for snapshots of the ended shard only."""
    known = state.names.get(side_log_name(topic_id, shard_id))
    if known is not None:
        stream = state.streams.copy(known)
        stream.epoch += 1
        stream.version += 1
        state.put_stream(stream)
