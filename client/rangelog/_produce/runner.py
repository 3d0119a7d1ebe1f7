"""What a producer's core decides, done: batches go out over links, ended shards are asked, the map is looked at.

What holds: an effect is performed once, in order. Each batch counts in the client's append budget from the first time that
it is sent until it has an outcome. After `end` nothing is sent and nothing is called any more.
"""

from __future__ import annotations

import asyncio
import time
from bisect import bisect_left
from collections.abc import Coroutine, Iterable, Sequence
from typing import Any, Protocol, TypeVar

from google.protobuf.message import DecodeError

from rangelog._append.within import within
from rangelog._produce.core import WINDOW, AskFor, ProducerCore, RecordsAcked, RecordsRefused, SendBatch
from rangelog._produce.shard_link import OwnerAccess, ShardLink, ends_producer
from rangelog._produce.topic_map import TopicMap
from rangelog._topics.shard_errors import of_shard
from rangelog_core import tracing
from rangelog_core.errors import (
    AppendTimeout,
    InternalError,
    InvalidArgument,
    ProtocolViolation,
    RangelogError,
    StorageFull,
    WriterClosed,
)
from rangelog_core.frame import Opcode
from rangelog_core.ids import ReplicaId
from rangelog_core.key_hash import key_position
from rangelog_core.net.budgets import AppendBudget
from rangelog_core.record import BytesLike
from rangelog_proto.v1 import data_pb2

_T = TypeVar("_T")
FIND_TIMEOUT_S = 5.0
_MANY_BATCHES_IN_FLIGHT = 64
"""Of all on the client's connections, as for writers."""


def date_now() -> int:
    """Return the epoch that a producer with an id of its own begins now: minutes since 1970."""
    return time.time_ns() // 60_000_000_000


class RunnerHost(Protocol):
    """The producer above."""

    def encode(self, epoch: int, sequence: int, orders: Sequence[int]) -> bytes:
        """Return the batch of these records."""

    def acked(self, acked: RecordsAcked) -> None:
        """These records are acked."""

    def refused(self, refused: RecordsRefused) -> None:
        """These records are in no log."""

    def stopped(self, error: RangelogError, certain: Sequence[int]) -> None:
        """The producer ended by itself; records with the `certain` orders are in no log."""


class _Sent:
    """A batch without an outcome."""

    __slots__ = ("orders", "size_bytes", "span", "tries")

    def __init__(self, size_bytes: int, orders: Sequence[int], span: tracing.OpenSpan | None) -> None:
        self.span = span
        self.size_bytes = size_bytes
        self.orders = orders
        self.tries = 1


HOLD_MS_MAX = 30_000
"""No broker holds a producer off for longer at a time."""


