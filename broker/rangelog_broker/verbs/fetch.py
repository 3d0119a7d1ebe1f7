"""Fetches: the batches of a shard from an offset on, at any broker, and where a time or the end is.

What holds:
- An answer has acked records only, consecutive from the offset on, whichever broker gives it, and whatever is owned meanwhile.
  A broker that has lost the shard may show too early an end, but never refuses an offset for that.
- At the owner a fetch at the end waits for the next ack without a read; the last batches come from memory, earlier ones from
  the range servers or the tier, read ahead.
- All fetches of a broker together have one limit of memory; a slow client holds what it was answered, and nothing more.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from datetime import datetime
from types import TracebackType
from typing import Literal, NamedTuple, Protocol

from rangelog import Client
from rangelog.errors import InvalidArgument, NotOwner, OffsetOutOfRange, Overloaded, ShardEnded, TopicKindForbids
from rangelog.ranges import WholeBatch
from rangelog_broker.shards.finished import TopicAndShard
from rangelog_broker.shards.shard import OwnedShard
from rangelog_broker.shards.tail import FetchMemory, Tail
from rangelog_broker.verbs.caller import Caller
from rangelog_broker.verbs.counts import FetchCounts
from rangelog_broker.verbs.log_reads import LogReads, size_of
from rangelog_core.ids import shard_stream_name
from rangelog_core.limits import BATCH_SIZE_BYTES_MAX, MIB, OFFSET_MAX
from rangelog_core.rights import Verb
from rangelog_proto.v1 import topic_pb2
from rangelog_proto.v1.rights_pb2 import RESOURCE_KIND_TOPIC
from rangelog_server_common.quotas.guard import QuotaGuard

WAIT_S_MAX = 60.0
BYTES_MAX = 2 * BATCH_SIZE_BYTES_MAX
WAITING_MAX = 20_000
"""Fetches that wait for acks at this broker; a further one is answered at once."""
READS_AT_ONCE = 64
FOLLOWS_AT_ONCE = 256
"""Fetches that wait for acks of shards that others own; a further one is answered at once."""
ROOM_S_MAX = 10.0
"""A fetch waits for so long for memory before it is refused."""
TAIL_S = 2 * WAIT_S_MAX
"""A tail that nobody fetches from is kept for so long."""
SWEEP_S = 5.0

_TOPIC = int(RESOURCE_KIND_TOPIC)
_Key = tuple[int, int]


class FetchableShards(Protocol):
    """The shards of this broker."""

    def owned(self, topic_id: int, shard_id: int) -> OwnedShard:
        """Return an open shard. Raises NotOwner, ShardEnded."""


class FetchableRows(Protocol):
    """The rows of the placement driver."""

    async def topic_and_shard(self, topic_id: int, shard_id: int) -> TopicAndShard:
        """Return both rows. Raises TopicNotFound, ShardNotFound, Unavailable."""


class FetchedBatches:
    """An answer. Use it as a context, or `release` it once its batches are sent: until then they count in the memory.

    `next_offset`: where the next fetch goes on. `end_offset`: where the shard was acked up to; None: not known here.
    `is_last`: the shard has ended there, and `next_offset` is its end.
    """

    __slots__ = ("_memory", "_size_bytes", "batches", "end_offset", "is_last", "next_offset")

    def __init__(
        self,
        memory: FetchMemory,
        batches: Sequence[WholeBatch],
        next_offset: int,
        end_offset: int | None,
        *,
        is_last: bool = False,
    ) -> None:
        self.batches = batches
        self.next_offset = next_offset
        self.end_offset = end_offset
        self.is_last = is_last
        self._memory = memory
        self._size_bytes = size_of(batches)

    @property
    def size_bytes(self) -> int:
        """The bytes of the batches."""
        return sum(len(each.data) for each in self.batches)

    def release(self) -> None:
        """Give the memory back. Idempotent."""
        size_bytes, self._size_bytes = self._size_bytes, 0
        self._memory.give_back(size_bytes)

    def __enter__(self) -> FetchedBatches:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


class _Wanted(NamedTuple):
    """The place and limits of a fetch; `until_s`: it waits up to that time of the loop."""

    offset: int
    bytes_min: int
    bytes_max: int
    until_s: float


class _Watch:
    """The tail of one shard, for those who wait for its next ack."""

    def __init__(self, shard: OwnedShard, memory: FetchMemory) -> None:
        self.shard = shard
        self.tail: Tail = shard.keep_tail(memory)
        self.tail.on_acked = self._wake
        self.used_s = 0.0
        self._acked: asyncio.Future[None] | None = None

    async def wait(self, until_s: float) -> None:
        """Return once the shard is acked further, the tail is closed, or the time is over."""
        loop = asyncio.get_running_loop()
        if self._acked is None:
            self._acked = loop.create_future()
        await asyncio.wait([self._acked], timeout=until_s - loop.time())

    def _wake(self) -> None:
        acked, self._acked = self._acked, None
        if acked is not None:
            acked.set_result(None)


class Fetches:
    """The verbs on what shards hold, of one broker. For its event loop; `close` it."""

    def __init__(
        self, shards: FetchableShards, rows: FetchableRows, client: Client, quotas: QuotaGuard, bytes_max: int
    ) -> None:
        """`bytes_max`: the limit of memory."""
        self.counts = FetchCounts()
        self.memory = FetchMemory(bytes_max)
        self.memory.on_room = self._has_room
        self._shards = shards
        self._rows = rows
        self._client = client
        self._quotas = quotas
        self._reads = LogReads(self.memory, READS_AT_ONCE, self._reserve)
        self._follows = LogReads(self.memory, FOLLOWS_AT_ONCE, self._reserve)
        self._watches: dict[_Key, _Watch] = {}
        self._waiting_count = 0
        self._for_room: deque[asyncio.Future[None]] = deque()
        self._sweeping: asyncio.TimerHandle | None = None

    async def fetch(
        self,
        caller: Caller,
        topic_id: int,
        shard_id: int,
        offset: int,
        *,
        bytes_min: int = 1,
        bytes_max: int = MIB,
        wait_s: float = 0.0,
    ) -> FetchedBatches:
        """Return the batches from an offset on.

        Args:
            caller: Who asks; it needs the right to read the topic.
            topic_id: The topic.
            shard_id: A shard of it, ended or not.
            offset: Where to begin; the end of the shard is valid.
            bytes_min: Wait until there are so many bytes, at the owner; elsewhere until there are any.
            bytes_max: At most so many, but at least one batch where there is one.
            wait_s: Wait for so long at most; then the answer has what is there, perhaps nothing.

        Returns:
            The answer, which the caller releases.

        Raises:
            OffsetOutOfRange: The offset is beyond the end, which is the error's `offset`.
            OffsetTrimmed: It is below the first record that is left, which is the error's `offset`.
            TopicNotFound, ShardNotFound, TopicKindForbids, RightMissing, InvalidArgument: As their names say.
            Overloaded: Too many fetches read, or their answers take up all memory.
            Unavailable: No copy could be read.

        Example:
            ```python
            with await fetches.fetch(caller, 7, 0, 120, wait_s=5.0) as fetched:
                for batch in fetched.batches:
                    send(batch.data)
            ```
        """
        _check_bounds(offset, bytes_min, bytes_max, wait_s)
        await caller.require(Verb.READ, _TOPIC, topic_id)
        counted = await self._quotas.hold_read(caller.principal, (_TOPIC, topic_id))
        wanted = _Wanted(offset, bytes_min, bytes_max, asyncio.get_running_loop().time() + wait_s)
        fetched = await self._fetch((topic_id, shard_id), wanted)
        size_bytes = fetched.size_bytes
        self.counts.fetches += 1
        self.counts.sent_bytes += size_bytes
        if counted is not None:
            counted(size_bytes)
        return fetched

    async def find(
        self, caller: Caller, topic_id: int, shard_id: int, start: Literal["earliest", "latest"] | datetime
    ) -> int:
        """Return an offset of a shard: of the first record that is left, the end, or of the first record at or after a time.

        Raises TopicNotFound, ShardNotFound, TopicKindForbids, RightMissing, InvalidArgument, Unavailable.
        """
        await caller.require(Verb.READ, _TOPIC, topic_id)
        await self._quotas.hold_read(caller.principal, (_TOPIC, topic_id))
        if start == "latest":
            try:
                return self._shards.owned(topic_id, shard_id).confirm_offset
            except (NotOwner, ShardEnded):
                pass
        row = await self._row((topic_id, shard_id))
        if start == "latest" and row.ended_version:
            return row.end_offset
        return await self._client.internal.find(shard_stream_name(topic_id, shard_id), row.stream_id, start)

    async def close(self) -> None:
        """End the reads; fetches that wait are for their doors to cancel. Idempotent."""
        if self._sweeping is not None:
            self._sweeping.cancel()
            self._sweeping = None
        for watch in self._watches.values():
            watch.shard.drop_tail()
        self._watches.clear()
        await self._reads.close()
        await self._follows.close()

    @property
    def waiting_count(self) -> int:
        """Fetches that wait for acks at this broker."""
        return self._waiting_count

    # ---- inside

    async def _fetch(self, key: _Key, wanted: _Wanted) -> FetchedBatches:
        while True:
            try:
                shard = self._shards.owned(*key)
            except (NotOwner, ShardEnded):
                return await self._elsewhere(key, wanted)
            if shard.closed is not None:
                return await self._elsewhere(key, wanted)
            fetched = await self._owned(self._watch(shard), wanted)
            if fetched is not None:
                return fetched

    async def _owned(self, watch: _Watch, wanted: _Wanted) -> FetchedBatches | None:
        """Fetch at the owner. None: it is the owner no longer."""
        tail, offset, loop = watch.tail, wanted.offset, asyncio.get_running_loop()
        proved = False
        while not tail.is_closed:
            watch.used_s = loop.time()
            if offset < tail.start_offset:
                return await self._from_log(watch.shard.key, watch.shard.row.stream_id, wanted, tail.end_offset)
            if offset > tail.end_offset:
                if proved:
                    raise _beyond(offset, tail.end_offset)
                proved = await _proves(watch.shard)  # a later owner may have acked beyond this one's end
                continue
            may_wait = loop.time() < wanted.until_s and self._waiting_count < WAITING_MAX
            if may_wait and tail.size_from(offset, wanted.bytes_min) < wanted.bytes_min:
                await self._wait(watch, wanted.until_s)
            elif offset == tail.end_offset:
                return FetchedBatches(self.memory, (), offset, offset)
            elif self._for_room or not self.memory.has_room:
                await self._reserve(0)  # and look again: tails have made room meanwhile
            else:
                return self._answer(tail, wanted)
        return None

    def _answer(self, tail: Tail, wanted: _Wanted) -> FetchedBatches:
        self.counts.from_memory += 1
        batches = [
            WholeBatch(header, data, max(wanted.offset, header.base_offset), header.end_offset)
            for header, data in tail.batches_from(wanted.offset, wanted.bytes_max)
        ]
        self.memory.take(size_of(batches))
        return FetchedBatches(self.memory, batches, batches[-1].end, tail.end_offset)

    async def _elsewhere(self, key: _Key, wanted: _Wanted) -> FetchedBatches:
        """Fetch from the log alone: another broker owns the shard, or it has ended."""
        offset = wanted.offset
        row = await self._row(key)
        if row.ended_version:
            end = row.end_offset
            if offset > end:
                raise _beyond(offset, end)
            if offset == end:
                return FetchedBatches(self.memory, (), end, end, is_last=True)
        elif self._reads.goes_on((*key, offset)):
            end = offset
        else:
            proved = await self._client.internal.proved_end(shard_stream_name(*key), row.stream_id)
            proved.check_reached(offset, of="the shard")
            end = proved.offset
            if offset == end:
                return await self._follow(key, row.stream_id, wanted)
        return await self._from_log(key, row.stream_id, wanted, end)

    async def _follow(self, key: _Key, stream_id: int, wanted: _Wanted) -> FetchedBatches:
        """Wait at the end of a shard that another broker owns."""
        batches: Sequence[WholeBatch] = ()
        if asyncio.get_running_loop().time() < wanted.until_s and not self._follows.is_busy:
            batches = await self._read(self._follows, key, stream_id, wanted, None)
        return FetchedBatches(self.memory, batches, batches[-1].end if batches else wanted.offset, None)

    async def _from_log(self, key: _Key, stream_id: int, wanted: _Wanted, end: int) -> FetchedBatches:
        """Read what lies below an acked end."""
        batches = await self._read(self._reads, key, stream_id, wanted, end)
        return FetchedBatches(self.memory, batches, batches[-1].end, max(end, batches[-1].end))

    async def _read(
        self, reads: LogReads, key: _Key, stream_id: int, wanted: _Wanted, end: int | None
    ) -> list[WholeBatch]:
        self.counts.from_log += 1
        name = shard_stream_name(*key)
        open_read = lambda: self._client.internal.batches(name, stream_id, wanted.offset, end)  # noqa: E731
        self._sweep_later()
        until_s = wanted.until_s if end is None else float("inf")
        return await reads.read((*key, wanted.offset), open_read, end, wanted.bytes_max, until_s)

    async def _row(self, key: _Key) -> topic_pb2.Shard:
        topic, row = await self._rows.topic_and_shard(*key)
        if topic.config.kind == topic_pb2.TOPIC_KIND_TABLE:
            raise TopicKindForbids(f"topic {key[0]} is a table: read its rows")
        return row

    def _watch(self, shard: OwnedShard) -> _Watch:
        watch = self._watches.get(shard.key)
        if watch is None or watch.tail.is_closed:
            watch = self._watches[shard.key] = _Watch(shard, self.memory)
            self._sweep_later()
        return watch

    async def _wait(self, watch: _Watch, until_s: float) -> None:
        self._waiting_count += 1
        try:
            await watch.wait(until_s)
        finally:
            self._waiting_count -= 1

    async def _reserve(self, size_bytes: int) -> None:
        """Take memory, in turn, once answers leave room. Raises Overloaded."""
        if self._for_room or not self.memory.has_room:
            mine: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._for_room.append(mine)
            await asyncio.wait([mine], timeout=ROOM_S_MAX)
            if not mine.done():
                mine.cancel()
                raise Overloaded("the answers to fetches take up all memory that they may: try again")
        self.memory.take(size_bytes)
        self._has_room()

    def _has_room(self) -> None:
        """Let the next fetch go on that waits for memory."""
        while self._for_room and self.memory.has_room:
            first = self._for_room.popleft()
            if not first.done():
                first.set_result(None)
                return

    def _sweep_later(self) -> None:
        if self._sweeping is None:
            self._sweeping = asyncio.get_running_loop().call_later(SWEEP_S, self._sweep)

    def _sweep(self) -> None:
        """Drop the tails and readers that were not used lately."""
        self._sweeping = None
        now_s = asyncio.get_running_loop().time()
        for key, watch in list(self._watches.items()):
            if watch.tail.is_closed or now_s - watch.used_s > TAIL_S:
                del self._watches[key]
                watch.shard.drop_tail()
        for reads in (self._reads, self._follows):
            reads.drop_idle(now_s)
        if self._watches or self._reads.kept_count or self._follows.kept_count:
            self._sweep_later()


async def _proves(shard: OwnedShard) -> bool:
    """Whether no other broker has opened the shard. Raises Unavailable."""
    try:
        await shard.prove()
    except NotOwner:
        return False
    return True


def _beyond(offset: int, end_offset: int) -> OffsetOutOfRange:
    return OffsetOutOfRange(f"offset {offset} is beyond the end of the shard, which is {end_offset}", offset=end_offset)


def _check_bounds(offset: int, bytes_min: int, bytes_max: int, wait_s: float) -> None:
    """Raise InvalidArgument for what no fetch may ask."""
    if not 0 <= offset <= OFFSET_MAX:
        raise InvalidArgument(f"offset {offset}: it is 0 to {OFFSET_MAX}")
    if not 0 < bytes_max <= BYTES_MAX or not 0 <= bytes_min <= BYTES_MAX:
        raise InvalidArgument(f"a fetch of {bytes_min} to {bytes_max} bytes: the limit is {BYTES_MAX}")
    if not 0 <= wait_s <= WAIT_S_MAX:
        raise InvalidArgument(f"a fetch that waits for {wait_s:g} s: the limit is {WAIT_S_MAX:g} s")
