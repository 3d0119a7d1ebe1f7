"""The trims by retention: of what exceeds a stream's age or size, and of what its cursors have passed. Pure.

What holds:

* A trim goes by whole sealed ranges, oldest first, and each is checked again when it is applied.
* Age and size trim nothing that a live cursor has not passed, where the stream keeps for cursors. A cursor that was not set for
  the stream's expiry is no longer live, so a dead consumer keeps records for a bounded time.
* Age and size trim no range of a tiered stream that is not wholly in the tier, until it exceeds twice the stream's age or size.
* What is kept beyond age or size is in `Upkeep.held`, with the reason. A stream is looked at when it is due, when one of its
  ranges or the passed part of it changes, and when a bound is reached; in between it costs nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from itertools import islice

from rangelog_core.ids import is_internal_name
from rangelog_pd.reconcile.held import AGE, SIZE, HeldRanges
from rangelog_pd.reconcile.upkeep import Upkeep
from rangelog_pd.state.cursors import KEEPING, TRIMMING, end_of_passed
from rangelog_pd.state.store import State
from rangelog_proto.v1 import common_pb2, pd_pb2, pd_state_pb2

PASSED_LOOKED_AT_MAX = 200
UNTIERED_FACTOR = 2
"""A range that is not in the tier is kept up to this many times its stream's age or size."""

_log = logging.getLogger("rangelog.pd.retention")


def retention(state: State, upkeep: Upkeep, time_ms: int, *, has_tier: bool) -> Iterator[pd_state_pb2.Command]:
    """Yield the expiries and trims of this round. `has_tier`: whether the cluster has an object store to wait for."""
    for stream_id in upkeep.expiries.take(state, time_ms):
        yield _expire(state, stream_id, time_ms)
    for stream_id in upkeep.held.late(time_ms):
        upkeep.trims.put(stream_id, state.due.trims)
    for stream_id in upkeep.trims.take(time_ms, state.due.trims):
        end, held = _end_of_old(state, stream_id, time_ms, has_tier=has_tier)
        upkeep.held.put(stream_id, AGE, held)
        if end > state.streams[stream_id].trim_offset:
            yield _trim(state, stream_id, end)
        elif held is not None:
            upkeep.trims.withdraw(stream_id)
    for stream_id in upkeep.sizes.grown():
        over, held = _end_of_oversize(state, upkeep, stream_id, time_ms, has_tier=has_tier)
        upkeep.held.put(stream_id, SIZE, held)
        if over is not None:
            upkeep.sizes.look_again(stream_id)
            yield _trim(state, stream_id, over)
    for stream_id in list(islice(upkeep.passed, PASSED_LOOKED_AT_MAX)):
        passed = _end_of_passed(state, stream_id)
        if passed is None:
            del upkeep.passed[stream_id]
        else:
            command = pd_state_pb2.RetainStream(stream_id=stream_id, trim_offset=passed, passed=True)
            yield pd_state_pb2.Command(retain_stream=command)


def _expire(state: State, stream_id: int, time_ms: int) -> pd_state_pb2.Command:
    command = pd_state_pb2.RetainStream(stream_id=stream_id)
    for each in state.cursors.overdue(state.streams[stream_id].config, stream_id, time_ms):
        command.expiring.add(name=each.name, set_ms=each.set_ms)
    return pd_state_pb2.Command(retain_stream=command)


def _trim(state: State, stream_id: int, end: int) -> pd_state_pb2.Command:
    stream = state.streams[stream_id]
    if stream.config.cursor_retention in KEEPING:
        return pd_state_pb2.Command(retain_stream=pd_state_pb2.RetainStream(stream_id=stream_id, trim_offset=end))
    return pd_state_pb2.Command(trim_stream=pd_pb2.TrimStreamRequest(stream_id=stream_id, trim_offset=end))


def _end_of_old(state: State, stream_id: int, time_ms: int, *, has_tier: bool) -> tuple[int, HeldRanges | None]:
    """Return the end of the last of the oldest ranges that exceed the stream's age and may go, and what keeps the next one."""
    stream = state.streams[stream_id]
    ranges = state.ranges.of(stream_id)
    age_ms, end = stream.config.retention_ms, stream.trim_offset
    for index in ranges.indexes_from(ranges.index_beyond(end)):
        each = ranges[index]
        if each.state != common_pb2.RANGE_STATE_SEALED or not each.sealed_ms or time_ms - each.sealed_ms <= age_ms:
            break
        since_ms, late_ms = each.sealed_ms + age_ms, each.sealed_ms + UNTIERED_FACTOR * age_ms + 1
        held = _held_by_cursor(state, stream, each, since_ms)
        if held is None and has_tier and _is_untiered(stream, each):
            if time_ms < late_ms:
                held = HeldRanges(since_ms, each.start_offset, late_ms=late_ms)
            else:
                _log.warning("%s: range %d was never uploaded and exceeds %d times the stream's age: it is trimmed",
                             stream.name, index, UNTIERED_FACTOR)  # fmt: skip
        if held is not None:
            return end, held
        end = each.end_offset
    return end, None


def _end_of_oversize(
    state: State, upkeep: Upkeep, stream_id: int, time_ms: int, *, has_tier: bool
) -> tuple[int | None, HeldRanges | None]:
    """Return the end of the last range that, with all later ones, exceeds the stream's size, as far as they may go."""
    stream = state.streams.find(stream_id)
    most = stream.config.retention_bytes if stream is not None else 0
    end: int | None = None
    if stream is None or not most or is_internal_name(stream.name):  # those of shards are trimmed with their topics
        return None, None
    left = upkeep.sizes.total(stream_id)
    for each in state.ranges.of(stream_id).values():
        if left <= most or each.state != common_pb2.RANGE_STATE_SEALED:
            break
        held = _held_by_cursor(state, stream, each, time_ms)
        if held is None and has_tier and _is_untiered(stream, each):
            if left <= UNTIERED_FACTOR * most:
                held = HeldRanges(time_ms, each.start_offset)
            else:
                _log.warning("%s: range %d was never uploaded, and the stream exceeds %d times its size: it is trimmed",
                             stream.name, each.index, UNTIERED_FACTOR)  # fmt: skip
        if held is not None:
            return end if end is not None and end > stream.trim_offset else None, held
        left -= upkeep.sizes.get(stream_id, each.index)
        end = each.end_offset
    return end if end is not None and end > stream.trim_offset else None, None


def _held_by_cursor(state: State, stream: common_pb2.Stream, of: common_pb2.Range, since_ms: int) -> HeldRanges | None:
    if stream.config.cursor_retention not in KEEPING:
        return None
    lowest = state.cursors.lowest(stream.stream_id)
    if lowest is None or lowest.offset >= of.end_offset:
        return None
    return HeldRanges(
        since_ms, max(of.start_offset, stream.trim_offset), cursor=lowest.name, cursor_offset=lowest.offset
    )


def _is_untiered(stream: common_pb2.Stream, of: common_pb2.Range) -> bool:
    return stream.config.tiered and of.tiered_end_offset != of.end_offset


def _end_of_passed(state: State, stream_id: int) -> int | None:
    """Return up to where the live cursors of a stream have passed whole ranges; None: there is nothing to trim."""
    stream = state.streams.find(stream_id)
    lowest = state.cursors.lowest(stream_id)
    if stream is None or lowest is None or stream.config.cursor_retention not in TRIMMING:
        return None
    end = end_of_passed(state, stream, lowest.offset)
    return end if end > stream.trim_offset else None
