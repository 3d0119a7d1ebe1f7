"""Many operations in one command: each is applied as a single one, in order.

What holds: an item that fails changes nothing and does not keep the next from being applied; its error is its answer. An item
has a request id of its own, under which its first result is kept: also where it came alone before, or with other items.
"""

from __future__ import annotations

from collections.abc import Callable

from google.protobuf.message import Message

from rangelog_core.errors import RangelogError
from rangelog_proto.v1 import pd_pb2, pd_state_pb2

Decide = Callable[[str, str, Message], bytes]
"""From an action, a request id and the operand to the encoded CommandResult: of now, or of the first time."""


def seal_ranges(decide: Decide, command: pd_state_pb2.PlacedSealRanges) -> pd_pb2.SealRangesResponse:
    """Apply each seal as `seal_range` does."""
    results = []
    for each in command.seals:
        found = pd_state_pb2.CommandResult.FromString(decide("seal_range", each.request.request_id, each))
        if found.error_code:
            results.append(pd_pb2.SealRangeResult(error=_item_error(found)))
        else:
            response = pd_pb2.SealRangeResponse.FromString(found.response)
            results.append(pd_pb2.SealRangeResult(response=response))
    return pd_pb2.SealRangesResponse(results=results)


def open_writers(decide: Decide, command: pd_pb2.OpenWritersRequest) -> pd_pb2.OpenWritersResponse:
    """Apply each opening as `open_writer` does."""
    results = []
    for each in command.writers:
        found = pd_state_pb2.CommandResult.FromString(decide("open_writer", each.request_id, each))
        if found.error_code:
            results.append(pd_pb2.OpenWriterResult(error=_item_error(found)))
        else:
            response = pd_pb2.OpenWriterResponse.FromString(found.response)
            results.append(pd_pb2.OpenWriterResult(response=response))
    return pd_pb2.OpenWritersResponse(results=results)


BATCHES: dict[str, Callable[..., Message]] = {"seal_ranges": seal_ranges, "open_writers": open_writers}


def call_error(error: RangelogError) -> pd_pb2.CallError:
    """Return an error as a message."""
    return pd_pb2.CallError(
        code=error.code,
        message=error.message,
        epoch=error.epoch or 0,
        offset=error.offset or 0,
        has_offset=error.offset is not None,
    )


def _item_error(found: pd_state_pb2.CommandResult) -> pd_pb2.CallError:
    return pd_pb2.CallError(
        code=found.error_code,
        message=found.error_message,
        epoch=found.error_epoch,
        offset=found.error_offset,
        has_offset=found.has_error_offset,
    )
