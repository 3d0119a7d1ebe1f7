"""The transactional side of an owned shard: stages batches, and merges what was decided.

What holds (with staging.py):
- A batch is answered once it is in the side log for good. Nothing is staged at a shard that is ending.
- The first batch of an instance of a program is staged once its coordinator has said that it gave that producer id and epoch:
  the sender names them, and a higher epoch would fence the program for good.
- A run is appended in one piece: nothing else gets between its batches. It is reported merged once its last batch is acked.
- A run that a former owner has begun is finished before anything else is appended.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import partial
from typing import Protocol

from rangelog import Ack
from rangelog.errors import Corruption, InternalError, NotOwner, OutOfOrder, Overloaded, ProducerFenced, RangelogError
from rangelog_broker.shards.producer_table import Standing
from rangelog_broker.shards.side_log import SideLog
from rangelog_broker.shards.staging import Merges, StagedBatch, TransactionKey, run_of
from rangelog_core.batch_extension import MergedFrom, Producer
from rangelog_core.limits import MIB

INSTANCES_MAX = 10_000
"""That are known to be given by their coordinators; another one is asked for again."""
QUEUED_MAX = 1_000
"""Batches of one shard that wait for its side log, and as many that wait for coordinators."""
STAGED_BYTES_MAX = 64 * MIB
"""Of one shard: what is staged is kept in memory until its transaction is decided."""


class StageReply(Protocol):
    """Who waits until a batch is staged."""

    def acked(self, request_id: int, offset: int) -> None:
        """The batch is staged; the offset says nothing."""

    def refused(self, request_id: int, error: RangelogError) -> None:
        """The batch has no outcome, or was refused."""


Append = Callable[[MergedFrom, bytes], asyncio.Future[Ack]]
"""Appends a merged batch to the shard; raises NotOwner once it is closed."""


Verify = Callable[[str, Producer, int], Awaitable[None]]
"""Raises unless a transactional id's coordinator began that transaction for that producer."""
Instance = tuple[str, int, int]
"""Transactional id, producer id, epoch."""


_Queued = tuple[Callable[[], None], StageReply, int]
_log = logging.getLogger("rangelog.broker")


