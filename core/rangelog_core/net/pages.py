"""Lists of the placement driver, page by page."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence, Sized
from typing import Any, TypeVar

from google.protobuf.message import Message

from rangelog_core.errors import ProtocolViolation
from rangelog_core.net.routes import PdCalls
from rangelog_proto.v1 import common_pb2, pd_pb2

_Page = TypeVar("_Page", bound=Message)


def goes_on(more: bool, rows: Sized) -> bool:
    """Whether another page follows. Raises ProtocolViolation for a page without rows that says so: the start of the next one
    is unknown.

    >>> goes_on(True, ["row"]), goes_on(False, [])
    (True, False)
    """
    if more and not len(rows):
        raise ProtocolViolation("a page of a list is empty and says that there is more: what was listed is not all")
    return more


async def pages_by_token(pd: PdCalls, request: Any, page_type: type[_Page], timeout_s: float) -> AsyncIterator[_Page]:
    """Yield the pages of a list that goes on by page tokens. `request`: of the first page; it is changed."""
    while True:
        page: Any = await pd.call(request, page_type, timeout_s=timeout_s)
        yield page
        request.page_token = page.next_page_token
        if not request.page_token:
            return


async def object_pages(
    pd: PdCalls, request: pd_pb2.ListObjectsRequest, timeout_s: float
) -> AsyncIterator[Sequence[common_pb2.Object]]:
    """Yield the objects of a stream by offset. `request`: of the first page; it is changed.

    Raises StreamNotFound, ProtocolViolation (see `goes_on`).
    """
    request.knows_encryption = True
    while True:
        page = await pd.call(request, pd_pb2.ListObjectsResponse, timeout_s=timeout_s)
        yield page.objects
        if not goes_on(page.more, page.objects):
            return
        request.from_offset = page.objects[-1].end_offset
