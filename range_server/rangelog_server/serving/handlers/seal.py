"""Seal: the fence. The reply is sent once the fence is durable."""

from __future__ import annotations

from rangelog_core.frame import Frame, Opcode
from rangelog_proto.v1 import data_pb2
from rangelog_server.ranges.hosted_replica import HostedReplica
from rangelog_server.ranges.replica import SealOutcome
from rangelog_server.serving.connection import ClientConnection
from rangelog_server.serving.needs import ENDS, resource

_OUTCOMES = {
    SealOutcome.FENCED: data_pb2.SEAL_OUTCOME_FENCED,
    SealOutcome.DOUBTFUL: data_pb2.SEAL_OUTCOME_DOUBTFUL,
    SealOutcome.UNKNOWN: data_pb2.SEAL_OUTCOME_UNKNOWN,
}


def handle(connection: ClientConnection, frame: Frame) -> None:
    """Raise the fence and reply with the replica's durable offset. Raises WriterFenced, ProtocolViolation, StorageFull."""
    message = data_pb2.Seal.FromString(frame.message)
    connection.require_member()
    if not connection.gate.passes(frame, ENDS, resource(message.stream_id)):
        return

    def answer(hosted: HostedReplica) -> None:
        told = hosted.core.seal_answer()
        reply = data_pb2.SealReply(
            outcome=_OUTCOMES[told.outcome],
            durable_offset=told.durable_offset,
            last_batch_crc=told.last_batch_crc,
            confirm_offset=told.confirm_offset,
        )
        connection.send(Opcode.SEAL_REPLY, frame.request_id, reply.SerializeToString())

    place = message.stream_id, message.range_index, message.epoch, message.start_offset
    connection.store.seal(*place, answer, by=connection.client)
