"""A reader that waits for the confirm offset: the replica asks the writer, and answers when it has heard."""

from __future__ import annotations

import gc
from collections.abc import AsyncIterator
from typing import Any

import pytest

from rangelog_core.frame import Frame, Opcode
from rangelog_proto.v1 import data_pb2
from tests.support.memory_server import Client, memory_plane

pytestmark = pytest.mark.virtual


@pytest.fixture
async def clients() -> AsyncIterator[tuple[Client, Client]]:
    """A writer that appended three records and said that one is acked, and a reader."""
    async with memory_plane() as plane:
        writer, reader = Client(plane).hello(), Client(plane).hello()
        for offset in range(3):
            writer.append(offset, confirm_offset=min(offset, 1))
        await writer.replies(1)
        yield writer, reader


def told(frame: Frame) -> Any:
    """The message of a reply to a fetch."""
    assert frame.opcode is Opcode.FETCH_REPLY
    return data_pb2.FetchReply.FromString(frame.message)


def questions(frames: list[Frame]) -> int:
    """How often the writer is asked in these."""
    replies = [data_pb2.AppendReply.FromString(each.message) for each in frames if each.opcode is Opcode.APPEND_REPLY]
    return sum(each.confirm_wanted for each in replies)


async def test_the_writer_is_asked_once_and_its_answer_passed_on(clients: tuple[Client, Client]) -> None:
    """Nothing is answered before the confirm offset is there; smaller steps on the way are no answer."""
    writer, reader = clients
    reader.fetch(0, bytes_max=0, confirm_wanted_offset=3, wait_ms_max=5_000)
    assert questions(writer.wire.frames()) == 1
    writer.confirm(2)
    assert reader.wire.frames() == []
    assert questions(writer.wire.frames()) == 0
    writer.confirm(3)
    (frame,) = await reader.replies(1)
    assert (told(frame).confirm_offset, frame.payload) == (3, b"")


async def test_what_is_confirmed_already_is_answered_at_once(clients: tuple[Client, Client]) -> None:
    """No question is asked for an offset that the replica knows to be acked."""
    writer, reader = clients
    reader.fetch(0, bytes_max=0, confirm_wanted_offset=1, wait_ms_max=5_000)
    (frame,) = await reader.replies(1)
    assert told(frame).confirm_offset == 1
    assert questions(writer.wire.frames()) == 0


async def test_a_silent_writer_is_waited_for_no_longer_than_asked(clients: tuple[Client, Client]) -> None:
    """After the wait the reader hears what is known."""
    _, reader = clients
    reader.fetch(0, bytes_max=0, confirm_wanted_offset=3, wait_ms_max=20)
    (frame,) = await reader.replies(1)
    assert (told(frame).confirm_offset, told(frame).durable_offset) == (1, 3)


async def test_a_writer_that_is_gone_is_not_asked(clients: tuple[Client, Client]) -> None:
    """Its connection is closed: nothing is sent there, and the reader is answered after the wait."""
    writer, reader = clients
    writer.connection.connection_lost(None)
    reader.fetch(0, bytes_max=0, confirm_wanted_offset=3, wait_ms_max=20)
    (frame,) = await reader.replies(1)
    assert told(frame).confirm_offset == 1
    assert questions(writer.wire.frames()) == 0


async def test_a_seal_answers(clients: tuple[Client, Client]) -> None:
    """The range ends while the reader waits: it hears the end."""
    writer, reader = clients
    reader.fetch(0, bytes_max=0, confirm_wanted_offset=3, wait_ms_max=5_000)
    end = data_pb2.CommitEnd(stream_id=1, range_index=0, epoch=1, end_offset=2)
    writer.send(Opcode.COMMIT_END, end)
    (frame,) = await reader.replies(1)
    assert (told(frame).sealed, told(frame).sealed_end_offset) == (True, 2)


async def test_a_confirm_offset_beyond_this_replica_answers_too(clients: tuple[Client, Client]) -> None:
    """A replica that lags hears of acks that it does not hold itself: the reader is told all the same."""
    writer, reader = clients
    reader.fetch(0, bytes_max=0, confirm_wanted_offset=9, wait_ms_max=5_000)
    writer.confirm(9)
    (frame,) = await reader.replies(1)
    assert (told(frame).confirm_offset, told(frame).durable_offset) == (9, 3)


async def test_a_replica_does_not_keep_the_connection_that_wrote_to_it() -> None:
    """Writers come and go by the thousand: what is left of each would be a buffer of 256 KiB."""
    async with memory_plane() as plane:
        writer = Client(plane).hello()
        writer.append(0)
        await writer.replies(1)
        hosted = plane.store.find(1, 0)
        assert hosted.writing() is writer.connection
        writer.connection.connection_lost(None)
        del writer
        gc.collect()
        assert hosted.writing() is None
