"""Typed requests to one replica of one range: fence, fetch, copy, commit the end, look a time up.

What holds: replies, batches included, are decoded and checked before the caller sees them. A malformed reply is a
ProtocolViolation of this replica alone, so a caller that asks several replicas continues with the others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple, TypeVar

from google.protobuf.message import DecodeError

from rangelog_core.checked_batches import CheckedBatches, check_batches
from rangelog_core.errors import ProtocolViolation, RangelogError, RequestTimeout
from rangelog_core.frame import Frame, Opcode
from rangelog_core.net.data_connection import DataConnection
from rangelog_proto.v1 import common_pb2, data_pb2

REPLY_TIMEOUT_S = 5.0
"""Added to the time that a replica is asked to wait."""

TIMESTAMP_MS_ASKED_MAX = 1 << 62
"""A later time is looked up as this one: no record has a later timestamp."""


class RangeKey(NamedTuple):
    """The range of a request, and its start offset."""

    stream_id: int
    range_index: int
    start_offset: int


class FenceOutcome(Enum):
    """The state that a fenced replica reports."""

    TRUTHFUL = "truthful"  # its durable offset covers everything it ever acked
    DOUBTFUL = "doubtful"  # a damaged tail was cut: the replica may have held more
    UNKNOWN = "unknown"  # no trustworthy state: the answer counts for nothing


class FenceAnswer(NamedTuple):
    """The reply to a fence, which is durable on the replica, as is every record below `durable_offset`."""

    outcome: FenceOutcome
    durable_offset: int


class FetchAnswer(NamedTuple):
    """The records of a replica from an offset on. `sealed_end_offset`: None while the replica knows no committed end.

    `durable_offset`: the end of the replica's records, readable or not. `last`: no other reply follows. `held`: the reader is
    over a quota, and records come in a later reply.
    """

    start_offset: int
    confirm_offset: int
    durable_offset: int
    sealed_end_offset: int | None
    doubtful: bool
    last: bool
    batches: CheckedBatches
    held: bool = False


class TimestampAnswer(NamedTuple):
    """`offset`: start of the batch with the first record at or after the time; None: none below `readable_end_offset`.

    `until_offset`: from here to `readable_end_offset` no record is before the other time; None: the replica does not say.
    """

    offset: int | None
    readable_end_offset: int
    until_offset: int | None = None


class CommitEndAnswer(NamedTuple):
    """`complete`: the replica holds everything below the committed end."""

    complete: bool
    durable_offset: int


_M = TypeVar("_M", data_pb2.SealReply, data_pb2.FetchReply, data_pb2.LookupTimestampReply, data_pb2.CommitEndReply)
_OUTCOMES = {
    data_pb2.SEAL_OUTCOME_FENCED: FenceOutcome.TRUTHFUL,
    data_pb2.SEAL_OUTCOME_DOUBTFUL: FenceOutcome.DOUBTFUL,
}


def range_key(of: common_pb2.Range) -> RangeKey:
    """Return the key of a range as the placement driver lists it."""
    return RangeKey(of.stream_id, of.index, of.start_offset)


def decode_fetch_answer(frame: Frame, key: RangeKey, offset: int) -> FetchAnswer:
    """Decode and check one reply to a fetch from `offset` on. Raises ProtocolViolation, Corruption, UnsupportedVersion."""
    reply = _decode(data_pb2.FetchReply, frame, "fetch")
    return FetchAnswer(
        reply.start_offset,
        reply.confirm_offset,
        reply.durable_offset,
        reply.sealed_end_offset if reply.sealed else None,
        reply.doubtful,
        reply.last,
        check_batches(frame.payload, stream_id=key.stream_id, range_index=key.range_index, offset=offset),
        reply.held,
    )


class ReplicaClient:
    """One replica of one range, over a connection that others share.

    Every method raises the error that the replica returned, RequestTimeout, Unavailable when the connection ends, and
    ProtocolViolation or Corruption when the reply is malformed.
    """

    __slots__ = ("_connection", "_key")

    def __init__(self, connection: DataConnection, key: RangeKey) -> None:
        self._connection = connection
        self._key = key

    async def fence(self, epoch: int, *, timeout_s: float = REPLY_TIMEOUT_S) -> FenceAnswer:
        """Make the replica refuse all lower epochs. Raises WriterFenced where its fence is higher, or it was dropped."""
        stream_id, range_index, start_offset = self._key
        request = data_pb2.Seal(stream_id=stream_id, range_index=range_index, epoch=epoch, start_offset=start_offset)
        frame = await self._connection.request(Opcode.SEAL, request.SerializeToString(), timeout_s=timeout_s)
        reply = _decode(data_pb2.SealReply, frame, "fence")
        return FenceAnswer(_OUTCOMES.get(reply.outcome, FenceOutcome.UNKNOWN), reply.durable_offset)

    async def fetch(
        self,
        offset: int,
        *,
        bytes_max: int,
        known_end_offset: int = 0,
        recovery_epoch: int = 0,
        confirm_wanted_offset: int = 0,
        wait_ms: int = 0,
        timeout_s: float = REPLY_TIMEOUT_S,
    ) -> FetchAnswer:
        """Fetch once from `offset` on, at most `bytes_max` bytes; 0: offsets only.

        `known_end_offset`: an end that the placement driver committed, 0: none. `recovery_epoch`: read beyond the confirm
        offset, under this fence. `confirm_wanted_offset`: with `bytes_max` 0, reply once the replica's confirm offset has
        reached it. `wait_ms`: how long the replica waits for records; `timeout_s` is added to it.
        """
        request = data_pb2.Fetch(
            stream_id=self._key.stream_id,
            range_index=self._key.range_index,
            offset=offset,
            bytes_max=bytes_max,
            known_end_offset=known_end_offset,
            recovery_epoch=recovery_epoch,
            confirm_wanted_offset=confirm_wanted_offset,
            wait_ms_max=wait_ms,
        )
        frame = await self._connection.request(
            Opcode.FETCH, request.SerializeToString(), timeout_s=wait_ms / 1000 + timeout_s
        )
        return decode_fetch_answer(frame, self._key, offset)

    async def wait_for_replica(self, wait_ms: int, *, timeout_s: float = REPLY_TIMEOUT_S) -> None:
        """Return once the server has a replica of the range, which the first append makes. `timeout_s` is added to the wait.

        Raises RangeNotFound when the wait is over, at once from a server of an earlier version; RangeDropped.
        """
        stream_id, range_index, start_offset = self._key
        request = data_pb2.Fetch(
            stream_id=stream_id,
            range_index=range_index,
            offset=start_offset,
            wait_ms_max=wait_ms,
            awaits_replica=True,
        )
        timeout_s += wait_ms / 1000
        frame = await self._connection.request(Opcode.FETCH, request.SerializeToString(), timeout_s=timeout_s)
        decode_fetch_answer(frame, self._key, start_offset)

    async def lookup_timestamp(
        self,
        timestamp_ms: int,
        known_end_offset: int,
        *,
        before_ms: int | None = None,
        timeout_s: float = REPLY_TIMEOUT_S,
    ) -> TimestampAnswer:
        """Look up the first record at or after a time, in ms since the Unix epoch; also the last one before `before_ms`."""
        request = data_pb2.LookupTimestamp(
            stream_id=self._key.stream_id,
            range_index=self._key.range_index,
            timestamp_ms=min(timestamp_ms, TIMESTAMP_MS_ASKED_MAX),
            known_end_offset=known_end_offset,
            before_timestamp_ms=before_ms,
        )
        frame = await self._connection.request(
            Opcode.LOOKUP_TIMESTAMP, request.SerializeToString(), timeout_s=timeout_s
        )
        reply = _decode(data_pb2.LookupTimestampReply, frame, "lookup by time")
        return TimestampAnswer(
            reply.offset if reply.found else None, reply.readable_end_offset, reply.until_offset or None
        )

    async def commit_end(self, epoch: int, end_offset: int, *, timeout_s: float = REPLY_TIMEOUT_S) -> CommitEndAnswer:
        """Report the committed end of the range: the replica cuts what lies beyond it."""
        request = self._commit_end(epoch, end_offset)
        frame = await self._connection.request(Opcode.COMMIT_END, request, timeout_s=timeout_s)
        reply = _decode(data_pb2.CommitEndReply, frame, "committed end")
        return CommitEndAnswer(reply.complete, reply.durable_offset)

    def send_end(self, epoch: int, end_offset: int) -> None:
        """Report the committed end without waiting; what is answered is dropped, an error as well."""
        self._connection.send(Opcode.COMMIT_END, self._commit_end(epoch, end_offset))

    def _commit_end(self, epoch: int, end_offset: int) -> bytes:
        stream_id, range_index, start_offset = self._key
        return data_pb2.CommitEnd(
            stream_id=stream_id,
            range_index=range_index,
            epoch=epoch,
            start_offset=start_offset,
            end_offset=end_offset,
        ).SerializeToString()

    async def append_copy(
        self, epoch: int, batches: Sequence[bytes], end_offset: int, *, timeout_s: float = REPLY_TIMEOUT_S
    ) -> int:
        """Append batches of another replica under the fence of `epoch`; return the durable offset, `end_offset` at least.

        No other appender may use the range on this connection meanwhile.
        """
        stream_id, range_index, start_offset = self._key
        head = data_pb2.Append(
            stream_id=stream_id, range_index=range_index, epoch=epoch, start_offset=start_offset, recovery=True
        )
        waiter = _CopyWaiter(end_offset)
        self._connection.listen(stream_id, range_index, waiter)
        try:
            self._connection.send(Opcode.APPEND, head.SerializeToString(), batches)
            async with asyncio.timeout(timeout_s):
                return await waiter.future
        except TimeoutError as error:
            raise RequestTimeout(f"no answer to a recovery copy within {timeout_s:g} s") from error
        finally:
            self._connection.unlisten(stream_id, range_index)


class _CopyWaiter:
    """Waits until one recovery copy is durable."""

    def __init__(self, end_offset: int) -> None:
        self._end_offset = end_offset
        self.future: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def append_replied(self, reply: data_pb2.AppendReply) -> None:
        """The replica holds everything below its durable offset."""
        if reply.durable_offset >= self._end_offset and not self.future.done():
            self.future.set_result(reply.durable_offset)

    def append_refused(self, error: RangelogError) -> None:
        """The replica refused an append."""
        if not self.future.done():
            self.future.set_exception(error)

    def connection_closed(self, error: RangelogError) -> None:
        """No reply will come any more."""
        self.append_refused(error)


def _decode(kind: type[_M], frame: Frame, what: str) -> _M:
    try:
        return kind.FromString(frame.message)
    except DecodeError as error:
        raise ProtocolViolation(f"malformed reply to a {what} request") from error
