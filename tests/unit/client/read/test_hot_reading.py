"""Readers of hot ranges, against range servers in memory that push: what they show, whom they turn to, what they leave."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from typing import Any, cast

import pytest

from rangelog._read import proof as proof_module
from rangelog._read import pushed_fetch as pushed_fetch_module
from rangelog._read import reader as reader_module
from rangelog._read.hot import HotRange
from rangelog._read.stream_view import StreamView
from rangelog_core.batch_extension import encode_extension
from rangelog_core.errors import UnsupportedVersion
from rangelog_core.frame import Frame, Opcode
from rangelog_core.net.budgets import FetchBudget
from rangelog_core.net.data_connection import DataConnection, replica_id
from rangelog_core.net.replica_client import range_key
from rangelog_core.versions import VersionRange
from rangelog_proto.v1 import common_pb2, data_pb2, pd_pb2
from rangelog_server.serving.handlers import hello
from rangelog_server.testing import batch
from tests.support.memory_cluster import Cluster, at_once
from tests.support.memory_server import MemoryServer, memory_plane
from tests.support.waiting import until

pytestmark = pytest.mark.virtual


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    """Three servers that hold nothing yet."""
    async with AsyncExitStack() as stack:
        planes = [await stack.enter_async_context(memory_plane(f"rs{number}")) for number in range(3)]
        made = Cluster([await MemoryServer(plane).start() for plane in planes])
        yield made
        await made.connections.close()
        for server in made.servers:
            server.stop()


def sent(monkeypatch: pytest.MonkeyPatch) -> list[data_pb2.Fetch]:
    """The fetches that clients send from here on."""
    found: list[data_pb2.Fetch] = []
    write = DataConnection._write

    def noting(self: DataConnection, opcode: Opcode, request_id: int, message: bytes, payload: Any) -> None:
        if opcode is Opcode.FETCH:
            found.append(data_pb2.Fetch.FromString(message))
        write(self, opcode, request_id, message, payload)

    monkeypatch.setattr(DataConnection, "_write", noting)
    return found


async def test_catching_up_is_one_request(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything comes in order from one fetch and the credit it is given; little of it is ever under way."""
    monkeypatch.setattr(pushed_fetch_module, "REPLY_BYTES", 3_000)
    monkeypatch.setattr(pushed_fetch_module, "CREDIT_BYTES", 9_000)
    cluster.append(100)
    fetches = sent(monkeypatch)
    offsets = [record.offset async for record in cluster.reader()]
    assert offsets == list(range(100))
    asked = [fetch for fetch in fetches if fetch.bytes_max > 0]
    granted = [fetch.credit_bytes for fetch in fetches if fetch.renews and fetch.credit_bytes]
    assert [fetch.offset for fetch in asked] == [0]
    assert granted and max(granted) <= 9_000 and sum(granted) <= 100 * 1_100
    await until(lambda: cluster.fetches() == [0, 0, 0])


