"""Followers that wait for the first append of a range: they hear of it at once, and are kept no longer than they asked."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from rangelog_core.frame import Frame, Opcode
from rangelog_proto.v1 import data_pb2
from rangelog_server.serving import fetch_queue
from rangelog_server.serving.connection import DataPlane
from tests.support.memory_server import Client, memory_plane

pytestmark = pytest.mark.virtual

WAIT_MS = 2_000
SOON_S = 0.1


@pytest.fixture
async def plane() -> AsyncIterator[DataPlane]:
    """A server that has nothing of stream 1."""
    async with memory_plane() as plane:
        yield plane


def waiting(plane: DataPlane, wait_ms: int = WAIT_MS) -> Client:
    """A follower that waits for range 0 of stream 1."""
    client = Client(plane).hello()
    client.fetch(0, bytes_max=0, wait_ms_max=wait_ms, awaits_replica=True)
    return client


def refusal(frame: Frame) -> str:
    """The code of an error."""
    assert frame.opcode is Opcode.ERROR
    return data_pb2.Error.FromString(frame.message).code


def left(plane: DataPlane) -> tuple[int, int]:
    """Ranges that are waited for, and fetches that count."""
    return len(plane.store.awaited), plane.fetches.count


async def test_the_first_append_is_told_to_all_who_wait(plane: DataPlane) -> None:
    """One reply each, without records; nothing is kept of them, and the next append tells them nothing."""
    clients = [waiting(plane) for _ in range(3)]
    assert left(plane) == (1, 3)
    writer = Client(plane).hello()
    writer.append(0)
    for client in clients:
        (frame,) = await client.replies(1, SOON_S)
        reply = data_pb2.FetchReply.FromString(frame.message)
        assert (frame.opcode, frame.payload, reply.last, reply.sealed) == (Opcode.FETCH_REPLY, b"", True, False)
    assert left(plane) == (0, 0)
    writer.append(1)
    await asyncio.sleep(3.0)
    assert [client.wire.frames() for client in clients] == [[], [], []]


@pytest.mark.parametrize(
    ("opcode", "message"),
    [
        (Opcode.SEAL, data_pb2.Seal(stream_id=1, epoch=2)),
        (Opcode.COMMIT_END, data_pb2.CommitEnd(stream_id=1, epoch=1)),
    ],
)
async def test_a_fence_and_an_end_of_what_was_never_appended_to_are_told(
    plane: DataPlane, opcode: Opcode, message: data_pb2.Seal | data_pb2.CommitEnd
) -> None:
    """Both make a replica: the reader looks at it, and sees that the range is over."""
    client = waiting(plane)
    Client(plane).hello().send(opcode, message)
    (frame,) = await client.replies(1, SOON_S)
    assert frame.opcode is Opcode.FETCH_REPLY


async def test_a_replica_that_is_there_is_told_at_once(plane: DataPlane) -> None:
    """It came between the reader's look and its wait."""
    Client(plane).hello().append(0)
    client = waiting(plane)
    assert [frame.opcode for frame in client.wire.frames()] == [Opcode.FETCH_REPLY]


async def test_the_wait_ends_as_asked(plane: DataPlane) -> None:
    """By the error that there is no replica, not before and not much later; another range's append is no answer."""
    client = waiting(plane)
    Client(plane).hello().append(0, stream_id=2)
    await asyncio.sleep(1.95)
    assert client.wire.frames() == []
    await asyncio.sleep(0.1)
    assert [refusal(frame) for frame in client.wire.frames()] == ["RANGE_NOT_FOUND"]
    assert left(plane) == (0, 0)


async def test_a_wait_for_years_is_cut(plane: DataPlane) -> None:
    """A client cannot have a server remember it for longer than any other fetch."""
    client = waiting(plane, wait_ms=(1 << 32) - 1)
    await asyncio.sleep(120.0)
    assert [refusal(frame) for frame in client.wire.frames()] == ["RANGE_NOT_FOUND"]


async def test_what_was_dropped_is_not_waited_for(plane: DataPlane) -> None:
    """No replica of that range will ever be here again."""
    Client(plane).hello().append(0)
    plane.store.drop(1, 0, lambda: None)
    client = waiting(plane)
    assert [refusal(frame) for frame in client.wire.frames()] == ["RANGE_DROPPED"]
    assert left(plane) == (0, 0)


async def test_a_client_that_is_gone_leaves_nothing(plane: DataPlane) -> None:
    """The others still hear of the append."""
    gone, other = waiting(plane), waiting(plane)
    gone.connection.connection_lost(None)
    assert left(plane) == (1, 1)
    Client(plane).hello().append(0)
    (frame,) = await other.replies(1, SOON_S)
    assert frame.opcode is Opcode.FETCH_REPLY
    assert gone.wire.frames() == []


async def test_waits_count_as_fetches(plane: DataPlane, monkeypatch: pytest.MonkeyPatch) -> None:
    """One above the limit is refused, and nothing of it is kept."""
    monkeypatch.setattr(fetch_queue, "FETCHES_WAITING_MAX", 2)
    monkeypatch.setattr(fetch_queue, "QUESTIONS_WAITING_MAX", 0)
    client = Client(plane).hello()
    for _ in range(3):
        client.fetch(0, bytes_max=0, wait_ms_max=WAIT_MS, awaits_replica=True)
    assert [refusal(frame) for frame in client.wire.frames()] == ["OVERLOADED"]
    assert left(plane) == (1, 2)
