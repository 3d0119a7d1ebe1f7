"""Applies commands: one after the other, the same on every member.

What holds: an error is a result, and `apply` raises only for a command of a newer program (versions.py); a command with the
request id of an earlier one gets that one's result, for as long as results.py keeps it; time and choices are part of the
command, so no code here reads a clock or uses randomness.
A retriable refusal is not kept as a result, with one exception: a seal refused with NoPlacement. Its writer continues with
the range, so no late copy of that request may ever seal it.
"""

from __future__ import annotations

from google.protobuf.message import DecodeError, Message

from rangelog_core.errors import InternalError, NoPlacement, Overloaded, RangelogError, error_from_code
from rangelog_pd.state import (
    restore,
)
from rangelog_pd.state.applied import AppliedEntries
from rangelog_pd.state.batches import BATCHES
from rangelog_pd.state.operations import OPERATIONS, needed_level
from rangelog_pd.state.results import Results
from rangelog_pd.state.snapshot import Frozen, freeze, thaw
from rangelog_pd.state.store import State
from rangelog_pd.state.versions import FEATURE_LEVEL, check_known
from rangelog_proto.v1 import pd_state_pb2


class Machine:
    """The state machine that consensus drives; see StateMachine in consensus/interface.py."""

    def __init__(self, feature_level: int = FEATURE_LEVEL) -> None:
        """`feature_level`: the level of this member; below FEATURE_LEVEL it behaves as the earlier program."""
        self.state = State()
        self.feature_level = feature_level
        self.applied = AppliedEntries()
        self._results = Results()

    def apply(self, index: int, command: bytes) -> bytes:
        """Apply one command; return an encoded CommandResult. Raises UnsupportedVersion: then this member must stop."""
        try:
            parsed = pd_state_pb2.Command.FromString(command)
        except DecodeError:
            return _failed(InternalError(f"log entry {index} is malformed"))
        action = parsed.WhichOneof("action")
        self.applied.note(index, action or "")
        check_known(parsed.version, self.feature_level, f"log entry {index}")
        if action is None or not parsed.version or parsed.version < needed_level(parsed):
            return _failed(InternalError(f"log entry {index} is not a command"))
        kept = self._results.find(_key(action, parsed.request_id))
        if kept is not None:
            return kept
        self.state.advance(parsed.now_ms, provisional=parsed.time_is_provisional)
        operand = getattr(parsed, action)
        if action in BATCHES:
            return _succeeded(BATCHES[action](self._decide, operand))
        return self._decide(action, parsed.request_id, operand)

    def _decide(self, action: str, request_id: str, operand: Message) -> bytes:
        """Run one operation and keep its result, or return the result that the request had before."""
        request = _key(action, request_id)
        kept = self._results.find(request)
        if kept is not None:
            return kept
        if request and not self._results.has_room(self.state.time_ms):
            return _failed(Overloaded("too many commands within a minute: try again later"))
        result, final = self._run(action, operand)
        if request and final:
            self._results.keep(request, self.state.time_ms, result)
        return result

    def _run(self, action: str, operand: Message) -> tuple[bytes, bool]:
        """Return the result, and whether it is final for its request."""
        refusal = restore.refusal(self.state, action)
        if refusal is not None:
            return _failed(refusal), False
        try:
            response = OPERATIONS[action].apply(self.state, operand, self.state.time_ms)
        except RangelogError as error:
            return _failed(error), not error.retriable or (action == "seal_range" and isinstance(error, NoPlacement))
        except Exception as error:  # the same on every member: the command gets an error and the cluster continues
            return _failed(InternalError(f"{action} failed: {type(error).__name__}")), True
        return _succeeded(response), True

    def has_result(self, action: str, request_id: str) -> bool:
        """Whether a request was carried out before, so that a repeat gets its result."""
        return _key(action, request_id) in self._results

    def freeze(self) -> Frozen:
        """Return the current state, to be encoded later."""
        return freeze(self.state, self._results)

    def freeze_rows(self) -> Frozen:
        """Return the current rows without the kept results: what a snapshot in the tier has."""
        return freeze(self.state, Results())

    def snapshot(self) -> bytes:
        """Encode the whole state."""
        return b"".join(self.freeze())

    def restore(self, data: bytes) -> None:
        """Replace the whole state. Raises Corruption or UnsupportedVersion before anything is changed."""
        self.state, self._results = thaw(data, self.feature_level)
        self.applied.restored()


def _key(action: str, request_id: str) -> str:
    """Return what a result is kept under; nothing where a command has no request id."""
    return f"{action} {request_id}" if request_id else ""


def _succeeded(response: Message | None) -> bytes:
    encoded = response.SerializeToString(deterministic=True) if response is not None else b""
    return pd_state_pb2.CommandResult(response=encoded).SerializeToString()


def _failed(error: RangelogError) -> bytes:
    return pd_state_pb2.CommandResult(
        error_code=error.code,
        error_message=error.message,
        error_epoch=error.epoch or 0,
        error_offset=error.offset or 0,
        has_error_offset=error.offset is not None,
    ).SerializeToString()


def response_of(result: bytes) -> bytes:
    """Return the response inside an encoded CommandResult, or raise the error inside it."""
    parsed = pd_state_pb2.CommandResult.FromString(result)
    if parsed.error_code:
        raise error_from_code(
            parsed.error_code,
            parsed.error_message,
            epoch=parsed.error_epoch or None,
            offset=parsed.error_offset if parsed.has_error_offset else None,
        )
    return parsed.response
