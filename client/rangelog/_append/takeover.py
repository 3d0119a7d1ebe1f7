"""Becoming the writer of a stream: raise the epoch, and seal the range that an earlier writer left open.

What holds: when `claim` returns, no writer of a lower epoch changes the stream at the placement driver any more; when `settle`
returns, none can get another ack, and the stream's end is committed.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rangelog._append.failover_seal import FailoverSeal
from rangelog._append.placement_calls import PlacementCalls
from rangelog._metadata import Metadata, new_request_id
from rangelog.protocol.appender import Leave
from rangelog_core.ids import ReplicaId
from rangelog_core.net.data_connection import DataConnections, replica_id
from rangelog_proto.v1 import common_pb2, pd_pb2


@dataclass(frozen=True, slots=True)
class TakenOver:
    """The stream, with the caller's epoch; its end; the range to leave, if any, and its replicas; the last range.

    `created`: the range to go on with, if it was created already. `ranges`: the latest ranges up to the end, sealed, in order
    and without a hole: what is read of the taken log needs no further call for them.
    """

    stream: common_pb2.Stream
    end_offset: int
    left: Leave | None
    addresses: Mapping[ReplicaId, str]
    last_range_index: int | None = None
    created: common_pb2.Range | None = None
    ranges: Sequence[common_pb2.Range] = ()


async def claim(calls: PlacementCalls, stream: str, *, timeout_s: float) -> pd_pb2.OpenWriterResponse:
    """Raise a stream's epoch. Raises StreamNotFound, StreamSealed, Unavailable."""
    return await calls.open_writer(stream, _own_name(), timeout_s)


def _own_name() -> str:
    return f"{socket.gethostname()}/{os.getpid()}"


async def claim_as_expected(
    metadata: Metadata, stream: str, stream_id: int, epoch: int, *, timeout_s: float
) -> pd_pb2.OpenWriterResponse:
    """Raise the epoch of the stream with this id, if it is still the given one. Raises as `claim`, PreconditionFailed."""
    request = pd_pb2.OpenWriterRequest(
        request_id=new_request_id(), name=stream, writer=_own_name(), stream_id=stream_id, expected_epoch=epoch
    )
    return await metadata.pd.call(request, pd_pb2.OpenWriterResponse, timeout_s=timeout_s)


async def settle(
    metadata: Metadata,
    calls: PlacementCalls,
    connections: DataConnections,
    opened: pd_pb2.OpenWriterResponse,
    *,
    timeout_s: float,
    create_next: bool = False,
) -> TakenOver:
    """Seal what the earlier writer left open. Raises SealBlocked, Unavailable, WriterFenced (by a later takeover).

    `create_next`: the caller goes on writing, in `created` if that is given.
    """
    if not opened.HasField("last_range"):
        return TakenOver(opened.stream, 0, None, {})
    last = opened.last_range
    if last.state == common_pb2.RANGE_STATE_SEALED:
        return TakenOver(opened.stream, last.end_offset, None, {}, last.index, ranges=_ranges_up_to(opened, last))
    durability = last.durability or opened.stream.config.durability
    if durability == common_pb2.DURABILITY_MEMORY:  # a floor binds a seal that creates the next range, and not this one
        create_next = False
    seal = FailoverSeal(metadata, calls, connections, last, opened.stream.epoch, timeout_s, create_next=create_next)
    end = await seal.run()
    addresses = {replica_id(each.server, each.incarnation): each.data_address for each in last.replicas}
    left = Leave(last.index, last.start_offset, end, tuple(addresses))
    return TakenOver(opened.stream, end, left, addresses, last.index, seal.created, _ranges_up_to(opened, seal.sealed))


def _ranges_up_to(opened: pd_pb2.OpenWriterResponse, sealed: common_pb2.Range) -> Sequence[common_pb2.Range]:
    """Return the ranges that a claim named, the last one as it was sealed. An empty one holds nothing to read."""
    return [each for each in (*opened.earlier_ranges, sealed) if each.end_offset > each.start_offset]


async def settle_and_create(
    metadata: Metadata,
    calls: PlacementCalls,
    connections: DataConnections,
    opened: pd_pb2.OpenWriterResponse,
    *,
    timeout_s: float,
) -> tuple[TakenOver, common_pb2.Range]:
    """Settle a stream, and return the range to go on with. Raises as `settle`, NoPlacement."""
    deadline = time.monotonic() + timeout_s
    taken = await settle(metadata, calls, connections, opened, timeout_s=timeout_s, create_next=True)
    if taken.created is not None:
        return taken, taken.created
    stream, left_s = taken.stream, max(1.0, deadline - time.monotonic())
    return taken, await metadata.create_range(stream.stream_id, stream.epoch, taken.end_offset, left_s)


async def take_over(
    metadata: Metadata,
    calls: PlacementCalls,
    connections: DataConnections,
    stream: str,
    *,
    timeout_s: float,
    expected: tuple[int, int] | None = None,
) -> TakenOver:
    """Claim a stream and settle it. `expected`: its id and epoch, or PreconditionFailed. Raises the errors of both."""
    deadline = time.monotonic() + timeout_s
    if expected is None:
        opened = await claim(calls, stream, timeout_s=timeout_s)
    else:
        opened = await claim_as_expected(metadata, stream, *expected, timeout_s=timeout_s)
    left_s = max(1.0, deadline - time.monotonic())
    return await settle(metadata, calls, connections, opened, timeout_s=left_s)
