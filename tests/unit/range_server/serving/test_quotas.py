"""Quotas on the data plane: appends are taken and say how long to hold, who does not is not read, readers wait."""

from __future__ import annotations

import asyncio

import pytest

from rangelog_core.frame import Opcode
from rangelog_core.quotas import BURST_MS
from rangelog_proto.v1 import data_pb2
from rangelog_proto.v1 import quotas_pb2 as pb
from rangelog_server.serving import connection as serving
from rangelog_server.serving.connection import DataPlane
from rangelog_server.serving.handlers import fetch as fetching
from rangelog_server_common.quotas.guard import Name
from tests.support.memory_server import Client

pytestmark = pytest.mark.virtual

RATE = 1_000_000
STREAM = 1


class Clock:
    """The time of the plane's quotas."""

    def __init__(self, plane: DataPlane, *quotas: pb.Quota) -> None:
        self.now_us = 1_000_000_000
        guard = plane.quotas
        guard.now_us = lambda: self.now_us
        guard._names = {(STREAM, number): Name(f"s-{number}", internal=False) for number in range(9)}
        guard.book.load(quotas, 1)


def replies(client: Client) -> list[data_pb2.AppendReply]:
    return [
        data_pb2.AppendReply.FromString(frame.message)
        for frame in client.wire.frames()
        if frame.opcode is Opcode.APPEND_REPLY
    ]


async def test_an_append_over_the_quota_is_taken_and_says_how_long_to_hold(plane: DataPlane) -> None:
    """What the flush takes is no part of it: the delay is counted from the append to the ack, not from the ack on."""
    clock = Clock(plane, pb.Quota(principal="*", append_bytes_per_s=RATE))
    client = Client(plane).hello()
    client.append(0, b"x" * 10)
    assert [(each.durable_offset, each.throttle_ms) for each in replies(client)] == [(1, 0)]
    plane.store.wal.held = True  # type: ignore[attr-defined]
    client.append(1, b"x" * RATE)
    clock.now_us += 200_000
    plane.store.wal.flush()  # type: ignore[attr-defined]
    (reply,) = replies(client)
    assert reply.durable_offset == 2
    assert reply.throttle_ms == pytest.approx(1000 - BURST_MS - 200, abs=2)
    assert client.wire.reading
    clock.now_us += 10_000_000
    plane.store.wal.held = False  # type: ignore[attr-defined]
    client.append(2, b"x")
    assert [each.throttle_ms for each in replies(client)] == [0]


