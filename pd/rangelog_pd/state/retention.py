"""The commands of retention: take a cut, truncate a topic by its own rules, note where a group has consumed.

What holds: a cut is dated by confirmed cluster time, so that each record below it is older than its date; while the time is
provisional none is taken. A cut that a truncation has passed is forgotten.
"""

from __future__ import annotations

from rangelog_core.errors import InvalidArgument, OffsetOutOfRange, PreconditionFailed, TopicStateForbids
from rangelog_core.ids import check_name
from rangelog_core.limits import COMMAND_SHARDS_MAX
from rangelog_pd.state.cut_tables import GROUPS_MAX, cut_of
from rangelog_pd.state.cuts import check_cut, clipped, cut_of_now, earlier_of, left_to_trim
from rangelog_pd.state.store import State
from rangelog_pd.state.topic_states import DELETING
from rangelog_pd.state.topics import truncate_topic
from rangelog_proto.v1 import pd_state_pb2, topic_pb2


def take_cuts(state: State, command: pd_state_pb2.TakeCuts, now_ms: int) -> None:
    """Take a further cut of each topic; one at the same place as the last is passed over. Raises InvalidArgument."""
    if len(command.topic_ids) > COMMAND_SHARDS_MAX:
        raise InvalidArgument(f"{len(command.topic_ids)} cuts in one command; the limit is {COMMAND_SHARDS_MAX}")
    if state.provisional:
        return
    for topic_id in command.topic_ids:
        topic = state.topics.topics.find(topic_id)
        if topic is None or topic.state == DELETING:
            continue
        forget_passed(state, topic_id)
        cut = cut_of_now(state, topic)
        if is_new(state, topic_id, cut):
            row = topic_pb2.RetentionCut(topic_id=topic_id, taken_ms=state.time_ms, shard_ids=cut, offsets=cut.values())
            state.cuts.add(row)


def is_new(state: State, topic_id: int, cut: dict[int, int]) -> bool:
    """Whether a cut of now is another one than the last that was taken, and would trim anything."""
    numbers = state.cuts.numbers.get(topic_id)
    if numbers and cut_of(state.cuts.cuts[topic_id, numbers[-1]]) == cut:
        return False
    return bool(left_to_trim(state, topic_id, cut))


def forget_passed(state: State, topic_id: int) -> None:
    """Remove the oldest cuts, as long as nothing is left to trim before them."""
    for row in state.cuts.of(topic_id):
        if left_to_trim(state, topic_id, cut_of(row)):
            return
        state.cuts.cuts.remove((topic_id, row.number))


def retain_topic(state: State, command: pd_state_pb2.RetainTopic, now_ms: int) -> topic_pb2.TruncateTopicResponse:
    """Truncate a topic as far as snapshots cover it already.

    Raises as topics.truncate_topic, and PreconditionFailed: a group has moved back since the cut was chosen, or gone on.
    """
    request = command.request
    if command.by_consumption:
        consumed = consumed_by_all(state, state.topics.referred(request.topic).topic_id)
        if consumed != {each.shard_id: each.offset for each in request.cut}:
            raise PreconditionFailed("groups have reported other positions since the cut was chosen")
    response = truncate_topic(state, request, now_ms, {each.shard_id: each.offset for each in command.covered})
    forget_passed(state, response.topic.topic_id)
    return response


def consumed_by_all(state: State, topic_id: int) -> dict[int, int] | None:
    """Return the last cut that every subscribed group has reached; None where there is no such group."""
    earliest: dict[int, int] | None = None
    for row in state.cuts.consumed_of(topic_id):
        cut = cut_of(row)
        earliest = cut if earliest is None else earlier_of(state, topic_id, earliest, cut)
    return clipped(state, topic_id, earliest) if earliest is not None else None


def report_consumed(
    state: State, request: topic_pb2.ReportConsumedRequest, now_ms: int
) -> topic_pb2.ReportConsumedResponse:
    """Note where a group stands, which subscribes it, or forget it.

    Raises TopicNotFound, TopicStateForbids, ShardNotFound, KeyRangeGap, KeyRangeOverlap, OffsetOutOfRange, InvalidArgument,
    PreconditionFailed (a later owner of the group's journal has reported, or this one has since).
    """
    check_name("group", request.group)
    topic = state.topics.referred(request.topic)
    key = (topic.topic_id, request.group)
    known = state.cuts.consumed.find(key)
    if known is not None and request.epoch < known.epoch:
        raise PreconditionFailed(f"a later owner of group {request.group!r} has reported what it has consumed")
    if known is not None and request.epoch == known.epoch and request.number < known.number:
        raise PreconditionFailed(f"a later report of what group {request.group!r} has consumed is there")
    if request.unsubscribe:
        if request.cut:
            raise InvalidArgument("a group that unsubscribes gives no cut")
        state.cuts.consumed.remove(key)
        return topic_pb2.ReportConsumedResponse()
    if topic.state == DELETING:
        raise TopicStateForbids(f"topic {topic.namespace}/{topic.name} is being deleted")
    if key not in state.cuts.consumed and len(state.cuts.groups.get(topic.topic_id, ())) >= GROUPS_MAX:
        raise InvalidArgument(f"{GROUPS_MAX} groups have subscribed to the topic, which is the limit")
    for shard, each in zip(check_cut(state, topic.topic_id, request.cut), request.cut, strict=True):
        if shard.ended_version and each.offset > shard.end_offset:
            raise OffsetOutOfRange(
                f"shard {shard.shard_id} ended at {shard.end_offset}, before {each.offset}", offset=shard.end_offset
            )
    row = topic_pb2.ConsumedCut(
        topic_id=topic.topic_id,
        group=request.group,
        shard_ids=[each.shard_id for each in request.cut],
        offsets=[each.offset for each in request.cut],
        reported_ms=now_ms,
        epoch=request.epoch,
        number=request.number,
    )
    state.cuts.consumed.put(key, row)
    return topic_pb2.ReportConsumedResponse()
