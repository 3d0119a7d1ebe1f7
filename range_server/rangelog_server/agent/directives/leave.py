"""LeaveRange: refuse further appends to an open range, and say so to its writer, which then goes on on other servers.

What holds: what the replica has stays, and copies of a recoverer are taken as before. In memory only: the placement driver
repeats the directive while the range is open.
"""

from __future__ import annotations

from rangelog_core.errors import Unavailable
from rangelog_proto.v1 import pd_pb2 as pb
from rangelog_server.ranges.store import Store


async def leave_range(store: Store, directive: pb.Directive) -> None:
    """Leave the range. Does nothing where the server has no replica of it."""
    hosted = store.replicas.get((directive.stream_id, directive.range_index))
    if hosted is None:
        return
    hosted.leaving = directive.leave_range.reason or "this server is to be left"
    writing = hosted.writing()
    if writing is not None:
        writing.refuse(hosted, Unavailable(hosted.leaving))
