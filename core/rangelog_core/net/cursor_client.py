"""Calls on cursors, over the connections of a PdClient, with its retries and deadlines.

Example: `await CursorClient(pd).get_cursor(GetCursorRequest(stream_id=1, name="billing"), timeout_s=5)`.
"""

from __future__ import annotations

from rangelog_core.net.pd_client import PdClient
from rangelog_proto.v1 import cursor_pb2 as pb
from rangelog_proto.v1.cursor_pb2_grpc import CursorsStub


class CursorClient:
    """The calls of the placement driver's service for cursors. Close the PdClient, not this."""

    def __init__(self, pd: PdClient) -> None:
        self._pd = pd

    async def set_cursors(self, request: pb.SetCursorsRequest, *, timeout_s: float) -> pb.SetCursorsResponse:
        """Set many cursors; each result has its own error."""
        return await self._pd.call_service(CursorsStub, lambda stub: stub.SetCursors, request, timeout_s)

    async def get_cursor(self, request: pb.GetCursorRequest, *, timeout_s: float) -> pb.GetCursorResponse:
        """Return a cursor, if there is one."""
        return await self._pd.call_service(CursorsStub, lambda stub: stub.GetCursor, request, timeout_s)

    async def list_cursors(self, request: pb.ListCursorsRequest, *, timeout_s: float) -> pb.ListCursorsResponse:
        """List the cursors of a stream by page."""
        return await self._pd.call_service(CursorsStub, lambda stub: stub.ListCursors, request, timeout_s)

    async def delete_cursor(self, request: pb.DeleteCursorRequest, *, timeout_s: float) -> pb.DeleteCursorResponse:
        """Delete a cursor."""
        return await self._pd.call_service(CursorsStub, lambda stub: stub.DeleteCursor, request, timeout_s)
