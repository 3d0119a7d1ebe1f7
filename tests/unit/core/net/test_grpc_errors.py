"""Errors over gRPC: ours arrive as they left, everything else becomes the nearest of ours."""

from __future__ import annotations

import grpc
import pytest
from google.protobuf import any_pb2
from google.rpc import code_pb2, error_details_pb2, status_pb2
from grpc.aio import AioRpcError, Metadata

from rangelog_core import errors
from rangelog_core.errors import RangelogError
from rangelog_core.net.grpc_errors import DOMAIN, from_rpc_error, to_status

_KEY = "grpc-status-details-bin"


def _classes(base: type[RangelogError] = RangelogError) -> list[type[RangelogError]]:
    return [
        each for sub in base.__subclasses__() for each in (sub, *_classes(sub)) if sub.__module__ == errors.__name__
    ]


def _rpc_error(code: grpc.StatusCode, text: str = "", trailing: Metadata | None = None) -> AioRpcError:
    return AioRpcError(code, Metadata(), trailing or Metadata(), details=text)


def _arrived(status: status_pb2.Status) -> RangelogError:
    code = next(each for each in grpc.StatusCode if each.value[0] == status.code)
    trailing = Metadata((_KEY, status.SerializeToString()))
    return from_rpc_error(_rpc_error(code, status.message, trailing), "pd1")


@pytest.mark.parametrize("cls", _classes(), ids=lambda cls: cls.code)
def test_every_error_arrives_as_it_left(cls: type[RangelogError]) -> None:
    """Class, message, epoch, offset and address survive the way there and back."""
    sent = cls("what happened: what to do", epoch=7, offset=1 << 60, address="[::1]:7100")
    came = _arrived(to_status(sent))
    assert type(came) is cls
    assert (came.message, came.epoch, came.offset, came.address) == (sent.message, 7, 1 << 60, "[::1]:7100")
    assert (came.retriable, came.outcome_unknown) == (sent.retriable, sent.outcome_unknown)


def test_only_defects_are_internal() -> None:
    """A caller without rangelog's client learns from the status alone whether it or the server is wrong."""
    internal = {each.code for each in _classes() if to_status(each("x")).code == code_pb2.INTERNAL}
    assert internal == {"INTERNAL", "MISSING_EXTRA", "WRITER_CLOSED"}, "no service raises the last two"


def test_details_that_are_not_set_stay_unset() -> None:
    """An error without epoch, offset and address has none on the other side either."""
    came = _arrived(to_status(errors.StreamExists("there")))
    assert (came.epoch, came.offset, came.address) == (None, None, None)


def test_code_of_a_newer_peer() -> None:
    """A code that this client does not know becomes a plain error that names it."""
    status = to_status(errors.WriterFenced("later", epoch=3))
    info = error_details_pb2.ErrorInfo(reason="BRAND_NEW", domain=DOMAIN, metadata={"epoch": "3"})
    status.details[0].Pack(info)
    came = _arrived(status)
    assert type(came) is RangelogError
    assert "BRAND_NEW" in came.message and came.epoch == 3


@pytest.mark.parametrize("number", ["-1", "x", "", "٣", "1e3"])
def test_odd_numbers_in_details(number: str) -> None:
    """A detail that is no number is left out, not raised."""
    status = to_status(errors.WriterFenced("later", epoch=3))
    status.details[0].Pack(error_details_pb2.ErrorInfo(reason="FENCED", domain=DOMAIN, metadata={"epoch": number}))
    came = _arrived(status)
    assert isinstance(came, errors.WriterFenced) and came.epoch is None


@pytest.mark.parametrize(
    ("code", "cls"),
    [
        (grpc.StatusCode.UNAVAILABLE, errors.Unavailable),
        (grpc.StatusCode.DEADLINE_EXCEEDED, errors.RequestTimeout),
        (grpc.StatusCode.CANCELLED, errors.Unavailable),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, errors.InvalidArgument),
        (grpc.StatusCode.UNAUTHENTICATED, errors.Unauthorized),
        (grpc.StatusCode.PERMISSION_DENIED, errors.Unauthorized),
        (grpc.StatusCode.UNIMPLEMENTED, errors.UnsupportedVersion),
        (grpc.StatusCode.INTERNAL, errors.InternalError),
        (grpc.StatusCode.UNKNOWN, errors.InternalError),
    ],
)
def test_statuses_of_grpc_itself(code: grpc.StatusCode, cls: type[RangelogError]) -> None:
    """A status without our details becomes ours, names the peer, and does not repeat gRPC's text."""
    came = from_rpc_error(_rpc_error(code, "ipv4:10.0.0.1 secret detail of the library"), "placement driver pd1:7100")
    assert type(came) is cls
    assert "pd1:7100" in came.message and "secret" not in came.message


def test_error_info_of_somebody_else() -> None:
    """Details of another domain are not taken for ours."""
    detail = any_pb2.Any()
    detail.Pack(error_details_pb2.ErrorInfo(reason="FENCED", domain="example.org"))
    status = status_pb2.Status(code=14, message="x", details=[detail])
    assert type(_arrived(status)) is errors.Unavailable


@pytest.mark.parametrize(
    "trailing",
    [
        b"\xff\xff\xff garbage",
        status_pb2.Status(
            code=14,
            message="m",
            details=[any_pb2.Any(type_url="type.googleapis.com/google.rpc.ErrorInfo", value=b"\xff\xff")],
        ).SerializeToString(),
        status_pb2.Status(code=3, message="another code than the call's").SerializeToString(),
    ],
    ids=["no-status", "bad-detail", "other-code"],
)
def test_damaged_details(trailing: bytes) -> None:
    """Details that cannot be read leave the plain status; no error of protobuf or gRPC comes through."""
    error = _rpc_error(grpc.StatusCode.UNAVAILABLE, "m", Metadata((_KEY, trailing)))
    assert type(from_rpc_error(error, "pd1")) is errors.Unavailable


def test_long_messages_are_cut() -> None:
    """A message fits into gRPC's metadata, whatever a caller put into it: else the error itself would be refused."""
    status = to_status(errors.StreamNotFound("no stream " + "x" * 1_000_000))
    assert len(status.SerializeToString()) < 4_096
    assert isinstance(_arrived(status), errors.StreamNotFound)
