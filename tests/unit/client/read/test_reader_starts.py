"""Where readers begin and end: at what may be believed, at a time, at their own position, on the stream they were given."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from typing import Any, cast

import pytest

from rangelog._read import proof as proof_module
from rangelog._read import reader as reader_module
from rangelog._read.stream_view import StreamView, confirmed_end
from rangelog_core.errors import OffsetOutOfRange, StreamNotFound, Unavailable
from rangelog_proto.v1 import common_pb2
from rangelog_server.testing import batch
from tests.support.memory_cluster import Cluster, at_once
from tests.support.memory_server import MemoryServer, memory_plane
from tests.support.waiting import until

pytestmark = pytest.mark.virtual


@pytest.fixture
async def cluster(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Cluster]:
    """Three servers that hold nothing yet; nobody waits long."""
    monkeypatch.setattr(proof_module, "CONFIRM_WAIT_MS", 5)
    monkeypatch.setattr(reader_module, "_LONG_POLL_MS", 20)
    async with AsyncExitStack() as stack:
        planes = [await stack.enter_async_context(memory_plane(f"rs{number}")) for number in range(3)]
        made = Cluster([await MemoryServer(plane).start() for plane in planes])
        yield made
        await made.connections.close()
        for server in made.servers:
            server.stop()


def append_to(cluster: Cluster, numbers: list[int], count: int) -> None:
    """Batches of one record that only some replicas have; nothing is said of acks."""
    for offset in range(cluster.end, cluster.end + count):
        for number in numbers:
            cluster.servers[number].append(batch(offset, [b"%d" % offset]))
    cluster.end += count


def at(timestamp_ms: int) -> datetime:
    """The records' timestamps are their offsets."""
    return datetime.fromtimestamp(timestamp_ms / 1000, UTC)


async def offsets(cluster: Cluster, **options: object) -> list[int]:
    """What a reader shows until it ends."""
    return [record.offset async for record in cluster.reader(**options)]


async def test_a_bounded_read_shows_what_was_arbitrated(cluster: Cluster) -> None:
    """Two replicas hold three records that nobody confirmed: the floor is put under them before they are shown."""
    cluster.append(2)
    append_to(cluster, [0, 1], 3)
    assert await offsets(cluster) == [0, 1, 2, 3, 4]
    assert cluster.floor_offset == 5


async def test_without_arbitration_a_bounded_read_ends_at_the_confirm_offset(cluster: Cluster) -> None:
    """The placement driver and the writer are silent: what a seal could still cut is not shown."""
    cluster.arbitrates = False
    cluster.append(2)
    append_to(cluster, [0, 1, 2], 3)
    assert await offsets(cluster) == [0, 1]


async def test_a_start_at_latest_is_not_beyond_what_may_be_cut(cluster: Cluster) -> None:
    """A consumer that starts at the end must find its position again whatever becomes of the writer."""
    cluster.arbitrates = False
    cluster.append(2)
    append_to(cluster, [0, 1, 2], 3)
    reader = cluster.reader(start="latest")
    assert [record async for record in reader] == []
    assert reader.position == 2


async def test_a_position_is_refused_only_where_the_end_is_certain(cluster: Cluster) -> None:
    """Beyond a certain end: OffsetOutOfRange. With a replica silent it may be that one which has it: try again."""
    cluster.append(2)
    with pytest.raises(OffsetOutOfRange):
        await offsets(cluster, start=3)
    cluster.servers[2].stop()
    with pytest.raises(Unavailable):
        await offsets(cluster, start=3, timeout_s=0.1)


async def test_a_reader_waits_for_its_own_position(cluster: Cluster) -> None:
    """A consumer comes back at its position while the replicas that can prove it are away: it goes on when they are there."""
    cluster.append(2)
    append_to(cluster, [0], 1)
    away = cluster.servers[0].replica.data_address
    cluster.servers[0].replica.data_address = "127.0.0.1:1"
    reading = asyncio.create_task(offsets(cluster, start=3))
    await asyncio.sleep(0)
    for number in (1, 2):
        cluster.servers[number].append(batch(2, [b"2"]))
    cluster.servers[0].replica.data_address = away
    assert await asyncio.wait_for(reading, 5) == []


