"""Cursors: named positions of consumers in a stream, kept by the placement drivers.

What holds: a stream's name is resolved once, ids after that. A set without an expected version only moves a cursor forward, so
a set whose outcome is unknown may be repeated, by this program or by another one. What is set in one turn of the loop, or while
a call is in progress, goes in few calls, however many streams it is of.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

from rangelog._arguments import checked_arguments
from rangelog._metadata import CALL_TIMEOUT_S, Metadata, new_request_id
from rangelog._read.stream_view import StreamView, confirmed_end
from rangelog_core.errors import InvalidArgument, RangelogError, error_from_code
from rangelog_core.ids import check_name
from rangelog_core.limits import CURSOR_METADATA_BYTES_MAX, OFFSET_MAX
from rangelog_core.net.combined_calls import CombinedCalls
from rangelog_core.net.data_connection import DataConnections
from rangelog_core.net.pages import pages_by_token
from rangelog_proto.v1 import cursor_pb2 as pb

SETS_PER_CALL = 500
CALLS_MAX = 2
"""Calls of sets that are in progress at a time."""
_VERSION_MAX = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Cursor:
    """A named position of a consumer in a stream.

    Attributes:
        name: The name.
        stream_id: The id of its stream; never reused, unlike the stream's name.
        offset: The offset of the next record that the consumer is to process.
        metadata: What the consumer keeps beside it.
        version: Another one after each change of offset or metadata, for `expected_version`.
        set_ms: Time of the last set, milliseconds since the Unix epoch; 0: not known yet.
        created_ms: Time of creation, milliseconds since the Unix epoch; 0: not known yet.
        expired: It was not set for its stream's cursor expiry: retention does not wait for it until it is set again.
    """

    name: str
    stream_id: int
    offset: int
    metadata: str
    version: int
    set_ms: int
    created_ms: int
    expired: bool


class CursorCalls:
    """The calls of one client on cursors, by the ids of streams."""

    def __init__(self, metadata: Metadata) -> None:
        self._client = metadata.pd
        self._sets = CombinedCalls(self._set, items_max=SETS_PER_CALL, calls_max=CALLS_MAX)

    def close(self) -> None:
        """Cancel the calls in progress."""
        self._sets.close()

    async def get(self, stream_id: int, name: str) -> Cursor | None:
        """Return a cursor, or None. Raises StreamNotFound, Unavailable."""
        request = pb.GetCursorRequest(stream_id=stream_id, name=name)
        found = await self._client.call(request, pb.GetCursorResponse, timeout_s=CALL_TIMEOUT_S)
        return _cursor(found.cursor) if found.HasField("cursor") else None

    async def set(
        self, stream_id: int, name: str, offset: int, *, metadata: str = "", expected_version: int | None = None
    ) -> Cursor:
        """Set a cursor; return it as it is then."""
        wanted = pb.CursorSet(
            stream_id=stream_id, name=name, offset=offset, metadata=metadata, expected_version=expected_version
        )
        return await self._sets.ask(wanted)

    async def list(self, stream_id: int) -> AsyncIterator[Cursor]:
        """Yield the cursors of a stream by name."""
        request = pb.ListCursorsRequest(stream_id=stream_id)
        async for page in pages_by_token(self._client, request, pb.ListCursorsResponse, CALL_TIMEOUT_S):
            for each in page.cursors:
                yield _cursor(each)

    async def delete(self, stream_id: int, name: str, expected_version: int) -> bool:
        """Delete a cursor; return whether there was one."""
        request = pb.DeleteCursorRequest(
            request_id=new_request_id(), stream_id=stream_id, name=name, expected_version=expected_version
        )
        return (await self._client.call(request, pb.DeleteCursorResponse, timeout_s=CALL_TIMEOUT_S)).HasField("cursor")

    async def _set(self, wanted: Sequence[pb.CursorSet]) -> Sequence[Cursor | RangelogError]:
        """Send sets in one call, or in several where a cursor comes more than once: in the order in which they were asked."""
        answers: dict[int, Cursor | RangelogError] = {}
        left = list(range(len(wanted)))
        while left:
            now: dict[tuple[int, str], int] = {}
            later: list[int] = []
            for number in left:
                key = (wanted[number].stream_id, wanted[number].name)
                if now.setdefault(key, number) != number:
                    later.append(number)
            request = pb.SetCursorsRequest(
                request_id=new_request_id(), sets=[wanted[number] for number in now.values()]
            )
            response = await self._client.call(request, pb.SetCursorsResponse, timeout_s=CALL_TIMEOUT_S)
            answers.update(zip(now.values(), map(_answer, response.results), strict=True))
            left = later
        return [answers[number] for number in range(len(wanted))]


@checked_arguments
class StreamCursors:
    """The cursors of one stream. Get it with `client.cursors(stream)`.

    Every method may raise StreamNotFound (also where the stream was deleted since the first call), Unavailable and
    RequestTimeout.

    Example:
        ```python
        cursors = client.cursors("flights")
        await cursors.set("billing", 1_000)
        async for record in client.reader("flights", cursor="billing"):
            ...
        ```
    """

    def __init__(self, calls: CursorCalls, metadata: Metadata, connections: DataConnections, stream: str) -> None:
        self._calls = calls
        self._connections = connections
        self._view = StreamView(metadata, stream, connections=connections)

    async def get(self, name: str) -> Cursor | None:
        """Return a cursor, or None where there is none. Raises InvalidArgument."""
        return await self._calls.get(await self._stream_id(), check_name("cursor", name))

    async def set(self, name: str, offset: int, *, metadata: str = "", expected_version: int | None = None) -> Cursor:
        """Set a cursor to the offset of the next record that its consumer is to process, and make it if there is none.

        Args:
            name: The cursor.
            offset: Not below the stream's trim offset, nor beyond the end of its acked records.
            metadata: Up to 512 bytes of UTF-8 that are kept beside it.
            expected_version: The `version` of the cursor before, 0 for none: it is set only if that is so, and may move back.
                Without it a cursor only moves forward: a lower offset changes nothing.

        Returns:
            The cursor as it is then.

        Raises:
            PreconditionFailed: The cursor has another version.
            OffsetTrimmed: The offset is below the trim offset, which is the error's `offset`.
            OffsetOutOfRange: The offset is beyond the end, which is the error's `offset`.
            InvalidArgument: An argument is not valid, or the stream has too many cursors.
            OutcomeUnknown: The cursor may or may not have been set. Without an expected version a repeat does no harm.
        """
        check_name("cursor", name)
        check_metadata(metadata)
        _check_number("offset", offset, OFFSET_MAX)
        if expected_version is not None:
            _check_number("expected_version", expected_version, _VERSION_MAX)
        stream_id = await self._stream_id()
        await self._check_written(offset)
        return await self._calls.set(stream_id, name, offset, metadata=metadata, expected_version=expected_version)

    async def list(self) -> AsyncIterator[Cursor]:
        """Yield the stream's cursors by name."""
        async for each in self._calls.list(await self._stream_id()):
            yield each

    async def delete(self, name: str, *, expected_version: int | None = None) -> bool:
        """Delete a cursor; return whether there was one.

        Args:
            name: The cursor.
            expected_version: Delete it only if it has this `version`.

        Raises:
            PreconditionFailed: The cursor has another version, or does not exist where one was expected.
            OutcomeUnknown: The cursor may or may not have been deleted.
        """
        check_name("cursor", name)
        if expected_version is not None:
            _check_number("expected_version", expected_version, _VERSION_MAX)
        return await self._calls.delete(await self._stream_id(), name, expected_version or 0)

    async def _stream_id(self) -> int:
        if not self._view.stream.stream_id:
            await self._view.last_range()
        return self._view.stream.stream_id

    async def _check_written(self, offset: int) -> None:
        """Ask the replicas where the stream ends, if the offset lies beyond the end that is known."""
        if offset <= self._view.stream.next_offset:
            return
        (await confirmed_end(self._view, self._connections)).check_reached(offset)


