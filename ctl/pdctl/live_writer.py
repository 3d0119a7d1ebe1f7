"""The writer of a stream at the moment, as the replicas of its open range report it: asked before a command would end that
writer.

What holds: a writer that a replica names is connected to it now. Where no replica answers, no writer is named: the command
goes on as it would without the question, since to ask is a courtesy and the epoch is what keeps the log whole.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pdctl.inspection.calls import Servers, list_servers
from pdctl.session import Session
from rangelog_core.errors import PreconditionFailed, RangelogError

if TYPE_CHECKING:
    from rangelog import Client

ANSWER_TIMEOUT_S = 1.0


async def refuse_live_writer(session: Session, client: Client, name: str) -> None:
    """Raise PreconditionFailed when somebody writes the stream. Raises StreamNotFound."""
    writer = await live_writer(session, client, name)
    if writer is not None:
        raise PreconditionFailed(
            f"{writer or 'a client without a name'} writes stream {name!r} now, and would be fenced: add --take-over to do so, "
            "or use a stream of your own"
        )


async def live_writer(session: Session, client: Client, name: str) -> str | None:
    """Return the name that the stream's connected writer has given, or None. Raises StreamNotFound."""
    from rangelog_proto.v1 import common_pb2, pd_pb2, range_server_pb2

    pd, timeout_s = client.metadata.pd, session.timeout_s
    page = await pd.call(
        pd_pb2.ListRangesRequest(name=name, last_only=True, page_size=1), pd_pb2.ListRangesResponse, timeout_s=timeout_s
    )
    last = page.ranges[-1] if page.ranges else None
    if last is None or last.state != common_pb2.RANGE_STATE_OPEN:
        return None  # whoever goes on with the stream has an open range
    request = range_server_pb2.LocateBatchRequest(stream_id=last.stream_id, range_index=last.index, last=True)
    async with Servers(session, await list_servers(pd, timeout_s)) as servers:
        told = await servers.ask_all(last.replicas, lambda peer: peer.locate_batch(request, timeout_s=ANSWER_TIMEOUT_S))
    answers = [each for each in told if not isinstance(each, RangelogError)]
    return next((each.writer for each in answers if each.writer_connected), None)
