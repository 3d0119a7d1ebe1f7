"""A shard that this broker owns: the core over the writer of its stream.

What holds:
- Opening is fence, then read to the end that the fence settled, then serve: the table holds what any former owner was acked.
  The side log is opened between the claim of the shard and a proof that nobody has claimed it since.
- A batch is answered once it is acked, and so is each retry of it. Whatever ends the shard leaves the outcome of what is in
  flight unknown, and the error that the producers get excludes nothing.
- Once `finish` has begun no batch is taken; its end is what the placement driver has committed when it returns.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable

from rangelog import Ack, Client, Writer
from rangelog.errors import (
    InternalError,
    InvalidArgument,
    NotOwner,
    OutcomeUnknown,
    OutOfOrder,
    Overloaded,
    ProducerFenced,
    RangelogError,
    RequestTimeout,
    StorageFull,
    UnsupportedVersion,
)
from rangelog_broker.shards.finished import FinishedShards
from rangelog_broker.shards.owner import InFlight, ShardOwner
from rangelog_broker.shards.producer_table import Found, Standing
from rangelog_broker.shards.reply import Reply, SubmissionReply
from rangelog_broker.shards.restore import fold_log, restored_offset_of
from rangelog_broker.shards.settling import settle
from rangelog_broker.shards.shard_snapshots import ShardSnapshots
from rangelog_broker.shards.side_log import SideLog
from rangelog_broker.shards.staging import TransactionKey
from rangelog_broker.shards.state import ShardState
from rangelog_broker.shards.tail import FetchMemory, Tail
from rangelog_broker.shards.transactional import STAGED_BYTES_MAX, ShardTransactions
from rangelog_core.batch import BatchHeader, peek_header, with_extension
from rangelog_core.batch_extension import (
    MergedFrom,
    Producer,
    Submission,
    Tag,
    encode_extension,
    encode_merged,
    is_dated,
)
from rangelog_core.ids import shard_stream_name
from rangelog_core.limits import MIB
from rangelog_core.net.pd_client import PdClient
from rangelog_core.versions import LEVEL_SUBMISSIONS
from rangelog_proto.v1 import topic_pb2

OPEN_TIMEOUT_S = 30.0
INFLIGHT_BYTES_MAX = 16 * MIB
"""Of one shard; beyond it batches are refused until others are acked."""
PROVE_EVERY_S = 1.0
"""An owner that misses batches asks so often at most whether there is a later one."""

_log = logging.getLogger("rangelog.broker")


_InFlight = tuple[int, int, int, tuple[BatchHeader, bytes] | None]
"""A batch: its offset, end, size in bytes, and what a tail will keep of it."""


class Load:
    """What a shard has taken since it was opened: the rates follow from the differences."""

    __slots__ = ("bytes", "events")

    def __init__(self) -> None:
        self.events = 0
        self.bytes = 0


class OwnedShard:
    """A shard under the epoch of this owner. Make it with `open`; for one event loop."""

    def __init__(self, client: Client, topics: PdClient, row: topic_pb2.Shard) -> None:
        self.key = (row.topic_id, row.shard_id)
        self.row = row
        self.load = Load()
        self.closed: RangelogError | None = None
        self.on_closed: Callable[[OwnedShard], object] = lambda shard: None
        self._client = client
        self._side = SideLog(client, topics, *self.key)
        self._writer: Writer
        self._owner: ShardOwner
        self._closing = False
        self._in_flight_bytes = 0
        self._order: deque[_InFlight] = deque()
        self._waiting: dict[int, list[tuple[Reply, int]]] = {}  # by offset
        self._snapshots = ShardSnapshots(self._name, self._side)
        self.broker_version: Callable[[], int] = lambda: 0
        """What every broker that may open the shard can read."""
        self._latest_date = _latest_date()
        self._proof: asyncio.Task[None] | None = None
        self._prove_again_s = 0.0
        self.transactions: ShardTransactions
        self._tail: Tail | None = None

    # ---- life

    @classmethod
    async def open(
        cls,
        client: Client,
        topics: PdClient,
        finished: FinishedShards,
        row: topic_pb2.Shard,
        *,
        timeout_s: float = OPEN_TIMEOUT_S,
    ) -> OwnedShard:
        """Fence the former owner, restore the table of producers, and become the owner.

        Raises:
            StreamSealed: The shard has ended.
            StreamNotFound, WriterFenced, SealBlocked, NoPlacement, Unavailable: As a writer's `open`.
            RequestTimeout: The log was not read in time.
            Corruption: The log or the side log does not decode.
        """
        shard = cls(client, topics, row)
        writer = client.internal.writer(shard._name, inflight_bytes_max=INFLIGHT_BYTES_MAX + STAGED_BYTES_MAX)
        shard._writer = writer
        writer.on_no_room = shard._refuse_waiting
        try:
            async with asyncio.timeout(timeout_s):
                await writer.claim()  # an earlier owner opens no side log any more that it has not opened by now
                async with asyncio.TaskGroup() as group:
                    group.create_task(writer.open())
                    group.create_task(shard._side.open())
                    first = group.create_task(finished.first_state(row))
                if shard._side.is_open:
                    await shard._prove()  # a later owner may have opened it before: then this one stages nothing
                await shard._restore(first.result())
                await shard._finish_run(finished)
        except BaseException as error:
            await shard._abandon()
            if isinstance(error, TimeoutError):
                raise RequestTimeout(f"shard {shard._name} was not restored within {timeout_s:g} s") from error
            if isinstance(error, BaseExceptionGroup):
                raise _first(error) from error
            raise
        return shard

    async def _restore(self, first: ShardState) -> None:
        end = self._writer.next_offset
        snapshot = self._side.snapshot
        if snapshot is not None:
            state, start = ShardState.restore(snapshot.pieces), snapshot.offset
        else:
            state, start = first, 0
        cut = restored_offset_of(self.row)
        await fold_log(self._client, state, self.key, self._writer.stream_id, start, end, cut, self._writer)
        self._owner = ShardOwner(state, end, self.key[1])
        self._snapshots.begin(self._owner, self.epoch)
        self.transactions = ShardTransactions(
            self._name,
            self.key[1],
            self._side,
            state.merges,
            self._append_merged,
            epoch=self._writer.epoch,
            lost=self._end,
            prove=self._prove_or_end,
            missed=self._missed,
        )
        for key, _ in self._side.staging.transactions():
            following = state.merges.next_sequence(key, self.key[1])
            if following is None or all(each.sequence < following for each in self._side.staging.batches(key)):
                self._side.staging.drop(key)  # it is merged, and acked: the log shows it

    async def _finish_run(self, finished: FinishedShards) -> None:
        """Append what is left of a run inside which a former owner died, before anything else."""
        last = self._owner.state.merges.open_run
        if last is None:
            return
        key = TransactionKey(last.producer_id, last.number)
        if last.shard_id == self.key[1]:
            self.transactions.finish_run(self._side.staging.batches(key))
        else:
            self.transactions.finish_run(await finished.staged_for(self.row, last.shard_id, key))

    @property
    def _name(self) -> str:
        return shard_stream_name(*self.key)

    @property
    def epoch(self) -> int:
        """The epoch of this owner."""
        return self._writer.epoch

    @property
    def takes_batches(self) -> bool:
        """Whether it is neither closed nor being ended."""
        return not self._closing and self.closed is None

    @property
    def confirm_offset(self) -> int:
        """All batches below it are in the table."""
        return self._owner.confirm_offset

    @property
    def state(self) -> ShardState:
        """The state of the acked batches."""
        return self._owner.state

    async def close(self) -> None:
        """Take no more, and leave the shard to the next owner; what is in flight may still be acked. Idempotent."""
        self._end(NotOwner(f"shard {self._name} is handed over"))
        await self._abandon()

    async def finish(self, *, timeout_s: float = OPEN_TIMEOUT_S) -> topic_pb2.ShardEnd:
        """Take no more, wait for the acks of what is in flight, and seal the stream; return how it ended.

        The shard stays without an owner: until its end is committed, another `open` goes on with it. Raises the errors of a
        takeover; WriterFenced where another broker owns it.
        """
        self._closing = True
        try:
            if self.closed is None:
                await self._writer.flush(timeout_s=timeout_s)
        except RangelogError as error:
            _log.info("shard %s ends with batches in doubt: %s", self._name, error)
        self._end(NotOwner(f"shard {self._name} is at its end: its successors follow"))
        await self._abandon()
        return await settle(self._client, self.row, timeout_s=timeout_s)

    async def merge(self, key: TransactionKey, shard_id: int, finished: FinishedShards) -> None:
        """Merge what a committed transaction has staged here, or at a shard that has ended and that this one follows.

        Raises NotOwner, Unavailable: ask again.
        """
        if self._closing or self.closed is not None:
            raise NotOwner(f"shard {self._name} is not owned here any more")
        if shard_id == self.key[1]:
            await self.transactions.merge_own(key)
        else:
            await self.transactions.merge(key, shard_id, await finished.staged_for(self.row, shard_id, key))

    # ---- fetches

    def keep_tail(self, memory: FetchMemory) -> Tail:
        """Return the tail, which is kept from now on: up to `drop_tail`, or the end of this owner."""
        if self._tail is None:
            self._tail = Tail(memory, self._owner.confirm_offset)
            if self.closed is not None:
                self._tail.close()
        return self._tail

    def drop_tail(self) -> None:
        """Keep the tail no longer. Idempotent."""
        tail, self._tail = self._tail, None
        if tail is not None:
            tail.close()

    async def prove(self) -> None:
        """Return if no other broker has opened the shard since this one did. Raises NotOwner, Unavailable."""
        await self._prove_or_end()

    async def _prove(self) -> None:
        """Return if no other broker has opened the shard since this one did. Raises NotOwner, Unavailable."""
        stream = await self._client.metadata.describe_stream(self._name)
        if stream.epoch != self._writer.epoch:
            raise NotOwner(f"epoch {stream.epoch} owns shard {self._name}")

    async def _prove_or_end(self) -> None:
        try:
            await self._prove()
        except NotOwner as error:
            self._end(error)
            raise

    def _missed(self) -> None:
        """Batches are missing here: a later owner may hold them, and nothing in the log of this owner would show it."""
        now_s = asyncio.get_running_loop().time()
        if self._proof is None and now_s >= self._prove_again_s:
            self._prove_again_s = now_s + PROVE_EVERY_S
            self._proof = asyncio.create_task(self._prove_or_end())
            self._proof.add_done_callback(self._proved)

    def _proved(self, task: asyncio.Task[None]) -> None:
        self._proof = None
        if not task.cancelled():
            task.exception()  # deposed: the shard has ended; unknown: the next one that is missed asks again

    async def _abandon(self) -> None:
        if self._proof is not None:
            self._proof.cancel()
        self._snapshots.close()
        await self._writer.close(flush=False)
        await self._side.close()

    def _end(self, error: RangelogError) -> None:
        if self.closed is not None:
            return
        self.closed = error
        self.transactions.close(error)
        self._order.clear()
        self.drop_tail()
        waiting, self._waiting = self._waiting, {}
        unknown = error.with_outcome(unknown=True)
        for replies in waiting.values():
            for reply, request_id in replies:
                reply.refused(request_id, unknown)
        self.on_closed(self)

    # ---- batches

    def produce(
        self, header: BatchHeader, origin: Producer | Submission, data: bytes, reply: Reply, request_id: int
    ) -> None:
        """Take a checked batch; `reply` gets its outcome.

        Raises:
            NotOwner: The shard is closed.
            Overloaded: Too much is in flight, or was submitted.
            OutOfOrder: Batches of the producer before it are missing.
            ProducerFenced: A later instance of the producer was here, or the producer was silent for too long.
            OutcomeUnknown: It was acked before, too long ago to say where.
            PreconditionFailed: Other records were submitted under the name.
            StorageFull: It is new, and the range servers have no room.
            InvalidArgument: The producer's epoch is a date that is more than a year ahead.
            UnsupportedVersion: A broker is of a version that knows no submissions.
        """
        if self._closing or self.closed is not None:
            raise NotOwner(f"shard {self._name} is not owned here any more")
        size_bytes = len(data)
        if self._in_flight_bytes + size_bytes > INFLIGHT_BYTES_MAX:
            raise Overloaded(f"shard {self._name} has {self._in_flight_bytes} bytes in flight")
        if isinstance(origin, Submission):
            self._check_submission()
            reply = SubmissionReply(reply, self._owner.state.submissions, origin)
        elif origin.epoch > self._latest_date and is_dated(origin.producer_id, origin.epoch):
            raise InvalidArgument(
                "the producer began more than a year from now: set its machine's clock, or the broker's"
            )
        try:
            self._writer.check_room()
        except StorageFull:
            if self._owner.is_new(origin):
                raise
        found = self._owner.offer(origin, header.count)
        if isinstance(found, InFlight):
            self._waiting[found.offset].append((reply, request_id))
        elif isinstance(found, list):
            reply.placed(request_id, found)
        elif found.standing is Standing.NEXT:
            self._append(found.offset, found.end_offset, header, data, reply, request_id)
            self.load.events += header.count
            self.load.bytes += size_bytes
        elif found.standing is Standing.HELD:
            reply.acked(request_id, found.offset)
        else:
            self._refuse(found)

    def _check_submission(self) -> None:
        """Raise UnsupportedVersion while a broker that knows no submissions may open the shard; forget what is over."""
        if self.broker_version() < LEVEL_SUBMISSIONS:
            raise UnsupportedVersion("a broker of an earlier version takes no submissions: upgrade all brokers")
        self._owner.state.submissions.forget(time.time_ns() // 1_000_000, self._owner.confirm_offset)

    def _refuse(self, found: Found) -> None:
        """Raise the error of a batch that is not taken."""
        if found.standing is Standing.GAP:
            self._missed()
            raise OutOfOrder("batches of the producer before this one are missing")
        if found.standing is Standing.FENCED:
            raise ProducerFenced(
                f"epoch {found.epoch} of the producer was here, or it was silent for long", epoch=found.epoch
            )
        raise OutcomeUnknown("the batch is there; it was acked too long ago to say where")

    def _refuse_waiting(self, error: StorageFull) -> None:
        """Nothing in flight is acked until there is room: say so. Who sends it again waits for its ack."""
        for offset, replies in self._waiting.items():
            self._waiting[offset] = []
            for reply, request_id in replies:
                reply.refused(request_id, error)

    def _append(
        self, offset: int, end_offset: int, header: BatchHeader, data: bytes, reply: Reply, request_id: int
    ) -> None:
        try:
            if self._writer.next_offset != offset:
                raise InternalError(f"a batch for {offset} of {self._name} would be at {self._writer.next_offset}")
            acked = self._writer.submit_batch(data, header)
        except RangelogError as error:
            self._end(NotOwner(f"shard {self._name} lost its writer: {error.message}"))
            raise NotOwner(error.message, outcome_unknown=True) from error
        self._in_flight_bytes += len(data)
        self._order.append((offset, end_offset, len(data), (header, data) if self._tail is not None else None))
        self._waiting[offset] = [(reply, request_id)]
        acked.add_done_callback(self._acked)

    def _append_merged(self, place: MergedFrom, data: bytes) -> asyncio.Future[Ack]:
        """Append a batch of a run; see transactional.Append."""
        if self.closed is not None:
            raise self.closed
        merged = with_extension(data, encode_extension({Tag.TRANSACTION: encode_merged(place)}))
        header = peek_header(merged)
        count = header.count
        try:
            acked = self._writer.submit_batch(merged, header)
        except RangelogError as error:
            self._end(NotOwner(f"shard {self._name} lost its writer: {error.message}"))
            raise NotOwner(error.message, outcome_unknown=True) from error
        offset = self._owner.merge(place, count)
        self._in_flight_bytes += len(merged)
        kept = (header, merged) if self._tail is not None else None
        self._order.append((offset, offset + count, len(merged), kept))
        self._waiting[offset] = []
        acked.add_done_callback(self._acked)
        return acked

    def _acked(self, future: asyncio.Future[Ack]) -> None:
        if self.closed is not None or future.cancelled():
            if not future.cancelled():
                future.exception()
            return
        error = future.exception()
        if error is not None:
            _log.info("shard %s lost its writer: %s", self._name, error)
            self._end(NotOwner(f"shard {self._name} lost its writer: {error}"))
            return
        try:
            confirm_offset = self._writer.confirm_offset
        except RangelogError as stopped:  # since this ack came
            self._end(NotOwner(f"shard {self._name} lost its writer: {stopped.message}"))
            return
        if confirm_offset <= self._owner.confirm_offset:
            return
        try:
            self._owner.confirmed(confirm_offset)
        except RangelogError as defect:
            _log.exception("shard %s cannot go on", self._name)
            self._end(NotOwner(f"shard {self._name} cannot go on: {defect.message}"))
            return
        order, waiting, tail, due = self._order, self._waiting, self._tail, False
        while order and order[0][1] <= confirm_offset:
            offset, end_offset, size_bytes, kept = order.popleft()
            self._in_flight_bytes -= size_bytes
            due = self._snapshots.count(size_bytes)
            for reply, request_id in waiting.pop(offset):
                reply.acked(request_id, offset)
            if tail is not None:
                tail.acked(offset, end_offset, kept)
        if tail is not None:
            tail.on_acked()
        if due:
            self._start_snapshot()

    # ---- snapshots

    def _start_snapshot(self) -> None:
        self._latest_date = _latest_date()
        self._snapshots.start(self.broker_version())

    @property
    def covered_offset(self) -> int:
        """All batches below it are in a snapshot that is acked."""
        return self._snapshots.covered_offset

    def cover(self, offset: int) -> None:
        """Make a snapshot reach an acked offset: one is started unless one is under way."""
        if self.closed is None and self.covered_offset < offset <= self._owner.confirm_offset:
            self._start_snapshot()

    async def settle_snapshot(self) -> None:
        """Take a snapshot now and wait for it: a shard that is about to end leaves little to read."""
        if self._owner.confirm_offset and self.closed is None:
            self._start_snapshot()
        await self._snapshots.settled()


def _latest_date() -> int:
    """Return the latest date that a producer may bring: one far ahead would make all others begin anew, with a later one."""
    return time.time_ns() // 60_000_000_000 + 366 * 24 * 60


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the error of a group that says most: one of ours if there is any."""
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            return _first(error)
        if isinstance(error, RangelogError):
            return error
    return group.exceptions[0]
