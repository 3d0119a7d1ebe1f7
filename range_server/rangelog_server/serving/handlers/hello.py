"""Hello: checks the token, the named server, and the versions; replies with the version in force."""

from __future__ import annotations

from rangelog_core.errors import WrongServer
from rangelog_core.frame import Frame
from rangelog_core.versions import DATA_PLANE_VERSIONS, FEATURES, agreed, announced
from rangelog_server.serving.connection import ClientConnection


def handle(connection: ClientConnection, frame: Frame) -> None:
    """Check token, versions, server and incarnation.

    Raises errors that close the connection: Unauthorized, UnsupportedVersion, ProtocolViolation or WrongServer.
    """
    hello = connection.take_hello(frame)
    identity = connection.plane.identity
    version = agreed(announced(hello.protocol_version_min, hello.protocol_version), DATA_PLANE_VERSIONS)
    if hello.server != identity.name or hello.incarnation not in (0, identity.incarnation):
        raise WrongServer(f"this is {identity.name}@{identity.incarnation:016x}")
    connection.reads_only = hello.incarnation == 0
    connection.features = FEATURES.intersection(hello.features)
    connection.welcome(frame.request_id, hello, identity.incarnation, version, DATA_PLANE_VERSIONS)
