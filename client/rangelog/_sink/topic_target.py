"""A topic as the target of a sink: staged batches become transactions of one transactional id, each of some MiB.

What holds:
- Before a transaction is begun, the control stream says which batches it holds and its number. Transactions are of one id, one
  after the other, so of all of them only the outcome of the last one that was noted can be unknown.
- `open` begins a new epoch of the id: what the former writer left open is aborted, and its late calls are refused. Then the
  last one noted is committed or never will be.
- A batch of work that fits into one transaction appears as a whole. When `append` returns its records are in their shards,
  unless a broker has just died.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress

from rangelog._client import Client
from rangelog._produce.record_rows import rows_of
from rangelog._sink.decision import CHUNK, ControlLog, Decision, SinkChunk
from rangelog._sink.target import Note
from rangelog._transact.transactional import Transactional
from rangelog_core.errors import PreconditionFailed, RangelogError, TopicNotFound, Unavailable
from rangelog_core.limits import MIB

CHUNK_BYTES = 16 * MIB
"""Encoded batches of one transaction: they are held in memory."""
MERGED_S = 5.0
PAUSE_S = (0.002, 0.1)


class TopicTarget:
    """See the module."""

    def __init__(self, client: Client, name: str, topic_id: int, control_name: str) -> None:
        """`control_name`: also the transactional id."""
        self._client = client
        self._name = name
        self._topic_id = topic_id
        self._id = control_name
        self._program: Transactional | None = None

    async def open(self) -> None:
        """See SinkTarget."""
        topic = await self._client.topics.describe(self._name)
        if topic.topic_id != self._topic_id:
            raise TopicNotFound(f"topic {self._name!r} was deleted and made anew since the sink began")
        self._program = self._client.transactional(self._id)
        await self._program.open()

    @property
    def start(self) -> int:
        """Nothing: what is there is known by the transactions that are noted."""
        return 0

    async def copied(self, decided: Decision, log: ControlLog) -> int:
        """See SinkTarget. Raises PreconditionFailed if the coordinator has forgotten the transactional id."""
        chunk = log.chunk
        if chunk is None:
            return 0
        program = self._open
        if chunk.producer_id != program.name.producer_id:
            raise PreconditionFailed(
                f"the transactional id {self._id!r} was idle for so long that it was forgotten: whether the batches from "
                f"{chunk.first} to {chunk.end} of {decided.number} were committed cannot be seen. Stream {self._id!r} has the "
                "decision: delete it, and the batch is appended (again)"
            )
        return chunk.end if await program.was_committed(chunk.transaction) else chunk.first

    async def append(self, copied: int, batches: AsyncIterator[bytes], note: Note) -> None:
        """See SinkTarget. Raises Unavailable where a transaction was aborted: append what is left again."""
        gathered: list[bytes] = []
        size_bytes = 0
        async for data in batches:
            if gathered and size_bytes + len(data) > CHUNK_BYTES:
                await self._transact(copied, gathered, note)
                copied += len(gathered)
                gathered, size_bytes = [], 0
            gathered.append(data)
            size_bytes += len(data)
        if gathered:
            await self._transact(copied, gathered, note)
            await self._until_merged()

    async def leave(self) -> None:
        """See SinkTarget."""
        program, self._program = self._program, None
        if program is not None:
            with suppress(RangelogError):
                await program.leave()

    async def _transact(self, first: int, batches: Sequence[bytes], note: Note) -> None:
        """Commit some batches, the decision's from `first` on."""
        program = self._open
        chunk = SinkChunk(first, first + len(batches), program.name.producer_id, program.name.number + 1)
        await note(CHUNK, chunk.encode())
        try:
            transaction = program.transaction()  # after an error `open` aborts it
            await transaction.begin()
            if transaction.number != chunk.transaction:
                raise Unavailable(f"transaction {chunk.transaction} of {self._id!r} was aborted before it was used")
            for data in batches:
                await transaction.submit_rows(self._name, rows_of(data))
            await transaction.commit()
        except PreconditionFailed as error:  # it was open for too long, or a shard ended under it
            raise Unavailable(f"transaction {chunk.transaction} of {self._id!r} was aborted: {error}") from error

    async def _until_merged(self) -> None:
        """Wait a while for the last transaction's records to be in their shards: who reads next expects them."""
        program, deadline = self._open, time.monotonic() + MERGED_S
        pause_s = PAUSE_S[0]
        with suppress(RangelogError):  # it is committed, whatever this answers
            while not await program.is_merged(program.name.number) and time.monotonic() < deadline:
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, PAUSE_S[1])

    @property
    def _open(self) -> Transactional:
        assert self._program is not None, "the target is not open"
        return self._program
