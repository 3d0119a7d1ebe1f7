"""Fetches that go on: what is pushed, how credit bounds it, how it ends; a connection without a network."""

from __future__ import annotations

import asyncio
import time

import pytest

from rangelog_core.batch import decode_records
from rangelog_core.checked_batches import split_batches
from rangelog_core.frame import Frame, Opcode
from rangelog_core.limits import FETCH_CREDIT_BYTES_MAX
from rangelog_proto.v1 import data_pb2
from rangelog_server.ranges.hosted_replica import HostedReplica
from rangelog_server.serving.connection import DataPlane
from rangelog_server.serving.handlers import fetch
from tests.support.memory_server import Client

BATCH_BYTES = 1_000 + 84
"""One record of 1,000 bytes, encoded."""


def offsets(frame: Frame) -> list[int]:
    """The offsets in a reply."""
    assert frame.opcode is Opcode.FETCH_REPLY, data_pb2.Error.FromString(frame.message)
    return [record.offset for data in split_batches(frame.payload) for record in decode_records(data)]


def is_last(frame: Frame) -> bool:
    """Whether the reply says that it is the last one."""
    return data_pb2.FetchReply.FromString(frame.message).last


def written(plane: DataPlane, count: int) -> Client:
    """A client that appended so many records of 1,000 bytes, all confirmed."""
    client = Client(plane).hello()
    for base in range(count):
        client.append(base, b"x" * 1_000, confirm_offset=base)
    client.confirm(count)
    client.wire.frames()
    return client


async def quiet(client: Client) -> list[Frame]:
    """What still comes once everything that is under way has had its turns."""
    for _ in range(50):
        await asyncio.sleep(0)
    return client.wire.frames()


async def test_what_is_confirmed_is_pushed(plane: DataPlane) -> None:
    """Each step of the confirm offset is one reply under the fetch's id, without another request."""
    client, writer = Client(plane).hello(), Client(plane).hello()
    for base in range(4):
        writer.append(base)
    number = client.fetch(0, wait_ms_max=10_000, credit_bytes=1 << 20)
    assert await quiet(client) == []
    for end, expected in ((1, [0]), (2, [1]), (4, [2, 3])):
        writer.confirm(end)
        (frame,) = await client.replies(1)
        assert (frame.request_id, offsets(frame), is_last(frame)) == (number, expected, False)
        assert await quiet(client) == []
    assert client.connection.fetches.count == 1


async def test_acks_say_whether_a_reader_waits(plane: DataPlane) -> None:
    """The writer tells those replicas at once what is acked."""
    client, writer = Client(plane).hello(), Client(plane).hello()

    def followed(base: int) -> bool:
        writer.append(base)
        (frame,) = writer.wire.frames()
        return data_pb2.AppendReply.FromString(frame.message).followed

    assert not followed(0)
    number = client.fetch(0, wait_ms_max=10_000, credit_bytes=1 << 20)
    assert followed(1)
    writer.confirm(2)
    await client.replies(1)
    assert followed(2)  # it has what is confirmed, and waits for more
    client.renew(number, 0)
    assert not followed(3)


@pytest.mark.parametrize("cached", [True, False])
async def test_credit_bounds_what_is_sent(plane: DataPlane, cached: bool) -> None:
    """Replies of the size asked for come until the credit is used, then none, and go on where they were with new credit."""
    client = written(plane, 10)
    if not cached:
        plane.store.cache._batches.clear()
    number = client.fetch(0, bytes_max=2 * BATCH_BYTES, wait_ms_max=10_000, credit_bytes=5 * BATCH_BYTES)
    frames = await client.replies(3)
    assert [offsets(frame) for frame in frames] == [[0, 1], [2, 3], [4]]
    assert await quiet(client) == []
    client.renew(number, 1)  # at least one batch, whatever the credit: it is owed then
    assert [offsets(frame) for frame in await client.replies(1)] == [[5]]
    client.renew(number, BATCH_BYTES - 1)
    assert await quiet(client) == []
    client.renew(number, 100 * BATCH_BYTES)
    assert [offsets(frame) for frame in await client.replies(2)] == [[6, 7], [8, 9]]
    assert client.connection.fetches.count == 1


