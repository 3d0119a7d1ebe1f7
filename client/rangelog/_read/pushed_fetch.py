"""A pushed fetch: one replica sends one range in many replies, within the credit that the reader grants.

What holds: at most `CREDIT_BYTES` (and one batch) are received and not taken, less where the client's fetches have used up
their common budget; credit is renewed for taken bytes, a quarter of it at a time; a replica that sends nothing for longer than
the requested wait has failed. The batches are checked: each reply starts where the one before ended.
"""

from __future__ import annotations

from rangelog_core.errors import RangelogError
from rangelog_core.frame import Opcode
from rangelog_core.limits import KIB, MIB
from rangelog_core.net.budgets import FetchBudget
from rangelog_core.net.data_connection import DataConnection
from rangelog_core.net.replica_client import REPLY_TIMEOUT_S, FetchAnswer, RangeKey, decode_fetch_answer
from rangelog_proto.v1 import data_pb2

REPLY_BYTES = 240 * KIB
"""A reply that is smaller than a buffer is received, checked and decoded in the processor's cache."""
CREDIT_BYTES = 2 * MIB
"""Two of a busy writer's largest batches: while one is decoded the next one is transferred. With more, bytes leave the
cache while they wait, and each step has to fetch them from memory."""


class PushedFetch:
    """The replies from an offset on, in order, until the last one."""

    def __init__(
        self,
        connection: DataConnection,
        key: RangeKey,
        offset: int,
        *,
        wait_ms: int,
        known_end_offset: int,
        end_offset: int,
        budget: FetchBudget,
    ) -> None:
        """Send the fetch. Raises the error that closed the connection."""
        self.connection = connection
        self._budget = budget
        self.wanted = (wait_ms, known_end_offset, end_offset)
        self.over = False
        self.position = offset
        """Where the next answer starts."""
        self._key = key
        self._timeout_s = wait_ms / 1000 + REPLY_TIMEOUT_S
        self._taken_bytes = 0
        self._credit_bytes = credit_bytes = budget.take(CREDIT_BYTES)
        request = data_pb2.Fetch(
            stream_id=key.stream_id,
            range_index=key.range_index,
            offset=offset,
            bytes_max=REPLY_BYTES,
            wait_ms_max=wait_ms,
            known_end_offset=known_end_offset,
            credit_bytes=credit_bytes,
            end_offset=end_offset,
        )
        try:
            self._replies = connection.subscribe(Opcode.FETCH, request.SerializeToString())
        except RangelogError:
            budget.give_back(credit_bytes)
            raise

    async def next(self) -> FetchAnswer:
        """Return the next reply. Raises the error in the reply, RequestTimeout, ProtocolViolation or Corruption.

        Skips replies of a server that holds the reader off by a quota: records follow in a later reply.
        """
        held = True
        while held:
            frame = await self._replies.next(timeout_s=self._timeout_s)
            answer = decode_fetch_answer(frame, self._key, self.position)
            held = answer.held and not answer.last
        self.over = answer.last
        self.position = answer.batches.end_offset
        self._taken_bytes += len(frame.payload)
        if self._taken_bytes >= self._credit_bytes // 4 and not self.over:
            self._grant(self._taken_bytes)
            self._taken_bytes = 0
        return answer

    def close(self) -> None:
        """End the fetch; idempotent."""
        if not self.over:
            self.over = True
            if not self._replies.failed:
                self._grant(0)
        self._replies.close()
        self._budget.give_back(self._credit_bytes)
        self._credit_bytes = 0

    def _grant(self, credit_bytes: int) -> None:
        self._replies.send(Opcode.FETCH, data_pb2.Fetch(renews=True, credit_bytes=credit_bytes).SerializeToString())
