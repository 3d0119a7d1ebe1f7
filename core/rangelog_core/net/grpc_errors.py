"""Errors of rangelog as gRPC statuses and back: google.rpc.Status with an ErrorInfo whose reason is the stable code.

What holds: a client never sees a gRPC type, nor the text of an exception from outside rangelog.
"""

from __future__ import annotations

import re

import grpc
from google.protobuf import any_pb2
from google.protobuf.message import DecodeError
from google.rpc import code_pb2, error_details_pb2, status_pb2
from grpc_status import rpc_status

from rangelog_core import errors
from rangelog_core.errors import RangelogError, error_from_code
from rangelog_core.net.tls import TlsConfig
from rangelog_core.net.tls_errors import from_grpc

DOMAIN = "rangelog"
_NUMBER = re.compile(r"[0-9]{1,20}")

MESSAGE_LENGTH_MAX = 500
"""In characters. A status is sent as metadata, which gRPC bounds at 8 KiB; it may contain text of the caller's request."""

_STATUS: tuple[tuple[type[RangelogError], int], ...] = (
    (errors.OffsetOutOfRange, code_pb2.OUT_OF_RANGE),
    (errors.StreamExists, code_pb2.ALREADY_EXISTS),
    (errors.NamespaceExists, code_pb2.ALREADY_EXISTS),
    (errors.TopicExists, code_pb2.ALREADY_EXISTS),
    (errors.StreamNotFound, code_pb2.NOT_FOUND),
    (errors.NamespaceNotFound, code_pb2.NOT_FOUND),
    (errors.TopicNotFound, code_pb2.NOT_FOUND),
    (errors.ShardNotFound, code_pb2.NOT_FOUND),
    (errors.StreamSealed, code_pb2.FAILED_PRECONDITION),
    (errors.RangeNotFound, code_pb2.NOT_FOUND),
    (errors.ObjectNotFound, code_pb2.NOT_FOUND),
    (errors.GroupNotFound, code_pb2.NOT_FOUND),
    (errors.MemberNotFound, code_pb2.NOT_FOUND),
    (errors.MemberFenced, code_pb2.FAILED_PRECONDITION),
    (errors.TransactionNotFound, code_pb2.NOT_FOUND),
    (errors.SessionExpired, code_pb2.ABORTED),
    (errors.ProducerFenced, code_pb2.FAILED_PRECONDITION),
    (errors.WriterFenced, code_pb2.FAILED_PRECONDITION),
    (errors.NoPlacement, code_pb2.FAILED_PRECONDITION),
    (errors.PreconditionFailed, code_pb2.FAILED_PRECONDITION),
    (errors.RequestTimeout, code_pb2.DEADLINE_EXCEEDED),
    (errors.Overloaded, code_pb2.RESOURCE_EXHAUSTED),
    (errors.Unavailable, code_pb2.UNAVAILABLE),
    (errors.OutcomeUnknown, code_pb2.ABORTED),
    (errors.Unauthorized, code_pb2.UNAUTHENTICATED),
    (errors.UnsupportedVersion, code_pb2.FAILED_PRECONDITION),
    (errors.EncryptionKeyMissing, code_pb2.FAILED_PRECONDITION),
    (errors.Corruption, code_pb2.DATA_LOSS),
    (errors.InvalidArgument, code_pb2.INVALID_ARGUMENT),
    (errors.ProtocolViolation, code_pb2.INVALID_ARGUMENT),
)

_PLAIN: dict[grpc.StatusCode, tuple[type[RangelogError], str]] = {
    grpc.StatusCode.UNAVAILABLE: (errors.Unavailable, "cannot be reached"),
    grpc.StatusCode.DEADLINE_EXCEEDED: (errors.RequestTimeout, "did not answer in time"),
    grpc.StatusCode.CANCELLED: (errors.Unavailable, "closed the call"),
    grpc.StatusCode.RESOURCE_EXHAUSTED: (errors.InvalidArgument, "refused a message over its size limit"),
    grpc.StatusCode.UNAUTHENTICATED: (errors.Unauthorized, "wants a valid token"),
    grpc.StatusCode.PERMISSION_DENIED: (errors.Unauthorized, "does not allow this"),
    grpc.StatusCode.UNIMPLEMENTED: (
        errors.UnsupportedVersion,
        "does not know this call: is it an earlier version (upgrade servers before clients), or another port?",
    ),
}

