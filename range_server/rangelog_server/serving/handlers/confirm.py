"""Confirm: the writer's confirm offsets, and that it is there. There is no reply."""

from __future__ import annotations

from rangelog_core.errors import RangelogError
from rangelog_core.frame import Frame
from rangelog_proto.v1 import data_pb2
from rangelog_server.serving.connection import ClientConnection
from rangelog_server.serving.needs import ENDS, resource


def handle(connection: ClientConnection, frame: Frame) -> None:
    """Apply the confirm offsets of one or more ranges; those that the client may not append to are left out."""
    connection.require_member()
    message = data_pb2.Confirm.FromString(frame.message)
    if not connection.gate.is_open:
        allowed: list[data_pb2.Confirm] = []
        for each in (message, *message.others):
            try:
                if not connection.gate.passes(frame, ENDS, resource(each.stream_id)):
                    return
                allowed.append(each)
            except RangelogError:
                pass  # nobody waits for an answer, and the range's appends are refused
        if not allowed:
            return
        message, others = data_pb2.Confirm(), allowed[1:]
        message.CopyFrom(allowed[0])
        del message.others[:]
        message.others.extend(others)
    connection.store.confirm(message, connection.weak)
