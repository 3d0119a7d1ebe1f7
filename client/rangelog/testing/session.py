"""The server's end of one connection of a FakeCluster: frames in, replies out, and the fetches that go on.

What holds: a reply is handed over by the client's own event loop, later than the request and in order, whichever thread it
comes from; a fetch sends no more than its credit (and one batch), and ends once.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from rangelog_core.errors import RangelogError
from rangelog_core.frame import Frame, FrameDecoder, Opcode
from rangelog_core.limits import FETCH_WAIT_MS_MAX, FRAME_MESSAGE_BYTES_MAX, FRAME_PAYLOAD_BYTES_MAX
from rangelog_proto.v1 import data_pb2

if TYPE_CHECKING:
    from rangelog.testing.range_server import FakeRangeServer, FakeReplica


class FakeSession:
    """One connection. `feed` is for the client's thread; everything else for whoever holds the cluster's lock."""

    def __init__(
        self,
        server: FakeRangeServer,
        lock: threading.RLock,
        loop: asyncio.AbstractEventLoop,
        deliver: Callable[[Frame], None],
    ) -> None:
        """`deliver`: hands a frame to the client, on its loop."""
        self.server = server
        self.loop = loop
        self._lock = lock
        self._deliver = deliver
        self._decoder = FrameDecoder(
            message_bytes_max=FRAME_MESSAGE_BYTES_MAX, payload_bytes_max=FRAME_PAYLOAD_BYTES_MAX
        )
        self._fetches: dict[int, _Fetch] = {}

    def feed(self, data: bytes) -> None:
        """Take bytes from the client. Raises FrameError."""
        for frame in self._decoder.feed(data):
            with self._lock:
                self.server.take(self, frame)

    def reply(self, opcode: Opcode, request_id: int, message: Any, payload: bytes = b"") -> None:
        """Answer a request; an append's answer has the id 0."""
        frame = Frame(opcode, request_id, message.SerializeToString(), payload)
        self.soon(lambda: self._deliver(frame))

    def refuse(self, request_id: int, error: RangelogError, *, stream_id: int = 0, range_index: int = 0) -> None:
        """Answer with an error; that of an append names its range."""
        told = data_pb2.Error(
            code=error.code,
            message=error.message,
            epoch=error.epoch or 0,
            offset=error.offset or 0,
            stream_id=stream_id,
            range_index=range_index,
        )
        self.reply(Opcode.ERROR, request_id, told)

    def soon(self, work: Callable[[], None]) -> None:
        """Do something on the client's loop, if that still runs."""
        with suppress(RuntimeError):
            self.loop.call_soon_threadsafe(work)

    def locked(self, work: Callable[[], None]) -> Callable[[], None]:
        """Return `work`, done under the cluster's lock."""

        def run() -> None:
            with self._lock:
                work()

        return run

    def begin_fetch(self, request_id: int, message: data_pb2.Fetch) -> None:
        """Serve a fetch until its last reply."""
        fetch = self._fetches[request_id] = _Fetch(self, request_id, message)
        fetch.step()

    def renew_fetch(self, request_id: int, credit_bytes: int) -> None:
        """Give a fetch more credit; none: it ends. It may have ended meanwhile."""
        fetch = self._fetches.get(request_id)
        if fetch is not None:
            fetch.renew(credit_bytes)

    def end_fetch(self, request_id: int) -> None:
        """Forget a fetch."""
        self._fetches.pop(request_id, None)

    def close(self) -> None:
        """End all fetches."""
        for fetch in list(self._fetches.values()):
            fetch.renew(0)


class _Fetch:
    """One fetch until its last reply."""

    def __init__(self, session: FakeSession, request_id: int, message: data_pb2.Fetch) -> None:
        self._session = session
        self._request_id = request_id
        self._message = message
        self._offset = message.offset
        self._credit_bytes = message.credit_bytes
        self._goes_on = message.credit_bytes > 0
        self._wait_s = min(message.wait_ms_max, FETCH_WAIT_MS_MAX) / 1000
        self._deadline_s = session.loop.time() + self._wait_s
        self._timer: asyncio.TimerHandle | None = None
        self._replica: FakeReplica | None = None
        self._over = False
        self._wake: Callable[[], None] = lambda: session.soon(session.locked(self.step))

    def renew(self, credit_bytes: int) -> None:
        """Go on for so many bytes more; none: end without another reply."""
        if not credit_bytes:
            self._end()
            return
        self._credit_bytes += credit_bytes
        self._wake()

    def step(self) -> None:
        """Send what is there, wait for more, or end."""
        if self._over or (self._goes_on and self._credit_bytes <= 0):
            return
        self._stop_waiting()
        try:
            self._answer()
        except RangelogError as error:
            self._session.refuse(self._request_id, error)
            self._end()

    def _answer(self) -> None:
        message, server = self._message, self._session.server
        replica = self._replica = server.find(message.stream_id, message.range_index)
        end_offset = replica.end_offset if message.recovery_epoch else replica.readable_end(message.known_end_offset)
        replica.check_fetch(self._offset, end_offset)
        time_is_over = self._session.loop.time() >= self._deadline_s
        if message.confirm_wanted_offset and replica.sealed_end_offset is None:
            if replica.confirm_offset < message.confirm_wanted_offset and not time_is_over:
                if self._timer is None:
                    server.ask_confirm(message.stream_id, message.range_index)
                self._wait(replica)
                return
        elif message.bytes_max and self._offset < end_offset:
            bytes_max = min(message.bytes_max, self._credit_bytes) if self._goes_on else message.bytes_max
            found = replica.read(self._offset, end_offset, bytes_max)
            if found:
                self._offset = found[-1][0].end_offset
                self._reply(replica, b"".join(data for _, data in found))
                return
        elif replica.sealed_end_offset is None and not message.recovery_epoch and not time_is_over:
            self._wait(replica)
            return
        self._reply(replica, b"")

    def _reply(self, replica: FakeReplica, payload: bytes) -> None:
        sealed, end_offset = replica.sealed_end_offset is not None, self._message.end_offset
        ended = 0 < end_offset <= self._offset if payload else sealed or not self._wait_s
        last = not self._goes_on or ended
        reply = data_pb2.FetchReply(
            start_offset=replica.start_offset,
            confirm_offset=replica.confirm_offset,
            sealed_end_offset=replica.sealed_end_offset or 0,
            sealed=sealed,
            durable_offset=replica.end_offset,
            last=last,
        )
        self._session.reply(Opcode.FETCH_REPLY, self._request_id, reply, payload)
        if last:
            self._end()
            return
        self._credit_bytes -= len(payload)
        self._deadline_s = self._session.loop.time() + self._wait_s
        self._wake()

    def _wait(self, replica: FakeReplica) -> None:
        replica.waiting[self._wake] = None
        delay_s = self._deadline_s - self._session.loop.time()
        self._timer = self._session.loop.call_later(max(0.0, delay_s), self._wake)

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._replica is not None:
            self._replica.waiting.pop(self._wake, None)

    def _end(self) -> None:
        self._over = True
        self._stop_waiting()
        self._session.end_fetch(self._request_id)
