"""Calls on cursors. Many sets go into as few commands as their size allows; none of their results is kept for repeats.

What holds: a repeat of a set is harmless by itself (see state/cursors.py), so a consumer that commits each second costs the
placement drivers a part of one log entry, and no memory beyond its row.
"""

from __future__ import annotations

from bisect import bisect_right

from rangelog_core.errors import InvalidArgument
from rangelog_core.ids import check_name
from rangelog_core.limits import CURSOR_PAGE_SIZE_MAX, CURSOR_SETS_MAX
from rangelog_core.net.principals import USERS
from rangelog_core.rights import Verb
from rangelog_pd.driver import REQUEST_ID_LENGTH_MAX, Driver
from rangelog_pd.handlers import needs
from rangelog_pd.handlers.batches import in_parts
from rangelog_pd.handlers.call import Call
from rangelog_proto.v1 import cursor_pb2 as pb


async def set_cursors(driver: Driver, request: pb.SetCursorsRequest) -> pb.SetCursorsResponse:
    """Set many cursors. Raises InvalidArgument for the whole request; an item's error is its result."""
    if not 1 <= len(request.sets) <= CURSOR_SETS_MAX:
        raise InvalidArgument(f"{len(request.sets)} cursors in one call; 1 to {CURSOR_SETS_MAX} are allowed")
    if not 1 <= len(request.request_id) <= REQUEST_ID_LENGTH_MAX:
        raise InvalidArgument(f"a request id has 1 to {REQUEST_ID_LENGTH_MAX} characters")
    if len({(each.stream_id, each.name) for each in request.sets}) < len(request.sets):
        raise InvalidArgument("a cursor comes twice in one call: give its last position only")
    results = await in_parts(
        request.sets,
        lambda sets: driver.propose(
            pb.SetCursorsResponse, "", set_cursors=pb.SetCursorsRequest(request_id=request.request_id, sets=sets)
        ),
    )
    return pb.SetCursorsResponse(results=results)


async def get_cursor(driver: Driver, request: pb.GetCursorRequest) -> pb.GetCursorResponse:
    """Return a cursor, if there is one. Raises StreamNotFound, InvalidArgument."""
    check_name("cursor", request.name)
    await driver.barrier()
    with driver.state() as state:
        state.stream_by_id(request.stream_id)
        return pb.GetCursorResponse(cursor=state.cursors.rows.find((request.stream_id, request.name)))


async def list_cursors(driver: Driver, request: pb.ListCursorsRequest) -> pb.ListCursorsResponse:
    """Return one page of a stream's cursors, by name. Raises StreamNotFound."""
    await driver.barrier()
    size = min(request.page_size or CURSOR_PAGE_SIZE_MAX, CURSOR_PAGE_SIZE_MAX)
    with driver.state() as state:
        state.stream_by_id(request.stream_id)
        names = sorted(state.cursors.names.get(request.stream_id, ()))
        first = bisect_right(names, request.page_token) if request.page_token else 0
        page = names[first : first + size]
        return pb.ListCursorsResponse(
            cursors=[state.cursors.rows[request.stream_id, name] for name in page],
            next_page_token=page[-1] if first + size < len(names) else "",
        )


async def delete_cursor(driver: Driver, request: pb.DeleteCursorRequest) -> pb.DeleteCursorResponse:
    """Delete a cursor. Raises StreamNotFound, InvalidArgument, PreconditionFailed."""
    check_name("cursor", request.name)
    return await driver.propose_request(pb.DeleteCursorResponse, request.request_id, delete_cursor=request)


CALLS = (
    Call(
        "SetCursors",
        set_cursors,
        USERS,
        needs=needs.NeedsOfItems("sets", needs.of_cursor(Verb.READ), pb.SetCursorsResponse),
    ),
    Call("GetCursor", get_cursor, USERS, needs=needs.of_cursor(Verb.READ)),
    Call("ListCursors", list_cursors, USERS, needs=needs.of_cursor(Verb.READ)),
    Call(
        "DeleteCursor",
        delete_cursor,
        USERS,
        needs=needs.of_cursor(Verb.READ),
        audit=lambda request: f"cursor {request.name} of stream id {request.stream_id}",
    ),
)