class ProducerRunner:
    """One producer's core with all that it acts on."""

    def __init__(
        self,
        core: ProducerCore,
        topic_map: TopicMap,
        access: OwnerAccess,
        budget: AppendBudget,
        host: RunnerHost,
        *,
        producer_id: int,
    ) -> None:
        self.core = core
        self._access = access
        self._map = topic_map
        self._topic = f"{topic_map.topic.namespace}/{topic_map.topic.name}"
        self._budget = budget
        self._host = host
        self._producer_id = producer_id
        self._loop = asyncio.get_running_loop()
        self._links: dict[int, ShardLink] = {}
        self._last_owners: dict[int, ReplicaId] = {}  # of ended shards
        self._sent: dict[tuple[int, int], _Sent] = {}
        self._traced = tracing.is_active()
        self._tasks: set[asyncio.Task[None]] = set()
        self._refreshing: asyncio.Task[None] | None = None
        self._held_until_s: dict[int, float] = {}  # shards for which nothing more is sent, by a quota
        self._all_held_until_s = 0.0
        self.held_s = 0.0
        """For how long quotas have held this producer off in all, and will for what is owed now."""
        self._saw_no_room = False
        self._waits: dict[asyncio.Future[Any], tuple[range, bool]] = {}
        self._ticker: asyncio.TimerHandle | None = None
        self._performing = False
        self.closed = False
        core.mapped(topic_map.version, topic_map.shards)

    # ---- the producer

    def flush(self) -> None:
        """Send what was appended, as far as it may be sent."""
        many = self._budget.batches_in_flight >= _MANY_BATCHES_IN_FLIGHT
        self.core.batches_in_flight_max = 1 if many else WINDOW
        if self.core.is_dated:
            self.core.epoch = date_now()
        self.core.flush()
        self._perform()

    def lacks_owner(self, shard_id: int) -> bool:
        """Whether a shard had no owner when one was last looked for, or one whose range servers have no room."""
        link = self._links.get(shard_id)
        problem = link.problem if link is not None else None
        return problem is not None and (self._links[shard_id].attachment is None or isinstance(problem, StorageFull))

    @property
    def full(self) -> dict[int, RangelogError]:
        """The shards whose range servers have no room, as their owners have said since the last ack, each with the error."""
        if self._saw_no_room:
            problems = {shard_id: link.problem for shard_id, link in self._links.items()}
            full = {each: problem for each, problem in problems.items() if isinstance(problem, StorageFull)}
            self._saw_no_room = bool(full)
            return {each: of_shard(problem, self._topic, each) for each, problem in full.items()}
        return {}

    def check_room(self, keys: Iterable[BytesLike | None], shard: int | None) -> None:
        """Raise StorageFull where the shard of a valid record has no room; without a key it goes to any shard that has."""
        if not (full := self.full):
            return
        for key in keys:
            if shard is not None:
                shards = [shard] if isinstance(shard, int) else []
            elif key is not None:
                shards = [self.core.shard_of(key_position(bytes(key)))]
            else:
                shards = [each.shard_id for each in self.core.current]
            if shards and all(each in full for each in shards):
                raise full[shards[0]].with_outcome(unknown=False)

    async def wait(
        self, future: asyncio.Future[_T], orders: range, limit_s: float, *, outcome_unknown: bool, paced: bool
    ) -> _T:
        """Wait for a future that has no other waiter. `orders`: of the records whose outcomes it waits for.

        `paced`: for the time longer for which quotas hold this producer off. Raises AppendTimeout, StorageFull.
        """

        def late() -> RangelogError:
            problem = self.problem or "no broker answers, or too few range servers"
            told = f"not acked within {limit_s:g} s ({problem}). The producer retries; see `pdctl broker list`"
            return AppendTimeout(told, outcome_unknown=outcome_unknown)

        self._waits[future] = orders, outcome_unknown
        self._fail_waits([future])
        try:
            return await within(future, limit_s, late, (lambda: self.held_s) if paced else None)
        finally:
            del self._waits[future]

    def _fail_waits(self, futures: Iterable[asyncio.Future[Any]]) -> None:
        """Fail those that wait for records of shards without room; what was taken of these goes on."""
        for shard_id, error in self.full.items():
            at_shard = self.core.orders_at(shard_id)
            for future in futures:
                orders, outcome_unknown = self._waits[future]
                if bisect_left(at_shard, orders.start) < bisect_left(at_shard, orders.stop) and not future.done():
                    future.set_exception(error.with_outcome(unknown=outcome_unknown))

    @property
    def problem(self) -> str:
        """What was last in the way of an ack; empty if nothing is."""
        problems = [link.problem.message for link in self._links.values() if link.problem is not None]
        return problems[0] if problems else ""

    def close(self) -> None:
        """Stop. Idempotent."""
        self.closed = True
        if self._ticker is not None:
            self._ticker.cancel()
        for link in self._links.values():
            link.close()
        for task in (*self._tasks, *((self._refreshing,) if self._refreshing is not None else ())):
            task.cancel()
        for sent in self._sent.values():
            self._budget.ended(sent.size_bytes)
            if sent.span is not None:
                sent.span.end(WriterClosed("the producer ended before the ack"), tries=sent.tries)
        self._sent.clear()

    def _end(self, error: RangelogError, certain: Sequence[int] = ()) -> None:
        """Nothing more can be sent."""
        if self.closed:
            return
        self.core.fenced(error)
        self.close()
        self._host.stopped(error, [*self.core.waiting(), *certain])

    # ---- effects

    def _perform(self) -> None:
        if self._performing:
            return
        self._performing = True
        core = self.core
        try:
            while not self.closed and (effects := core.effects()):
                for effect in effects:
                    if isinstance(effect, SendBatch):
                        self._send(effect)
                    elif isinstance(effect, RecordsAcked):
                        self._host.acked(effect)
                    elif isinstance(effect, AskFor):
                        self.spawn(self._ask(effect, *core.identity(*effect)))
                    else:
                        self._host.refused(effect)
        finally:
            self._performing = False
        for shard_id in core.take_wanted() if not self.closed else ():
            self._link(shard_id).want()

    def _link(self, shard_id: int) -> ShardLink:
        link = self._links.get(shard_id)
        if link is None:
            shard = (self._map.topic.topic_id, shard_id)
            link = self._links[shard_id] = ShardLink(shard, self._access, self)
        return link

    def _send(self, batch: SendBatch) -> None:
        data = self._host.encode(*self.core.identity(batch.shard_id, batch.sequence), batch.orders)
        sent = self._sent.get(batch[:2])
        if sent is None:
            self._sent[batch[:2]] = _Sent(len(data), batch.orders, self._span(batch, len(data)))
            self._budget.sent(len(data))
        else:
            sent.tries += 1
        self._link(batch.shard_id).send(batch.sequence, data)
        if self._ticker is None:
            self._ticker = self._loop.call_later(self._access.pace.tick_s, self._tick)

    def _span(self, batch: SendBatch, size_bytes: int) -> tracing.OpenSpan | None:
        if not self._traced:
            return None
        return tracing.begin(
            "rangelog.produce", topic=self._map.topic.name, shard_id=batch.shard_id, records=len(batch.orders),
            size_bytes=size_bytes,
        )  # fmt: skip

    def _has_outcome(self, shard_id: int, sequence: int) -> None:
        sent = self._sent.pop((shard_id, sequence), None)
        if sent is not None:
            self._budget.ended(sent.size_bytes)
            if sent.span is not None:
                sent.span.end(tries=sent.tries)

    def _tick(self) -> None:
        self._ticker = self._loop.call_later(self._access.pace.tick_s, self._tick) if self._sent else None
        for link in list(self._links.values()):
            link.tick()

    # ---- links

    def linked(self, shard_id: int) -> None:
        """See LinkHost."""
        self.core.connected(shard_id)
        self._perform()

    def unlinked(self, shard_id: int) -> None:
        """See LinkHost."""
        self.core.disconnected(shard_id)
        self._perform()

    def batch_acked(self, shard_id: int, sequence: int, offset: int) -> None:
        """See LinkHost."""
        if not self.closed:
            self._has_outcome(shard_id, sequence)
            self.core.acked(shard_id, sequence, offset)
            self._perform()

    def held_off(self, shard_id: int, hold_ms: int) -> None:
        """See LinkHost."""
        if self.closed:
            return
        now_s = self._loop.time()
        until_s = max(self._held_until_s.get(shard_id, 0.0), now_s + min(hold_ms, HOLD_MS_MAX) / 1000)
        self.held_s += max(0.0, until_s - max(now_s, self._all_held_until_s))
        self._all_held_until_s = max(self._all_held_until_s, until_s)
        if shard_id not in self._held_until_s:
            self._loop.call_at(until_s, self._hold_over, shard_id)
        self._held_until_s[shard_id] = until_s
        self.core.hold(shard_id)

    def _hold_over(self, shard_id: int) -> None:
        until_s = self._held_until_s[shard_id]
        if until_s > self._loop.time() and not self.closed:
            self._loop.call_at(until_s, self._hold_over, shard_id)
            return
        del self._held_until_s[shard_id]
        if not self.closed:
            self.core.release(shard_id)
            self._perform()

    def batches_missing(self, shard_id: int, sequence: int) -> None:
        """See LinkHost."""
        self.core.missing(shard_id, sequence)
        self._perform()

    def begin_anew(self, shard_id: int, sequence: int, epoch: int) -> bool:
        """See LinkHost."""
        done = not self.closed and self.core.begin_anew(shard_id, sequence, epoch)
        self._perform()
        return done

    def no_room(self, shard_id: int) -> None:
        """See LinkHost."""
        self._saw_no_room = True
        self._fail_waits(self._waits)

    def refused_for_good(self, error: RangelogError, shard_id: int, sequence: int | None) -> None:
        """See LinkHost."""
        sent = self._sent.get((shard_id, sequence)) if sequence is not None else None
        certain = sent is not None and sent.tries == 1 and isinstance(error, InvalidArgument)
        self._end(error, sent.orders if sent is not None and certain else ())

    def is_current(self, shard_id: int) -> bool:
        """See LinkHost."""
        return not self.closed and self.core.is_current(shard_id)

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """See LinkHost."""
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._end(error if isinstance(error, RangelogError) else InternalError(f"a producer failed: {error!r}"))

    # ---- the map

    async def refresh_map(self) -> None:
        """See LinkHost. Callers at the same time share a look."""
        if self._refreshing is None:
            self._refreshing = self._loop.create_task(self._refresh())
            self._refreshing.add_done_callback(self._refreshed)
        await asyncio.shield(self._refreshing)

    def _refreshed(self, task: asyncio.Task[None]) -> None:
        self._refreshing = None
        if not task.cancelled():
            task.exception()  # its callers have it

    async def _refresh(self) -> None:
        if not await self._map.refresh(keep_ended=self.core.in_doubt) or self.closed:
            return
        if not self.core.in_doubt:
            self._last_owners.clear()
        self.core.mapped(self._map.version, self._map.shards)
        for shard_id in [each for each in self._links if not self.core.is_current(each)]:
            link = self._links.pop(shard_id)
            link.close()
            if link.last_owner is not None:
                self._last_owners[shard_id] = link.last_owner
        self._perform()

    # ---- batches in doubt

    async def _ask(self, batch: AskFor, epoch: int, sequence: int) -> None:
        """Ask any broker whether an ended shard holds a batch: the last owner first, which need not read the log for it."""
        request = data_pb2.FindBatch(
            topic_id=self._map.topic.topic_id,
            shard_id=batch.shard_id,
            producer_id=self._producer_id,
            producer_epoch=epoch,
            sequence=sequence,
            staged=self._access.wire.staged,
        ).SerializeToString()
        attempt = 0
        while True:
            try:
                connection = await self._access.owners.any_broker(attempt, self._last_owners.get(batch.shard_id))
                frame = await connection.request(Opcode.FIND_BATCH, request, timeout_s=FIND_TIMEOUT_S)
                reply = data_pb2.FindBatchReply.FromString(frame.message)
                break
            except (RangelogError, DecodeError) as error:
                if (
                    isinstance(error, RangelogError)
                    and ends_producer(error)
                    and not isinstance(error, ProtocolViolation)
                ):
                    self._end(error)
                    return
            attempt += 1
            await asyncio.sleep(self._access.pace.pause_s(attempt))
        if not self.closed:
            if reply.found:
                self._access.wire.acked(self._map.topic.topic_id, batch.shard_id)
            self._has_outcome(batch.shard_id, batch.sequence)
            self.core.answered(batch.shard_id, batch.sequence, reply.offset if reply.found else None)
            self._perform()