async def test_following(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is confirmed comes by itself, and nothing before it is confirmed."""
    cluster.append(2)
    following, seen = cluster.follow()
    await until(lambda: seen == [0, 1])
    fetches = sent(monkeypatch)
    for _ in range(20):
        cluster.append(1)
        await until(lambda: len(seen) == cluster.end)
    assert fetches == []
    cluster.append(1, confirmed=False)
    await cluster.heard_from_all()
    assert seen == list(range(22))
    following.cancel()
    await asyncio.wait([following])
    await until(lambda: cluster.fetches() == [0, 0, 0])


@pytest.mark.parametrize("start", ["earliest", datetime.fromtimestamp(0, UTC)])
async def test_servers_of_another_version_are_an_error_not_a_wait(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, start: Any
) -> None:
    """Where no replica has a version in common with the reader, it raises what to upgrade, at once."""
    cluster.append(3)
    monkeypatch.setattr(hello, "DATA_PLANE_VERSIONS", VersionRange(7, 9))
    monkeypatch.setattr(proof_module, "backoff", at_once)
    with pytest.raises(UnsupportedVersion, match="client supports 1, the range server 7 to 9: upgrade the client"):
        await asyncio.wait_for(anext(aiter(cluster.reader(start=start))), 5)


async def test_a_server_of_another_version_is_passed_over(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """While servers are upgraded one after the other, readers go to those that they have a version in common with."""
    cluster.append(3)
    agreed = hello.agreed
    refusals: list[VersionRange] = []

    def once(client: VersionRange, server: VersionRange) -> int:
        if not refusals:
            refusals.append(client)
            return agreed(client, VersionRange(7, 9))
        return agreed(client, server)

    monkeypatch.setattr(hello, "agreed", once)
    assert [record.offset async for record in cluster.reader()] == [0, 1, 2]
    assert refusals


async def test_a_batch_that_a_reader_must_not_guess_at(cluster: Cluster) -> None:
    """A critical header field that this client does not know ends the reader there, with what to do."""
    cluster.append(2)
    for server in cluster.servers:
        server.append(batch(2, [b"v"], extension=encode_extension({9: b""})))
        server.confirm(3)
    seen: list[int] = []
    with pytest.raises(UnsupportedVersion, match=r"header field 9.*upgrade"):
        async for record in cluster.reader(end=3):
            seen.append(record.offset)
    assert seen == [0, 1]


async def test_an_end_that_is_not_acked_yet_is_waited_for(cluster: Cluster) -> None:
    """Who follows up to an offset beyond what is acked is shown nothing before it is."""
    cluster.append(3)
    cluster.append(3, confirmed=False)
    following, seen = cluster.follow(end=5)
    await until(lambda: len(seen) >= 3)
    await cluster.heard_from_all()
    assert seen == [0, 1, 2]
    for server in cluster.servers:
        server.confirm(6)
    await asyncio.wait_for(following, 5)
    assert seen == [0, 1, 2, 3, 4]


async def test_leaving_ends_the_fetch(cluster: Cluster) -> None:
    """A reader that is left in the middle, by its chunks or its records, leaves no fetch behind on any server."""
    cluster.append(50)
    async for record in cluster.reader(follow=True):
        if record.offset == 3:
            break
    await until(lambda: cluster.fetches() == [0, 0, 0])
    chunks = cluster.reader(follow=True).chunks()
    assert (await anext(chunks))[0].offset == 0
    assert sum(cluster.fetches()) == 1
    await chunks.aclose()
    await until(lambda: cluster.fetches() == [0, 0, 0])


async def test_another_replica_goes_on(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the server that pushes goes away in the middle the next one goes on from there: nothing lost, nothing twice."""
    monkeypatch.setattr(pushed_fetch_module, "REPLY_BYTES", 1)
    monkeypatch.setattr(pushed_fetch_module, "CREDIT_BYTES", 3_000)
    cluster.append(30)
    seen: list[int] = []
    async for record in cluster.reader():
        seen.append(record.offset)
        if record.offset == 10:
            (serving,) = [server for server in cluster.servers if server.fetches()]
            serving.stop()
    assert seen == list(range(30))


async def test_a_follower_leaves_a_replica_that_is_behind_though_nothing_else_changes(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stream is watched and its ranges stay the same: only asking another replica shows what the first one lacks."""
    answered = asyncio.Event()

    async def watch(request: pd_pb2.WatchRequest, *, timeout_s: float) -> pd_pb2.WatchResponse:
        if answered.is_set():
            await asyncio.Event().wait()
        answered.set()
        return pd_pb2.WatchResponse(session=1, sequence=1, streams=[cluster.stream])

    monkeypatch.setattr(cluster, "watch", watch)
    monkeypatch.setattr(reader_module, "_LONG_POLL_MS", 20)
    cluster.append(1)
    following, seen = cluster.follow()
    try:
        for number in range(len(cluster.servers)):  # wherever the follower waits, that one is left behind in its turn
            await until(lambda: answered.is_set() and len(seen) == cluster.end and sum(cluster.fetches()) == 1)
            behind = cluster.fetches().index(1)
            cluster.append_to_others(behind)
            await until(lambda: len(seen) == cluster.end)
            assert seen == list(range(cluster.end)), number
            cluster.catch_up()
    finally:
        following.cancel()
        await asyncio.wait([following])


def other_replies(change: Callable[[bytes], bytes]) -> Callable[..., Awaitable[Frame]]:
    """Replies.next, with the payloads of the fourth reply on changed, of the first connection that gets there."""
    from rangelog_core.net.data_connection import Replies

    true_next = Replies.next
    count, victim = 0, None

    async def changed(self: Replies, *, timeout_s: float) -> Frame:
        nonlocal count, victim
        frame = await true_next(self, timeout_s=timeout_s)
        count += 1
        if count >= 4 and victim in (None, self._connection):
            victim = self._connection
            return frame._replace(payload=change(frame.payload))
        return frame

    return changed


@pytest.mark.parametrize(
    "change",
    [
        lambda payload: payload[:90] + b"\xff" + payload[91:],
        lambda payload: payload[:-1],
        lambda payload: batch(0, [b"0"]),
        lambda payload: payload + payload,
        lambda payload: batch(3, [b"3"], range_index=1),
    ],
    ids=["flipped", "cut", "repeated", "twice", "of-another-range"],
)
async def test_what_is_wrong_is_read_elsewhere(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, change: Callable[[bytes], bytes]
) -> None:
    """Pushed batches that are damaged, or do not go on where the last ended, are not shown: another replica is read."""
    from rangelog_core.net.data_connection import Replies

    monkeypatch.setattr(pushed_fetch_module, "REPLY_BYTES", 1)
    cluster.append(10)
    monkeypatch.setattr(Replies, "next", other_replies(change))
    records = [record async for record in cluster.reader()]
    assert [record.value.rstrip(b".") for record in records] == [b"%d" % number for number in range(10)]
    await until(lambda: cluster.fetches() == [0, 0, 0])


async def test_a_server_that_says_nothing_is_left(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that neither pushes nor says that there is nothing is left for another one."""
    monkeypatch.setattr(reader_module, "_LONG_POLL_MS", 20)
    monkeypatch.setattr(pushed_fetch_module, "REPLY_TIMEOUT_S", 0.05)
    monkeypatch.setattr(pushed_fetch_module, "REPLY_BYTES", 1)
    monkeypatch.setattr(pushed_fetch_module, "CREDIT_BYTES", 3_000)
    cluster.append(10)
    seen: list[int] = []
    async for record in cluster.reader():
        seen.append(record.offset)
        if record.offset == 4:
            (mute,) = [server for server in cluster.servers if server.fetches()]
            for connection in mute.plane.connections:
                connection.pause_writing()
    assert seen == list(range(10))


async def test_waiting_at_the_end_is_cheap_and_does_not_pile_up(cluster: Cluster) -> None:
    """A pushed fetch that nobody takes from for long holds one word that there is nothing, not hundreds."""
    cluster.append(1)
    _, (source,) = await cluster.ranges("s", 0)
    server = cluster.servers[0]
    connection = await cluster.connections.get(
        replica_id(server.replica.server, server.replica.incarnation), server.replica.data_address
    )
    budget = FetchBudget()
    pushed = pushed_fetch_module.PushedFetch(
        connection, range_key(source), 1, wait_ms=1, known_end_offset=0, end_offset=0, budget=budget
    )
    assert budget.granted_bytes == pushed_fetch_module.CREDIT_BYTES
    received_count = connection._received_count
    await until(lambda: connection._received_count > received_count + 20)
    cluster.append(1)
    answers = [await pushed.next()]
    while not answers[-1].batches.batches:
        answers.append(await pushed.next())
    assert len(answers) <= 4
    assert answers[-1].confirm_offset == 2
    pushed.close()
    pushed.close()
    assert budget.granted_bytes == 0
    await until(lambda: server.fetches() == 0)


async def test_readers_share_the_addresses_that_any_of_the_client_learned(cluster: Cluster) -> None:
    """The servers moved, and one reader was told: another one with an old list of ranges reads on without asking anew."""
    cluster.append(3)
    moved = cluster.open_range()
    old = common_pb2.Range()
    old.CopyFrom(moved)
    for replica in old.replicas:
        replica.data_address = "127.0.0.1:1"
    first = StreamView(cast(Any, cluster), "s", connections=cluster.connections)
    await first.refresh(0)
    hot = HotRange(cluster.connections, old)
    assert (await hot.fetch(0, wait_ms=0, known_end_offset=3)).batches
    assert not hot.problem
    hot.close()
