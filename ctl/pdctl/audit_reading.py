"""Reads the audit log: entries of its stream, and after them those that wait for it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rangelog_core.errors import Corruption, Unavailable
from rangelog_core.ids import AUDIT_STREAM_NAME

if TYPE_CHECKING:
    from pdctl.session import Session
    from rangelog import Client
    from rangelog_proto.v1 import audit_pb2 as pb

ROUNDS_MAX = 100
"""Entries that were written while others were read are read in a further round."""


@dataclass(slots=True)
class AuditLog:
    """The log of one cluster. `state`: as it was described last."""

    client: Client
    describe: Callable[[int], Awaitable[pb.DescribeAuditResponse]]
    state: pb.AuditState

    async def lines(self, first: int = 1) -> AsyncIterator[bytes]:
        """Yield all lines from entry `first` on, up to the last one of the placement drivers. Raises Corruption.

        Entry N is the record at offset N - 1 of the stream.
        """
        after = first - 1
        for _ in range(ROUNDS_MAX):
            described = await self.describe(after + 1)
            self.state = described.state
            if after < self.state.written_sequence:
                async for line in self._written(after):
                    after += 1
                    yield line
                continue
            for each in described.pending:
                if each.sequence == after + 1:
                    after += 1
                    yield each.line
            if after >= self.state.last_sequence:
                return
        raise Unavailable("the audit log grows faster than it is read: try again")

    async def _written(self, after: int) -> AsyncIterator[bytes]:
        """Yield what the stream has from offset `after` on, as far as it is known to be written."""
        end = await self.client.internal.end(AUDIT_STREAM_NAME, self.state.stream_id)
        if end < self.state.written_sequence:
            raise Corruption(
                f"the stream of the audit log was cut: it ends at {end}, and {self.state.written_sequence} entries were written"
            )
        records = self.client.internal.records(
            AUDIT_STREAM_NAME, self.state.stream_id, after, self.state.written_sequence
        )
        async for chunk in records:
            for record in chunk:
                yield bytes(record.value)


def with_audit(session: Session, work: Callable[[AuditLog], Any]) -> Any:
    """Run `work` with the audit log of the cluster. Raises PreconditionFailed where it was never enabled."""
    from rangelog_core.errors import PreconditionFailed
    from rangelog_core.net.pd_client import PdClient
    from rangelog_proto.v1 import audit_pb2 as pb

    async def run(client: Client) -> Any:
        pd = PdClient(session.members(), token=session.shown_token(), tls=session.tls())

        async def describe(first: int) -> pb.DescribeAuditResponse:
            return await pd.call(
                pb.DescribeAuditRequest(pending_from=first), pb.DescribeAuditResponse, timeout_s=session.timeout_s
            )

        try:
            state = (await describe(1 << 62)).state
            if not state.stream_id:
                raise PreconditionFailed("the audit log was never enabled: `pdctl audit enable`")
            return await work(AuditLog(client, describe, state))
        finally:
            await pd.close()

    return session.with_client(run)
