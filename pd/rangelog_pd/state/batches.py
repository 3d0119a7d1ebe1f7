"""Many operations in one command: each is applied as a single one, in order.

What holds: an item that fails changes nothing and does not prevent the next from being applied; its error is its result.
"""

from __future__ import annotations

from rangelog_core.errors import RangelogError
from rangelog_pd.state.ranges import seal_range
from rangelog_pd.state.store import State
from rangelog_pd.state.streams import open_writer
from rangelog_proto.v1 import pd_pb2, pd_state_pb2


def seal_ranges(state: State, command: pd_state_pb2.PlacedSealRanges, now_ms: int) -> pd_pb2.SealRangesResponse:
    """Apply each seal as `seal_range` does."""
    results = []
    for each in command.seals:
        try:
            results.append(pd_pb2.SealRangeResult(response=seal_range(state, each, now_ms)))
        except RangelogError as error:
            results.append(pd_pb2.SealRangeResult(error=call_error(error)))
    return pd_pb2.SealRangesResponse(results=results)


def open_writers(state: State, request: pd_pb2.OpenWritersRequest, now_ms: int) -> pd_pb2.OpenWritersResponse:
    """Apply each opening as `open_writer` does."""
    results = []
    for each in request.writers:
        try:
            results.append(pd_pb2.OpenWriterResult(response=open_writer(state, each, now_ms)))
        except RangelogError as error:
            results.append(pd_pb2.OpenWriterResult(error=call_error(error)))
    return pd_pb2.OpenWritersResponse(results=results)


def call_error(error: RangelogError) -> pd_pb2.CallError:
    """Return an error as a message."""
    return pd_pb2.CallError(
        code=error.code,
        message=error.message,
        epoch=error.epoch or 0,
        offset=error.offset or 0,
        has_offset=error.offset is not None,
    )
