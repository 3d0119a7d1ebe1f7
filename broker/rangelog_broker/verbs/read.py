"""Reads: the records of a topic from a position on, by any broker, over all its shards.

What holds: an answer has acked records only; those of one key are in the order in which they were sent, over splits and merges.
The position behind an answer is a cut: a read from it goes on without a gap and without a repeat, at whichever broker. Records
that a filter leaves out are behind that position as well, and a request looks at a bounded number of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from datetime import datetime
from typing import NamedTuple, cast

from rangelog import Client, Cut, TopicReader, TopicRecord
from rangelog.errors import InvalidArgument, Overloaded
from rangelog_broker.verbs.caller import Caller
from rangelog_broker.verbs.counts import ReadCounts, size_of
from rangelog_broker.verbs.record_filter import EVERYTHING, RecordFilter
from rangelog_core.limits import MIB
from rangelog_core.quotas import Measure, charge
from rangelog_core.rights import Verb
from rangelog_core.topic_names import parse_topic_name
from rangelog_proto.v1.rights_pb2 import RESOURCE_KIND_TOPIC
from rangelog_server_common.quotas.guard import QuotaGuard, client_of

RECORDS_MAX = 10_000
BYTES_MAX = 8 * MIB
"""Of one answer; it has at least one record where there is one."""
WAIT_S_MAX = 60.0
READS_MAX = 64
WAITING_MAX = 1_000
"""Reads that wait for a record at the end; a further one is answered at once."""
FOLLOWS_MAX = 5_000
"""Reads without end."""
READ_TIMEOUT_S = 30.0
SCAN_RECORDS_MAX = 100_000
SCAN_BYTES_MAX = 64 * MIB
"""Of the records that one request with a filter looks at."""
SCAN_STEP = 500
"""Records without an answer after which others have their turn."""

TOPIC = int(RESOURCE_KIND_TOPIC)

ReadStart = str | Cut | datetime
""""earliest", "latest", a cut, or in each shard the first record at or after a time."""


class ReadRecords(NamedTuple):
    """Records, and where the next read goes on. `more`: so many were left out that the answer ends early."""

    records: list[TopicRecord]
    position: Cut
    more: bool = False


class FollowedRecord(NamedTuple):
    """A record, and the position behind it."""

    record: TopicRecord
    position: Cut


class Reads:
    """The verb that reads records, of one broker. For its event loop."""

    def __init__(self, client: Client, quotas: QuotaGuard) -> None:
        """`client`: one whose budgets are for doors alone."""
        self.counts = ReadCounts()
        self._client = client
        self._quotas = quotas
        self._reading_count = 0
        self._waits: dict[asyncio.Timeout, None] = {}
        self._follows: dict[Followed, None] = {}
        self._leaves = False

    async def read(
        self,
        caller: Caller,
        topic: str,
        start: ReadStart,
        *,
        records_max: int = 1_000,
        wait_s: float = 0.0,
        wanted: RecordFilter = EVERYTHING,
    ) -> ReadRecords:
        """Return the records from a position on, up to the end that is acked now.

        Args:
            caller: Who asks; it needs the right to read the topic.
            topic: "namespace/name", or a name in the namespace "default".
            start: Where to begin.
            records_max: At most so many, 1 to RECORDS_MAX.
            wait_s: Wait for so long for the first record behind the end.
            wanted: Which records. Those that are looked at count to the quota of reads, as those of the answer do.

        Returns:
            The records, perhaps none, and the position behind them.

        Raises:
            TopicNotFound, TopicKindForbids, RightMissing, InvalidArgument, OffsetTrimmed: As their names say.
            OffsetOutOfRange: A cut is beyond the end of a shard.
            Overloaded: Too many reads are under way.
            Unavailable, RequestTimeout: No copy could be read.

        Example:
            ```python
            found = await reads.read(caller, "shop/orders", "earliest")
            more = await reads.read(caller, "shop/orders", found.position, wait_s=5.0)
            ```
        """
        name = str(parse_topic_name(topic))
        if not 1 <= records_max <= RECORDS_MAX or not 0 <= wait_s <= WAIT_S_MAX:
            raise InvalidArgument(f"a read has 1 to {RECORDS_MAX} records and waits for 0 to {WAIT_S_MAX:g} s")
        await caller.require_named(Verb.READ, TOPIC, name)
        who = client_of(caller.principal)
        await self._hold(who, name)
        if start == "latest":
            start = await self._client.topics.cut(name, "tail")
        found = await self._up_to_the_end(who, name, start, records_max, wanted)
        ends_s = asyncio.get_running_loop().time() + wait_s
        while not found.records and not found.more and await self._comes(name, found.position, ends_s):
            found = await self._up_to_the_end(who, name, found.position, records_max, wanted)
        self.counts.reads += 1
        self.counts.read_records += len(found.records)
        self.counts.read_bytes += sum(map(size_of, found.records))
        return found

    async def follow(
        self,
        caller: Caller,
        topic: str,
        start: ReadStart,
        leave: Callable[[], object],
        wanted: RecordFilter = EVERYTHING,
    ) -> Followed:
        """Return the records from a position on, without end, each with the position behind it. Close it.

        Args:
            caller: Who asks; it needs the right to read the topic.
            topic: "namespace/name", or a name in the namespace "default".
            start: Where to begin.
            leave: Called once when the broker stops: the client goes on from its last position at another one.
            wanted: Which records.

        Raises:
            TopicNotFound, TopicKindForbids, RightMissing, InvalidArgument, Unavailable: At once.
            Overloaded: FOLLOWS_MAX are followed already. The iteration raises the errors of `read`.

        Example:
            ```python
            async with aclosing(await reads.follow(caller, "shop/orders", "latest", stopped.set)) as records:
                async for record, position in records:
                    print(record.value, position.to_json())
            ```
        """
        name = str(parse_topic_name(topic))
        await caller.require_named(Verb.READ, TOPIC, name)
        if self._leaves or len(self._follows) >= FOLLOWS_MAX:
            raise _too_many()
        if not isinstance(start, Cut):
            places = {"latest": "tail", "earliest": "head"}
            start = await self._client.topics.cut(name, places[start] if isinstance(start, str) else start)  # type: ignore[arg-type]
        else:
            await self._client.topics.describe(name)
        reader = self._client.topic_reader(name, start=start, follow=True, timeout_s=READ_TIMEOUT_S)
        if self._leaves or len(self._follows) >= FOLLOWS_MAX:  # meanwhile
            raise _too_many()
        followed = Followed(reader, leave, self._follows)
        followed.records = self._follow(followed, client_of(caller.principal), name, wanted)
        return followed

    @property
    def waiting_count(self) -> int:
        """Reads that wait for a record behind the end."""
        return len(self._waits)

    @property
    def follow_count(self) -> int:
        """Reads without end."""
        return len(self._follows)

    def leave(self) -> None:
        """Answer the reads that wait, end those without end, and begin none of either: the broker stops."""
        self._leaves = True
        for each in self._waits:
            if not each.expired():
                each.reschedule(asyncio.get_running_loop().time())
        for one in list(self._follows):
            one.leave()

    # ---- inside

    async def _up_to_the_end(
        self, who: str | None, name: str, start: ReadStart, records_max: int, wanted: RecordFilter
    ) -> ReadRecords:
        if self._reading_count >= READS_MAX:
            raise Overloaded(f"{READS_MAX} reads are under way: try again")
        self._reading_count += 1
        try:
            reader = self._client.topic_reader(name, start=start, timeout_s=READ_TIMEOUT_S)
            records: list[TopicRecord] = []
            size_bytes = seen_count = seen_bytes = 0
            more = False
            async with aclosing(_records_of(reader)) as each:
                async for record in each:
                    seen_count += 1
                    seen_bytes += size_of(record)
                    if wanted.wants(record):
                        records.append(record)
                        size_bytes += size_of(record)
                    elif seen_count % SCAN_STEP == 0:
                        await asyncio.sleep(0)
                    if len(records) >= records_max or size_bytes >= BYTES_MAX:
                        break
                    if seen_count >= SCAN_RECORDS_MAX or seen_bytes >= SCAN_BYTES_MAX:
                        more = True
                        break
                self._charge(who, name, seen_bytes)
                return ReadRecords(records, reader.position(), more)
        finally:
            self._reading_count -= 1

    async def _follow(
        self, of: Followed, who: str | None, name: str, wanted: RecordFilter
    ) -> AsyncGenerator[FollowedRecord, None]:
        left_out = 0
        async with aclosing(_records_of(of.reader)) as records:
            async for record in records:
                size_bytes = size_of(record)
                if not wanted.wants(record):
                    self._charge(who, name, size_bytes)
                    left_out += 1
                    if left_out % SCAN_STEP == 0:
                        await self._hold(who, name)
                        await asyncio.sleep(0)
                    continue
                of.withholds = True
                await self._hold(who, name)
                of.withholds = False
                self._charge(who, name, size_bytes)
                self.counts.read_records += 1
                self.counts.read_bytes += size_bytes
                yield FollowedRecord(record, of.reader.position())

    async def _hold(self, who: str | None, name: str) -> None:
        if who is not None and self._quotas.book.any:
            await self._quotas.hold(who, Measure.READ, 0, READ_TIMEOUT_S, name)

    def _charge(self, who: str | None, name: str, size_bytes: int) -> None:
        if who is not None and self._quotas.book.any:
            charge(self._quotas.book.buckets(who, name, Measure.READ), self._quotas.now_us(), size_bytes)

    async def _comes(self, name: str, start: Cut, ends_s: float) -> bool:
        """Wait until a time of the loop for a record behind a position; return whether there is one."""
        loop = asyncio.get_running_loop()
        if self._leaves or self.waiting_count >= WAITING_MAX or loop.time() >= ends_s:
            return False
        limit = asyncio.timeout_at(ends_s)
        try:
            async with limit:
                self._waits[limit] = None
                reader = self._client.topic_reader(name, start=start, follow=True, timeout_s=READ_TIMEOUT_S)
                async with aclosing(_records_of(reader)) as each:
                    async for _ in each:
                        return True
                return False
        except TimeoutError:
            return False
        finally:
            self._waits.pop(limit, None)


class Followed:
    """The records of a topic as they come: an asynchronous iterator of FollowedRecords. Close it."""

    def __init__(self, reader: TopicReader, leave: Callable[[], object], all_of_them: dict[Followed, None]) -> None:
        self.reader = reader
        self.leave = leave
        self.withholds = False
        self.records: AsyncGenerator[FollowedRecord, None]
        self._all = all_of_them
        all_of_them[self] = None

    def __aiter__(self) -> AsyncGenerator[FollowedRecord, None]:
        return self.records

    async def next(self) -> FollowedRecord:
        """Return the next record. Raises StopAsyncIteration."""
        return await anext(self.records)

    @property
    def passed(self) -> Cut | None:
        """The position behind all records that were returned or left out; None: a record is held back now."""
        return None if self.withholds else self.reader.position()

    async def aclose(self) -> None:
        """End it."""
        self._all.pop(self, None)
        await self.records.aclose()


def _too_many() -> Overloaded:
    return Overloaded(f"{FOLLOWS_MAX} readers follow topics at this broker, or it stops: ask another one")


def _records_of(reader: TopicReader) -> AsyncGenerator[TopicRecord, None]:
    return cast(AsyncGenerator[TopicRecord, None], aiter(reader))