async def test_the_disk_is_read_ahead_of_what_is_sent(plane: DataPlane, monkeypatch: pytest.MonkeyPatch) -> None:
    """One reply ahead while there is credit for it, within a limit for all; what nobody takes any more is forgotten."""
    client = written(plane, 8)
    plane.store.cache._batches.clear()
    credit = 4 * BATCH_BYTES
    number = client.fetch(0, bytes_max=2 * BATCH_BYTES, wait_ms_max=10_000, credit_bytes=credit)
    (frame,) = await client.replies(1)
    assert offsets(frame) == [0, 1]
    assert plane.reads_ahead == 1
    (frame,) = await client.replies(1)
    assert offsets(frame) == [2, 3]
    assert plane.reads_ahead == 0  # no credit for more
    client.connection.pause_writing()
    client.renew(number, credit)
    assert await quiet(client) == []
    client.connection.resume_writing()
    await client.replies(1)
    assert plane.reads_ahead == 1
    client.renew(number, 0)
    assert plane.reads_ahead == 0
    monkeypatch.setattr(fetch, "READS_AHEAD_MAX", 0)
    client.fetch(0, bytes_max=2 * BATCH_BYTES, credit_bytes=1 << 20)
    assert [offsets(frame) for frame in await client.replies(4)] == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert plane.reads_ahead == 0


async def test_it_is_never_silent_for_long(plane: DataPlane) -> None:
    """With nothing to push it says so, each time the wait is over, and pushes again when there is something."""
    client = written(plane, 1)
    number = client.fetch(1, wait_ms_max=10, credit_bytes=1_000)
    frames = await client.replies(3)
    assert [(frame.request_id, frame.payload, is_last(frame)) for frame in frames] == [(number, b"", False)] * 3
    other = Client(plane).hello()
    other.append(1, confirm_offset=2)
    other.confirm(2)
    pushed = [frame for frame in await client.replies(1) if frame.payload]
    assert [offsets(frame) for frame in pushed] == [[1]]


async def test_it_ends_with_the_range(plane: DataPlane) -> None:
    """At the end of a sealed range the last reply says so; more credit for it then is ignored."""
    client = written(plane, 3)
    number = client.fetch(1, wait_ms_max=10_000, credit_bytes=1 << 20)
    assert [offsets(frame) for frame in await client.replies(1)] == [[1, 2]]
    client.send(Opcode.COMMIT_END, data_pb2.CommitEnd(stream_id=1, range_index=0, epoch=1, end_offset=3))
    frames = [frame for frame in await client.replies(2) if frame.opcode is Opcode.FETCH_REPLY]
    assert [(offsets(frame), is_last(frame)) for frame in frames] == [([], True)]
    assert data_pb2.FetchReply.FromString(frames[0].message).sealed_end_offset == 3
    client.renew(number, 1_000)
    assert await quiet(client) == []
    assert client.connection.fetches.count == 0 and not client.connection.fetches.following


async def test_it_ends_where_it_was_told_to(plane: DataPlane) -> None:
    """The reply that reaches the end offset is the last; without a wait the first empty one is."""
    client = written(plane, 10)
    client.fetch(2, bytes_max=2 * BATCH_BYTES, wait_ms_max=10_000, credit_bytes=1 << 20, end_offset=5)
    frames = await client.replies(2)
    assert [(offsets(frame), is_last(frame)) for frame in frames] == [([2, 3], False), ([4, 5], True)]
    client.fetch(8, credit_bytes=1 << 20)
    frames = await client.replies(2)
    assert [(offsets(frame), is_last(frame)) for frame in frames] == [([8, 9], False), ([], True)]
    assert await quiet(client) == []
    assert client.connection.fetches.count == 0 and not client.connection.fetches.following


