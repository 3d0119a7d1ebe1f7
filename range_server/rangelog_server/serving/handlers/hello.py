"""Hello: checks the token, the named server, and the versions; replies with the version in force."""

from __future__ import annotations

from rangelog_core.errors import WrongServer
from rangelog_core.frame import Frame, Opcode
from rangelog_core.limits import FRAME_PAYLOAD_BYTES_MAX
from rangelog_core.versions import DATA_PLANE_VERSIONS, FEATURES, agreed, announced
from rangelog_proto.v1 import data_pb2
from rangelog_server.serving.connection import ClientConnection


def handle(connection: ClientConnection, frame: Frame) -> None:
    """Check token, versions, server and incarnation.

    Raises errors that close the connection: Unauthorized, UnsupportedVersion, ProtocolViolation or WrongServer.
    """
    hello = data_pb2.Hello.FromString(frame.message)
    plane = connection.plane
    identity = plane.identity
    connection.caller.greeted(hello.token)
    version = agreed(announced(hello.protocol_version_min, hello.protocol_version), DATA_PLANE_VERSIONS)
    if hello.server != identity.name or hello.incarnation not in (0, identity.incarnation):
        raise WrongServer(f"this is {identity.name}@{identity.incarnation:016x}")
    connection.reads_only = hello.incarnation == 0
    connection.client = "".join(each for each in hello.client[:100] if each.isprintable())  # others are shown it
    connection.greeted_by(connection.caller.principal)
    connection.features = FEATURES.intersection(hello.features)
    connection.greeted = True
    reply = data_pb2.HelloReply(
        protocol_version=version,
        server=identity.name,
        incarnation=identity.incarnation,
        payload_bytes_max=FRAME_PAYLOAD_BYTES_MAX,
        protocol_version_min=DATA_PLANE_VERSIONS.lowest,
        protocol_version_max=DATA_PLANE_VERSIONS.highest,
        features=sorted(FEATURES),
    )
    connection.send(Opcode.HELLO_REPLY, frame.request_id, reply.SerializeToString())
