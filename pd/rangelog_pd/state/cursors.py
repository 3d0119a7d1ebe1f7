"""The commands on cursors, and the trims of streams whose retention depends on them.

What holds:

* Without an expected version a cursor only moves forward, so a set that is late, or repeated, never moves it back. With one it
  moves anywhere, once: the version is another one afterwards. A repeat of such a set finds its own request id.
* A cursor is at or above the trim offset when it is set, and not beyond an end that the placement driver knows: that of a
  stream without an open range. How far an open range reaches, its replicas know.
* A trim by retention goes by whole ranges. It is checked again here: it passes no live cursor that it may not pass, also where
  the cursor was set after the trim was proposed.
"""

from __future__ import annotations

from rangelog_core.errors import InvalidArgument, OffsetOutOfRange, OffsetTrimmed, PreconditionFailed, RangelogError
from rangelog_core.ids import check_name
from rangelog_core.limits import CURSOR_METADATA_BYTES_MAX, CURSOR_SETS_MAX, CURSORS_PER_STREAM_MAX, OFFSET_MAX
from rangelog_pd.state.batches import call_error
from rangelog_pd.state.cursor_table import CursorKey
from rangelog_pd.state.store import State
from rangelog_pd.state.streams import check_own, trim
from rangelog_pd.state.tables import copy_of
from rangelog_proto.v1 import common_pb2, cursor_pb2, pd_pb2, pd_state_pb2

KEEPING = (common_pb2.CURSOR_RETENTION_KEEP, common_pb2.CURSOR_RETENTION_KEEP_AND_TRIM)
TRIMMING = (common_pb2.CURSOR_RETENTION_TRIM, common_pb2.CURSOR_RETENTION_KEEP_AND_TRIM)


def set_cursors(state: State, request: cursor_pb2.SetCursorsRequest, now_ms: int) -> cursor_pb2.SetCursorsResponse:
    """Set each cursor; an error is the answer of its item. Raises InvalidArgument for the whole."""
    if not 1 <= len(request.sets) <= CURSOR_SETS_MAX:
        raise InvalidArgument(f"{len(request.sets)} cursors in one call; 1 to {CURSOR_SETS_MAX} are allowed")
    response = cursor_pb2.SetCursorsResponse()
    for each in request.sets:
        try:
            response.results.add(cursor=_set(state, each, request.request_id))
        except RangelogError as error:
            response.results.add(error=call_error(error))
    return response


def _set(state: State, wanted: cursor_pb2.CursorSet, request_id: str) -> cursor_pb2.Cursor:
    """Set one cursor; return it as it is now.

    Raises StreamNotFound, InvalidArgument, PreconditionFailed, OffsetTrimmed, OffsetOutOfRange.
    """
    check_name("cursor", wanted.name)
    if len(wanted.metadata.encode()) > CURSOR_METADATA_BYTES_MAX:
        raise InvalidArgument(f"metadata of a cursor has at most {CURSOR_METADATA_BYTES_MAX} bytes of UTF-8")
    stream = state.stream_by_id(wanted.stream_id)
    check_own(stream)
    known = state.cursors.rows.find((wanted.stream_id, wanted.name))
    conditional = wanted.HasField("expected_version")
    if known is not None and conditional and request_id and known.request_id == request_id:
        return known
    if conditional:
        _check_version(known, wanted.name, wanted.expected_version)
    elif known is not None and wanted.offset < known.offset:
        return known
    _check_position(state, stream, wanted.offset)
    if known is None and len(state.cursors.names.get(wanted.stream_id, ())) >= CURSORS_PER_STREAM_MAX:
        raise InvalidArgument(
            f"stream {stream.name!r} has {CURSORS_PER_STREAM_MAX} cursors, the limit: delete those that nobody uses"
        )
    same = known is not None and (known.offset, known.metadata) == (wanted.offset, wanted.metadata)
    row = cursor_pb2.Cursor(
        stream_id=wanted.stream_id,
        name=wanted.name,
        offset=wanted.offset,
        metadata=wanted.metadata,
        version=known.version if known is not None and same and not conditional else state.cursors.take_version(),
        set_ms=state.date(),
        created_ms=known.created_ms if known is not None else state.date(),
        request_id=request_id if conditional else known.request_id if known is not None and same else "",
    )
    _put(state, (wanted.stream_id, wanted.name), row)
    return row