def check_metadata(metadata: str) -> None:
    """Raise InvalidArgument for what cannot be a cursor's metadata."""
    try:
        size_bytes = len(metadata.encode())
    except (AttributeError, UnicodeEncodeError):  # no text, or text that no file could hold
        size_bytes = CURSOR_METADATA_BYTES_MAX + 1
    if size_bytes > CURSOR_METADATA_BYTES_MAX:
        raise InvalidArgument(f"metadata of a cursor is text of at most {CURSOR_METADATA_BYTES_MAX} bytes of UTF-8")


def _check_number(name: str, value: int, most: int) -> None:
    if type(value) is not int or not 0 <= value <= most:
        raise InvalidArgument(f"{name} must be a whole number from 0 to {most}, not {value!r}")


def _cursor(found: pb.Cursor) -> Cursor:
    return Cursor(
        name=found.name,
        stream_id=found.stream_id,
        offset=found.offset,
        metadata=found.metadata,
        version=found.version,
        set_ms=found.set_ms,
        created_ms=found.created_ms,
        expired=found.expired,
    )


def _answer(result: pb.SetCursorResult) -> Cursor | RangelogError:
    told = result.error
    if not told.code:
        return _cursor(result.cursor)
    return error_from_code(told.code, told.message, offset=told.offset if told.has_offset else None)