_NEVER_DONE = (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.UNIMPLEMENTED)
_ANOTHER_PROGRAM = "another program listens there"
_NOT_REACHED = (
    ("Connection refused", "connection refused"),
    ("errors resolving", "unknown host"),
    ("No route to host", "no route to host"),
    ("Network is unreachable", "the network is unreachable"),
    ("Failed parsing HTTP/2", _ANOTHER_PROGRAM),
)
"""What gRPC says, and what it means. Nobody who waits a little longer gets another answer."""
_NEVER_SENT = ("failed to connect to all addresses", "errors resolving ")
"""The start of gRPC's message when a call found no connection. gRPC gives no other indication."""


def to_status(error: RangelogError) -> status_pb2.Status:
    """Encode an error for the wire."""
    code = next((code for cls, code in _STATUS if isinstance(error, cls)), code_pb2.INTERNAL)
    detail = any_pb2.Any()
    detail.Pack(error_details_pb2.ErrorInfo(reason=error.code, domain=DOMAIN, metadata=error.details()))
    message = error.message
    if len(message) > MESSAGE_LENGTH_MAX:
        message = message[:MESSAGE_LENGTH_MAX] + "…"
    return status_pb2.Status(code=code, message=message, details=[detail])


def from_rpc_error(error: grpc.RpcError, peer: str, tls: TlsConfig | None = None) -> RangelogError:
    """Decode the exception of a call to `peer`; gRPC's own statuses become the nearest error of rangelog.

    `tls`: what the call was made with.
    """
    ours = _ours(error)
    if ours is not None:
        return ours
    code = _code(error)
    if code is grpc.StatusCode.UNAVAILABLE and isinstance(error, grpc.aio.AioRpcError | grpc.Call):
        failed = from_grpc(error.details() or "", peer, tls)
        if failed is not None:
            return failed
    cls, text = _PLAIN.get(code, (errors.InternalError, f"failed ({code.name})"))
    return cls(f"{peer} {text}{_why_not_reached(error)}")


def is_reply(error: grpc.RpcError) -> bool:
    """Whether the peer itself answered with this error, as one of rangelog's."""
    return _ours(error) is not None


def was_never_reached(error: grpc.RpcError) -> bool:
    """Whether nothing that could be the peer is at its address: refused, unknown host, or another program."""
    return bool(_why_not_reached(error))


def is_another_program(error: grpc.RpcError) -> bool:
    """Whether the peer's address belongs to a program of another kind, as a web server."""
    return _why_not_reached(error).endswith(_ANOTHER_PROGRAM)


def _why_not_reached(error: grpc.RpcError) -> str:
    if _code(error) is not grpc.StatusCode.UNAVAILABLE or not isinstance(error, grpc.aio.AioRpcError | grpc.Call):
        return ""
    details = error.details() or ""
    if not details.startswith(_NEVER_SENT):
        return ""
    return next((f": {why}" for sign, why in _NOT_REACHED if sign in details), "")


def may_have_been_carried_out(error: grpc.RpcError) -> bool:
    """Whether the peer may have carried out a call that failed with this error. True when it is not known."""
    ours = _ours(error)
    if (
        ours is not None
    ):  # a defect may occur before or after the change; an unknown code of a newer peer may mean either
        return ours.outcome_unknown or isinstance(ours, errors.InternalError) or type(ours) is RangelogError
    code = _code(error)
    if code is grpc.StatusCode.UNAVAILABLE and isinstance(error, grpc.aio.AioRpcError | grpc.Call):
        return not (error.details() or "").startswith(_NEVER_SENT)
    return code not in _NEVER_DONE


def _code(error: grpc.RpcError) -> grpc.StatusCode:
    return error.code() if isinstance(error, grpc.aio.AioRpcError | grpc.Call) else grpc.StatusCode.UNKNOWN


def _ours(error: grpc.RpcError) -> RangelogError | None:
    try:
        status = rpc_status.from_call(error)
        return _told_by(status) if status is not None else None
    except (ValueError, DecodeError):
        return None  # its details are missing, malformed, or contradict its status: the error of another program


def _told_by(status: status_pb2.Status) -> RangelogError | None:
    for detail in status.details:
        info = error_details_pb2.ErrorInfo()
        if detail.Unpack(info) and info.domain == DOMAIN:
            return error_from_code(
                info.reason,
                status.message,
                epoch=_number(info.metadata.get("epoch")),
                offset=_number(info.metadata.get("offset")),
                address=info.metadata.get("address"),
            )
    return None


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and _NUMBER.fullmatch(text) else None
