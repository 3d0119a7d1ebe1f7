"""The state of one call on the placement drivers over its tries.

What holds: once a try of a command may have been carried out, the call ends with the command's result, or with an error
whose outcome is unknown. Placement drivers keep the result of a command under its request id and return it to a retry; an
error that a member raises before it looks there does not show whether an earlier try was carried out.
"""

from __future__ import annotations

from typing import Any

import grpc

from rangelog_core.errors import (
    HandshakeFailed,
    InternalError,
    NotLeader,
    OutcomeUnknown,
    ProtocolViolation,
    RangelogError,
    RequestTimeout,
    Unauthorized,
    UnsupportedVersion,
)
from rangelog_core.net.grpc_errors import (
    from_rpc_error,
    is_another_program,
    is_reply,
    may_have_been_carried_out,
    was_never_reached,
)
from rangelog_core.net.tls import TlsConfig

_NOT_KEPT = (Unauthorized, ProtocolViolation, UnsupportedVersion, InternalError)
"""Errors before the request id is looked up, and defects."""
_PERHAPS = "may have been carried out: look at the state before you repeat it"


class Contact:
    """Whether a client has ever reached a placement driver, or something that may be one.

    The peer of a connection that is reset, or of a try without an answer, may be a placement driver that starts. Once the
    same address answers with another protocol it does not count: a web server's reply and its reset come in either order.
    """

    def __init__(self) -> None:
        self._answered = False
        self._perhaps: set[str] = set()

    @property
    def was_made(self) -> bool:
        """Whether a placement driver, or something that may be one, was reached."""
        return self._answered or bool(self._perhaps)

    def answered(self) -> None:
        """Note a reply."""
        self._answered = True

    def failed(self, error: grpc.RpcError, peer: str) -> None:
        """Note the exception of a try at `peer`."""
        if is_another_program(error):
            self._perhaps.discard(peer)
        elif is_reply(error):
            self._answered = True
        elif not was_never_reached(error):
            self._perhaps.add(peer)


class Tries:
    """The tries of one call.

    `last` is the error of the last try, at first `error`; `only_refused`: no try came as far as beyond the handshake.
    """

    def __init__(self, request: Any, error: RangelogError, contact: Contact, tls: TlsConfig | None = None) -> None:
        self.last = error
        self.only_refused = True
        self._contact = contact
        self._tls = tls
        self._is_command = "request_id" in request.DESCRIPTOR.fields_by_name
        self._unknown = False
        self._refusal = ""

    def failed(self, error: grpc.RpcError, peer: str) -> RangelogError:
        """Note the exception of a try at `peer`; return it as a RangelogError."""
        self._unknown |= self._is_command and may_have_been_carried_out(error)
        self._contact.failed(error, peer)
        self.last = from_rpc_error(error, peer, self._tls)
        self.only_refused &= isinstance(self.last, HandshakeFailed)
        if is_reply(error) and not isinstance(self.last, NotLeader | RequestTimeout):
            self._refusal = self.last.message
        return self.last

    @property
    def refused_before(self) -> str:
        """The error of an earlier try, for a message about the last one: " (…)", or nothing."""
        return f" (an earlier try was answered: {self._refusal})" if self._refusal else ""

    def cut_off(self) -> None:
        """Note that a try was cancelled before a reply."""
        self._unknown |= self._is_command

    def answer(self, error: RangelogError) -> RangelogError:
        """Return the error to raise for an error reply to this try."""
        return self.told_of(error) if isinstance(error, _NOT_KEPT) else error

    def told_of(self, error: RangelogError) -> RangelogError:
        """Return the same error, with an unknown outcome where an earlier try may have been carried out."""
        if not self._unknown:
            return error
        return type(error)(
            f"{error.message}; the command {_PERHAPS}",
            epoch=error.epoch,
            offset=error.offset,
            address=error.address,
            outcome_unknown=True,
        )

    def no_answer(self, error: RangelogError) -> RangelogError:
        """Return the error to raise where no try got a reply; `error` is the reason."""
        return OutcomeUnknown(f"the command {_PERHAPS} ({error.message})") if self._unknown else error
