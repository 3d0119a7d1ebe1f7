"""A fetch that waits for a replica: followers of an open range to which nothing was appended ask for no record before.

What holds: one reply, without records, as soon as the server has a replica of the range; otherwise its error, at the end of the
wait, or at once if no replica of this range will come: it was dropped, or the log was damaged. It counts as a fetch meanwhile.
"""

from __future__ import annotations

from rangelog_core.errors import RangeDropped, RangelogError, RangeNotFound
from rangelog_core.frame import Opcode
from rangelog_core.limits import FETCH_WAIT_MS_MAX
from rangelog_proto.v1 import data_pb2
from rangelog_server.ranges.replica import Replica
from rangelog_server.serving.connection import ClientConnection


class ReplicaWait:
    """One such fetch until its reply. It is in its connection's queue, or it waits."""

    __slots__ = ("_connection", "_deadline", "_key", "_over", "_request_id", "_tick")

    def __init__(self, connection: ClientConnection, request_id: int, message: data_pb2.Fetch) -> None:
        self._connection = connection
        self._request_id = request_id
        self._key = (message.stream_id, message.range_index)
        self._deadline = connection.plane.loop.time() + min(message.wait_ms_max, FETCH_WAIT_MS_MAX) / 1000
        self._tick: int | None = None  # the tick at which it expires
        self._over = False

    def run(self) -> None:
        """Reply or wait. Called in the fetch's turn."""
        if not self._over:
            self._look()
        self._connection.fetches.done()

    def renew(self, credit_bytes: int) -> None:
        """The connection is closed: end without a reply."""
        self._end()

    def may_go_on(self) -> bool:
        """The reply has no record: the right was looked at when the wait began."""
        return True

    def expire(self) -> None:
        """The wait is over."""
        self._tick = None
        self._again()

    # ---- inside

    def _look(self) -> None:
        store, now = self._connection.store, self._connection.plane.loop.time()
        try:
            core = store.find(*self._key).core
        except RangelogError as error:
            if now < self._deadline and isinstance(error, RangeNotFound) and not isinstance(error, RangeDropped):
                store.awaited.add(self._key, self._again)
                self._tick = self._connection.plane.deadlines.add(self, self._deadline)
                return
            self._connection.send_error(self._request_id, error)
        else:
            self._reply(core)
        self._end()

    def _reply(self, core: Replica) -> None:
        reply = data_pb2.FetchReply(
            start_offset=core.start_offset,
            confirm_offset=core.confirm_offset,
            sealed_end_offset=core.sealed_end_offset or 0,
            sealed=core.sealed_end_offset is not None,
            durable_offset=core.durable_offset,
            last=True,
        )
        self._connection.send(Opcode.FETCH_REPLY, self._request_id, reply.SerializeToString())

    def _again(self) -> None:
        self._stop_waiting()
        if not self._over and not self._connection.closed:
            self._connection.fetches.queue(self.run)

    def _stop_waiting(self) -> None:
        self._connection.store.awaited.discard(self._key, self._again)
        if self._tick is not None:
            self._connection.plane.deadlines.discard(self, self._tick)
            self._tick = None

    def _end(self) -> None:
        if not self._over:
            self._over = True
            self._stop_waiting()
            self._connection.fetches.end(self)
