"""The writer of a stream: takes records, cuts them into batches, and runs the appender core.

Batching is by what is in flight, not by a linger: while nothing is, a record goes out at once; while enough is, records
gather, and go out together when an ack comes back or a batch is full. What the application has pending is bounded by
`inflight_bytes_max`; a future resolves with the record's offset once enough replicas have it on disk.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Coroutine, Iterable, Mapping
from datetime import datetime
from typing import Any, TypeVar

from rangelog._gathering import CheckedRecord, GatheredBatch, check_record
from rangelog._metadata import Metadata
from rangelog._range_links import RangeLinks
from rangelog._range_roll import leave_range, probe_placement, seal_and_create
from rangelog._takeover import take_over
from rangelog._transport.data_connection import DataConnections, replica_id
from rangelog.batch import CODEC_NONE, CODEC_ZSTD
from rangelog.errors import (
    AppendTimeout,
    InternalError,
    Overloaded,
    RangelogError,
    WriterClosed,
    WriterFenced,
)
from rangelog.ids import ReplicaId
from rangelog.limits import (
    INFLIGHT_BYTES_MAX,
)
from rangelog.protocol.appender import (
    Appender,
    Confirmed,
    Connect,
    Effect,
    Leave,
    OpenRange,
    Probe,
    SealRange,
    Send,
    SendConfirm,
    Stopped,
)
from rangelog.record import Ack, AppendRecord
from rangelog_proto.v1 import common_pb2

_T = TypeVar("_T")
_log = logging.getLogger("rangelog.writer")

_TICK_S = 0.05
_BATCHES_IN_FLIGHT = 4
_OVERSHOOT = 2


class Writer:
    """The single writer of a stream; make it with `client.writer(name)` and use it with `async with`."""

    def __init__(
        self,
        metadata: Metadata,
        connections: DataConnections,
        stream: str,
        *,
        append_timeout_s: float,
        open_timeout_s: float,
        inflight_bytes_max: int = INFLIGHT_BYTES_MAX,
    ) -> None:
        self.stream = stream
        self._metadata = metadata
        self._connections = connections
        self._append_timeout_s = append_timeout_s
        self._open_timeout_s = open_timeout_s
        self._inflight_bytes_max = inflight_bytes_max
        self._core: Appender | None = None
        self._stream: common_pb2.Stream | None = None
        self._codec = CODEC_NONE
        self._links: dict[int, RangeLinks] = {}
        self._gathering = GatheredBatch()
        self._inflight: deque[GatheredBatch] = deque()
        self._pending_bytes = 0
        self._pump_due = False
        self._performing = False
        self._room: list[asyncio.Future[None]] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False

    # ---- life

    async def __aenter__(self) -> Writer:
        await self.open()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        await self.close(flush=kind is None)

    async def open(self) -> None:
        """Become the stream's writer: fence and seal what an earlier one left, open a range.

        Raises StreamNotFound, SealBlocked, NoPlacement, Unavailable, WriterFenced (a later one was faster).
        """
        deadline = time.monotonic() + self._open_timeout_s
        taken = await take_over(self._metadata, self._connections, self.stream, timeout_s=self._open_timeout_s)
        stream = taken.stream
        if taken.left is not None:
            self._spawn(leave_range(self._connections, stream.stream_id, stream.epoch, taken.left, taken.addresses))
        left_s = max(1.0, deadline - time.monotonic())
        created = await self._metadata.create_range(stream.stream_id, stream.epoch, taken.end_offset, left_s)
        self._stream = stream
        self._codec = CODEC_ZSTD if stream.config.compression == common_pb2.COMPRESSION_ZSTD else CODEC_NONE
        self._core = Appender(stream.epoch, self._enter(created), self._now_ms())
        self._spawn(self._tick())
        self._perform()

    async def close(self, *, flush: bool = True, timeout_s: float | None = None) -> None:
        """Flush (unless told not to) and let go. Idempotent. Raises what flush raises, after letting go."""
        if self._closed:
            return
        try:
            if flush and self._core is not None and self._core.error is None:
                await self.flush(timeout_s=timeout_s)
        finally:
            self._closed = True
            for links in self._links.values():
                links.close()
            for task in list(self._tasks):
                task.cancel()
            self._fail(WriterClosed("the writer was closed before this append was acked: its outcome is unknown"))

    # ---- appending

    @property
    def closed(self) -> bool:
        """Whether the writer was closed."""
        return self._closed

    @property
    def epoch(self) -> int:
        """The epoch this writer holds. Raises WriterClosed before `open`."""
        return self._running().epoch

    @property
    def next_offset(self) -> int:
        """The offset that the next submitted record will have. Raises WriterClosed before `open`."""
        return self._running().next_offset + len(self._gathering.values)

    @property
    def confirm_offset(self) -> int:
        """Everything below is acked. Raises WriterClosed before `open`."""
        return self._running().confirm_offset

    async def append(
        self,
        value: bytes,
        *,
        key: bytes | None = None,
        headers: Mapping[str, bytes] | None = None,
        timestamp: datetime | int | None = None,
        timeout_s: float | None = None,
    ) -> Ack:
        """Append one record and return once it is acked. `timestamp`: a datetime, or ms since the epoch.

        Raises AppendTimeout (outcome unknown; the writer goes on trying), WriterFenced, RecordTooLarge, WriterClosed.
        """
        await self.ready(timeout_s=timeout_s)
        return await self._wait(self.submit(value, key=key, headers=headers, timestamp=timestamp), timeout_s)

    def submit(
        self,
        value: bytes,
        *,
        key: bytes | None = None,
        headers: Mapping[str, bytes] | None = None,
        timestamp: datetime | int | None = None,
    ) -> asyncio.Future[Ack]:
        """Append one record without waiting; the future gives its ack.

        Call `await writer.ready()` every now and then: it waits while `inflight_bytes_max` are pending. Raises Overloaded
        when twice as much is, and what append raises.
        """
        if self._pending_bytes >= _OVERSHOOT * self._inflight_bytes_max:
            raise Overloaded(f"{self._pending_bytes} bytes are not acked yet; await writer.ready() between submits")
        record = check_record(value, key, headers, timestamp)
        future: asyncio.Future[Ack] = asyncio.get_running_loop().create_future()
        self._gather(record, future)
        return future

    async def append_batch(
        self, records: Iterable[bytes | AppendRecord], *, timeout_s: float | None = None
    ) -> list[Ack]:
        """Append records in order and return their acks once all are. Raises as append does."""
        first = last = -1
        future: asyncio.Future[Ack] | None = None
        for record in records:
            await self.ready(timeout_s=timeout_s)
            each = record if isinstance(record, AppendRecord) else AppendRecord(record)
            checked = check_record(each.value, each.key, each.headers, each.timestamp_ms)
            offset = self.next_offset
            future = asyncio.get_running_loop().create_future()
            self._gather(checked, future)
            future.add_done_callback(_retrieve)
            first = offset if first < 0 else first
            last = offset
        if future is None:
            return []
        await self._wait(future, timeout_s)
        return [Ack(offset) for offset in range(first, last + 1)]

    async def flush(self, *, timeout_s: float | None = None) -> None:
        """Return once everything submitted is acked. Raises AppendTimeout, WriterFenced, WriterClosed."""
        self._running()
        newest = self._gathering if self._gathering.values else (self._inflight[-1] if self._inflight else None)
        if newest is None:
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        newest.waiters.append(waiter)
        await self._wait(waiter, timeout_s)

    async def ready(self, *, timeout_s: float | None = None) -> None:
        """Return once there is room to submit. Raises AppendTimeout, WriterFenced, WriterClosed."""
        self._running()
        while self._pending_bytes >= self._inflight_bytes_max:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._room.append(future)
            await self._wait(future, timeout_s)

    # ---- events of the links (on the loop)

    def connected(self, range_index: int, replica: ReplicaId) -> None:
        """See RangeEvents."""
        self._running_core().connected(self._now_ms(), range_index, replica)
        self._perform()

    def disconnected(self, range_index: int, replica: ReplicaId) -> None:
        """See RangeEvents."""
        self._running_core().disconnected(self._now_ms(), range_index, replica)
        self._perform()

    def acked(self, range_index: int, replica: ReplicaId, durable_offset: int) -> None:
        """See RangeEvents."""
        self._running_core().acked(self._now_ms(), range_index, replica, durable_offset)
        self._perform()

    def refused(self, range_index: int, replica: ReplicaId, error: RangelogError) -> None:
        """See RangeEvents."""
        _log.info("%s refused an append of range %d: %s", replica, range_index, error)
        self._running_core().refused(self._now_ms(), range_index, replica, error)
        self._perform()

    # ---- inside: gathering

    def _gather(self, record: CheckedRecord, future: asyncio.Future[Ack] | None) -> None:
        self._running()
        if self._gathering.is_full_for(record):
            self._submit_gathered()
        self._gathering.add(record, future)
        self._pending_bytes += record.size_bytes
        if not self._pump_due and len(self._inflight) < _BATCHES_IN_FLIGHT:
            self._pump_due = True
            asyncio.get_running_loop().call_soon(self._pump)

    def _pump(self) -> None:
        """Send what was gathered, if little enough is in flight."""
        self._pump_due = False
        if self._gathering.values and len(self._inflight) < _BATCHES_IN_FLIGHT and not self._closed:
            core = self._core
            if core is not None and core.error is None:
                self._submit_gathered()

    def _submit_gathered(self) -> None:
        core = self._running()
        batch, self._gathering = self._gathering, GatheredBatch()
        batch.base_offset = core.next_offset
        assert self._stream is not None
        data = batch.encode(
            stream_id=self._stream.stream_id, range_index=core.range_index, epoch=core.epoch, codec=self._codec
        )
        self._inflight.append(batch)
        core.submit(self._now_ms(), batch.base_offset, batch.end_offset, data)
        self._perform()

    # ---- inside: effects

    def _perform(self) -> None:
        """Do what the core wants, in its order; what doing so brings about is done after, not in between."""
        core = self._core
        if core is None or self._performing:
            return
        self._performing = True
        try:
            while effects := core.effects():
                for effect in effects:
                    self._perform_one(core, effect)
        finally:
            self._performing = False

    def _perform_one(self, core: Appender, effect: Effect) -> None:
        if isinstance(effect, Send):
            links = self._links.get(effect.range_index)
            if links is not None:
                links.send(effect.replica, [batch.data for batch in effect.batches], effect.confirm_offset)
        elif isinstance(effect, Confirmed):
            self._resolve(effect.confirm_offset)
        elif isinstance(effect, SendConfirm):
            links = self._links.get(effect.range_index)
            if links is not None:
                links.send_confirm(effect.replica, effect.confirm_offset)
        elif isinstance(effect, Stopped):
            self._stopped(effect.error)
        else:
            self._perform_rare(core, effect)

    def _perform_rare(self, core: Appender, effect: Connect | Probe | SealRange | Leave) -> None:
        assert self._stream is not None
        if isinstance(effect, Connect):
            links = self._links.get(effect.range_index)
            if links is not None:
                links.connect(effect.replica)
        elif isinstance(effect, Probe):
            self._spawn(self._probe(effect))
        elif isinstance(effect, SealRange):
            self._spawn(self._seal(core, effect))
        else:
            links = self._links.pop(effect.range_index, None)
            addresses = links.addresses if links is not None else {}
            if links is not None:
                links.close()
            self._spawn(leave_range(self._connections, self._stream.stream_id, core.epoch, effect, addresses))

    async def _probe(self, effect: Probe) -> None:
        possible = await probe_placement(self._metadata, effect)
        if self._core is not None:
            self._core.probed(self._now_ms(), possible=possible)
            self._perform()

    async def _seal(self, core: Appender, effect: SealRange) -> None:
        assert self._stream is not None
        try:
            response = await seal_and_create(self._metadata, self._stream.stream_id, core.epoch, effect)
            if response is None:
                core.seal_refused(self._now_ms())
            else:
                core.sealed(self._now_ms(), response.range.end_offset, self._enter(response.next_range))
        except WriterFenced as error:
            core.fenced(error)
        except RangelogError as error:
            core.fail(error)
        self._perform()

    def _enter(self, created: common_pb2.Range) -> OpenRange:
        """Make the links of a new range; the core's Connect effects start them."""
        stream = self._stream
        config = stream.config if stream is not None else common_pb2.StreamConfig()
        links = RangeLinks(
            self,
            self._connections,
            stream_id=created.stream_id,
            range_index=created.index,
            start_offset=created.start_offset,
            epoch=created.epoch,
            memory=config.durability == common_pb2.DURABILITY_MEMORY,
            refresh=lambda: self._refresh_addresses(created.index),
        )
        links.addresses = {replica_id(each.server, each.incarnation): each.data_address for each in created.replicas}
        self._links[created.index] = links
        return OpenRange(
            created.index,
            created.start_offset,
            created.acks,
            self._replicas(created),
            self._now_ms(),
            config.range_size_bytes_max,
            config.range_age_ms_max,
        )

    def _refresh_addresses(self, range_index: int) -> None:
        """A server that came back may listen elsewhere: ask the placement driver, at most once at a time."""
        if any(task.get_name() == "refresh" for task in self._tasks):
            return
        self._spawn(self._refresh(range_index), name="refresh")

    async def _refresh(self, range_index: int) -> None:
        try:
            _, ranges = await self._metadata.ranges(self.stream, self._running().opened.start_offset, timeout_s=3.0)
        except RangelogError:
            return
        for each in ranges:
            links = self._links.get(each.index)
            if links is not None:
                links.addresses = {replica_id(r.server, r.incarnation): r.data_address for r in each.replicas}

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(_TICK_S)
            if self._core is not None:
                self._core.tick(self._now_ms())
                self._perform()

    # ---- inside: outcomes

    def _resolve(self, confirm_offset: int) -> None:
        inflight = self._inflight
        while inflight and inflight[0].end_offset <= confirm_offset:
            batch = inflight.popleft()
            self._pending_bytes -= batch.size_bytes
            batch.resolve()
        if self._pending_bytes < self._inflight_bytes_max:
            self._wake_room(None)
        if self._gathering.values:
            self._pump()

    def _wake_room(self, error: RangelogError | None) -> None:
        room, self._room = self._room, []
        for future in room:
            if not future.done():
                if error is None:
                    future.set_result(None)
                else:
                    future.set_exception(error)

    def _stopped(self, error: RangelogError) -> None:
        _log.warning("the writer of %s stopped: %s", self.stream, error)
        for links in self._links.values():
            links.close()
        self._fail(error)

    def _fail(self, error: RangelogError) -> None:
        """Nothing more will be acked: what is pending may or may not be in the log."""
        batches = [*self._inflight, self._gathering]
        self._inflight.clear()
        self._gathering = GatheredBatch()
        self._pending_bytes = 0
        for batch in batches:
            batch.fail(error)
        self._wake_room(error)

    async def _wait(self, future: asyncio.Future[_T], timeout_s: float | None) -> _T:
        limit = self._append_timeout_s if timeout_s is None else timeout_s
        try:
            async with asyncio.timeout(limit):
                return await asyncio.shield(future)
        except TimeoutError as error:
            core = self._core
            where = f" (confirmed up to {core.confirm_offset})" if core is not None else ""
            raise AppendTimeout(
                f"not acked within {limit:g} s{where}: too few range servers answer? "
                "The writer goes on trying; see `pdctl server list`"
            ) from error

    def _running(self) -> Appender:
        if self._closed:
            raise WriterClosed("the writer is closed; open a new one")
        if self._core is None:
            raise WriterClosed("the writer is not open: use `async with client.writer(...)`")
        if self._core.error is not None:
            raise self._core.error
        return self._core

    def _running_core(self) -> Appender:
        if self._core is None:
            raise InternalError("an event before the writer was open")
        return self._core

    def _spawn(self, work: Coroutine[Any, Any, None], name: str = "work") -> None:
        task: asyncio.Task[None] = asyncio.create_task(work)
        task.set_name(name)
        self._tasks.add(task)
        task.add_done_callback(self._task_ended)

    def _task_ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None and self._core is not None:
            _log.error("a writer task failed", exc_info=task.exception())
            self._core.fail(InternalError(f"a writer task failed: {task.exception()!r}"))
            self._perform()

    @staticmethod
    def _replicas(source: common_pb2.Range) -> tuple[ReplicaId, ...]:
        return tuple(replica_id(each.server, each.incarnation) for each in source.replicas)

    @staticmethod
    def _now_ms() -> float:
        return time.monotonic() * 1000


def _retrieve(future: asyncio.Future[Ack]) -> None:
    if not future.cancelled():
        future.exception()
