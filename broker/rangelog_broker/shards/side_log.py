"""The side log of a shard: what its owner remembers beside the records, in a stream that is created when it is first needed.

What holds: opening fences the former owner of the side log, then reads it to the end that the fence settled. What is appended
is there for good once its future is done. It is trimmed only below the newest whole snapshot, once that is acked, and below
what is staged. An owner that is deposed adds nothing behind its successor's entries: who opens the side log to write checks the
shard's epoch after the fence.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Callable

from rangelog import Ack, Client, Writer
from rangelog.errors import Corruption, RangelogError, StorageFull, StreamNotFound, WriterFenced
from rangelog_broker.shards.side_entry import SideFold, SideSnapshot, encode_snapshot, encode_staged
from rangelog_broker.shards.staging import Staging
from rangelog_broker.shards.state import ShardState
from rangelog_core.batch_extension import Producer
from rangelog_core.ids import shard_stream_name, side_log_name
from rangelog_core.net.pd_client import PdClient
from rangelog_proto.v1 import common_pb2, topic_pb2

CALL_TIMEOUT_S = 15.0
_log = logging.getLogger("rangelog.broker")


class SideLog:
    """The side log of one shard, for its owner. Use `open` once; `close` it."""

    def __init__(self, client: Client, topics: PdClient, topic_id: int, shard_id: int) -> None:
        self.name = side_log_name(topic_id, shard_id)
        self.snapshot: SideSnapshot | None = None
        self.staging = Staging()
        self._client = client
        self._topics = topics
        self._key = (topic_id, shard_id)
        self.on_no_room: Callable[[StorageFull], object] = lambda _: None
        self._writer: Writer | None = None
        self._creating: asyncio.Task[Writer] | None = None
        self._closed = False

    async def open(self) -> None:
        """Fence the former owner and read what is there; nothing is done where there is no side log.

        Call it once the shard is claimed, and check afterwards that nobody else has claimed it since.
        Raises Corruption, WriterFenced, Unavailable, SealBlocked, NoPlacement.
        """
        try:
            self._writer = await self._open_writer()
        except StreamNotFound:
            return
        end, taken = self._writer.next_offset, self._writer.taken.stream
        fold = await fold_side_log(self._client, taken, end, self._writer)
        self.snapshot, self.staging = fold.best, fold.staging

    async def close(self) -> None:
        """Close; idempotent."""
        self._closed = True
        if self._creating is not None:
            self._creating.cancel()
            await asyncio.wait([self._creating])
        if self._writer is not None:
            await self._writer.close(flush=False)

    # ---- what is staged

    @property
    def is_open(self) -> bool:
        """Whether `stage` may be called; otherwise wait for `create`."""
        return self._writer is not None

    def check_room(self) -> None:
        """Raise StorageFull where the range servers have no room for what would be staged."""
        if self._writer is not None:
            self._writer.check_room()

    async def create(self, epoch: int) -> None:
        """Create the side log if there is none. Raises as `write_snapshot`."""
        await self._opened(epoch)

    def stage(self, number: int, name: str, producer: Producer, data: bytes) -> asyncio.Future[Ack]:
        """Append a producer's next batch, of its transaction `number`; return a future of the ack. Raises as Writer.submit."""
        assert self._writer is not None
        record = self._writer.next_offset
        acked = self._writer.submit(encode_staged(number, name, producer, data))
        self.staging.add(number, name, producer, data, record)
        return acked

    # ---- snapshots

    async def write_snapshot(self, epoch: int, offset: int, state: ShardState) -> None:
        """Write the state of all batches below `offset`, and trim what is before it.

        Raises the errors of a writer; the next call opens the side log again. WriterFenced where `epoch` is not the shard's.
        """
        records = encode_snapshot(epoch, offset, (*state.snapshot(), *self.staging.snapshot()))
        writer = await self._opened(epoch)
        first = -1
        acks: list[asyncio.Future[Ack]] = []
        try:
            for record in records:
                await writer.ready()
                first = writer.next_offset if first < 0 else first
                acks.append(writer.submit(record))
            await asyncio.gather(*acks)
        except BaseException:
            self._writer = None if self._writer is writer else self._writer
            await writer.close(flush=False)
            raise
        self.snapshot = SideSnapshot(offset, (), first)
        await self._trim(first)

    # ---- inside

    async def _open_writer(self) -> Writer:
        writer = self._client.internal.writer(self.name)
        writer.on_no_room = lambda error: self.on_no_room(error)
        try:
            await writer.open()
        except BaseException:
            await writer.close(flush=False)
            raise
        return writer

    async def _opened(self, epoch: int) -> Writer:
        if self._writer is not None:
            return self._writer
        if self._creating is None:
            self._creating = asyncio.create_task(self._create(epoch))
            self._creating.add_done_callback(self._created)
        return await asyncio.shield(self._creating)

    def _created(self, task: asyncio.Task[Writer]) -> None:
        self._creating = None
        if not task.cancelled() and task.exception() is None:
            self._writer = task.result()

    async def _create(self, epoch: int) -> Writer:
        topic_id, shard_id = self._key
        request = topic_pb2.EnsureLogRequest(request_id=uuid.uuid4().hex, topic_id=topic_id, shard_id=shard_id)
        await self._topics.call(request, topic_pb2.EnsureLogResponse, timeout_s=CALL_TIMEOUT_S)
        writer = await self._open_writer()
        try:
            shard = await self._client.metadata.describe_stream(shard_stream_name(topic_id, shard_id))
            if shard.epoch != epoch:
                raise WriterFenced(f"epoch {shard.epoch} owns shard {shard.name}", epoch=shard.epoch)
        except BaseException:
            await writer.close(flush=False)
            raise
        return writer

    async def _trim(self, offset: int) -> None:
        """Trim as far as ranges are sealed; the rest goes with the next snapshot."""
        assert self._writer is not None
        staged = self.staging.first_record
        try:
            stream = await self._client.metadata.describe_stream(self.name)
            offset = min(offset, stream.next_offset, offset if staged is None else staged)
            if offset > stream.trim_offset and stream.stream_id == self._writer.stream_id:
                await self._client.metadata.trim_stream(self.name, offset, stream_id=stream.stream_id)
        except RangelogError as error:
            _log.info("the side log %s is not trimmed yet: %s", self.name, error)


async def fold_side_log(
    client: Client, stream: common_pb2.Stream, end: int, taken_by: Writer | None = None
) -> SideFold:
    """Return what an acked part of a side log comes to, from its trim offset on. Raises OffsetTrimmed if that was raised since.

    `taken_by`: the writer that has taken it over.
    """
    fold = SideFold()
    if stream.trim_offset < end:
        async for chunk in client.internal.records(stream.name, stream.stream_id, stream.trim_offset, end, taken_by):
            for record in chunk:
                fold.feed(record.offset, record.value)
    fold.staging.all_acked()
    return fold


async def read_side_log(client: Client, topic_id: int, shard_id: int) -> SideFold:
    """Return what the side log of a shard that has ended comes to. Raises Corruption, Unavailable."""
    name = side_log_name(topic_id, shard_id)
    try:
        stream = await client.metadata.describe_stream(name)
    except StreamNotFound:
        return SideFold()
    end = await client.internal.end(name, stream.stream_id)
    fold = await fold_side_log(client, stream, end)
    if fold.best is None and stream.trim_offset:
        raise Corruption(f"the side log {name} was trimmed and holds no whole snapshot")
    return fold
