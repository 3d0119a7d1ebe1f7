"""The range server of a FakeCluster: takes appends and serves fetches, frame by frame, over lists of batches in memory.

What holds: a replica takes batches in order and without a gap, and nothing of an epoch below its fence; it serves what the
writer confirmed, or what is known to be committed, and no more; a fetch that waits is answered when something comes, when
its time is over, or with the error that ends it. Not thread-safe: the cluster's lock is.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from typing import TYPE_CHECKING

from rangelog_core.batch import BatchHeader
from rangelog_core.checked_batches import checked_batches
from rangelog_core.errors import OffsetOutOfRange, OutOfOrder, RangeDropped, RangelogError, RangeNotFound, WriterFenced
from rangelog_core.frame import Frame, Opcode
from rangelog_proto.v1 import common_pb2, data_pb2

if TYPE_CHECKING:
    from rangelog.testing.session import FakeSession

_Key = tuple[int, int]


class FakeReplica:
    """One range: its batches, its fence, and the fetches that wait for more."""

    def __init__(self, start_offset: int) -> None:
        self.start_offset = start_offset
        self.end_offset = start_offset
        self.confirm_offset = start_offset
        self.sealed_end_offset: int | None = None
        self.epoch = 0
        self.fenced = False
        self.dropped = False
        self.batches: list[tuple[BatchHeader, bytes]] = []
        self.waiting: dict[Callable[[], None], None] = {}
        self.writer: FakeSession | None = None

    def append(self, header: BatchHeader, data: bytes) -> None:
        """Take a checked batch, or know it already. Raises OutOfOrder."""
        if header.base_offset > self.end_offset:
            raise OutOfOrder(f"offset {self.end_offset} comes next, not {header.base_offset}", offset=self.end_offset)
        if header.end_offset > self.end_offset:
            self.batches.append((header, data))
            self.end_offset = header.end_offset

    def readable_end(self, known_end_offset: int) -> int:
        """One past what may be served; `known_end_offset`: what the reader knows to be committed or proved."""
        known = self.sealed_end_offset if self.sealed_end_offset is not None else known_end_offset
        return min(self.end_offset, max(self.confirm_offset, known))

    def check_fetch(self, offset: int, readable_end: int) -> None:
        """Raises OffsetOutOfRange, with the nearest offset that can be read."""
        if offset < self.start_offset:
            raise OffsetOutOfRange(f"the range starts at {self.start_offset}", offset=self.start_offset)
        if offset > readable_end:
            raise OffsetOutOfRange(f"offset {offset} is beyond {readable_end}", offset=readable_end)

    def read(self, offset: int, end_offset: int, bytes_max: int) -> list[tuple[BatchHeader, bytes]]:
        """Return the batches from the one that holds `offset` on: one at least, if it may be served."""
        found: list[tuple[BatchHeader, bytes]] = []
        size_bytes = 0
        first = max(0, bisect_right(self.batches, offset, key=lambda each: each[0].base_offset) - 1)
        for header, data in self.batches[first:]:
            size_bytes += len(data)
            if header.end_offset > end_offset or (found and size_bytes > bytes_max):
                break
            found.append((header, data))
        return found

    def commit_end(self, end_offset: int) -> None:
        """Cut what lies beyond the committed end."""
        self.sealed_end_offset = end_offset
        while self.batches and self.batches[-1][0].end_offset > end_offset:
            self.batches.pop()
        self.end_offset = self.batches[-1][0].end_offset if self.batches else self.start_offset
        self.confirm_offset = max(self.confirm_offset, self.end_offset)
        self.wake()

    def wake(self) -> None:
        """Wake every waiting fetch."""
        waiting, self.waiting = self.waiting, {}
        for each in waiting:
            each()


class FakeRangeServer:
    """Holds all ranges of a fake cluster."""

    def __init__(self) -> None:
        self.replica = common_pb2.Replica(
            server="fake", incarnation=1, data_address="fake:1", health=common_pb2.SERVER_HEALTH_ALIVE
        )
        self.holds_appends = False
        self._held: list[tuple[FakeSession, Frame]] = []
        self._replicas: dict[_Key, FakeReplica] = {}

    def take(self, session: FakeSession, frame: Frame) -> None:
        """Carry out what a client sent."""
        if frame.opcode is Opcode.APPEND and self.holds_appends:
            self._held.append((session, frame))
            return
        try:
            _HANDLERS[frame.opcode](self, session, frame)
        except RangelogError as error:
            session.refuse(frame.request_id, error)

    def release_appends(self) -> None:
        """Take the appends that were held back, in order, and hold back no more."""
        self.holds_appends = False
        held, self._held = self._held, []
        for session, frame in held:
            self.take(session, frame)

    def commit_end(self, stream_id: int, range_index: int, start_offset: int, end_offset: int) -> None:
        """Learn from the placement driver where a range ends."""
        self._make((stream_id, range_index), start_offset).commit_end(end_offset)

    def drop(self, stream_id: int, range_index: int) -> None:
        """Give a range up: it was trimmed, or its stream deleted."""
        replica = self._make((stream_id, range_index), 0)
        replica.dropped = True
        replica.batches.clear()
        replica.wake()

    def find(self, stream_id: int, range_index: int) -> FakeReplica:
        """Raises RangeNotFound: nothing was appended so far; RangeDropped: it was given up."""
        replica = self._replicas.get((stream_id, range_index))
        if replica is None:
            raise RangeNotFound(f"no replica of range {stream_id}/{range_index} here")
        if replica.dropped:
            raise RangeDropped(f"range {stream_id}/{range_index} was dropped here")
        return replica

    # ---- what clients send

    def _append(self, session: FakeSession, frame: Frame) -> None:
        message = data_pb2.Append.FromString(frame.message)
        replica = self._make((message.stream_id, message.range_index), message.start_offset)
        try:
            if replica.dropped or replica.sealed_end_offset is not None or message.epoch < replica.epoch:
                raise WriterFenced(f"epoch {replica.epoch} fenced this range", epoch=replica.epoch)
            if replica.fenced and not message.recovery:
                raise WriterFenced(f"epoch {replica.epoch} fenced this range", epoch=replica.epoch)
            for header, data, _ in checked_batches(frame.payload):
                replica.append(header, data)
        except RangelogError as error:
            session.refuse(0, error, stream_id=message.stream_id, range_index=message.range_index)
            return
        replica.epoch, replica.writer = message.epoch, session
        replica.confirm_offset = max(replica.confirm_offset, min(message.confirm_offset, replica.end_offset))
        self._reply_append(replica, session, message.stream_id, message.range_index)
        replica.wake()

    def _reply_append(
        self,
        replica: FakeReplica,
        session: FakeSession,
        stream_id: int,
        range_index: int,
        *,
        confirm_wanted: bool = False,
    ) -> None:
        reply = data_pb2.AppendReply(
            stream_id=stream_id,
            range_index=range_index,
            epoch=replica.epoch,
            durable_offset=replica.end_offset,
            followed=bool(replica.waiting),
            confirm_wanted=confirm_wanted,
        )
        session.reply(Opcode.APPEND_REPLY, 0, reply)

    def ask_confirm(self, stream_id: int, range_index: int) -> None:
        """Ask the range's writer to report what is acked."""
        replica = self.find(stream_id, range_index)
        if replica.writer is not None:
            self._reply_append(replica, replica.writer, stream_id, range_index, confirm_wanted=True)

    def _confirm(self, session: FakeSession, frame: Frame) -> None:
        first = data_pb2.Confirm.FromString(frame.message)
        for message in (first, *first.others):
            replica = self._replicas.get((message.stream_id, message.range_index))
            if replica is not None and message.epoch == replica.epoch:
                replica.confirm_offset = max(replica.confirm_offset, min(message.confirm_offset, replica.end_offset))
                replica.wake()

    def _fetch(self, session: FakeSession, frame: Frame) -> None:
        message = data_pb2.Fetch.FromString(frame.message)
        if message.renews:
            session.renew_fetch(frame.request_id, message.credit_bytes)
        else:
            session.begin_fetch(frame.request_id, message)

    def _lookup_timestamp(self, session: FakeSession, frame: Frame) -> None:
        message = data_pb2.LookupTimestamp.FromString(frame.message)
        replica = self.find(message.stream_id, message.range_index)
        end_offset = replica.readable_end(message.known_end_offset)
        found = [
            header.base_offset
            for header, _ in replica.batches
            if header.max_timestamp_ms >= message.timestamp_ms and header.end_offset <= end_offset
        ]
        early = [
            header.end_offset
            for header, _ in replica.batches
            if header.min_timestamp_ms < message.before_timestamp_ms and header.end_offset <= end_offset
        ]
        reply = data_pb2.LookupTimestampReply(
            found=bool(found),
            offset=found[0] if found else 0,
            confirm_offset=replica.confirm_offset,
            readable_end_offset=end_offset,
            until_offset=(early or [0])[-1] if message.HasField("before_timestamp_ms") else 0,
        )
        session.reply(Opcode.LOOKUP_TIMESTAMP_REPLY, frame.request_id, reply)

    def _seal(self, session: FakeSession, frame: Frame) -> None:
        message = data_pb2.Seal.FromString(frame.message)
        replica = self._make((message.stream_id, message.range_index), message.start_offset)
        if replica.dropped or message.epoch < replica.epoch:
            raise WriterFenced(f"epoch {replica.epoch} fenced this range", epoch=replica.epoch)
        replica.epoch, replica.fenced = message.epoch, True
        reply = data_pb2.SealReply(
            outcome=data_pb2.SEAL_OUTCOME_FENCED,
            durable_offset=replica.end_offset,
            confirm_offset=replica.confirm_offset,
        )
        session.reply(Opcode.SEAL_REPLY, frame.request_id, reply)

    def _commit_end(self, session: FakeSession, frame: Frame) -> None:
        message = data_pb2.CommitEnd.FromString(frame.message)
        replica = self.find(message.stream_id, message.range_index)  # the placement driver has committed the end here
        reply = data_pb2.CommitEndReply(
            complete=replica.end_offset >= message.end_offset, durable_offset=replica.end_offset
        )
        session.reply(Opcode.COMMIT_END_REPLY, frame.request_id, reply)

    def _make(self, key: _Key, start_offset: int) -> FakeReplica:
        replica = self._replicas.get(key)
        if replica is None:
            replica = self._replicas[key] = FakeReplica(start_offset)
        return replica


_HANDLERS: dict[Opcode, Callable[[FakeRangeServer, FakeSession, Frame], None]] = {
    Opcode.APPEND: FakeRangeServer._append,
    Opcode.CONFIRM: FakeRangeServer._confirm,
    Opcode.FETCH: FakeRangeServer._fetch,
    Opcode.LOOKUP_TIMESTAMP: FakeRangeServer._lookup_timestamp,
    Opcode.SEAL: FakeRangeServer._seal,
    Opcode.COMMIT_END: FakeRangeServer._commit_end,
}
