"""Many operations in one command: each is applied as a single one, in order.

What holds: an item that fails changes nothing and does not keep the next from being applied; its error is its answer. An item
has a request id of its own, under which its first result is kept: also where it came alone before, or with other items.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from google.protobuf.message import Message

from rangelog_core.errors import RangelogError
from rangelog_proto.v1 import pd_pb2, pd_state_pb2

_R = TypeVar("_R")
Decide = Callable[[str, str, Message], bytes]
"""From an action, a request id and the operand to the encoded CommandResult: of now, or of the first time."""


def seal_ranges(decide: Decide, command: pd_state_pb2.PlacedSealRanges) -> pd_pb2.SealRangesResponse:
    """Apply each seal as `seal_range` does."""
    decided = (decide("seal_range", each.request.request_id, each) for each in command.seals)
    results = _results(pd_pb2.SealRangeResult, pd_pb2.SealRangeResponse, decided)
    return pd_pb2.SealRangesResponse(results=results)


def open_writers(decide: Decide, command: pd_pb2.OpenWritersRequest) -> pd_pb2.OpenWritersResponse:
    """Apply each opening as `open_writer` does."""
    decided = (decide("open_writer", each.request_id, each) for each in command.writers)
    results = _results(pd_pb2.OpenWriterResult, pd_pb2.OpenWriterResponse, decided)
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


def _results(result: Callable[..., _R], response: type[Message], decided: Iterable[bytes]) -> Iterator[_R]:
    """Yield the results of items, each from its encoded CommandResult."""
    for each in decided:
        found = pd_state_pb2.CommandResult.FromString(each)
        if found.error_code:
            yield result(error=_item_error(found))
        else:
            yield result(response=response.FromString(found.response))


def _item_error(found: pd_state_pb2.CommandResult) -> pd_pb2.CallError:
    return pd_pb2.CallError(
        code=found.error_code,
        message=found.error_message,
        epoch=found.error_epoch,
        offset=found.error_offset,
        has_offset=found.has_error_offset,
    )