class ShardTransactions:
    """See the module. For one event loop."""

    def __init__(
        self,
        name: str,
        shard_id: int,
        side: SideLog,
        merges: Merges,
        append: Append,
        *,
        epoch: int,
        lost: Callable[[RangelogError], None],
        prove: Callable[[], Awaitable[None]],
        missed: Callable[[], None],
    ) -> None:
        """`epoch`: of the shard's owner. `lost` gets the error that ends the shard, as its side log is another's by now.

        `prove` raises unless that epoch is still the shard's. `missed`: batches before one that came are not staged here.
        """
        self._name = name
        self._shard_id = shard_id
        self._side = side
        self._merges = merges
        self._append = append
        self._epoch = epoch
        self._lost = lost
        self._prove = prove
        self._missed = missed
        self._waiting: dict[Producer, list[tuple[StageReply, int]]] = {}
        self._merging: dict[tuple[TransactionKey, int], asyncio.Task[None]] = {}
        self._queued: list[Callable[[], None]] = []  # while the side log is created
        self._creating: asyncio.Task[None] | None = None
        side.on_no_room = self._refuse_waiting
        self.verify: Verify | None = None
        """None: there is no coordinator to ask."""
        self._given: dict[Instance, None] = {}
        self._verifying: dict[Instance, list[_Queued]] = {}
        self._asking: set[asyncio.Task[None]] = set()
        self.closed: RangelogError | None = None
        self.takes_more = True
        """False: the topic is being sealed. What is staged is still merged."""
        self.on_staged: Callable[[], object] = lambda: None
        """Called when something is staged."""

    def staged(self) -> list[tuple[TransactionKey, str]]:
        """Return the transactions that have staged something here, with their transactional ids."""
        return self._side.staging.transactions()

    def close(self, error: RangelogError) -> None:
        """Answer all who wait; what is in flight has no outcome."""
        if self.closed is not None:
            return
        self.closed = error
        if self._creating is not None:
            self._creating.cancel()
        for task in self._asking:
            task.cancel()
        verifying, self._verifying = self._verifying, {}
        for queued in verifying.values():
            for _, reply, request_id in queued:
                reply.refused(request_id, error)
        waiting, self._waiting = self._waiting, {}
        unknown = error.with_outcome(unknown=True)
        for replies in waiting.values():
            for reply, request_id in replies:
                reply.refused(request_id, unknown)

    # ---- staging

    def stage(
        self, number: int, name: str, producer: Producer, data: bytes, reply: StageReply, request_id: int
    ) -> None:
        """Stage a batch of a producer's transaction `number`; `reply` gets its outcome.

        Raises NotOwner, OutOfOrder, Overloaded, ProducerFenced, StorageFull.
        """
        if self.closed is not None:
            raise self.closed
        if not self.takes_more:
            raise NotOwner(f"the topic of shard {self._name} is being sealed")
        again = partial(self._stage_later, number, name, producer, data, reply, request_id)
        instance = (name, producer.producer_id, producer.epoch)
        if self.verify is not None and instance not in self._given:
            self._verify_first(self.verify, instance, number, producer, (again, reply, request_id))
            return
        if not self._side.is_open:
            if len(self._queued) >= QUEUED_MAX:
                raise Overloaded(f"the side log of shard {self._name} is being created")
            self._queued.append(again)
            self._create()
            return
        standing = self._side.staging.offer(producer)
        if standing in (Standing.GAP, Standing.NEXT):
            self._side.check_room()
        if standing is Standing.GAP:
            self._missed()
            raise OutOfOrder("batches of the producer before this one are missing")
        if standing is Standing.FENCED:
            raise ProducerFenced("a later instance of the transactional id was here")
        if standing is Standing.HELD:
            if producer in self._waiting:
                self._waiting[producer].append((reply, request_id))
            else:
                reply.acked(request_id, 0)
            return
        if self._side.staging.size_bytes + len(data) > STAGED_BYTES_MAX:
            raise Overloaded(f"transactions have staged {self._side.staging.size_bytes} bytes at shard {self._name}")
        try:
            future = self._side.stage(number, name, producer, data)
        except Overloaded:
            raise
        except RangelogError as error:  # its writer has heard already that the side log is another's
            self._lost(NotOwner(f"shard {self._name} lost its side log: {error.message}"))
            raise NotOwner(error.message) from error
        self.on_staged()
        self._waiting[producer] = [(reply, request_id)]
        future.add_done_callback(lambda done: self._staged(number, producer, done))

    def _refuse_waiting(self, error: RangelogError) -> None:
        """Nothing in flight is staged until there is room: say so. Who sends it again waits for its ack."""
        for producer, replies in self._waiting.items():
            self._waiting[producer] = []
            for reply, request_id in replies:
                reply.refused(request_id, error)

    def _stage_later(
        self, number: int, name: str, producer: Producer, data: bytes, reply: StageReply, request_id: int
    ) -> None:
        try:
            self.stage(number, name, producer, data, reply, request_id)
        except RangelogError as error:
            reply.refused(request_id, error)

    def _verify_first(
        self, verify: Verify, instance: Instance, number: int, producer: Producer, queued: _Queued
    ) -> None:
        if sum(map(len, self._verifying.values())) >= QUEUED_MAX:
            raise Overloaded(f"{QUEUED_MAX} batches at shard {self._name} wait for coordinators")
        waiting = self._verifying.get(instance)
        if waiting is None:
            waiting = self._verifying[instance] = []
            task = asyncio.create_task(self._verified(verify, instance, number, producer))
            self._asking.add(task)
            task.add_done_callback(self._asking.discard)
        waiting.append(queued)

    async def _verified(self, verify: Verify, instance: Instance, number: int, producer: Producer) -> None:
        refusal: RangelogError | None = None
        try:
            await verify(instance[0], producer, number)
        except RangelogError as error:
            refusal = error
        except Exception:
            _log.exception("the coordinator of %s could not be asked", instance[0])
            refusal = InternalError("the request failed; the broker's log has the details")
        else:
            if len(self._given) >= INSTANCES_MAX:
                del self._given[next(iter(self._given))]
            self._given[instance] = None
        for again, reply, request_id in self._verifying.pop(instance, ()):
            if refusal is None:
                again()
            else:
                reply.refused(request_id, refusal)

    def _create(self) -> None:
        if self._creating is None:
            self._creating = asyncio.create_task(self._side.create(self._epoch))
            self._creating.add_done_callback(self._created)

    def _created(self, task: asyncio.Task[None]) -> None:
        self._creating = None
        queued, self._queued = self._queued, []
        failed = task.cancelled() or task.exception() is not None
        if failed and self.closed is None:
            self._lost(NotOwner(f"the side log of shard {self._name} cannot be created"))
        for each in queued:
            each()

    def _staged(self, number: int, producer: Producer, future: asyncio.Future[Ack]) -> None:
        if future.cancelled() or self.closed is not None:
            return
        if future.exception() is not None:
            self._lost(NotOwner(f"shard {self._name} lost its side log: {future.exception()}"))
            return
        self._side.staging.acked(TransactionKey(producer.producer_id, number), producer.sequence)
        for reply, request_id in self._waiting.pop(producer, ()):
            reply.acked(request_id, 0)

    # ---- merging

    async def merge_own(self, key: TransactionKey) -> None:
        """Merge what a committed transaction has staged here. Raises NotOwner, with an outcome that the log shows."""
        await self.merge(key, self._shard_id, self._side.staging.batches(key))
        self._side.staging.drop(key)

    async def merge(self, key: TransactionKey, shard_id: int, batches: Sequence[StagedBatch]) -> None:
        """Merge what a committed transaction has staged at a shard, as far as the log lacks it; return once it is acked.

        Raises NotOwner: the next owner goes on from what the log shows.
        """
        merging = self._merging.get((key, shard_id))
        if merging is None:
            merging = self._start(key, shard_id, self._merge(key, shard_id, batches))
        await asyncio.shield(merging)

    def _start(self, key: TransactionKey, shard_id: int, work: Coroutine[object, object, None]) -> asyncio.Task[None]:
        """Run the merge of a run; an order that comes meanwhile waits for it."""
        merging = self._merging[key, shard_id] = asyncio.create_task(work)

        def ended(task: asyncio.Task[None]) -> None:
            self._merging.pop((key, shard_id), None)
            if not task.cancelled():
                task.exception()  # whoever waits has it; the shard ends by itself

        merging.add_done_callback(ended)
        return merging

    async def _merge(self, key: TransactionKey, shard_id: int, batches: Sequence[StagedBatch]) -> None:
        following = self._merges.next_sequence(key, shard_id)
        if following is None:
            return
        futures = self._append_run(run_of(key, shard_id, batches, following))
        if futures:
            await futures[-1]
        elif shard_id == self._shard_id and not following:
            await self._prove()  # nothing was staged here as far as this owner knows: it may have been, at the next one

    def finish_run(self, batches: Sequence[StagedBatch]) -> None:
        """Append the rest of the run inside which the log ends. `batches`: of its transaction and staging shard.

        Raises Corruption where they are not the ones that follow.
        """
        last = self._merges.open_run
        assert last is not None
        key = TransactionKey(last.producer_id, last.number)
        run = run_of(key, last.shard_id, batches, last.sequence + 1)
        if len(run) != last.follow:
            raise Corruption(f"{len(run)} batches are left of the run of {last}")
        self._start(key, last.shard_id, _last(self._append_run(run)))

    def _append_run(self, run: Sequence[tuple[MergedFrom, bytes]]) -> list[asyncio.Future[Ack]]:
        if self.closed is not None:
            raise self.closed
        return [self._append(place, data) for place, data in run]

    # ---- by the coordinator's word

    def drop(self, key: TransactionKey) -> None:
        """Forget what an aborted transaction has staged here."""
        if not any(each == key for each, _ in self._merging):
            self._side.staging.drop(key)


async def _last(futures: Sequence[asyncio.Future[Ack]]) -> None:
    await futures[-1]
