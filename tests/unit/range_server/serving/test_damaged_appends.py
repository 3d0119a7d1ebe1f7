"""An append of several batches of which one is damaged: it is refused as a whole, and nothing of it is stored."""

from __future__ import annotations

import pytest

from rangelog_core.frame import Opcode
from rangelog_proto.v1 import data_pb2
from rangelog_server.serving.connection import DataPlane
from rangelog_server.testing import batch
from tests.support.memory_server import Client

BATCHES = [batch(0, [b"a"]), batch(1, [b"b"]), batch(2, [b"c"])]


@pytest.mark.parametrize("number", range(len(BATCHES)))
async def test_a_damaged_batch_is_found_wherever_it_is(plane: DataPlane, number: int) -> None:
    """Each batch has a checksum of its own, and each is compared; a whole append behind it is taken."""
    damaged = [
        data[:-8] + bytes([data[-8] ^ 1]) + data[-7:] if at == number else data for at, data in enumerate(BATCHES)
    ]
    client = Client(plane).hello()
    message = data_pb2.Append(stream_id=1, range_index=0, epoch=1)
    client.send(Opcode.APPEND, message, b"".join(damaged))
    (frame,) = client.wire.frames()
    assert frame.opcode == Opcode.ERROR
    assert data_pb2.Error.FromString(frame.message).code == "CORRUPTION"
    assert (1, 0) not in plane.store.replicas
    client.send(Opcode.APPEND, message, b"".join(BATCHES))
    assert client.wire.frames()[-1].opcode == Opcode.APPEND_REPLY
    assert plane.store.find(1, 0).core.durable_offset == 3
