"""Hello: who the client means, and whether it may."""

from __future__ import annotations

import hmac

from rangelog_core.errors import ProtocolViolation, Unauthorized, WrongServer
from rangelog_core.frame import Frame, Opcode
from rangelog_core.limits import FRAME_PAYLOAD_BYTES_MAX
from rangelog_proto.v1 import data_pb2
from rangelog_server.serving.connection import ClientConnection

PROTOCOL_VERSION = 1


def handle(connection: ClientConnection, frame: Frame) -> None:
    """Check version, token, server and incarnation. Raises what closes the connection."""
    hello = data_pb2.Hello.FromString(frame.message)
    plane = connection.plane
    identity = plane.identity
    if plane.token is not None and not hmac.compare_digest(hello.token.encode(), plane.token.encode()):
        raise Unauthorized("the token is missing or wrong")
    if hello.protocol_version != PROTOCOL_VERSION:
        raise ProtocolViolation(f"protocol version {hello.protocol_version}; this server speaks {PROTOCOL_VERSION}")
    if hello.server != identity.name or hello.incarnation not in (0, identity.incarnation):
        raise WrongServer(f"this is {identity.name}@{identity.incarnation:016x}")
    connection.reads_only = hello.incarnation == 0
    connection.client = hello.client[:100]
    connection.greeted = True
    reply = data_pb2.HelloReply(
        protocol_version=PROTOCOL_VERSION,
        server=identity.name,
        incarnation=identity.incarnation,
        payload_bytes_max=FRAME_PAYLOAD_BYTES_MAX,
    )
    connection.send(Opcode.HELLO_REPLY, frame.request_id, reply.SerializeToString())
