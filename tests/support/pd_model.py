"""The rules of one stream at the placement driver, written a second time, as one pure function: state and call to states.

It shares no code with the production state machine, so that an error there is not an error here too. What it leaves to the
answer: ids, which servers hold a range, whether an upload's time was over.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from tests.support.pd_history import COUNTED_LATER, Call, ObjectView, RangeView, Reply, StreamView


class StreamState(NamedTuple):
    """All that decides about one stream. Hashable: the search remembers where it was."""

    exists: bool = False
    epoch: int = 0
    trim_offset: int = 0
    next_offset: int = 0
    range_count: int = 0
    ranges: tuple[RangeView, ...] = ()
    """Those that are not wholly trimmed away."""
    committed: tuple[tuple[int, str], ...] = ()
    """Objects that count, by id, with the digest they were committed with."""

    def range(self, index: int) -> RangeView | None:
        """By index."""
        return next((each for each in self.ranges if each.index == index), None)

    def after(self, index: int) -> RangeView | None:
        """The range that follows an index."""
        return next((each for each in self.ranges if each.index > index), None)

    def with_range(self, changed: RangeView) -> StreamState:
        """One range replaced."""
        ranges = tuple(changed if each.index == changed.index else each for each in self.ranges)
        return self._replace(ranges=ranges)

    @property
    def last(self) -> RangeView | None:
        """The last range."""
        return self.ranges[-1] if self.ranges else None


class Facts(NamedTuple):
    """What is the same in every order: the stream's id, and what its objects cover."""

    stream_id: int
    objects: Mapping[int, ObjectView]


Answer = Reply | str
"""Or the code of a refusal."""
UNDECIDED = ("PRECONDITION_FAILED", "OBJECT_NOT_FOUND")
"""An upload may be refused with these for reasons that lie outside of the model: other servers, time, collection."""


def next_states(state: StreamState, call: Call, facts: Facts) -> list[StreamState]:
    """The states that this call can lead to, given what its client was told; none: it cannot happen here.

    For an UNKNOWN call these are the states in which it was done; not being done is always possible, too.
    """
    answer, after = apply(state, call, facts)
    if call.outcome == "unknown":
        return [after] if after != state else []
    if call.outcome == "refused":
        undecided = call.name in ("prepare_object", "commit_object") and call.code in UNDECIDED
        never_placed = call.code == "NO_PLACEMENT" and isinstance(answer, Reply)
        return [state] if answer == call.code or undecided or never_placed else []
    return [after] if answer == call.reply else []


def apply(state: StreamState, call: Call, facts: Facts) -> tuple[Answer, StreamState]:
    """The answer of a placement driver that has servers enough, and the state after it."""
    if call.name == "create_stream":
        if state.exists:
            return "STREAM_EXISTS", state
        state = StreamState(exists=True)
        return Reply(_view(state, facts)), state
    if not state.exists:
        return "STREAM_NOT_FOUND", state
    return _OPERATIONS[call.name](state, call, facts)


def _view(state: StreamState, facts: Facts) -> StreamView:
    return StreamView(facts.stream_id, state.epoch, state.trim_offset, state.next_offset, state.range_count)


def _describe(state: StreamState, call: Call, facts: Facts) -> tuple[Answer, StreamState]:
    return Reply(_view(state, facts)._replace(range_count=len(state.ranges))), state


def _list_ranges(state: StreamState, call: Call, facts: Facts) -> tuple[Answer, StreamState]:
    return Reply(_view(state, facts), state.ranges), state


def _list_objects(state: StreamState, call: Call, facts: Facts) -> tuple[Answer, StreamState]:
    found = [facts.objects[object_id] for object_id, _ in state.committed]
    kept = [each for each in found if state.range(each.range_index) is not None]
    return Reply(objects=tuple(sorted(kept, key=lambda each: each.start))), state


def _open_writer(state: StreamState, call: Call, facts: Facts) -> tuple[Answer, StreamState]:
    state = state._replace(epoch=state.epoch + 1)
    return Reply(_view(state, facts), (state.last,) if state.last else ()), state


def _trim(state: StreamState, call: Call, facts: Facts) -> tuple[Answer, StreamState]:
    wanted = call.arguments["trim_offset"]
    if wanted > state.next_offset:
        return "OFFSET_OUT_OF_RANGE", state
    state = _forget_trimmed(state._replace(trim_offset=max(state.trim_offset, wanted)))
    return Reply(_view(state, facts)._replace(range_count=COUNTED_LATER)), state