async def test_it_ends_when_it_is_told_to(plane: DataPlane) -> None:
    """Ended while it waits, is out of credit, stands in the queue or is being read: nothing more comes, nothing is left."""
    client = written(plane, 4)
    waiting = client.fetch(4, wait_ms_max=10_000, credit_bytes=1_000)
    spent = client.fetch(0, wait_ms_max=10_000, credit_bytes=1)
    assert [offsets(frame) for frame in await client.replies(1)] == [[0]]
    plane.store.cache._batches.clear()
    read = client.fetch(0, wait_ms_max=10_000, credit_bytes=1 << 20)
    client.connection.pause_writing()
    queued = client.fetch(0, wait_ms_max=10_000, credit_bytes=1 << 20)
    for number in (waiting, spent, read, queued):
        client.renew(number, 0)
    assert client.connection.fetches.count == 0 and not client.connection.fetches.following
    assert not plane.store.find(1, 0).waiters
    client.connection.resume_writing()
    await asyncio.get_running_loop().run_in_executor(plane.readers, lambda: None)
    assert await quiet(client) == []
    assert client.connection.fetches.active_count == 0


async def test_it_ends_with_an_error(plane: DataPlane) -> None:
    """A replica that is not trusted any more says so, under the fetch's id and naming no range: it is no refused append."""
    client = written(plane, 1)
    number = client.fetch(0, wait_ms_max=10_000, credit_bytes=1 << 20)
    assert [offsets(frame) for frame in await client.replies(1)] == [[0]]
    await quiet(client)
    plane.store.quarantine(plane.store.find(1, 0), "bits rot")
    (frame,) = await client.replies(1)
    error = data_pb2.Error.FromString(frame.message)
    assert (frame.request_id, error.code, error.stream_id) == (number, "CORRUPTION", 0)
    assert client.connection.fetches.count == 0 and not client.connection.fetches.following


async def test_readers_take_turns(plane: DataPlane) -> None:
    """Two who catch up over one connection, and one over another, are served alternately."""
    client, other = written(plane, 8), Client(plane).hello()
    numbers = [client.fetch(0, bytes_max=1, wait_ms_max=10_000, credit_bytes=1 << 20) for _ in range(2)]
    other.fetch(0, bytes_max=1, wait_ms_max=10_000, credit_bytes=1 << 20)
    for _ in range(4):
        await asyncio.sleep(0)
    frames = client.wire.frames()
    shares = [sum(frame.request_id == number for frame in frames) for number in numbers]
    assert 0 < shares[0] < 8 and abs(shares[0] - shares[1]) <= 1
    assert abs(len(other.wire.frames()) - shares[0]) <= 1


async def test_a_reader_that_does_not_read_is_not_sent_more(plane: DataPlane) -> None:
    """While the connection's buffer is full nothing is pushed, whatever the credit; then it goes on."""
    client = written(plane, 6)
    client.fetch(0, bytes_max=1, wait_ms_max=10_000, credit_bytes=1 << 20)
    await asyncio.sleep(0)
    client.connection.pause_writing()
    before = [offset for frame in client.wire.frames() for offset in offsets(frame)]
    assert await quiet(client) == [] and len(before) < 6
    client.connection.resume_writing()
    after = [offset for frame in await client.replies(6 - len(before)) for offset in offsets(frame)]
    assert before + after == list(range(6))


async def test_hostile_credit(plane: DataPlane) -> None:
    """Credit is capped, an id is used for one fetch at a time, and credit for nothing does nothing."""
    client = written(plane, 1)
    number = client.fetch(1, wait_ms_max=10_000, credit_bytes=(1 << 32) - 1)
    client.renew(number, (1 << 32) - 1)
    client.renew(999, 5)
    client.renew(999, 0)
    assert client.connection.fetches.following[number]._credit == FETCH_CREDIT_BYTES_MAX  # type: ignore[attr-defined]
    assert client.wire.frames() == []
    again = data_pb2.Fetch(stream_id=1, range_index=0, offset=1, credit_bytes=1)
    client.send(Opcode.FETCH, again, request_id=number)
    (frame,) = client.wire.frames()
    assert data_pb2.Error.FromString(frame.message).code == "PROTOCOL_VIOLATION"


