"""What is known of one call on the placement drivers while it is tried again and again.

What holds: once a try of a command may have been carried out, the call ends with an answer that is true of it or says that
its outcome is unknown. The drivers keep the result of a command under its request id, so what they answer to a repeat is
what the first try came to; an error from one who never looked there says nothing of it.
"""

from __future__ import annotations

from typing import Any

import grpc

from rangelog_core.errors import InternalError, OutcomeUnknown, ProtocolViolation, RangelogError, Unauthorized
from rangelog_core.net.grpc_errors import from_rpc_error, may_have_been_carried_out

_NOT_KEPT = (Unauthorized, ProtocolViolation, InternalError)
"""Refusals at the door, and defects."""
_PERHAPS = "may have been carried out: look at the state before you repeat it"


class Tries:
    """The tries of one call. `last` is the last one's error, at first `error`."""

    def __init__(self, request: Any, error: RangelogError) -> None:
        self.last = error
        self._is_command = "request_id" in request.DESCRIPTOR.fields_by_name
        self._unknown = False

    def failed(self, error: grpc.RpcError, peer: str) -> RangelogError:
        """A try at `peer` ended so; return the error in our terms."""
        self._unknown |= self._is_command and may_have_been_carried_out(error)
        self.last = from_rpc_error(error, peer)
        return self.last

    def cut_off(self) -> None:
        """A try ended under way, without a word."""
        self._unknown |= self._is_command

    def answer(self, error: RangelogError) -> RangelogError:
        """Return what to raise for an error that is an answer to this try."""
        return self.told_of(error) if isinstance(error, _NOT_KEPT) else error

    def told_of(self, error: RangelogError) -> RangelogError:
        """Return the same error, with what it does not know: that an earlier try may have been carried out."""
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
        """Return what to raise where no try was answered, and `error` says why."""
        return OutcomeUnknown(f"the command {_PERHAPS} ({error.message})") if self._unknown else error