async def test_who_does_not_wait_is_not_read_for_a_while(plane: DataPlane, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not for longer than the limit at a time; others are read; settled bytes do not end it early."""
    monkeypatch.setattr(serving, "UNREAD_S_MAX", 0.05)
    Clock(plane, pb.Quota(prefix="s-1", append_bytes_per_s=RATE // 10))  # each append costs ten seconds
    client, other = Client(plane).hello(), Client(plane).hello()
    for base in range(4):
        client.append(base, b"x" * RATE)
    other.append(0, stream_id=2)
    assert not client.wire.reading and other.wire.reading
    assert len(replies(client)) == 4
    client.connection.resume_if_settled()
    client.connection.check_deadlines(plane.loop.time() + 10_000)
    plane.resume_readers()
    assert not client.wire.reading and not client.connection.closed
    async with asyncio.timeout(5):
        while not client.wire.reading:
            await asyncio.sleep(0.001)


async def test_one_who_waits_as_told_is_always_read(plane: DataPlane) -> None:
    """And is told about one delay at a time: nothing adds up."""
    clock = Clock(plane, pb.Quota(principal="*", append_bytes_per_s=RATE))
    client = Client(plane).hello()
    began_us = clock.now_us
    for base in range(50):
        client.append(base, b"x" * 100_000)
        assert client.wire.reading
        (reply,) = replies(client)
        assert reply.throttle_ms <= 110
        clock.now_us += reply.throttle_ms * 1000
    assert 50 * 100_000 / ((clock.now_us - began_us) / 1_000_000 + BURST_MS / 1000) == pytest.approx(RATE, rel=0.02)


async def test_recovery_copies_and_internal_streams_are_not_counted(plane: DataPlane) -> None:
    """A copy is no append of a client; brokers append to shards for clients that they have charged."""
    Clock(plane, pb.Quota(principal="*", append_bytes_per_s=65_536))
    plane.quotas._names[STREAM, 1] = Name("orders/t", internal=True)
    client = Client(plane).hello()
    client.append(0, b"x" * RATE)
    assert [each.throttle_ms for each in replies(client)] == [0] and len(plane.quotas.book) == 0


async def test_a_removed_quota_holds_nobody_off_any_more(plane: DataPlane) -> None:
    """From the next append on, over the same connection."""
    Clock(plane, pb.Quota(principal="*", append_bytes_per_s=RATE))
    client = Client(plane).hello()
    client.append(0, b"x" * RATE)
    assert replies(client)[0].throttle_ms
    plane.quotas.book.load([], 2)
    client.append(1, b"x" * RATE)
    assert [each.throttle_ms for each in replies(client)] == [0]
    plane.quotas.book.load([pb.Quota(principal="*", read_bytes_per_s=RATE)], 3)
    client.append(2, b"x" * RATE)
    assert [each.throttle_ms for each in replies(client)] == [0]


async def test_a_reader_waits_between_replies(plane: DataPlane, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not before the first one; it is told so in time, and loses nothing. A question for an end is answered at once."""
    monkeypatch.setattr(fetching, "READ_HELD_S_MAX", 0.1)
    writer = Client(plane).hello()
    for base in range(3):
        writer.append(base, b"x" * RATE, confirm_offset=base + 1)
    writer.confirm(3)
    clock = Clock(plane, pb.Quota(principal="*", read_bytes_per_s=RATE))
    reader = Client(plane).hello()
    reader.fetch(0, bytes_max=1, credit_bytes=16 << 20, wait_ms_max=5_000)
    for number in range(3):
        frames = await reader.replies(3 if number < 2 else 1)
        told = [data_pb2.FetchReply.FromString(frame.message) for frame in frames]
        assert [bool(frame.payload) for frame in frames] == [True, False, False][: len(frames)]
        assert [each.held for each in told] == [False, True, True][: len(frames)]
        assert [each.last for each in told] == [False] * len(frames)
        clock.now_us += 1_000_000
    assert plane.quotas.counts.count["read"] >= 4
    clock.now_us -= 1_000_000  # over the quota still
    reader.fetch(3, bytes_max=0)
    assert len(reader.wire.frames()) == 1
    clock.now_us += 60_000_000
    reader.fetch(0, bytes_max=1)
    assert len(reader.wire.frames()) == 1


async def test_of_many_readers_one_passes_at_a_time(plane: DataPlane, monkeypatch: pytest.MonkeyPatch) -> None:
    """From memory and from the disk: what one is about to read counts before the next one is looked at."""
    monkeypatch.setattr(fetching, "READ_HELD_S_MAX", 0.02)
    writer = Client(plane).hello()
    writer.append(0, b"x" * RATE, confirm_offset=1)
    writer.confirm(1)
    clock = Clock(plane, pb.Quota(principal="*", read_bytes_per_s=RATE))
    for from_disk in (False, True):
        if from_disk:
            monkeypatch.setattr(plane.store, "cached", lambda hosted, first, last: None)
        readers = [Client(plane).hello() for _ in range(5)]
        for each in readers:
            each.fetch(0, bytes_max=1 << 20, credit_bytes=16 << 20, wait_ms_max=5_000)
        served: list[int] = []
        while sum(served) < 4:
            frames = [
                frame for each in readers for frame in await each.replies(1)
            ]  # each is served, or told that it is held
            served.append(sum(bool(frame.payload) for frame in frames))
            assert served[-1] <= 1 and len(served) < 20
            clock.now_us += 1_000_000
        clock.now_us += 60_000_000


async def test_a_single_fetch_is_refused_when_it_has_waited(plane: DataPlane, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has one reply only, so it cannot be told to go on waiting: the error is one that clients repeat."""
    monkeypatch.setattr(fetching, "READ_HELD_S_MAX", 0.05)
    writer = Client(plane).hello()
    writer.append(0, b"x" * RATE, confirm_offset=1)
    writer.confirm(1)
    Clock(plane, pb.Quota(principal="*", read_bytes_per_s=RATE))
    reader = Client(plane).hello()
    reader.fetch(0, bytes_max=1)
    assert len(reader.wire.frames()) == 1
    reader.fetch(0, bytes_max=1)
    (frame,) = await reader.replies(1)
    assert frame.opcode is Opcode.ERROR and b"quota of bytes read" in frame.message