async def test_a_lost_connection_takes_its_fetches_along(plane: DataPlane) -> None:
    """Whether it waits, is out of credit or is being read: nothing is sent, nothing fails, another reader is served."""
    client, other = written(plane, 2), Client(plane).hello()
    client.fetch(2, wait_ms_max=10_000, credit_bytes=1_000)
    client.fetch(0, wait_ms_max=10_000, credit_bytes=1)
    await client.replies(1)
    plane.store.cache._batches.clear()
    client.fetch(0, wait_ms_max=10_000, credit_bytes=1 << 20)
    client.connection.connection_lost(None)
    other.append(2, confirm_offset=2)
    other.confirm(3)
    other.wire.frames()
    other.fetch(2)
    assert [offsets(frame) for frame in await other.replies(1)] == [[2]]
    assert await quiet(client) == [] and not client.connection.fetches.following


async def test_nothing_is_left_of_a_lost_connection(plane: DataPlane) -> None:
    """Not what was read ahead for it, and nobody that a writer would have to hurry for."""
    client = written(plane, 8)
    client.fetch(8, wait_ms_max=10_000, credit_bytes=1_000)
    plane.store.cache._batches.clear()
    client.fetch(0, bytes_max=BATCH_BYTES, wait_ms_max=10_000, credit_bytes=1 << 20)
    await client.replies(1)
    assert plane.reads_ahead == 1 and plane.store.find(1, 0).waiters
    client.connection.connection_lost(None)
    assert await quiet(client) == []
    assert plane.reads_ahead == 0 and not plane.store.find(1, 0).waiters
    assert client.connection.fetches.count == 0


async def test_news_for_nobody_wakes_nobody(plane: DataPlane, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was flushed and is not confirmed does not make a waiting fetch look again; what ends its wait does."""
    from rangelog_server.ranges.store import Store

    client, writer = written(plane, 1), Client(plane).hello()
    number = client.fetch(1, wait_ms_max=10_000, credit_bytes=1 << 20)
    looks: list[tuple[int, int]] = []
    find = Store.find

    def noting(self: Store, stream_id: int, range_index: int) -> HostedReplica:
        looks.append((stream_id, range_index))
        return find(self, stream_id, range_index)

    monkeypatch.setattr(Store, "find", noting)
    writer.append(1, confirm_offset=1)
    writer.append(2, confirm_offset=1)
    assert await quiet(client) == [] and looks == []
    writer.confirm(2)
    (frame,) = await client.replies(1)
    assert offsets(frame) == [1]
    assert await quiet(client) == [] and len(looks) == 1
    plane.store.quarantine(plane.store.find(1, 0), "bits rot")
    (frame,) = await client.replies(1)
    assert (frame.opcode, frame.request_id) == (Opcode.ERROR, number)


async def test_the_wait_starts_anew_with_each_reply(plane: DataPlane) -> None:
    """A fetch that pushed something says that there is nothing only a whole wait after that."""
    client = written(plane, 1)
    loop = asyncio.get_running_loop()
    client.fetch(1, wait_ms_max=200, credit_bytes=1 << 20)
    await loop.run_in_executor(plane.readers, time.sleep, 0.1)
    writer = Client(plane).hello()
    writer.append(1, confirm_offset=2)
    pushed_s = loop.time()
    writer.confirm(2)
    while not [frame for frame in client.wire.frames() if frame.payload]:
        await asyncio.sleep(0)
    (empty,) = await client.replies(1)
    assert empty.payload == b""
    assert loop.time() - pushed_s >= 0.2
