"""CommitEnd: the committed end, from the client that sealed the range. The reply is sent once the end is durable."""

from __future__ import annotations

from rangelog_core.frame import Frame, Opcode
from rangelog_proto.v1 import data_pb2
from rangelog_server.ranges.hosted_replica import HostedReplica
from rangelog_server.serving.connection import ClientConnection
from rangelog_server.serving.needs import ENDS, resource


def handle(connection: ClientConnection, frame: Frame) -> None:
    """Apply the end. Raises WriterFenced, PreconditionFailed (it has another end), ProtocolViolation, StorageFull."""
    message = data_pb2.CommitEnd.FromString(frame.message)
    connection.require_member()
    if not connection.gate.passes(frame, ENDS, resource(message.stream_id)):
        return

    def answer(hosted: HostedReplica) -> None:
        reply = data_pb2.CommitEndReply(complete=hosted.core.complete, durable_offset=hosted.core.durable_offset)
        connection.send(Opcode.COMMIT_END_REPLY, frame.request_id, reply.SerializeToString())

    connection.store.commit_end(
        message.stream_id, message.range_index, message.start_offset, message.end_offset, message.epoch, answer
    )
