"""Hello at a range server: which version and which features are in force."""

from __future__ import annotations

from typing import Any

import pytest

from rangelog_core.frame import Opcode
from rangelog_core.versions import BATCH_HEADER_EXTENSION, FEATURES, VersionRange
from rangelog_proto.v1 import data_pb2
from rangelog_server.serving.connection import DataPlane
from rangelog_server.serving.handlers import hello as handler
from tests.support.memory_server import Client

pytestmark = pytest.mark.virtual


def greet(plane: DataPlane, **fields: Any) -> tuple[Client, Any]:
    """Send a hello; return the client and the message that answers it."""
    client = Client(plane)
    client.send(Opcode.HELLO, data_pb2.Hello(server="rs1", incarnation=9, **fields))
    (frame,) = client.wire.frames()
    kind = data_pb2.HelloReply if frame.opcode is Opcode.HELLO_REPLY else data_pb2.Error
    return client, kind.FromString(frame.message)


@pytest.mark.parametrize(("offered", "chosen"), [((2, 9), 4), ((3, 3), 3), ((0, 2), 2), ((1, 3), 3), ((4, 4), 4)])
async def test_the_highest_common_version_is_in_force(
    plane: DataPlane, monkeypatch: pytest.MonkeyPatch, offered: tuple[int, int], chosen: int
) -> None:
    """A server that supports 2 to 4 chooses the highest that the client offers, and announces its range."""
    monkeypatch.setattr(handler, "DATA_PLANE_VERSIONS", VersionRange(2, 4))
    client, reply = greet(plane, protocol_version_min=offered[0], protocol_version=offered[1])
    assert reply.protocol_version == chosen
    assert (reply.protocol_version_min, reply.protocol_version_max) == (2, 4)
    assert client.connection.greeted


@pytest.mark.parametrize(
    ("offered", "text"),
    [
        ((5, 7), "the client supports 5 to 7, the range server 2 to 4: upgrade the range server"),
        ((0, 1), "the client supports 1, the range server 2 to 4: upgrade the client"),
    ],
)
async def test_no_common_version_says_whom_to_upgrade(
    plane: DataPlane, monkeypatch: pytest.MonkeyPatch, offered: tuple[int, int], text: str
) -> None:
    """A client without a common version gets the typed error with both ranges, and is disconnected."""
    monkeypatch.setattr(handler, "DATA_PLANE_VERSIONS", VersionRange(2, 4))
    client, error = greet(plane, protocol_version_min=offered[0], protocol_version=offered[1])
    assert error.code == "UNSUPPORTED_VERSION"
    assert text in error.message
    assert client.wire.ended == "closed"
    assert not client.connection.greeted


async def test_features_that_both_announce_are_in_force(plane: DataPlane) -> None:
    """The server announces its own, keeps those in common, and ignores names that it does not know."""
    client, reply = greet(plane, protocol_version=1, features=[BATCH_HEADER_EXTENSION, "of-a-newer-client"])
    assert set(reply.features) == FEATURES
    assert client.connection.features == {BATCH_HEADER_EXTENSION}
    plain, _ = greet(plane, protocol_version=1)
    assert plain.connection.features == frozenset()


async def test_fields_of_a_newer_client_are_ignored(plane: DataPlane) -> None:
    """A hello with a field that this program does not know is answered as if it were not there."""
    client = Client(plane)
    newer = data_pb2.Hello(protocol_version=1, server="rs1", incarnation=9).SerializeToString() + b"\xa2\x06\x01x"
    client.send(Opcode.HELLO, data_pb2.Hello.FromString(newer))
    (frame,) = client.wire.frames()
    assert frame.opcode is Opcode.HELLO_REPLY
