"""The writer of a stream: builds batches from records and runs the appender core.

Batching follows the number of batches in flight; there is no linger time. A record is sent at once while few batches are in
flight; otherwise records gather, and are sent together when an ack arrives or a batch is full. `inflight_bytes_max` bounds
the bytes that are appended and not acked. A future resolves with the record's offset once enough replicas have it on disk.

The outcome of a failed append: with `outcome_unknown` the record may be in the log, now or later; otherwise it is not there
and never will be, so it may be appended again.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterable, Callable, Iterable, Mapping
from datetime import datetime
from typing import TypeVar

from rangelog._append.batch_builder import RECORD_OVERHEAD_BYTES, BatchBuilder, check_record
from rangelog._append.encoded_batch import EncodedBatch
from rangelog._append.expected_end import check_expected_end
from rangelog._append.many_records import append_all, append_batch
from rangelog._append.pending_appends import PendingAppends
from rangelog._append.roll import leave_range
from rangelog._append.runner import AppenderRunner, WriterHost
from rangelog._append.takeover import TakenOver, claim, settle_and_create
from rangelog_core.batch import CODEC_NONE, CODEC_ZSTD, BatchHeader, peek_header
from rangelog_core.errors import Overloaded, RangelogError, StorageFull, WriterClosed
from rangelog_core.limits import INFLIGHT_BYTES_MAX, RECORD_SIZE_BYTES_MAX
from rangelog_core.net.home_loop import HomeLoop
from rangelog_core.record import Ack, AppendRecord, BytesLike
from rangelog_core.tracing import traced
from rangelog_proto.v1 import common_pb2, pd_pb2

_T = TypeVar("_T")

_BATCHES_IN_FLIGHT = 4
_MANY_BATCHES_IN_FLIGHT = 64
"""Of all writers on the same connections. Above it each writer has one batch in flight, and builds larger batches."""


class Writer:
    """The single writer of a stream. Make it with `client.writer(name)` and use it with `async with`.

    Example:
        ```python
        async with client.writer("flights") as writer:
            ack = await writer.append(b"first", key=b"UA")
            for value in values:
                writer.append_nowait(value)
                await writer.ready()
            await writer.flush()
        ```
    """

    def __init__(
        self,
        host: WriterHost,
        stream: str,
        *,
        append_timeout_s: float,
        open_timeout_s: float,
        inflight_bytes_max: int = INFLIGHT_BYTES_MAX,
    ) -> None:
        self.stream = stream
        self._host = host
        self._open_timeout_s = open_timeout_s
        self._pending = PendingAppends(
            host.connections.appends, append_timeout_s=append_timeout_s, inflight_bytes_max=inflight_bytes_max
        )
        self._opened: pd_pb2.OpenWriterResponse | None = None
        self._runner: AppenderRunner | None = None
        self._home = HomeLoop()
        self.taken: TakenOver  # by `open`; for the package's own use
        self._codec = CODEC_NONE
        self._next_offset = 0
        self._builder = BatchBuilder()
        self._inflight: deque[BatchBuilder | EncodedBatch] = deque()
        self._pump_due = False
        self.on_closed: Callable[[Writer], object] = lambda _: None
        self.on_no_room: Callable[[StorageFull], object] = lambda _: None  # as `check_room` begins to raise

    # ---- life

    async def __aenter__(self) -> Writer:
        await self.open()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        await self.close(flush=kind is None)

    async def claim(self) -> None:
        """Raise the stream's epoch ahead of `open`, which goes on from there. For the package's own use. Raises as `open`."""
        if self._opened is None:
            self._opened = await claim(self._host.calls, self.stream, timeout_s=self._open_timeout_s)

    @traced("rangelog.writer.open", stream=lambda writer: writer.stream)
    async def open(self) -> None:
        """Become the stream's writer: fence the earlier writer, seal its range, and create the next range.

        Raises:
            StreamNotFound: The stream does not exist.
            SealBlocked: Too few replicas of the open range answer to seal it.
            NoPlacement: There are too few range servers for a new range.
            WriterFenced: Another writer opened the stream after this call.
            Unavailable: The placement driver does not answer in time.
        """
        self._home.check()
        deadline = time.monotonic() + self._open_timeout_s
        await self.claim()
        opened, self._opened = self._opened, None
        assert opened is not None
        host = self._host
        taken, created = await settle_and_create(
            host.metadata, host.calls, host.connections, opened, timeout_s=max(1.0, deadline - time.monotonic())
        )
        stream = taken.stream
        self.taken = taken
        self._codec = CODEC_ZSTD if stream.config.compression == common_pb2.COMPRESSION_ZSTD else CODEC_NONE
        self._next_offset = created.start_offset
        self._runner = runner = AppenderRunner(
            host, stream, created,
            confirmed=self._resolve, stopping=self._stopping, stopped=self._stopped, send_gathered=self._pump,
            no_room=lambda error: self.on_no_room(error),
        )  # fmt: skip
        if taken.left is not None:
            left = leave_range(host.connections, stream.stream_id, stream.epoch, taken.left, taken.addresses)
            runner.spawn(left)
        self._pending.open()
        runner.start()

    async def close(self, *, flush: bool = True, timeout_s: float | None = None) -> None:
        """Flush, unless `flush` is False, and close. Idempotent; the writer is closed even when an error is raised.

        Args:
            flush: Wait for the acks of all appends first.
            timeout_s: Limit of the flush in seconds; None: the writer's `append_timeout_s`.

        Raises:
            RangelogError: An error of `flush`. Also the error that ended the writer, if it ended appends without a waiter.
        """
        pending = self._pending
        if pending.closed:
            return
        try:
            if flush and (pending.accepting or pending.size_bytes):
                await self.flush(timeout_s=timeout_s)
            elif flush and pending.untold is not None:
                raise pending.untold
        finally:
            pending.close()
            if self._runner is not None:
                self._runner.close()
            self.on_closed(self)
            self._fail(
                WriterClosed("the writer was closed before this append was acked: read whether it is in the log"),
                WriterClosed("the writer was closed before this append was sent: it is not in the log"),
            )

    # ---- appending

    @property
    def has_room(self) -> bool:
        """Whether `ready` would return at once."""
        return self._pending.has_room

    @property
    def closed(self) -> bool:
        """Whether the writer is closed."""
        return self._pending.closed

    @property
    def stream_id(self) -> int:
        """The id of the stream, which no other one ever has. Raises WriterClosed before `open`."""
        self._running()
        return self.taken.stream.stream_id

    @property
    def epoch(self) -> int:
        """The epoch of this writer. Raises WriterClosed before `open`."""
        return self._running().core.epoch

    @property
    def next_offset(self) -> int:
        """The offset that the next submitted record will have. Raises WriterClosed before `open`."""
        self._running()
        return self._next_offset

    @property
    def confirm_offset(self) -> int:
        """All records below it are acked (Kafka: high watermark, BookKeeper: LAC). Raises WriterClosed before `open`."""
        return self._running().core.confirm_offset

    async def append(
        self,
        value: BytesLike,
        *,
        key: BytesLike | None = None,
        headers: Mapping[str, bytes] | None = None,
        timestamp: datetime | int | None = None,
        expected_end: int | None = None,
        timeout_s: float | None = None,
    ) -> Ack:
        """Append one record and return its ack, which has the record's offset.

        Args:
            value: The value.
            key: The key, if any.
            headers: Header names and values, at most 255 of them.
            timestamp: A datetime, or milliseconds since the Unix epoch; None: now.
            expected_end: Append only if this is `next_offset`, so that the record gets this offset or none (docs/sdk.md).
            timeout_s: Limit in seconds; None: the writer's `append_timeout_s`, and what a quota holds the writer off.

        Raises:
            AppendTimeout: No ack in time. If `outcome_unknown` is set, the writer still retries the append.
            StorageFull: The range servers have no room. If `outcome_unknown` is set, the writer still retries the append.
            WriterFenced: A later writer owns the stream.
            RecordTooLarge: The record exceeds 1 MiB.
            InvalidArgument: The value, key, headers or timestamp are not valid.
            PreconditionFailed: The stream does not end at `expected_end`; nothing is appended. `offset`: where it ends.
            WriterClosed: The writer is not open.
            StreamNotFound: The stream was deleted.
        """
        self.check_room()
        if not self.has_room:
            await self.ready(timeout_s=timeout_s)
        return await self._wait(
            self.submit(value, key=key, headers=headers, timestamp=timestamp, expected_end=expected_end), timeout_s
        )

    def submit(
        self,
        value: BytesLike,
        *,
        key: BytesLike | None = None,
        headers: Mapping[str, bytes] | None = None,
        timestamp: datetime | int | None = None,
        expected_end: int | None = None,
    ) -> asyncio.Future[Ack]:
        """Append one record without waiting. The arguments are those of `append`.

        Call `await writer.ready()` regularly: it waits while `inflight_bytes_max` bytes or more are not acked.

        Returns:
            A future of the ack. It fails with the errors of `append`.

        Raises:
            Overloaded: Twice `inflight_bytes_max` bytes are not acked.
            RangelogError: The errors of `append` that are known at once.
        """
        offset = self.append_nowait(value, key=key, headers=headers, timestamp=timestamp, expected_end=expected_end)
        future: asyncio.Future[Ack] = self._pending.loop.create_future()
        self._builder.notify(offset, future)
        return future

    def append_nowait(
        self,
        value: BytesLike,
        *,
        key: BytesLike | None = None,
        headers: Mapping[str, bytes] | None = None,
        timestamp: datetime | int | None = None,
        expected_end: int | None = None,
    ) -> int:
        """Append one record without waiting and without a future, at the lowest cost. The arguments are those of `append`.

        The record is acked once `confirm_offset` is above its offset, or once `await writer.flush()` returns. If the writer
        ends before that, the next call raises the error. Call `await writer.ready()` regularly.

        Returns:
            The offset that the record will have.

        Raises:
            Overloaded: Twice `inflight_bytes_max` bytes are not acked.
            RangelogError: The errors of `append` that are known at once.
        """
        pending = self._pending
        if not pending.accepting or pending.size_bytes >= pending.bytes_max:
            self._refuse()
        if expected_end is not None:
            check_expected_end(self.stream, expected_end, self._next_offset)
        if (
            key is None
            and headers is None
            and timestamp is None
            and type(value) is bytes
            and len(value) <= RECORD_SIZE_BYTES_MAX
        ):
            size_bytes = len(value) + RECORD_OVERHEAD_BYTES
            timestamp_ms = time.time_ns() // 1_000_000
            count = self._builder.add_value(value, timestamp_ms, size_bytes)
            if not count:  # it did not fit
                count = self._submit_gathered().add_value(value, timestamp_ms, size_bytes)
        else:
            record = check_record(value, key, headers, timestamp)
            size_bytes = record.size_bytes
            count = self._builder.add(record) or self._submit_gathered().add(record)
        pending.size_bytes += size_bytes
        offset = self._next_offset
        self._next_offset = offset + 1
        # Later records of a batch need not ask: where the first may not be sent, the ack of a batch in flight sends them all.
        if count == 1 and not self._pump_due and self._may_send():
            self._home.check()
            self._pump_due = True
            pending.loop.call_soon(self._pump)
        return offset

    def submit_batch(self, data: bytes, header: BatchHeader | None = None) -> asyncio.Future[Ack]:
        """Append a batch that was encoded elsewhere, its records and header fields as they are. For the package's own use.

        The caller has checked it (`check_batch` returns its `header`); stream, range, epoch and offsets become this writer's.
        Returns a future of the ack of its first record. Raises as `submit`.
        """
        pending = self._pending
        if not pending.accepting or pending.size_bytes >= pending.bytes_max:
            self._refuse()
        if self._builder.values:
            self._submit_gathered()
        runner = self._running()
        acked: asyncio.Future[Ack] = pending.loop.create_future()
        known = header or peek_header(data)
        batch, placed = EncodedBatch.place(data, known, self.taken.stream.stream_id, runner.core, acked)
        self._inflight.append(batch)
        pending.size_bytes += batch.size_bytes
        self._next_offset = batch.end_offset
        pending.budget.sent(batch.size_bytes)
        runner.submit(batch.base_offset, batch.end_offset, placed)
        return acked

    async def append_batch(
        self, records: Iterable[BytesLike | AppendRecord], *, expected_end: int | None = None, timeout_s: float | None = None
    ) -> list[Ack]:  # fmt: skip
        """Append records in order and return one ack per record, in the same order, once all are acked.

        `records` are values, or AppendRecords with key, headers and timestamp; `timeout_s` is the limit of each wait, as in
        `append`. An invalid record is refused before any record is appended. When an error has `outcome_unknown`, some of the
        records may be acked. With `expected_end` all follow from that offset on, or none is appended: together they then take
        at most `inflight_bytes_max` bytes. Raises the errors of `append`.
        """
        bytes_max = self._pending.inflight_bytes_max
        return await append_batch(
            self, list(records), expected_end=expected_end, bytes_max=bytes_max, timeout_s=timeout_s
        )

    async def append_all(
        self, records: Iterable[BytesLike | AppendRecord] | AsyncIterable[BytesLike | AppendRecord], *,
        timeout_s: float | None = None,
    ) -> int:  # fmt: skip
        """Append the records of any iterable, also an asynchronous one; return how many, once all are acked.

        It waits by itself while too many bytes are not acked. As `append_batch`, but that each record is checked when its turn
        comes: an error leaves those before it appended, and has `outcome_unknown` then.
        """
        return await append_all(self, records, timeout_s=timeout_s)

    async def flush(self, *, timeout_s: float | None = None) -> None:
        """Return once all appended records are acked. Raises AppendTimeout, WriterFenced, WriterClosed, StreamNotFound."""
        self._home.check()
        try:
            self._running()
        except RangelogError as error:
            raise error.with_outcome(unknown=self._pending.left_unknown or bool(self._inflight)) from None
        newest = self._builder if self._builder.values else (self._inflight[-1] if self._inflight else None)
        if newest is None:
            return
        waiter: asyncio.Future[None] = self._pending.loop.create_future()
        newest.wait(waiter)
        await self._wait(waiter, timeout_s)

    async def ready(self, *, timeout_s: float | None = None) -> None:
        """Return once there is room to submit, in this writer and among all of its client.

        A writer that has nothing pending always has room. Raises AppendTimeout, WriterFenced, WriterClosed.
        """
        self._home.check()
        self._running()
        while (room := self._pending.room()) is not None:
            await self._wait(room, timeout_s, outcome_unknown=False)

    # ---- inside

    def _pump(self) -> None:
        """Send the gathered records, if few enough batches are in flight."""
        self._pump_due = False
        if self._builder.values and self._may_send() and self._pending.accepting:
            self._submit_gathered()

    def _may_send(self) -> bool:
        many = self._pending.budget.batches_in_flight >= _MANY_BATCHES_IN_FLIGHT
        return len(self._inflight) < (1 if many else _BATCHES_IN_FLIGHT)

    def _submit_gathered(self) -> BatchBuilder:
        """Send the gathered records; return the next batch builder."""
        runner = self._running()
        batch, self._builder = self._builder, BatchBuilder()
        core = runner.core
        batch.base_offset = core.next_offset
        data = batch.encode(
            stream_id=self.taken.stream.stream_id, range_index=core.range_index, epoch=core.epoch, codec=self._codec
        )
        self._inflight.append(batch)
        self._pending.budget.sent(batch.size_bytes)
        runner.submit(batch.base_offset, batch.end_offset, data)
        return self._builder

    def _resolve(self, confirm_offset: int) -> None:
        inflight, pending = self._inflight, self._pending
        while inflight and inflight[0].end_offset <= confirm_offset:
            batch = inflight.popleft()
            pending.budget.ended(batch.size_bytes)
            pending.size_bytes -= batch.size_bytes
            batch.resolve()
        pending.make_room()
        if self._builder.values:
            self._pump()

    def _stopping(self) -> None:
        self._pending.accepting = False

    def _stopped(self, error: RangelogError) -> None:
        self._fail(error, error)

    def check_room(self) -> None:
        """Raise StorageFull where no range server has room for a further record. For the package's own use."""
        self._home.check()
        if self._runner is not None:
            self._runner.check_room()

    def note_told(self) -> None:
        """Somebody hears of a failed append: `close` need not tell again what ended the writer. For the package's own use."""
        if self._runner is not None and self._runner.core.error is not None:
            self._pending.note_told()

    def _fail(self, of_sent: RangelogError, of_gathered: RangelogError) -> None:
        """Fail all records that are not acked: a sent record may be in the log, a gathered one is not."""
        sent, gathering = list(self._inflight), self._builder
        for batch in sent:
            self._pending.budget.ended(batch.size_bytes)
        self._inflight.clear()
        self._builder = BatchBuilder()
        unknown, certain = of_sent.with_outcome(unknown=True), of_gathered.with_outcome(unknown=False)
        for batch in sent:
            batch.fail(unknown, unknown)
        of_all = unknown if sent else certain
        gathering.fail(certain, of_all)
        unwatched = any(batch.unwatched for batch in (*sent, gathering))
        self._pending.end(certain, unknown=bool(sent), untold=of_all if unwatched else None)

    async def _wait(self, future: asyncio.Future[_T], timeout_s: float | None, *, outcome_unknown: bool = True) -> _T:
        """Wait for a future that has no other waiter."""
        limit_s = self._pending.append_timeout_s if timeout_s is None else timeout_s
        assert self._runner is not None  # nothing waits before `open`
        return await self._runner.wait(future, limit_s, outcome_unknown=outcome_unknown, paced=timeout_s is None)

    def _running(self) -> AppenderRunner:
        if self._pending.closed:
            raise WriterClosed("the writer is closed; open a new one")
        if self._runner is None:
            raise WriterClosed("the writer is not open: use `async with client.writer(...)`; blocking clients: `with`")
        if self._runner.core.error is not None:
            self._pending.note_told()
            raise self._runner.core.error
        return self._runner

    def _refuse(self) -> None:
        self._running()
        raise Overloaded(f"{self._pending.size_bytes} bytes are not acked yet; await writer.ready() between submits")
