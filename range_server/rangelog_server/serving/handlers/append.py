"""Append: check the batches' headers and checksums, pass them to the store. The reply is sent after the group commit."""

from __future__ import annotations

from rangelog_core.batch import BatchHeader, batch_crc
from rangelog_core.checked_batches import checked_batches
from rangelog_core.errors import ProtocolViolation, RangelogError
from rangelog_core.frame import Frame
from rangelog_proto.v1 import data_pb2
from rangelog_server.ranges.replica import NewBatch
from rangelog_server.serving.connection import ClientConnection
from rangelog_server.serving.needs import resource, verbs_of_append
from rangelog_server_common.metrics.tally import count_by


def handle(connection: ClientConnection, frame: Frame) -> None:
    """Handle one frame of batches; an error reply has the frame's request id and names the range."""
    message = data_pb2.Append.FromString(frame.message)
    payload = frame.payload
    size = len(payload)
    connection.taken(size)
    try:
        connection.require_member()
        if not connection.gate.passes(frame, verbs_of_append(message), resource(message.stream_id)):
            connection.settled(size)
            return
        batches = check_payload(message, payload)
        hosted = connection.store.append(connection, frame.request_id, message, batches, payload)
        hosted.writing = connection.weak
        if connection.book.any and not message.recovery:
            connection.charge_append(hosted, size)
    except RangelogError as error:
        connection.settled(size)
        count_by(connection.store.counts.append_errors, error.code)
        connection.send_error(frame.request_id, error, message.stream_id, message.range_index)
    except Exception:
        connection.settled(size)
        raise


def check_payload(message: data_pb2.Append, payload: bytes) -> list[NewBatch]:
    """Check that a payload is whole batches of the message's range and epoch. Raises ProtocolViolation, Corruption."""
    if not payload:
        raise ProtocolViolation("an append without a batch")
    batches = []
    for header, data, _ in checked_batches(payload):
        _check_header(message, header)
        batches.append(NewBatch(header, batch_crc(data), data))
    return batches


def _check_header(message: data_pb2.Append, header: BatchHeader) -> None:
    if header.stream_id != message.stream_id or header.range_index != message.range_index:
        raise ProtocolViolation("a batch of another range")
    if header.epoch != message.epoch and not (message.recovery and header.epoch < message.epoch):
        raise ProtocolViolation(f"a batch of epoch {header.epoch} in an append of epoch {message.epoch}")