def _forget_trimmed(state: StreamState) -> StreamState:
    kept = list(state.ranges)
    while len(kept) > 1 and kept[0].end is not None and kept[0].end <= state.trim_offset:
        del kept[0]
    return state._replace(ranges=tuple(kept))


def _wrong_epoch(state: StreamState, arguments: Mapping[str, Any]) -> str | None:
    if not arguments["epoch"]:
        return "INVALID_ARGUMENT"
    return None if arguments["epoch"] == state.epoch else "FENCED"


def _append_range(state: StreamState) -> tuple[RangeView, StreamState]:
    added = RangeView(state.range_count, state.epoch, state.next_offset, None, state.next_offset)
    kept = list(state.ranges)
    while kept and kept[-1].start == kept[-1].end:  # the new range takes the place of empty ones
        del kept[-1]
    state = state._replace(range_count=state.range_count + 1, ranges=(*kept, added))
    return added, _forget_trimmed(state)


def _create_range(state: StreamState, call: Call, facts: Facts) -> tuple[Answer, StreamState]:
    if (wrong := _wrong_epoch(state, call.arguments)) is not None:
        return wrong, state
    start, last = call.arguments["start_offset"], state.last
    if (last is not None and last.end is None) or start != state.next_offset:
        own = [each for each in state.ranges if each.start == start and each.epoch == state.epoch]
        if own:
            return Reply(ranges=(own[-1],)), state
        return "PRECONDITION_FAILED", state
    added, state = _append_range(state)
    return Reply(ranges=(added,)), state


def _seal_range(state: StreamState, call: Call, facts: Facts) -> tuple[Answer, StreamState]:
    asked = call.arguments
    if (wrong := _wrong_epoch(state, asked)) is not None:
        return wrong, state
    found, following = state.range(asked["range_index"]), state.after(asked["range_index"])
    wants_next = bool(asked.get("create_next"))
    end = asked["end_offset"]
    if found is None:
        if following is None or not wants_next or (following.start, following.epoch) != (end, asked["epoch"]):
            return "RANGE_NOT_FOUND", state
        replaced = RangeView(asked["range_index"], 0, end, end, end)  # its epoch is forgotten
        return Reply(ranges=(replaced,), next_range=following), state
    if found.end is None:
        if asked["end_offset"] < found.start:
            return "INVALID_ARGUMENT", state
        found = found._replace(end=asked["end_offset"], tiered_end=found.start)
        state = state.with_range(found)._replace(next_offset=asked["end_offset"])
        if wants_next:
            following, state = _append_range(state)
    elif wants_next and following is None and asked["end_offset"] == found.end:
        following, state = _append_range(state)
    if following is not None and following.epoch != asked["epoch"]:
        following = None
    return Reply(ranges=(found,), next_range=following), state


def _prepare_object(state: StreamState, call: Call, facts: Facts) -> tuple[Answer, StreamState]:
    asked = call.arguments
    found = state.range(asked["range_index"])
    if found is None:
        return "RANGE_NOT_FOUND", state
    start, end = asked["start_offset"], asked["end_offset"]
    if found.end is None or start != found.tiered_end or not start < end <= found.end:
        return "PRECONDITION_FAILED", state
    told = call.reply.objects[0] if call.reply is not None and call.reply.objects else None
    if told is None or told.object_id in dict(state.committed):
        return "PRECONDITION_FAILED", state
    return Reply(objects=(ObjectView(told.object_id, found.index, start, end),)), state


def _commit_object(state: StreamState, call: Call, facts: Facts) -> tuple[Answer, StreamState]:
    asked = call.arguments
    known = facts.objects.get(asked["object_id"])
    if known is None:
        return "OBJECT_NOT_FOUND", state
    before = dict(state.committed).get(known.object_id)
    if before is not None:
        same = before == asked["digest"]
        return (Reply(objects=(known,)) if same else "PRECONDITION_FAILED"), state
    found = state.range(known.range_index)
    if found is None:
        return "RANGE_NOT_FOUND", state
    if asked["epoch"] != found.epoch or known.start != found.tiered_end:
        return "PRECONDITION_FAILED", state
    state = state.with_range(found._replace(tiered_end=known.end))
    state = state._replace(committed=(*state.committed, (known.object_id, asked["digest"])))
    return Reply(objects=(known,)), state


_OPERATIONS: dict[str, Callable[[StreamState, Call, Facts], tuple[Answer, StreamState]]] = {
    "describe_stream": _describe,
    "list_ranges": _list_ranges,
    "list_objects": _list_objects,
    "open_writer": _open_writer,
    "trim_stream": _trim,
    "create_range": _create_range,
    "seal_range": _seal_range,
    "prepare_object": _prepare_object,
    "commit_object": _commit_object,
}
