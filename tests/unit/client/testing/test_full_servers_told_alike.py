"""Range servers without room are told alike by streams, topics, transactions, tables and groups: the class, the words, at once.

What is behind each is the servers' own code, in memory. With `test_siblings` of what reads.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any

import pytest

from rangelog.errors import Overloaded, RangelogError, StorageFull
from rangelog.testing import FakeCluster
from rangelog.testing.range_server import FakeRangeServer
from rangelog.testing.session import FakeSession
from rangelog_core.frame import Frame, Opcode
from rangelog_proto.v1 import data_pb2
from tests.support.waiting import until, until_arrived


class Disks:
    """The disks of all range servers in memory."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.full = False
        self.error: RangelogError = StorageFull("no room in the log: No space left on device")
        self.refused = 0
        take = FakeRangeServer.take

        def take_or_refuse(server: FakeRangeServer, session: FakeSession, frame: Frame) -> None:
            if not self.full or frame.opcode is not Opcode.APPEND:
                return take(server, session, frame)
            message = data_pb2.Append.FromString(frame.message)
            self.refused += 1
            return session.refuse(0, self.error, stream_id=message.stream_id, range_index=message.range_index)

        monkeypatch.setattr(FakeRangeServer, "take", take_or_refuse)


Acts = dict[str, Callable[[], Awaitable[Any]]]


@pytest.fixture
def disks(monkeypatch: pytest.MonkeyPatch) -> Disks:
    """They have room at first."""
    return Disks(monkeypatch)


@pytest.fixture
def cluster(disks: Disks) -> Iterator[FakeCluster]:
    """With a broker."""
    with FakeCluster(brokers=1) as made:
        yield made


@pytest.fixture
async def acts(cluster: FakeCluster, disks: Disks) -> AsyncIterator[Acts]:
    """Each has worked once."""
    async with cluster.client() as client:
        await client.create_stream("s")
        await client.topics.create("t", shards=1)
        await client.tables.create("rows", partitions=1)
        table = client.table("rows")
        await table.put(b"k", b"0")
        async with (
            client.writer("s") as writer,
            client.producer("t") as producer,
            client.transactional("job") as job,
            client.group("g", "t", auto_commit_s=None) as member,
        ):
            await writer.append(b"0")
            await producer.send(b"0")
            async for _ in member:
                break
            await member.commit()
            async with job.transaction() as transaction:
                await transaction.send("t", b"staged")

            async def in_a_transaction() -> None:
                async with job.transaction() as transaction:
                    await transaction.send("t", b"x")

            yield {
                "stream": partial(writer.append, b"x"),
                "streams, many": partial(writer.append_all, [b"x"]),
                "topic": partial(producer.send, b"x"),
                "topic, many": partial(producer.send_batch, [b"x"]),
                "transaction": in_a_transaction,
                "table": partial(table.put, b"k", b"x"),
                "table, read": partial(table.get, b"k"),
                "group": partial(client.groups.retain, "g"),
                "group, read": partial(client.groups.describe, "g"),
            }
            disks.full = False
            for way in (writer, producer):
                await until_told_of_room(way)


async def until_told_of_room(way: Any) -> None:
    """Its end flushes, which is refused until then."""

    async def flushed() -> bool:
        with suppress(StorageFull):
            await way.flush()
            return True
        return False

    await until(flushed)


CURE = "what was taken is tried again until there is room: free space, or add servers"
WAYS = (
    "stream", "streams, many", "topic", "topic, many", "transaction", "table", "table, read", "group", "group, read",
)  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
async def test_full_disks(acts: Acts, disks: Disks, way: str) -> None:
    """Told with what to do, twice, and before the time is over, which is another error; then all works again."""
    disks.full = True
    for _ in range(2):
        with pytest.raises(StorageFull, match=r"no room at (fake|\w+).*No space left on device") as told:
            await acts[way]()
        assert CURE in told.value.message and told.value.retriable
    disks.full = False

    async def works() -> bool:
        with suppress(StorageFull):
            await acts[way]()
            return True
        return False

    await until(works)


@pytest.mark.parametrize("way", WAYS)
async def test_segments_that_are_not_ready_are_waited_for(acts: Acts, disks: Disks, way: str) -> None:
    """Servers that only prepare their next segment tell of overload: the writer goes on to other ranges until one takes it."""
    disks.error, disks.full = Overloaded("the next segment of the log is not ready yet: try again"), True
    acting = asyncio.ensure_future(acts[way]())
    await until(lambda: disks.refused > 3 or acting.done())
    assert not acting.done(), acting
    disks.full = False
    await acting


async def test_a_transaction_without_room_can_be_committed_later(cluster: FakeCluster, disks: Disks) -> None:
    """Its commit says so, and leaves it open: all of it appears once."""
    async with cluster.client() as client:
        await client.topics.create("t", shards=1)
        async with client.transactional("job") as job:
            transaction = job.transaction()
            await transaction.begin()
            disks.full = True
            for number in range(3):
                await transaction.submit("t", b"%d" % number)
            with pytest.raises(StorageFull):
                await transaction.commit()
            disks.full = False

            async def committed() -> bool:
                with suppress(StorageFull):
                    await transaction.commit()
                    return True
                return False

            await until(committed)

        async def records() -> list[bytes]:
            return [record.value async for record in client.topic_reader("t")]

        await until_arrived(records, [b"0", b"1", b"2"], "what was committed")
