"""A range server's data plane over a disk in memory: one connection by hand, or listening on loopback."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from rangelog_core.frame import Frame, FrameDecoder, Opcode, encode_frame
from rangelog_proto.v1 import common_pb2, data_pb2
from rangelog_server.identity import DirectoryIdentity
from rangelog_server.ranges.store import Store
from rangelog_server.serving.connection import ClientConnection, DataPlane
from rangelog_server.serving.handlers import HANDLERS, make_connection_factory
from rangelog_server.testing import batch
from rangelog_server.wal.log import Wal
from tests.fakes.faces import LogDisk
from tests.simulation.virtual_time import VirtualLoop


class Wire(asyncio.Transport):
    """Keeps what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.sent = b""
        self.reading = True
        self.ended = ""

    def write(self, data: Any) -> None:
        """See asyncio.Transport."""
        self.sent += bytes(data)

    def writelines(self, list_of_data: Any) -> None:
        """See asyncio.Transport."""
        self.sent += b"".join(list_of_data)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Nothing to do."""

    def pause_reading(self) -> None:
        """Noted."""
        self.reading = False

    def resume_reading(self) -> None:
        """Noted."""
        self.reading = True

    def close(self) -> None:
        """Noted."""
        self.ended = "closed"

    def abort(self) -> None:
        """Noted."""
        self.ended = "aborted"

    def frames(self) -> list[Frame]:
        """Return what was sent since the last call."""
        sent, self.sent = self.sent, b""
        return FrameDecoder(message_bytes_max=1 << 20, payload_bytes_max=1 << 26).feed(sent)


class HeldWal(Wal):
    """A log whose flushes happen when the test says."""

    held = False

    def kick(self) -> None:
        """See Wal."""
        if not self.held:
            super().kick()

    def flush(self) -> None:
        """Now."""
        self.held = False
        self.kick()


@asynccontextmanager
async def memory_plane(name: str = "rs1") -> AsyncIterator[DataPlane]:
    """A data plane whose `store.wal` is a HeldWal."""
    store = Store(HeldWal(Path("/log"), 3, io=LogDisk(), segment_bytes=1 << 24))
    store.open()
    readers = ThreadPoolExecutor(1)
    yield DataPlane(store, DirectoryIdentity(name, 9, 1, 3), None, asyncio.get_running_loop(), readers)
    readers.shutdown()


class Client:
    """A connection and its wire."""

    def __init__(self, plane: DataPlane) -> None:
        self.wire = Wire()
        self.connection = ClientConnection(plane, HANDLERS)
        self.connection.connection_made(self.wire)
        self.requests = 0

    def feed(self, data: bytes) -> None:
        """Bytes come."""
        position = 0
        while position < len(data):
            buffer = self.connection.get_buffer(-1)
            count = min(len(buffer), len(data) - position)
            buffer[:count] = data[position : position + count]
            self.connection.buffer_updated(count)
            position += count

    def send(self, opcode: Opcode, message: Any, payload: bytes = b"", *, request_id: int = 0) -> None:
        """Send a frame, of its own id or of another's."""
        if not request_id:
            self.requests += 1
        self.feed(encode_frame(opcode, request_id or self.requests, message.SerializeToString(), payload))

    def hello(self) -> Client:
        """Be greeted."""
        self.send(Opcode.HELLO, data_pb2.Hello(protocol_version=1, server="rs1", incarnation=9))
        assert self.wire.frames()[0].opcode is Opcode.HELLO_REPLY
        return self

    def append(self, base: int, value: bytes = b"x", *, stream_id: int = 1, confirm_offset: int = 0) -> None:
        """Append one record."""
        message = data_pb2.Append(stream_id=stream_id, range_index=0, epoch=1, confirm_offset=confirm_offset)
        self.send(Opcode.APPEND, message, batch(base, [value], stream_id=stream_id))

    def confirm(self, confirm_offset: int) -> None:
        """Say what is acked."""
        self.send(Opcode.CONFIRM, data_pb2.Confirm(stream_id=1, range_index=0, epoch=1, confirm_offset=confirm_offset))

    def fetch(self, offset: int, *, bytes_max: int = 1 << 20, **fields: Any) -> int:
        """Ask for records; returns the request's id."""
        self.send(
            Opcode.FETCH,
            data_pb2.Fetch(stream_id=1, range_index=0, offset=offset, bytes_max=bytes_max, **fields),
        )
        return self.requests

    def renew(self, request_id: int, credit_bytes: int) -> None:
        """Give a fetch more credit, or end it."""
        message = data_pb2.Fetch(renews=True, credit_bytes=credit_bytes)
        self.send(Opcode.FETCH, message, request_id=request_id)

    async def replies(self, count: int, timeout_s: float = 5.0) -> list[Frame]:
        """Wait until there are so many frames more (or time is up), and return all there are.

        Looks at every turn of the loop, so that no further frame slips in; virtual time passes only in a sleep.
        """
        found: list[Frame] = []
        pause_s = 0.001 if isinstance(asyncio.get_running_loop(), VirtualLoop) else 0
        try:
            async with asyncio.timeout(timeout_s):
                while len(found := found + self.wire.frames()) < count:
                    await asyncio.sleep(pause_s)
        except TimeoutError:
            pass
        return found


class MemoryServer:
    """A range server that listens, and takes what a test appends."""

    def __init__(self, plane: DataPlane) -> None:
        self.plane = plane
        self.replica = common_pb2.Replica(
            server=plane.identity.name, incarnation=9, health=common_pb2.SERVER_HEALTH_ALIVE
        )
        self.listening: asyncio.Server

    async def start(self) -> MemoryServer:
        """Listen."""
        factory = make_connection_factory(self.plane)
        self.listening = await asyncio.get_running_loop().create_server(factory, "127.0.0.1", 0)
        self.replica.data_address = f"127.0.0.1:{self.listening.sockets[0].getsockname()[1]}"
        return self

    def append(self, data: bytes, confirm_offset: int = 0) -> None:
        """As a writer."""
        client = Client(self.plane)
        client.send(Opcode.HELLO, data_pb2.Hello(protocol_version=1, server=self.replica.server, incarnation=9))
        message = data_pb2.Append(stream_id=1, range_index=0, epoch=1, confirm_offset=confirm_offset)
        client.send(Opcode.APPEND, message, data)
        assert client.wire.frames()[-1].opcode is Opcode.APPEND_REPLY
        client.connection.connection_lost(None)

    def confirm(self, confirm_offset: int) -> None:
        """As a writer."""
        self.plane.store.confirm(data_pb2.Confirm(stream_id=1, range_index=0, epoch=1, confirm_offset=confirm_offset))

    def fetches(self) -> int:
        """How many fetches wait or go on."""
        return sum(connection.fetches.count for connection in self.plane.connections)

    def stop(self) -> None:
        """Hang up."""
        self.listening.close()
        self.plane.close()
