"""Becoming the writer of a stream: raise the epoch, and seal the range that an earlier writer left open.

What holds: when `take_over` returns, no writer of a lower epoch can get another ack, and the stream's end is committed.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass

from rangelog._append.failover_seal import FailoverSeal
from rangelog._metadata import Metadata
from rangelog.protocol.appender import Leave
from rangelog_core.ids import ReplicaId
from rangelog_core.net.data_connection import DataConnections, replica_id
from rangelog_proto.v1 import common_pb2


@dataclass(frozen=True, slots=True)
class TakenOver:
    """The stream, with the caller's epoch; its end; and the sealed range, if any, whose replicas must get the end."""

    stream: common_pb2.Stream
    end_offset: int
    left: Leave | None
    addresses: Mapping[ReplicaId, str]


async def take_over(metadata: Metadata, connections: DataConnections, stream: str, *, timeout_s: float) -> TakenOver:
    """Take over a stream. Raises StreamNotFound, SealBlocked, Unavailable, WriterFenced (by a later takeover)."""
    deadline = time.monotonic() + timeout_s
    opened = await metadata.open_writer(stream, f"{socket.gethostname()}/{os.getpid()}", timeout_s)
    if not opened.HasField("last_range"):
        return TakenOver(opened.stream, 0, None, {})
    last = opened.last_range
    if last.state == common_pb2.RANGE_STATE_SEALED:
        return TakenOver(opened.stream, last.end_offset, None, {})
    left_s = max(1.0, deadline - time.monotonic())
    end = await FailoverSeal(metadata, connections, last, opened.stream.epoch, left_s).run()
    addresses = {replica_id(each.server, each.incarnation): each.data_address for each in last.replicas}
    return TakenOver(opened.stream, end, Leave(last.index, last.start_offset, end, tuple(addresses)), addresses)