def _check_version(known: cursor_pb2.Cursor | None, name: str, expected: int) -> None:
    found = known.version if known is not None else 0
    if found != expected:
        now = f"has version {found}" if found else "does not exist"
        raise PreconditionFailed(f"cursor {name!r} {now}, not {expected}: it was changed meanwhile")


def _check_position(state: State, stream: common_pb2.Stream, offset: int) -> None:
    if offset < stream.trim_offset:
        raise OffsetTrimmed(
            f"offset {offset} was trimmed; stream {stream.name!r} starts at {stream.trim_offset}",
            offset=stream.trim_offset,
        )
    last = state.ranges.of(stream.stream_id).last()
    is_open = last is not None and last.state == common_pb2.RANGE_STATE_OPEN
    if offset > (OFFSET_MAX if is_open else stream.next_offset):
        raise OffsetOutOfRange(
            f"offset {offset} is beyond the end of stream {stream.name!r}, which is {stream.next_offset}",
            offset=stream.next_offset,
        )


def delete_cursor(
    state: State, request: cursor_pb2.DeleteCursorRequest, now_ms: int
) -> cursor_pb2.DeleteCursorResponse:
    """Delete a cursor; one that is not there is no error. Raises StreamNotFound, PreconditionFailed."""
    state.stream_by_id(request.stream_id)
    key = (request.stream_id, request.name)
    known = state.cursors.rows.find(key)
    if request.expected_version:
        _check_version(known, request.name, request.expected_version)
    if known is not None:
        _put(state, key, None)
    return cursor_pb2.DeleteCursorResponse(cursor=known)


def retain_stream(state: State, command: pd_state_pb2.RetainStream, now_ms: int) -> pd_pb2.TrimStreamResponse:
    """Let the named cursors expire, then trim whole ranges. Raises StreamNotFound, OffsetOutOfRange."""
    stream = state.stream_by_id(command.stream_id)
    if command.trim_offset > stream.next_offset:
        raise OffsetOutOfRange(
            f"cannot trim to {command.trim_offset}: sealed ranges end at {stream.next_offset}",
            offset=stream.next_offset,
        )
    for each in command.expiring:
        key = (command.stream_id, each.name)
        known = state.cursors.rows.find(key)
        if known is not None and not known.expired and known.set_ms == each.set_ms:
            row = copy_of(known)
            row.expired = True
            _put(state, key, row)
    return pd_pb2.TrimStreamResponse(stream=trim(state, stream, _may_trim_to(state, stream, command)))


def _may_trim_to(state: State, stream: common_pb2.Stream, command: pd_state_pb2.RetainStream) -> int:
    """Return the end of the last whole range up to which the command may trim."""
    lowest = state.cursors.lowest(stream.stream_id)
    mode = stream.config.cursor_retention
    if command.passed and (lowest is None or mode not in TRIMMING):
        return stream.trim_offset
    if lowest is None or not (command.passed or mode in KEEPING) or lowest.offset >= command.trim_offset:
        return command.trim_offset
    return end_of_passed(state, stream, lowest.offset)


def end_of_passed(state: State, stream: common_pb2.Stream, offset: int) -> int:
    """Return the end of the last sealed range that lies wholly below an offset; of none: at most the trim offset."""
    ranges = state.ranges.of(stream.stream_id)
    first = ranges.get(ranges.index_beyond(offset))
    return first.start_offset if first is not None else stream.next_offset


def _put(state: State, key: CursorKey, row: cursor_pb2.Cursor | None) -> None:
    """Put or remove a cursor; where that changes how much the stream keeps, have the followers look at the stream."""
    stream_id = key[0]
    before = _held_from(state, stream_id)
    if row is None:
        state.cursors.rows.remove(key)
    else:
        state.cursors.rows.put(key, row)
    if _held_from(state, stream_id) != before:
        state.changes.note_again(state.streams[stream_id])


def _held_from(state: State, stream_id: int) -> int | None:
    """Return the index of the first range that the stream's live cursors have not passed; None: nothing depends on them."""
    if stream_id not in state.retained:
        return None
    lowest = state.cursors.lowest(stream_id)
    return state.ranges.of(stream_id).index_beyond(lowest.offset) if lowest is not None else None
