"""Followers of an open range to which nothing was appended: what they cost, and how soon they have the first record."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from typing import Any, cast

import pytest

from rangelog._read.refreshing import BackgroundRefresh
from rangelog._read.stream_view import StreamView
from rangelog._read.stream_watches import StreamWatches
from rangelog_core.errors import RangelogError, StreamNotFound, Unavailable
from rangelog_core.frame import Frame, Opcode
from rangelog_core.net.data_connection import DataConnection
from rangelog_proto.v1 import common_pb2, data_pb2
from rangelog_server.serving.connection import ClientConnection
from rangelog_server.serving.handlers import HANDLERS
from tests.support.memory_cluster import Cluster
from tests.support.memory_server import MemoryServer, memory_plane
from tests.support.waiting import until

pytestmark = pytest.mark.virtual

CROWD = 30
LONG_S = 60.0


class WatchedCluster(Cluster):
    """Its placement driver says what changed when the test says so, or that the stream was deleted."""

    def __init__(self, servers: list[MemoryServer]) -> None:
        super().__init__(servers)
        self.watched: Any = StreamWatches(cast(Any, self))
        self.listed = 0
        self.error: RangelogError | None = None

    async def ranges(
        self, name: str, from_offset: int, *, stream_id: int = 0, last_only: bool = False
    ) -> tuple[common_pb2.Stream, list[common_pb2.Range]]:
        """As Metadata, after a while."""
        self.listed += 1
        await asyncio.sleep(0.01)
        if self.error is not None:
            raise self.error
        return await super().ranges(name, from_offset, stream_id=stream_id, last_only=last_only)


@pytest.fixture
async def cluster() -> AsyncIterator[WatchedCluster]:
    """Three servers that hold nothing yet."""
    async with AsyncExitStack() as stack:
        planes = [await stack.enter_async_context(memory_plane(f"rs{number}")) for number in range(3)]
        made = WatchedCluster([await MemoryServer(plane).start() for plane in planes])
        yield made
        await made.connections.close()
        for server in made.servers:
            server.stop()


def requests(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How many fetches clients send from here on, by whether they wait for a replica."""
    found: Counter[str] = Counter()
    write = DataConnection._write

    def noting(self: DataConnection, opcode: Opcode, request_id: int, message: bytes, payload: Any) -> None:
        if opcode is Opcode.FETCH:
            found["waits" if data_pb2.Fetch.FromString(message).awaits_replica else "looks"] += 1
        write(self, opcode, request_id, message, payload)

    monkeypatch.setattr(DataConnection, "_write", noting)
    return found


async def seen_by_all(seen: Sequence[list[int]], offsets: list[int]) -> float:
    """Wait for that; return how long it took, in seconds."""
    clock = asyncio.get_running_loop()
    began = clock.time()
    await until(lambda: all(each == offsets for each in seen))
    return clock.time() - began


async def test_a_crowd_costs_little_until_the_first_append(
    cluster: WatchedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four requests of each follower in two seconds, not thirty a second; all have the record as soon as it is there."""
    following = [cluster.follow() for _ in range(CROWD)]
    found = requests(monkeypatch)
    await asyncio.sleep(LONG_S)
    rounds = CROWD * (LONG_S / 2 + 1)
    assert CROWD * (LONG_S / 2 - 2) < found["waits"] <= rounds
    assert found["looks"] <= 3 * rounds
    cluster.append(1)
    assert await seen_by_all([seen for _, seen in following], [0]) < 0.1
    assert [len(server.plane.store.awaited) for server in cluster.servers] == [0, 0, 0]
    for task, _ in following:
        task.cancel()


async def test_a_server_that_the_append_does_not_reach_holds_followers_up_for_one_wait(cluster: WatchedCluster) -> None:
    """Each has waited somewhere: those who wait where nothing comes look at the others when the wait is over."""
    following = [cluster.follow() for _ in range(3)]
    await asyncio.sleep(LONG_S)
    cluster.append_to_others(0)
    assert await seen_by_all([seen for _, seen in following], [0]) < 2.2
    for task, _ in following:
        task.cancel()


async def test_a_server_that_is_gone_is_not_waited_at(cluster: WatchedCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """The others are; the record comes at once, and the cost stays what it is."""
    cluster.servers[0].stop()
    task, seen = cluster.follow()
    found = requests(monkeypatch)
    await asyncio.sleep(LONG_S)
    assert found["waits"] <= LONG_S / 2 + 1
    cluster.servers.pop(0)
    cluster.append(1)
    assert await seen_by_all([seen], [0]) < 0.1
    task.cancel()


async def test_servers_that_do_not_wait_are_looked_at_now_and_then(
    cluster: WatchedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of an earlier version refuse at once: no storm, and the record comes soon after it was appended."""
    fetch = HANDLERS[Opcode.FETCH]

    def earlier(connection: ClientConnection, frame: Frame) -> None:
        message = data_pb2.Fetch.FromString(frame.message)
        message.awaits_replica = False
        fetch(connection, frame._replace(message=message.SerializeToString()))

    monkeypatch.setitem(cast(Any, HANDLERS), Opcode.FETCH, earlier)
    task, seen = cluster.follow()
    found = requests(monkeypatch)
    await asyncio.sleep(LONG_S)
    assert LONG_S * 5 < found["waits"] <= LONG_S * 10 + 1
    cluster.append(1)
    assert await seen_by_all([seen], [0]) < 0.2
    task.cancel()


# ---- what ends a wait before its time


async def waited_s(cluster: WatchedCluster, source: common_pb2.Range, happens: Any = None) -> float:
    """How long a reader waits whose replica waits for ten seconds, if this happens after one."""
    view = StreamView(cast(Any, cluster), "s")
    view.adopt(cluster.stream, [source])
    beside = BackgroundRefresh(view, cluster.watched)
    clock = asyncio.get_running_loop()
    beside.ask(0)
    if happens is not None:
        clock.call_later(1.0, happens, beside)
    began = clock.time()
    await beside.until_changed(source, 0, asyncio.sleep(10.0))
    waited = clock.time() - began
    beside.close()
    return waited


async def test_a_wait_lasts_while_nothing_changes(cluster: WatchedCluster) -> None:
    """The placement driver was asked once, and said what was known."""
    assert await waited_s(cluster, cluster.open_range()) == pytest.approx(10.0)
    assert cluster.listed == 1


async def test_a_change_of_the_stream_ends_the_wait(cluster: WatchedCluster) -> None:
    """The range may have been sealed or removed: the reader asks."""
    changed = await waited_s(cluster, cluster.open_range(), lambda beside: beside.watch().note())
    assert changed == pytest.approx(1.0)


async def test_ranges_that_are_others_end_the_wait(cluster: WatchedCluster) -> None:
    """What was asked beside brought them: the range that is waited for was removed."""
    old = cluster.open_range()
    old.index = 7
    assert await waited_s(cluster, old) == pytest.approx(0.01)


@pytest.mark.parametrize(("error", "wait_s"), [(StreamNotFound("deleted"), 0.01), (Unavailable("away"), 10.0)])
async def test_a_deleted_stream_ends_the_wait_and_an_absent_placement_driver_does_not(
    cluster: WatchedCluster, error: RangelogError, wait_s: float
) -> None:
    """The one is raised by the next question, the other is no news."""
    cluster.error = error
    assert await waited_s(cluster, cluster.open_range()) == pytest.approx(wait_s)