@pytest.mark.parametrize("behind", [0, 1, 2])
async def test_a_start_by_time_asks_a_replica_that_has_looked(cluster: Cluster, behind: int) -> None:
    """The replica that answers first lacks the records of that time: another one has them, and none is skipped."""
    cluster.append(5)
    append_to(cluster, [number for number in range(3) if number != behind], 5)
    for server in cluster.servers:
        server.confirm(10)
    assert await offsets(cluster, start=at(7)) == [7, 8, 9]
    assert await offsets(cluster, start=at(3)) == [3, 4, 5, 6, 7, 8, 9]
    assert await offsets(cluster, start=at(50)) == []


async def test_a_start_by_time_never_takes_behind_for_absent(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a replica that lacks the records answers: that is an error to try again, not the end of the stream."""
    monkeypatch.setattr(proof_module, "backoff", at_once)
    cluster.append(5)
    cluster.floor_offset = 10  # two others hold them, and are away
    for number in (1, 2):
        cluster.servers[number].stop()
    with pytest.raises(Unavailable):
        await offsets(cluster, start=at(7), timeout_s=0.1)


async def test_a_reader_stays_on_its_stream(cluster: Cluster) -> None:
    """The stream is deleted and another one has its name: the reader is told, and shown nothing of the other one."""
    cluster.append(3)
    following, seen = cluster.follow()
    await until(lambda: len(seen) >= 3, within_s=5)
    cluster.stream = common_pb2.Stream(stream_id=2, name="s", epoch=1)
    for server in cluster.servers:
        server.plane.store.drop(1, 0, lambda: None)
        server.plane.store.wal.kick()
    with pytest.raises(StreamNotFound):
        await asyncio.wait_for(following, 5)
    assert seen == [0, 1, 2]


async def test_a_range_that_was_dropped_is_not_taken_for_empty(cluster: Cluster) -> None:
    """The range was sealed, tiered and dropped while its end was asked for: the placement driver is asked again."""
    cluster.append(3)
    for server in cluster.servers:
        server.plane.store.drop(1, 0, lambda: None)
        server.plane.store.wal.kick()
    asked = 0
    ranges = cluster.ranges

    async def moved(name: str, from_offset: int, *, stream_id: int = 0, last_only: bool = False) -> Any:
        nonlocal asked
        asked += 1
        assert last_only
        stream, (source,) = await ranges(name, from_offset, stream_id=stream_id)
        if asked > 1:
            source.state, source.end_offset, source.hot_dropped = common_pb2.RANGE_STATE_SEALED, 3, True
        return stream, [source]

    cluster.ranges = moved  # type: ignore[method-assign]
    view = StreamView(cast(Any, cluster), "s")
    end = await confirmed_end(view, cluster.connections)
    assert (end.offset, end.exact, asked) == (3, True, 2)


async def test_a_follower_that_starts_in_the_future_is_shown_nothing_earlier(cluster: Cluster) -> None:
    """The stream has nothing of that time yet: what comes before it is passed over, in the middle of a batch as well."""
    cluster.append(3)
    following, seen = cluster.follow(start=at(7))
    await cluster.heard_from_all()
    cluster.append(2)
    data = batch(5, [b"%d" % number for number in range(5, 9)])
    for server in cluster.servers:
        server.append(data)
        server.confirm(9)
    cluster.end = 9
    cluster.append(1)
    await until(lambda: len(seen) >= 3)
    assert seen == [7, 8, 9]
    following.cancel()
    await asyncio.wait([following])


async def test_a_follower_does_not_wait_for_the_placement_driver(cluster: Cluster) -> None:
    """It does not answer for as long as one likes: what is acked is shown at once all the same, and the reader lives on."""
    cluster.append(1)
    following, seen = cluster.follow(timeout_s=0.1)
    await until(lambda: seen == [0])
    asked = asyncio.Event()

    async def never(*_: Any, **__: Any) -> Any:
        asked.set()
        await asyncio.Event().wait()

    cluster.ranges = never  # type: ignore[method-assign]
    await asyncio.wait_for(asked.wait(), 5)
    for _ in range(20):
        cluster.append(1)
        await until(lambda: len(seen) == cluster.end)
    assert not following.done()
    following.cancel()
    await asyncio.wait([following])
