"""A writer over connections that only note what is sent; no placement driver stands behind it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

from rangelog._append.runner import AppenderRunner
from rangelog._append.shared_dials import SharedDials
from rangelog._append.takeover import TakenOver
from rangelog._append.writer import Writer
from rangelog.protocol.appender import OpenRange
from rangelog.protocol.lag_limits import LAG_LIMITS
from rangelog_core.batch import CODEC_NONE
from rangelog_core.frame import FrameDecoder
from rangelog_core.ids import ReplicaId
from rangelog_core.net.budgets import AppendBudget
from rangelog_core.net.data_connection import DataConnections, RangeListener
from rangelog_proto.v1 import common_pb2, data_pb2

SERVERS = ("a", "b", "c")


class NotingConnection:
    """In place of a DataConnection."""

    closed = None

    def __init__(self) -> None:
        self.listener: RangeListener | None = None
        self.appended: list[int] = []  # the confirm offset that each append carried
        self.confirmed: list[int] = []

    def listen(self, stream_id: int, range_index: int, listener: RangeListener) -> None:
        self.listener = listener

    def unlisten(self, stream_id: int, range_index: int) -> None:
        self.listener = None

    def send_encoded(self, buffers: Sequence[bytes]) -> None:
        (frame,) = FrameDecoder(message_bytes_max=1 << 16, payload_bytes_max=1 << 26).feed(b"".join(buffers))
        self.appended.append(data_pb2.Append.FromString(frame.message).confirm_offset)

    def send(self, *_: Any, **__: Any) -> None:
        """The end of a range that was left."""

    def confirm(
        self, stream_id: int, range_index: int, epoch: int, confirm_offset: int, start_offset: int | None = None
    ) -> None:
        if start_offset is None:  # else the writer only says that it is there
            self.confirmed.append(confirm_offset)

    def reply(self, durable_offset: int, *, followed: bool = False) -> None:
        """The replica holds everything below."""
        assert self.listener is not None
        self.listener.append_replied(data_pb2.AppendReply(durable_offset=durable_offset, followed=followed))


class NotingConnections:
    """In place of DataConnections."""

    def __init__(self) -> None:
        self.appends = AppendBudget()
        self.addresses: dict[ReplicaId, str] = {}
        self.of = {name: NotingConnection() for name in SERVERS}

    def existing(self, replica: ReplicaId) -> NotingConnection:
        return self.of[replica.server]

    async def get(self, replica: ReplicaId, address: str = "") -> NotingConnection:
        return self.of[replica.server]

    def learn(self, source: common_pb2.Range) -> None:
        """Any server is there."""


async def opened_writer(connections: NotingConnections) -> Writer:
    """A writer whose range is open on three servers; no placement driver stands behind it."""
    shared = cast(DataConnections, connections)
    dials = SharedDials(shared, cast(Any, None))
    host = cast(Any, SimpleNamespace(metadata=None, connections=shared, calls=None, dials=dials, lag_limits=LAG_LIMITS))
    writer = Writer(host, "s", append_timeout_s=5, open_timeout_s=5)
    replicas = [common_pb2.Replica(server=name, incarnation=1, data_address="h:1") for name in SERVERS]
    created = common_pb2.Range(stream_id=1, index=0, epoch=1, acks=2, replicas=replicas)
    config = common_pb2.StreamConfig(range_size_bytes_max=1 << 40)
    stream = common_pb2.Stream(stream_id=1, name="s", epoch=1, config=config)
    writer._codec = CODEC_NONE
    writer.taken = TakenOver(stream, 0, None, {})
    writer._runner = AppenderRunner(
        host, stream, created,
        confirmed=writer._resolve, stopping=writer._stopping, stopped=writer._stopped, send_gathered=writer._pump,
        no_room=lambda error: writer.on_no_room(error),
    )  # fmt: skip
    writer._pending.open()
    writer._runner.start()
    assert isinstance(writer._runner.core.opened, OpenRange)
    while not all(connection.listener for connection in connections.of.values()):
        await asyncio.sleep(0)
    return writer
