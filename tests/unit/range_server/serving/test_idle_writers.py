"""Writers that are connected and have appended nothing: the server knows them, sends them away, and asks them."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from rangelog_core.frame import Opcode
from rangelog_proto.v1 import data_pb2, pd_pb2
from rangelog_server.agent.directives.leave import Leaver
from rangelog_server.agent.directives.recover import Recoverer, WriterAnswers
from rangelog_server.ranges import idle_writers
from rangelog_server.ranges.idle_writers import IdleWriters
from rangelog_server.serving.connection import DataPlane
from tests.support.memory_server import Client, memory_plane

pytestmark = pytest.mark.virtual

KEY = (1, 0)
LEAVE = pd_pb2.Directive(stream_id=1, leave_range=pd_pb2.LeaveRange(reason="rs1 is to be left"))
RECOVER = pd_pb2.Directive(stream_id=1, recover_range=pd_pb2.RecoverRange(stream_name="s", epoch=1))


def connect(plane: DataPlane, epoch: int = 1) -> Client:
    """A writer that has just connected for a range that starts at 7."""
    writer = Client(plane).hello()
    writer.send(Opcode.CONFIRM, data_pb2.Confirm(stream_id=1, epoch=epoch, confirm_offset=7, start_offset=7))
    return writer


async def test_a_writer_that_has_not_appended_is_sent_away() -> None:
    """By an error about its range and about no request; without it the server has nothing to send away."""
    async with memory_plane() as plane:
        leaver = Leaver(plane.store)
        await leaver.leave_range(LEAVE)
        writer = connect(plane)
        await leaver.leave_range(LEAVE)
        (frame,) = writer.wire.frames()
        told = data_pb2.Error.FromString(frame.message)
        assert (frame.opcode, frame.request_id, told.stream_id, told.range_index) == (Opcode.ERROR, 0, 1, 0)
        assert told.message == "rs1 is to be left"
        assert plane.store.replicas == {}, "the server has nothing of the range"


ASK = pd_pb2.Directive(stream_id=1, leave_range=pd_pb2.LeaveRange(reason="it has 2 members", only_asks=True))


async def test_a_writer_is_asked_to_leave_a_range_of_which_there_is_nothing() -> None:
    """By a reply that claims nothing; without a writer there is nobody to ask."""
    async with memory_plane() as plane:
        leaver = Leaver(plane.store)
        await leaver.leave_range(ASK)
        writer = connect(plane)
        await leaver.leave_range(ASK)
        (frame,) = writer.wire.frames()
        asked = data_pb2.AppendReply.FromString(frame.message)
        assert (frame.opcode, asked.stream_id, asked.epoch) == (Opcode.APPEND_REPLY, 1, 1)
        assert (asked.leave_wanted, asked.confirm_wanted, asked.durable_offset) == (True, False, 7)


async def test_a_writer_that_is_asked_to_leave_may_append() -> None:
    """A range with two members needs both of them for each ack, until its writer has another range."""
    async with memory_plane() as plane:
        writer = Client(plane).hello()
        writer.append(0)
        (frame,) = await writer.replies(1)
        leaver = Leaver(plane.store)
        await leaver.leave_range(ASK)
        writer.append(1)
        frames = [frame, *await writer.replies(2)]
        first, asked, second = [data_pb2.AppendReply.FromString(each.message) for each in frames]
        assert (first.durable_offset, first.leave_wanted) == (1, False)
        assert (asked.durable_offset, asked.leave_wanted) == (1, True)
        assert (second.durable_offset, second.leave_wanted) == (2, False)
        leaver.close()


async def test_a_writer_that_answers_keeps_its_range() -> None:
    """It is asked by a reply that claims nothing: durable up to the start of the range."""
    async with memory_plane() as plane:
        writer = connect(plane)
        recovering = asyncio.create_task(Recoverer(plane.store, ["127.0.0.1:1"], None).recover_range(RECOVER))
        await asyncio.sleep(0)
        (frame,) = writer.wire.frames()
        asked = data_pb2.AppendReply.FromString(frame.message)
        assert (asked.confirm_wanted, asked.durable_offset, asked.epoch) == (True, 7, 1)
        writer.send(Opcode.CONFIRM, data_pb2.Confirm(stream_id=1, epoch=1, confirm_offset=7))
        with pytest.raises(WriterAnswers):
            await recovering


@pytest.mark.parametrize("what", ["silent", "disconnected", "earlier"])
async def test_a_writer_that_does_not_answer_is_gone(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It says nothing in time, its connection ended, or only a writer of an earlier epoch answers."""
    monkeypatch.setattr("rangelog_server.agent.directives.recover.ANSWER_TIMEOUT_S", 0.2)
    sealed: list[Any] = []

    async def settle_end(name: str, **more: Any) -> Any:
        sealed.append(name)
        return SimpleNamespace(end_offset=7)

    async with memory_plane() as plane:
        writer = connect(plane)
        recoverer = Recoverer(plane.store, ["127.0.0.1:1"], None)
        client: Any = SimpleNamespace(internal=SimpleNamespace(settle_end=settle_end))
        recoverer._client = client
        if what == "disconnected":
            writer.connection.connection_lost(None)
        recovering = asyncio.create_task(recoverer.recover_range(RECOVER))
        await asyncio.sleep(0)
        if what == "earlier":
            writer.send(Opcode.CONFIRM, data_pb2.Confirm(stream_id=1, epoch=0, confirm_offset=7))
        await recovering
        assert sealed == ["s"]


