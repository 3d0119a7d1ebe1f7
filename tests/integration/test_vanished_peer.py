"""A peer that vanishes without FIN or RST is found out by the server's kernel; real sockets, no privilege needed.

A socket filter that drops whatever comes stands for the vanished machine: nothing is acknowledged from then on, and nothing
is said. `make chaos KINDS=vanished-peer` does the same to whole hosts, with the bounds as they are.
"""

from __future__ import annotations

import ctypes
import socket
import struct

import pytest

from rangelog_core.errors import RangeNotFound
from rangelog_core.frame import Opcode
from rangelog_core.net.data_connection import DataConnection, replica_id
from rangelog_proto.v1 import data_pb2
from rangelog_server.serving import connection as serving
from tests.support.memory_server import MemoryServer, memory_plane
from tests.support.waiting import until

pytestmark = [pytest.mark.integration, pytest.mark.timeout(60)]

SHORT = {"KEEPALIVE_IDLE_S": 1, "KEEPALIVE_INTERVAL_S": 1, "KEEPALIVE_COUNT": 2, "USER_TIMEOUT_MS": 3_000}
NOTICED_WITHIN_S = 15.0
_SO_ATTACH_FILTER = 26
_DROP_ALL = struct.pack("HBBI", 0x06, 0, 0, 0)  # "return 0 bytes", in the kernel's packet language


def vanish(connection: DataConnection) -> None:
    """Nothing that is sent to the connection arrives any more, and nobody says so."""
    end = connection._transport.get_extra_info("socket")
    program = ctypes.create_string_buffer(_DROP_ALL)
    end.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, struct.pack("HP", 1, ctypes.addressof(program)))


async def test_only_who_is_there_keeps_a_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of an idle peer that vanished, one that was owed an answer, and one that is there, the last keeps its connection."""
    for name, value in SHORT.items():
        monkeypatch.setattr(serving, name, value)
    async with memory_plane() as plane:
        server = await MemoryServer(plane).start()
        clients = [await DataConnection.connect(server.replica.data_address, replica_id("rs1", 9)) for _ in range(3)]
        idle, owed, present = clients
        for each in (idle, owed):
            vanish(each)
        owed.send(Opcode.FETCH, data_pb2.Fetch(stream_id=1, range_index=0).SerializeToString())
        await until(lambda: len(plane.connections) <= 1, within_s=NOTICED_WITHIN_S)
        with pytest.raises(RangeNotFound):
            await present.request(Opcode.FETCH, data_pb2.Fetch(stream_id=1).SerializeToString(), timeout_s=5.0)
        for each in clients:
            each.close()
        server.stop()
