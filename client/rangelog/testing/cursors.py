"""The cursors of a FakeCluster, under the rules of the placement driver.

What holds: without an expected version a cursor only moves forward; a version is given once; cursors go with their stream.
"""

from __future__ import annotations

from collections.abc import Callable

from rangelog_core.errors import InvalidArgument, OffsetOutOfRange, OffsetTrimmed, PreconditionFailed, RangelogError
from rangelog_core.ids import check_name
from rangelog_core.limits import CURSOR_METADATA_BYTES_MAX, CURSORS_PER_STREAM_MAX, OFFSET_MAX
from rangelog_proto.v1 import common_pb2, pd_pb2
from rangelog_proto.v1 import cursor_pb2 as pb


class FakeCursors:
    """One method for each call, by the name of the RPC."""

    def __init__(
        self,
        stream_by_id: Callable[[int], common_pb2.Stream],
        last_range: Callable[[common_pb2.Stream], common_pb2.Range | None],
        now_ms: Callable[[], int],
    ) -> None:
        self._stream_by_id = stream_by_id
        self._last_range = last_range
        self._now_ms = now_ms
        self._rows: dict[int, dict[str, pb.Cursor]] = {}
        self._next_version = 1

    def SetCursors(self, request: pb.SetCursorsRequest) -> pb.SetCursorsResponse:
        """An answer or an error for each."""
        response = pb.SetCursorsResponse()
        for each in request.sets:
            try:
                response.results.add(cursor=self._set(each))
            except RangelogError as error:
                told = pd_pb2.CallError(code=error.code, message=error.message)
                if error.offset is not None:
                    told.offset, told.has_offset = error.offset, True
                response.results.add(error=told)
        return response

    def GetCursor(self, request: pb.GetCursorRequest) -> pb.GetCursorResponse:
        """Raises StreamNotFound."""
        self._stream_by_id(request.stream_id)
        return pb.GetCursorResponse(cursor=self._rows.get(request.stream_id, {}).get(request.name))

    def ListCursors(self, request: pb.ListCursorsRequest) -> pb.ListCursorsResponse:
        """By name, all on one page. Raises StreamNotFound."""
        self._stream_by_id(request.stream_id)
        rows = self._rows.get(request.stream_id, {})
        return pb.ListCursorsResponse(cursors=[rows[name] for name in sorted(rows) if name > request.page_token])

    def DeleteCursor(self, request: pb.DeleteCursorRequest) -> pb.DeleteCursorResponse:
        """Raises StreamNotFound, PreconditionFailed."""
        self._stream_by_id(request.stream_id)
        rows = self._rows.get(request.stream_id, {})
        if request.expected_version:
            _check_version(rows.get(request.name), request.name, request.expected_version)
        return pb.DeleteCursorResponse(cursor=rows.pop(request.name, None))

    def forget(self, stream_id: int) -> None:
        """Remove the cursors of a stream that is deleted."""
        self._rows.pop(stream_id, None)

    def _set(self, wanted: pb.CursorSet) -> pb.Cursor:
        check_name("cursor", wanted.name)
        if len(wanted.metadata.encode()) > CURSOR_METADATA_BYTES_MAX:
            raise InvalidArgument(f"metadata of a cursor has at most {CURSOR_METADATA_BYTES_MAX} bytes of UTF-8")
        stream = self._stream_by_id(wanted.stream_id)
        rows = self._rows.setdefault(stream.stream_id, {})
        known = rows.get(wanted.name)
        if wanted.HasField("expected_version"):
            _check_version(known, wanted.name, wanted.expected_version)
        elif known is not None and wanted.offset < known.offset:
            return known
        self._check_position(stream, wanted.offset)
        if known is None and len(rows) >= CURSORS_PER_STREAM_MAX:
            raise InvalidArgument(f"stream {stream.name!r} has {CURSORS_PER_STREAM_MAX} cursors, the limit")
        row = pb.Cursor(
            stream_id=stream.stream_id,
            name=wanted.name,
            offset=wanted.offset,
            metadata=wanted.metadata,
            set_ms=self._now_ms(),
            created_ms=known.created_ms if known is not None else self._now_ms(),
        )
        same = known is not None and (known.offset, known.metadata) == (row.offset, row.metadata)
        if known is not None and same and not wanted.HasField("expected_version"):
            row.version = known.version
        else:
            row.version = self._next_version
            self._next_version += 1
        rows[wanted.name] = row
        return row

    def _check_position(self, stream: common_pb2.Stream, offset: int) -> None:
        if offset < stream.trim_offset:
            raise OffsetTrimmed(
                f"offset {offset} was trimmed; stream {stream.name!r} starts at {stream.trim_offset}",
                offset=stream.trim_offset,
            )
        last = self._last_range(stream)
        is_open = last is not None and last.state == common_pb2.RANGE_STATE_OPEN
        if offset > (OFFSET_MAX if is_open else stream.next_offset):
            raise OffsetOutOfRange(
                f"offset {offset} is beyond the end of stream {stream.name!r}, which is {stream.next_offset}",
                offset=stream.next_offset,
            )


def _check_version(known: pb.Cursor | None, name: str, expected: int) -> None:
    found = known.version if known is not None else 0
    if found != expected:
        raise PreconditionFailed(f"cursor {name!r} has version {found}, not {expected}: it was changed meanwhile")
