"""The producer of a topic: takes records, one after the other, and says where each one is.

Batching follows the batches in flight, as a writer's does: a record is sent with the others of its turn of the loop; while
a shard has five batches without an outcome its records gather. `inflight_bytes_max` bounds the bytes that are sent or
gathered and not acked.

Each batch carries the producer's id, epoch and a number, so a batch that is sent again, to another broker too, is in the
log once. Records of one key are in the log in the order in which they were sent, over splits and merges of shards.

The outcome of a failed send: with `outcome_unknown` the record may be in the log, now or later; otherwise it is not there
and never will be, so it may be sent again.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import TypeVar

from rangelog._append.batch_builder import BATCH_BYTES_MAX, check_append_record
from rangelog._append.pending_appends import PendingAppends
from rangelog._produce.core import ProducerCore, RecordsAcked, RecordsRefused
from rangelog._produce.owner_lookup import OwnerLookup
from rangelog._produce.record_rows import RecordRows, Row, checked_row
from rangelog._produce.runner import ProducerRunner, date_now
from rangelog._produce.shard_link import OwnerAccess, Pace
from rangelog._produce.sticky_shard import StickyShard
from rangelog._produce.time_notes import TimeNotes
from rangelog._produce.topic_map import TopicMap, topic_reference
from rangelog._produce.waiters import ProducerAck, Waiters
from rangelog._produce.wire import ProduceWire, Wire
from rangelog._topics.watermark_calls import WatermarkCalls
from rangelog_core.batch_extension import OWN_IDS, Producer, encode_producer
from rangelog_core.errors import (
    InvalidArgument,
    Overloaded,
    RangelogError,
    WriterClosed,
)
from rangelog_core.key_hash import key_position
from rangelog_core.limits import BATCH_RECORDS_MAX, INFLIGHT_BYTES_MAX
from rangelog_core.name_errors import sealed_topic
from rangelog_core.net.budgets import AppendBudget
from rangelog_core.net.pd_client import PdClient
from rangelog_core.record import AppendRecord, BytesLike, meant_as_ms
from rangelog_core.topic_kinds import check_kind
from rangelog_proto.v1 import topic_pb2

_T = TypeVar("_T")


class TopicProducer:
    """A producer of a topic, one of any number. Make it with `client.producer(name)` and use it with `async with`.

    Example:
        ```python
        async with client.producer("shop/orders") as producer:
            ack = await producer.send(b"first", key=b"UA")
            print("durable in shard", ack.shard, "at offset", ack.offset)
            for value in values:
                producer.send_nowait(value)
                await producer.ready()
            await producer.flush()
        ```
    """

    def __init__(
        self,
        topics: PdClient,
        owners: OwnerLookup,
        budget: AppendBudget,
        topic: str,
        *,
        producer_id: int | None,
        producer_epoch: int,
        append_timeout_s: float,
        open_timeout_s: float,
        inflight_bytes_max: int = INFLIGHT_BYTES_MAX,
        pace: Pace | None = None,
        wire: Wire | None = None,
        watermarks: WatermarkCalls | None = None,
    ) -> None:
        """`pace`: other pauses than the usual ones, for tests. `wire`: of a producer whose records are staged.

        `watermarks`: what notes of times go to; None: this producer notes none.
        """
        self.topic = topic
        self._map = TopicMap(topics, topic_reference(topic))
        self._access = OwnerAccess(owners, pace or Pace(), wire or ProduceWire())
        self.producer_id = OWN_IDS | secrets.randbits(63) if producer_id is None else producer_id
        encode_producer(Producer(self.producer_id, producer_epoch, 0))
        self.producer_epoch = date_now() if producer_id is None else producer_epoch
        self._notes: TimeNotes | None = None
        if watermarks is not None:
            self._notes = TimeNotes(watermarks, self.producer_id, self.producer_epoch, self._all_settled)
        self._open_timeout_s = open_timeout_s
        self._pending = PendingAppends(budget, append_timeout_s=append_timeout_s, inflight_bytes_max=inflight_bytes_max)
        self._core = ProducerCore(
            batch_bytes_max=BATCH_BYTES_MAX, batch_records_max=BATCH_RECORDS_MAX,
            epoch=self.producer_epoch, dated=producer_id is None, topic=self._map.name)  # fmt: skip
        self._records = RecordRows()
        self._waiters = Waiters()
        self._runner: ProducerRunner | None = None
        self._sticky: StickyShard
        self._gathered_bytes = 0  # since the last flush of the core
        self._flush_due = False
        self.on_closed: Callable[[TopicProducer], object] = lambda _: None

    # ---- life

    async def __aenter__(self) -> TopicProducer:
        await self.open()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        await self.close(flush=kind is None)

    async def open(self) -> None:
        """Look the topic and its shards up. Connections to brokers are made when they are needed.

        Raises:
            TopicNotFound: The topic does not exist.
            TopicStateForbids: The topic is sealed.
            TopicKindForbids: It is a table.
            Unavailable: The placement driver does not answer in time.
        """
        if self._pending.closed or self._runner is not None:
            raise WriterClosed("a producer is opened once; make another one")
        await self._map.load(self._open_timeout_s)
        check_kind(self._map.topic, topic_pb2.TOPIC_KIND_RECORDS)
        if not self._map.shards:
            raise sealed_topic(self._map.name)
        self._runner = ProducerRunner(
            self._core, self._map, self._access, self._pending.budget, self, producer_id=self.producer_id
        )
        self._sticky = StickyShard(self._core, self._runner.lacks_owner, BATCH_BYTES_MAX)
        self._pending.open()

    async def close(self, *, flush: bool = True, timeout_s: float | None = None) -> None:
        """Flush, unless `flush` is False, and close. Idempotent; the producer is closed even when an error is raised.

        Args:
            flush: Wait for the acks of all records first.
            timeout_s: Limit of the flush in seconds; None: the producer's `append_timeout_s`.

        Raises:
            RangelogError: An error of `flush`. Also the error that ended the producer, if it ended records without a waiter.
        """
        pending = self._pending
        if pending.closed:
            return
        try:
            if flush and pending.accepting:
                await self.flush(timeout_s=timeout_s)
            elif flush and pending.untold is not None:
                raise pending.untold
        finally:
            pending.close()
            certain = self._core.waiting()
            if self._runner is not None:
                self._runner.close()
            self.on_closed(self)
            self._fail(
                WriterClosed("the producer was closed before this record was acked: read whether it is in the log"),
                WriterClosed("the producer was closed before this record was sent: it is not in the log"),
                certain,
            )
            if self._notes is not None:
                await self._notes.close(all_settled=not pending.left_unknown)

    # ---- records

    @property
    def closed(self) -> bool:
        """Whether the producer is closed."""
        return self._pending.closed

    @property
    def topic_id(self) -> int:
        """The id of the topic, which no other one ever has. Raises WriterClosed before `open`."""
        self._running()
        return self._map.topic.topic_id

    @property
    def shards(self) -> Sequence[int]:
        """The ids of the current shards, by key, as far as the producer knows. Raises WriterClosed before `open`."""
        self._running()
        return [shard.shard_id for shard in self._core.current]

    async def send(
        self,
        value: BytesLike,
        *,
        key: BytesLike | None = None,
        headers: Mapping[str, bytes] | None = None,
        timestamp: datetime | int | None = None,
        shard: int | None = None,
        timeout_s: float | None = None,
    ) -> ProducerAck:
        """Send one record and return once it is acked.

        Args:
            value: The value.
            key: The key, if any: records of one key go to one shard, in order. Records without one go to shards in turn.
            headers: Header names and values, at most 255 of them.
            timestamp: A datetime, or milliseconds since the Unix epoch; None: now.
            shard: The shard, whatever the key. It must be a current one.
            timeout_s: Limit in seconds; None: the producer's `append_timeout_s`.

        Returns:
            The ack, with shard and offset of the record.

        Raises:
            AppendTimeout: No ack in time. If `outcome_unknown` is set, the producer still retries.
            StorageFull: The shard's range servers have no room. If `outcome_unknown` is set, the producer still retries.
            ProducerFenced: A later instance of the producer exists. What this one has in the log is not known then.
            ShardEnded, ShardNotFound: `shard` is not a current one, or ended before the record was there.
            TopicStateForbids: The topic is sealed.
            TopicNotFound: The topic was deleted.
            RecordTooLarge: The record exceeds 1 MiB.
            InvalidArgument: The value, key, headers or timestamp are not valid.
            WriterClosed: The producer is not open.
        """
        if self._running().full:
            self._running().check_room([checked_row(value, key, headers, timestamp)[1]], shard)
        if not self._pending.has_room:
            await self.ready(timeout_s=timeout_s)
        future = self.submit(value, key=key, headers=headers, timestamp=timestamp, shard=shard)
        return await self._wait(future, range(self._core.next_order - 1, self._core.next_order), timeout_s)

    def submit(
        self,
        value: BytesLike,
        *,
        key: BytesLike | None = None,
        headers: Mapping[str, bytes] | None = None,
        timestamp: datetime | int | None = None,
        shard: int | None = None,
    ) -> asyncio.Future[ProducerAck]:
        """Send one record without waiting. The arguments are those of `send`.

        Call `await producer.ready()` regularly: it waits while `inflight_bytes_max` bytes or more are not acked.

        Returns:
            A future of the ack. It fails with the errors of `send`.

        Raises:
            Overloaded: Twice `inflight_bytes_max` bytes are not acked.
            RangelogError: The errors of `send` that are known at once.
        """
        self.send_nowait(value, key=key, headers=headers, timestamp=timestamp, shard=shard)
        return self._waiters.watch(self._core.next_order - 1)

    def send_nowait(
        self,
        value: BytesLike,
        *,
        key: BytesLike | None = None,
        headers: Mapping[str, bytes] | None = None,
        timestamp: datetime | int | None = None,
        shard: int | None = None,
    ) -> None:
        """Send one record without waiting and without a future, at the lowest cost. The arguments are those of `send`.

        The record is acked once `await producer.flush()` returns. If the record is refused, or the producer ends before
        that, the next flush raises the error. Call `await producer.ready()` regularly.

        Raises:
            Overloaded: Twice `inflight_bytes_max` bytes are not acked.
            RangelogError: The errors of `send` that are known at once.
        """
        if not self._pending.accepting or self._pending.size_bytes >= self._pending.bytes_max:
            self._refuse()
        self._take(checked_row(value, key, headers, timestamp), shard)

    def send_rows(self, rows: Iterable[Row]) -> None:
        """Send about a batch of valid records without waiting, as `send_nowait`, after `ready`. For the package's own use."""
        if not self._pending.accepting or self._pending.size_bytes >= self._pending.bytes_max:
            self._refuse()
        for row in rows:
            self._take(row, None)

    def _take(self, row: Row, shard: int | None) -> None:
        size_bytes = row[4]
        if self._gathered_bytes + size_bytes > BATCH_BYTES_MAX:
            self._flush()
        if shard is not None:
            position = 0
        elif row[1] is not None:
            position = key_position(row[1])
        else:
            position = self._sticky.position(size_bytes, begins_turn=not self._flush_due)
        self._records.rows[self._core.append(position, size_bytes, shard)] = row
        self._pending.size_bytes += size_bytes
        self._gathered_bytes += size_bytes
        if not self._flush_due:
            self._flush_due = True
            self._pending.loop.call_soon(self._flush_of_turn)

    async def send_batch(
        self, records: Iterable[BytesLike | AppendRecord], *, shard: int | None = None, timeout_s: float | None = None
    ) -> list[ProducerAck]:
        """Send records in order and return once all are acked.

        An invalid record is refused before any record is sent. When an error has `outcome_unknown`, some of the records may
        be acked.

        Args:
            records: Values, or AppendRecords with key, headers and timestamp.
            shard: The shard of all of them; None: by key, or in turn.
            timeout_s: Limit of each wait in seconds; None: the producer's `append_timeout_s`.

        Returns:
            One ack per record, in the same order.

        Raises:
            RangelogError: The errors of `send`.
        """
        checked = [record if isinstance(record, AppendRecord) else AppendRecord(record) for record in records]
        for record in checked:
            check_append_record(record)
        self._running().check_room([record.key for record in checked], shard)
        first = self._core.next_order
        futures: list[asyncio.Future[ProducerAck]] = []
        try:
            for value, key, headers, ms in checked:
                if not self._pending.has_room:
                    await self.ready(timeout_s=timeout_s)
                futures.append(self.submit(value, key=key, headers=headers, timestamp=meant_as_ms(ms), shard=shard))
            orders = range(first, self._core.next_order)
            return [
                future.result() if future.done() else await self._wait(future, orders, timeout_s) for future in futures
            ]
        except RangelogError as error:
            if futures and not error.outcome_unknown:
                raise error.with_outcome(unknown=True) from error
            raise

    async def flush(self, *, timeout_s: float | None = None) -> None:
        """Return once all records are acked. Raises the error of one that was refused without a waiter, and those of `send`."""
        try:
            self._running()
        except RangelogError as error:
            raise error.with_outcome(unknown=self._pending.left_unknown or bool(self._records.rows)) from None
        if self._records.rows:
            await self._wait(self._settled(), range(self._core.next_order), timeout_s)
        refused = self._waiters.take_untold()
        if refused is not None:
            raise refused

    def note_time(self, time: datetime | int) -> None:
        """Promise that every record that is sent from now on has this event time or a later one.

        The promise is sent in the background once all records that were sent before are acked, about once a second at most.
        It makes the topic's watermark, which `client.topics.watermarks` lists: see docs/watermarks.md. A time that is earlier
        than the last one changes nothing. A producer that notes nothing for a minute holds the watermark back no more, one that
        is closed does so at once.

        Args:
            time: A datetime, or milliseconds since the Unix epoch.

        Raises:
            InvalidArgument: `time` is not valid, or the producer is that of a transaction.
            WriterClosed: The producer is not open.
            ProducerFenced: A later instance of the producer exists.
            TopicNotFound: The topic was deleted.

        Example:
            ```python
            await producer.send(b"…", timestamp=event_time)
            producer.note_time(event_time)
            ```
        """
        self._running()
        if time is None or self._notes is None:
            raise InvalidArgument("a note needs a time, and a producer that is not that of a transaction")
        self._notes.note(self._map.topic.topic_id, checked_row(b"", None, None, time)[3])

    async def ready(self, *, timeout_s: float | None = None) -> None:
        """Return once there is room to send, in this producer and among all of its client.

        A producer that has nothing pending always has room. Raises AppendTimeout, ProducerFenced, WriterClosed.
        """
        self._running()
        while (room := self._pending.room()) is not None:
            await self._wait(room, range(self._core.next_order), timeout_s, outcome_unknown=False)

    # ---- what becomes of records; called by the runner

    def encode(self, epoch: int, sequence: int, orders: Sequence[int]) -> bytes:
        """Return a batch. For the package's own use."""
        return self._records.encode(orders, Producer(self.producer_id, epoch, sequence), self._map.codec)

    def acked(self, acked: RecordsAcked) -> None:
        """Records have their places. For the package's own use."""
        self._pending.size_bytes -= self._records.pop(acked.orders)
        if self._notes is not None:
            self._notes.acked(acked.shard_id, acked.offset + len(acked.orders))
        self._waiters.acked(*acked)
        self._pending.make_room()

    def refused(self, refused: RecordsRefused) -> None:
        """Records are in no log. For the package's own use."""
        self._pending.size_bytes -= self._records.pop(refused.orders)
        self._waiters.refused(refused.orders, refused.error)
        self._pending.make_room()

    def stopped(self, error: RangelogError, certain: Sequence[int]) -> None:
        """Nothing more is acked. For the package's own use."""
        self._fail(error, error, certain)

    # ---- inside

    async def _all_settled(self) -> None:
        """Return once all records that were sent have an outcome. Raises the error that ended the producer."""
        self._running()
        if self._records.rows:
            await self._settled()

    def _settled(self) -> asyncio.Future[None]:
        return self._waiters.flush(self._core.next_order, len(self._records.rows))

    def _flush_of_turn(self) -> None:
        self._flush_due = False
        self._flush()

    def _flush(self) -> None:
        self._gathered_bytes = 0
        if self._runner is not None and self._pending.accepting:
            self._runner.flush()

    def _fail(self, of_sent: RangelogError, of_waiting: RangelogError, certain: Sequence[int]) -> None:
        """Fail all records that are not acked; those with the `certain` orders are in no log."""
        orders = self._records.clear()
        untold = self._waiters.end(orders, set(certain), of_sent, of_waiting)
        known = of_waiting.with_outcome(unknown=False)
        self._pending.end(known, unknown=len(orders) > len(certain), untold=untold)

    async def _wait(
        self, future: asyncio.Future[_T], orders: range, timeout_s: float | None, *, outcome_unknown: bool = True
    ) -> _T:
        assert self._runner is not None
        paced, limit_s = timeout_s is None, self._pending.append_timeout_s if timeout_s is None else timeout_s
        return await self._runner.wait(future, orders, limit_s, outcome_unknown=outcome_unknown, paced=paced)

    def _running(self) -> ProducerRunner:
        if self._pending.closed:
            raise WriterClosed("the producer is closed; open a new one")
        if self._runner is None:
            raise WriterClosed("the producer is not open: use `async with client.producer(...)`")
        if self._core.error is not None:
            self._pending.note_told()
            raise self._core.error
        return self._runner

    def _refuse(self) -> None:
        self._running()
        raise Overloaded(f"{self._pending.size_bytes} bytes are not acked yet; await producer.ready() between records")
