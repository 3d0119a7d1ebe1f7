"""Confirm: the writer's confirm offsets, and that it is there. There is no reply."""

from __future__ import annotations

from rangelog_core.frame import Frame
from rangelog_proto.v1 import data_pb2
from rangelog_server.serving.connection import ClientConnection


def handle(connection: ClientConnection, frame: Frame) -> None:
    """Apply the confirm offsets of one or more ranges."""
    connection.require_member()
    connection.store.confirm(data_pb2.Confirm.FromString(frame.message), connection.weak)