async def test_a_writer_whose_connection_broke_is_known_again() -> None:
    """It says so when it connects: it may have nothing to append for long. One of another epoch is not its range's writer."""
    async with memory_plane() as plane:
        first = Client(plane).hello()
        first.append(0)
        await first.replies(1)
        first.connection.connection_lost(None)
        hosted = plane.store.find(*KEY)
        assert hosted.connected_writer() is None
        for epoch in (2, 1):
            again = Client(plane).hello()
            again.send(Opcode.CONFIRM, data_pb2.Confirm(stream_id=1, epoch=epoch, start_offset=0))
            assert (hosted.connected_writer() is again.connection) is (epoch == 1)
        assert len(plane.store.idle) == 0


async def test_with_its_first_append_it_is_idle_no_more() -> None:
    """The replica knows its writer."""
    async with memory_plane() as plane:
        writer = Client(plane).hello()
        writer.send(Opcode.CONFIRM, data_pb2.Confirm(stream_id=1, epoch=1, start_offset=0))
        assert len(plane.store.idle) == 1
        writer.append(0)
        await writer.replies(1)
        assert len(plane.store.idle) == 0
        assert plane.store.find(*KEY).connected_writer() is writer.connection


def connection(*, closed: bool = False) -> Any:
    """What the table asks a connection for."""
    return SimpleNamespace(closed=closed)


def test_a_later_epoch_is_not_replaced_by_an_earlier_one() -> None:
    """A writer that was fenced may connect late."""
    known = IdleWriters()
    late, early = connection(), connection()
    known.note(KEY, 2, 0, lambda: late)
    known.note(KEY, 1, 0, lambda: early)
    found = known.of(KEY)
    assert found is not None and found.connected() is late


def test_writers_whose_connection_ended_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Now and then; those that are connected stay, and above the limit no more are taken."""
    monkeypatch.setattr(idle_writers, "IDLE_WRITERS_MAX", 1_500)
    known = IdleWriters()
    gone, here = connection(closed=True), connection()
    for number in range(1_000):
        known.note((number, 0), 1, 0, lambda: gone)
    known.note((5_000, 0), 1, 0, lambda: here)
    assert len(known) == 1
    for number in range(3_000):
        known.note((10_000 + number, 0), 1, 0, lambda: here)
    assert len(known) == 1_500
    assert known.of((5_000, 0)) is not None and known.of((12_999, 0)) is None
