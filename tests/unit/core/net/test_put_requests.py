"""Requests without a timer on a connection: who hears of their replies, and of its end."""

from __future__ import annotations

import asyncio

import pytest

from rangelog_core import errors
from rangelog_core.errors import RangelogError
from rangelog_core.frame import Frame, Opcode, encode_frame
from rangelog_core.net.data_connection import DataConnection
from rangelog_proto.v1 import data_pb2
from tests.support.waiting import until
from tests.unit.core.net.test_data_connection import REPLICA, FakeServer


class NotingListener:
    """Puts requests, and notes what becomes of them."""

    def __init__(self) -> None:
        self.heard: list[tuple[int, object]] = []
        self.closed: list[RangelogError] = []

    def replied(self, request_id: int, frame: Frame) -> None:
        self.heard.append((request_id, frame.opcode))

    def refused(self, request_id: int, error: RangelogError) -> None:
        self.heard.append((request_id, type(error)))

    def connection_closed(self, error: RangelogError) -> None:
        self.closed.append(error)


async def test_replies_to_what_was_put_go_to_its_listener() -> None:
    """A reply and an error reach who put the request; the end of the connection everybody who is attached, once."""
    server = FakeServer()
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    address = f"127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    refusals = iter([False, True])

    def answer(frame: Frame) -> bytes:
        if next(refusals):
            told = data_pb2.Error(code="NOT_OWNER", message="moved")
            return encode_frame(Opcode.ERROR, frame.request_id, told.SerializeToString())
        return encode_frame(Opcode.PRODUCE_REPLY, frame.request_id, b"")

    server.answers[Opcode.PRODUCE] = answer
    connection = await DataConnection.connect(address, REPLICA)
    listener, detached = NotingListener(), NotingListener()
    connection.attach(listener)
    connection.attach(detached)
    connection.detach(detached)
    first = connection.put(Opcode.PRODUCE, b"", (), listener)
    second = connection.put(Opcode.PRODUCE, b"", (b"x",), detached)
    await until(lambda: listener.heard and detached.heard)
    assert listener.heard == [(first, Opcode.PRODUCE_REPLY)] and detached.heard == [(second, errors.NotOwner)]
    server.hang_up()
    await until(lambda: listener.closed)
    assert len(listener.closed) == 1 and not detached.closed
    with pytest.raises(errors.Unavailable):
        connection.attach(listener)
    connection.put(Opcode.PRODUCE, b"", (), listener)
    assert len(server.frames) == 3, "hello and two requests"
    listening.close()
