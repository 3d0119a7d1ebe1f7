"""LookupTimestamp: the batch with the first record at or after a time."""

from __future__ import annotations

from rangelog_core.frame import Frame, Opcode
from rangelog_proto.v1 import data_pb2
from rangelog_server.serving.connection import ClientConnection
from rangelog_server.serving.needs import READS, resource


def handle(connection: ClientConnection, frame: Frame) -> None:
    """Reply with the first readable batch with a record at or after the timestamp, and the end of the readable records.

    Without a result there may be one beyond that end, on another replica. On request also from where on no record is before
    another time. Raises RangeNotFound, Corruption.
    """
    message = data_pb2.LookupTimestamp.FromString(frame.message)
    if not connection.gate.passes(frame, READS, resource(message.stream_id)):
        return
    hosted = connection.store.find(message.stream_id, message.range_index)
    connection.store.check_readable(hosted)
    readable_end = hosted.core.readable_end(message.known_end_offset)
    found = hosted.find_timestamp(message.timestamp_ms, readable_end)
    has_bound = message.HasField("before_timestamp_ms")
    reply = data_pb2.LookupTimestampReply(
        found=found is not None,
        offset=found or 0,
        confirm_offset=hosted.core.confirm_offset,
        readable_end_offset=readable_end,
        until_offset=hosted.find_until(message.before_timestamp_ms, readable_end) if has_bound else 0,
    )
    connection.send(Opcode.LOOKUP_TIMESTAMP_REPLY, frame.request_id, reply.SerializeToString())
