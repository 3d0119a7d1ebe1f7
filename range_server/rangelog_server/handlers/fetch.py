"""Fetch: whole batches as they are stored, from memory at the tail, else from the disk on a reader thread.

A fetch at the readable end of an open range waits for more, at most as long as it asks. What was read from the disk is
checked before it is sent; what does not fit its checksum quarantines the replica.
"""

from __future__ import annotations

from asyncio import Future, TimerHandle

from rangelog.errors import Corruption, Overloaded, RangelogError, RangeNotFound
from rangelog.limits import FETCH_BYTES_MAX, FETCH_WAIT_MS_MAX
from rangelog_proto.frame import Frame, Opcode
from rangelog_proto.v1 import data_pb2
from rangelog_server.data_plane import FETCHES_WAITING_MAX, Connection
from rangelog_server.ranges.hosted import Hosted
from rangelog_server.ranges.reading import make_plan, read_batches


def handle(connection: Connection, frame: Frame) -> None:
    """Answer at once, or when there is something, or when the wait is over. Raises Overloaded."""
    if connection.fetch_count >= FETCHES_WAITING_MAX:
        raise Overloaded(f"{FETCHES_WAITING_MAX} fetches wait on this connection already")
    fetch = _Fetch(connection, frame.request_id, data_pb2.Fetch.FromString(frame.message))
    connection.fetch_count += 1
    connection.queue_fetch(fetch.run)


class _Fetch:
    """One fetch until it is answered."""

    __slots__ = ("_connection", "_deadline", "_hosted", "_message", "_request_id", "_timer")

    def __init__(self, connection: Connection, request_id: int, message: data_pb2.Fetch) -> None:
        self._connection = connection
        self._request_id = request_id
        self._message = message
        self._deadline = connection.plane.loop.time() + min(message.wait_ms_max, FETCH_WAIT_MS_MAX) / 1000
        self._timer: TimerHandle | None = None
        self._hosted: Hosted | None = None

    def run(self) -> None:
        """Answer, read, or wait."""
        try:
            self._attempt()
        except RangelogError as error:
            self._fail(error)

    def _attempt(self) -> None:
        message, connection = self._message, self._connection
        hosted = self._hosted = connection.store.find(message.stream_id, message.range_index)
        core = hosted.core
        end = core.readable_end(message.sealed_end_offset, message.recovery_epoch)
        core.check_fetch(message.offset, end)
        bytes_max = min(message.bytes_max, FETCH_BYTES_MAX)
        first, last = hosted.plan(message.offset, end, bytes_max) if message.offset < end else (0, 0)
        if first < last:
            batches = connection.store.cached(hosted, first, last)
            if batches is not None:
                self._reply(hosted, batches)
                return
            plan = make_plan(hosted, first, last)
            plane = connection.plane
            future = plane.loop.run_in_executor(plane.readers, read_batches, connection.store.wal, plan)
            future.add_done_callback(self._read)
        elif core.sealed_end_offset is not None or message.recovery_epoch:
            self._reply(hosted, [])
        else:
            self._wait(hosted)

    def _wait(self, hosted: Hosted) -> None:
        loop = self._connection.plane.loop
        if loop.time() >= self._deadline:
            self._reply(hosted, [])
            return
        hosted.waiters[self._wake] = None
        self._timer = loop.call_at(self._deadline, self._expire)
        self._connection.fetch_done()

    def _wake(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._connection.closed:
            self._connection.queue_fetch(self.run)

    def _expire(self) -> None:
        self._timer = None
        if self._hosted is not None:
            self._hosted.waiters.pop(self._wake, None)
        if not self._connection.closed:
            self._connection.queue_fetch(self.run)

    def _read(self, future: Future[list[bytes]]) -> None:
        hosted = self._hosted
        assert hosted is not None
        error = future.exception()
        if hosted.dropped:
            self._fail(RangeNotFound(f"no replica of range {hosted} here any more"))
        elif isinstance(error, Corruption):
            self._connection.store.quarantine(hosted, error.message)
            self._fail(error)
        elif error is not None:
            self._fail(Corruption(f"range {hosted} cannot be read"))
        else:
            self._reply(hosted, future.result())

    def _reply(self, hosted: Hosted, batches: list[bytes]) -> None:
        core = hosted.core
        reply = data_pb2.FetchReply(
            start_offset=core.start_offset,
            confirm_offset=core.confirm_offset,
            sealed_end_offset=core.sealed_end_offset or 0,
            sealed=core.sealed_end_offset is not None,
            durable_offset=core.durable_offset,
        )
        self._connection.send(Opcode.FETCH_REPLY, self._request_id, reply.SerializeToString(), batches)
        self._done()

    def _fail(self, error: RangelogError) -> None:
        message = self._message
        self._connection.send_error(self._request_id, error, message.stream_id, message.range_index)
        self._done()

    def _done(self) -> None:
        self._connection.fetch_count -= 1
        self._connection.fetch_done()
