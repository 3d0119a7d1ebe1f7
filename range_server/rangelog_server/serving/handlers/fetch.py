"""Fetch: whole batches as they are stored, from memory at the tail, else from the disk on a reader thread.

A fetch at the readable end of an open range waits for records, at most as long as requested. A fetch for a confirm offset
requests it from the writer and waits for it. A fetch with credit (a pushed fetch) gets
replies while its credit lasts, each with the next records: records are pushed when they become readable, and read from
the disk while the reply before is sent and the reader decodes it. Replies are at most the requested wait apart. The fetch
ends with an error, at the end of a sealed range, at its own end offset, or when the reader ends it.

While a reader is over a quota none of its fetches gets records: a pushed fetch gets replies that say so, any other fetch ends
with Overloaded. Batches count when their read begins, not when they are sent: of all fetches that wait, one passes at a time.

Batches from the disk are checked before they are sent; a wrong checksum quarantines the replica, a fault of the disk only if
it lasts. Every failure in a fetch is sent as its reply, and its turn goes to the next fetch.
"""

from __future__ import annotations

from asyncio import Future
from collections.abc import Callable, Iterable
from typing import NamedTuple

import structlog

from rangelog_core.errors import (
    InternalError,
    Overloaded,
    ProtocolViolation,
    RangelogError,
    RangeNotFound,
    Unavailable,
)
from rangelog_core.frame import Frame, Opcode
from rangelog_core.limits import FETCH_BYTES_MAX, FETCH_CREDIT_BYTES_MAX, FETCH_WAIT_MS_MAX
from rangelog_core.quotas import Measure
from rangelog_proto.v1 import data_pb2
from rangelog_server.ranges.hosted_replica import HostedReplica
from rangelog_server.ranges.reading import ReadPlan, make_plan, read_batches
from rangelog_server.ranges.replica import DiskTrust
from rangelog_server.serving.connection import READS_AHEAD_MAX, ClientConnection
from rangelog_server.serving.handlers.awaited_replica import ReplicaWait
from rangelog_server.serving.needs import resource, verbs_of_fetch
from rangelog_server_common.metrics.tally import count_by

READ_HELD_S_MAX = 4.0
"""A reader counts a replica as silent after 5 s: a held fetch gets a reply before that."""

_log = structlog.get_logger("fetch")


class _Reading(NamedTuple):
    """The batches that are being read, and their end offset."""

    future: Future[list[bytes]]
    plan: ReadPlan
    end_offset: int


def handle(connection: ClientConnection, frame: Frame) -> None:
    """Reply at once, when records become readable, or when the wait is over. Raises Overloaded, ProtocolViolation."""
    message = data_pb2.Fetch.FromString(frame.message)
    running = connection.fetches.following.get(frame.request_id)
    if message.renews:  # it may have ended meanwhile
        if running is not None:
            running.renew(message.credit_bytes)
        return
    if not connection.gate.passes(frame, verbs_of_fetch(message), resource(message.stream_id)):
        return
    if running is not None:
        raise ProtocolViolation("a fetch of this id is in progress")
    if message.awaits_replica:
        wait = ReplicaWait(connection, frame.request_id, message)
        connection.fetches.begin(wait, question=True)
        connection.fetches.queue(wait.run)
        return
    fetch = _Fetch(connection, frame.request_id, message)
    connection.fetches.begin(fetch, question=not message.bytes_max)
    if message.credit_bytes:
        connection.fetches.following[frame.request_id] = fetch
    connection.fetches.queue(fetch.run)


class _Fetch:
    """One fetch until its last reply. At any time it is in its connection's queue, being read, waiting, or out of credit."""

    __slots__ = (
        "_ahead",
        "_connection",
        "_credit",
        "_deadline",
        "_follows",
        "_has_turn",
        "_held_until",
        "_hosted",
        "_message",
        "_offset",
        "_out_of_credit",
        "_over",
        "_reach",
        "_request_id",
        "_tick",
        "_wait_s",
    )

    def __init__(self, connection: ClientConnection, request_id: int, message: data_pb2.Fetch) -> None:
        self._connection = connection
        self._request_id = request_id
        self._message = message
        self._offset = message.offset
        self._reach = message.offset  # one past the batches that are being read
        self._wait_s = min(message.wait_ms_max, FETCH_WAIT_MS_MAX) / 1000
        self._deadline = connection.plane.loop.time() + self._wait_s
        self._credit = min(message.credit_bytes, FETCH_CREDIT_BYTES_MAX)
        self._follows = message.credit_bytes > 0
        self._has_turn = False
        self._held_until: float | None = None  # by then a reply is due; None: no quota holds it off
        self._out_of_credit = False
        self._over = False
        self._ahead: _Reading | None = None  # the next batches
        self._tick: int | None = None  # the tick at which it expires
        self._hosted: HostedReplica | None = None

    def run(self) -> None:
        """Reply, read, or wait. Called in the fetch's turn."""
        self._has_turn = True
        if self._over:
            self._end_turn()
            return
        if self._connection.book.any and self._holds():
            return
        self._guarded(self._attempt)

    def _holds(self) -> bool:
        """Return whether the reader is over a quota. Then the fetch waits, and other fetches have its turn."""
        message, connection = self._message, self._connection
        if not message.bytes_max or message.recovery_epoch:
            return False
        owed_us = connection.meter.owed_us(connection.meter.buckets(Measure.READ, resource(message.stream_id)))
        if not owed_us:
            self._held_until = None
            return False
        loop = connection.plane.loop
        if self._held_until is None:
            self._held_until = loop.time() + READ_HELD_S_MAX
        left_s = self._held_until - loop.time()
        if left_s <= 0:
            self._held_until = None
            self._guarded(self._tell_held)
            return True
        held_s = min(owed_us / 1_000_000, left_s)
        connection.plane.quotas.counts.note(Measure.READ, int(held_s * 1_000_000))
        loop.call_later(held_s, self._again)
        self._end_turn()
        return True

    def _tell_held(self) -> None:
        """Reply that a quota holds the reader off. Raises Overloaded for a fetch with a single reply."""
        if not self._follows:
            raise Overloaded("the reader is over its quota of bytes read: fetch again later, or ask for a larger quota")
        message = self._message
        hosted = self._hosted = self._connection.store.find(message.stream_id, message.range_index)
        self._reply(hosted, [], held=True)

    def _count(self, lengths: Iterable[int]) -> None:
        """Count batches of these lengths for the reader, where there are quotas."""
        if self._connection.book.any and not self._message.recovery_epoch:
            self._connection.meter.take(Measure.READ, resource(self._message.stream_id), sum(lengths))

    def _guarded(self, step: Callable[[], None]) -> None:
        """Run a step; an error that it raises is sent as the fetch's reply."""
        try:
            step()
        except RangelogError as error:
            self._fail(error)
        except Exception:
            _log.exception("a fetch failed")
            self._fail(InternalError("the fetch failed; the server's log has the details"))

    def _end_turn(self) -> None:
        if self._has_turn:
            self._has_turn = False
            self._connection.fetches.done()

    def renew(self, credit_bytes: int) -> None:
        """Add credit of so many bytes; 0: end the fetch, without another reply."""
        if not credit_bytes:
            self._end()
            return
        self._credit = min(self._credit + credit_bytes, FETCH_CREDIT_BYTES_MAX)
        if self._out_of_credit and self._credit > 0:
            self._out_of_credit = False
            self._deadline = self._connection.plane.loop.time() + self._wait_s
            self._connection.fetches.queue(self.run)

    def may_go_on(self) -> bool:
        """Whether its client is known to have the right still; end the fetch where it has not."""
        message = self._message
        try:
            return self._connection.gate.still_passes(verbs_of_fetch(message), resource(message.stream_id))
        except RangelogError as error:
            self._fail(error)
            return True

    def _attempt(self) -> None:
        message, connection = self._message, self._connection
        hosted = self._hosted = connection.store.find(message.stream_id, message.range_index)
        core = hosted.core
        core.check_fetch(self._offset, core.readable_end(message.known_end_offset, message.recovery_epoch))
        if message.confirm_wanted_offset:
            self._wait_confirmed(hosted)
            return
        if self._ahead is not None:
            ahead = self._ahead
            self._forget_ahead()
            self._take_when_read(ahead)
            return
        first, last = self._next(hosted)
        if first < last:
            self._reach = core.batch_span(last - 1)[1]
            batches = connection.store.cached(hosted, first, last)
            if batches is not None:
                self._count(map(len, batches))
                self._reply(hosted, batches)
                return
            self._take_when_read(self._read_from_disk(hosted, first, last))
        elif core.sealed_end_offset is not None or message.recovery_epoch:
            self._reply(hosted, [])
        else:
            self._wait(hosted)

    def _wait_confirmed(self, hosted: HostedReplica) -> None:
        """Reply once the confirm offset has reached the requested one; it is requested from the writer once."""
        if not self._is_at_end(hosted) or self._connection.plane.loop.time() >= self._deadline:
            self._reply(hosted, [])
            return
        if self._tick is None:
            hosted.ask_confirm()
        self._wait_for_more(hosted)
        self._end_turn()

    def _next(self, hosted: HostedReplica) -> tuple[int, int]:
        """Return the next batches; nothing at the end, or without credit for them."""
        end = hosted.core.readable_end(self._message.known_end_offset, self._message.recovery_epoch)
        bytes_max = min(self._message.bytes_max, FETCH_BYTES_MAX)
        if self._follows:
            bytes_max = min(bytes_max, self._credit)
        return hosted.plan(self._offset, end, bytes_max) if self._offset < end else (0, 0)

    def _read_from_disk(self, hosted: HostedReplica, first: int, last: int) -> _Reading:
        plan, plane = make_plan(hosted, first, last), self._connection.plane
        future = plane.loop.run_in_executor(plane.readers, read_batches, self._connection.store.wal, plan)
        return _Reading(future, plan, hosted.core.batch_span(last - 1)[1])

    def _read_ahead(self, hosted: HostedReplica) -> None:
        """Start to read the next batches while the current ones are sent."""
        plane = self._connection.plane
        if self._credit <= 0 or plane.reads_ahead >= READS_AHEAD_MAX:
            return
        first, last = self._next(hosted)
        if first < last and self._connection.store.cached(hosted, first, last) is None:
            plane.reads_ahead += 1
            self._ahead = self._read_from_disk(hosted, first, last)

    def _forget_ahead(self) -> None:
        if self._ahead is not None:
            self._ahead = None
            self._connection.plane.reads_ahead -= 1

    def _wait(self, hosted: HostedReplica) -> None:
        if self._connection.plane.loop.time() >= self._deadline:
            self._reply(hosted, [])
            return
        self._wait_for_more(hosted)
        self._end_turn()

    def _wait_for_more(self, hosted: HostedReplica) -> None:
        hosted.waiters[self._wake] = None
        if self._tick is None:
            self._tick = self._connection.plane.deadlines.add(self, self._deadline)

    def _wake(self) -> None:
        if self._hosted is not None and self._is_at_end(self._hosted):
            self._hosted.waiters[self._wake] = None  # no change for a reader: records are flushed, but not confirmed
        else:
            self._again()

    def _is_at_end(self, hosted: HostedReplica) -> bool:
        core = hosted.core
        if hosted.dropped or core.sealed_end_offset is not None or core.trust is DiskTrust.QUARANTINED:
            return False
        if self._message.confirm_wanted_offset:
            return core.confirm_offset < self._message.confirm_wanted_offset
        return self._offset == core.readable_end(self._message.known_end_offset)

    def expire(self) -> None:
        """Reply without records, since the wait is over."""
        self._tick = None
        if self._over or self._hosted is None or self._wake not in self._hosted.waiters:
            return  # it is no longer waiting
        if self._connection.plane.loop.time() < self._deadline:
            self._wait_for_more(self._hosted)  # a reply was sent since the timer was set
            return
        del self._hosted.waiters[self._wake]
        self._again()

    def _again(self) -> None:
        if not self._over and not self._connection.closed:
            self._connection.fetches.queue(self.run)

    def _take_when_read(self, reading: _Reading) -> None:
        self._count(batch.length for batch in reading.plan.wanted)
        self._reach = reading.end_offset
        reading.future.add_done_callback(lambda future: self._guarded(lambda: self._take(future, reading.plan)))

    def _take(self, future: Future[list[bytes]], plan: ReadPlan) -> None:
        """Handle a finished read: send its batches or its error, or repeat it if batches were moved meanwhile."""
        hosted = self._hosted
        if hosted is None or hosted.dropped:
            raise RangeNotFound(
                f"this server no longer has a replica of range {self._message.stream_id}/{self._message.range_index}"
            )
        if future.cancelled():
            raise Unavailable("the server is being stopped")
        store, error = self._connection.store, future.exception()
        if isinstance(error, RangelogError):
            moved = store.read_failed(hosted, error, self._connection.plane.loop.time(), plan)
            if moved and not self._over:
                self._again()
                self._end_turn()
                return
        if error is not None:
            raise error
        store.read_faults.succeeded(hosted.key, self._offset, self._reach)
        self._reply(hosted, future.result(), from_disk=True)

    def _reply(
        self, hosted: HostedReplica, batches: list[bytes], *, from_disk: bool = False, held: bool = False
    ) -> None:
        if self._over:
            self._end_turn()
            return
        core = hosted.core
        if batches:
            self._offset = self._reach
            size_bytes = sum(map(len, batches))
            self._credit -= size_bytes
            self._connection.store.counts.fetched(size_bytes, from_disk=from_disk)
        sealed = core.sealed_end_offset is not None
        last = not held and (not self._follows or self._is_last(batches, sealed))
        if from_disk and not last:
            self._read_ahead(hosted)
        reply = data_pb2.FetchReply(
            start_offset=core.start_offset,
            confirm_offset=core.confirm_offset,
            sealed_end_offset=core.sealed_end_offset or 0,
            sealed=sealed,
            durable_offset=core.durable_offset,
            last=last,
            doubtful=core.trust is DiskTrust.DOUBTFUL,
            held=held,
        )
        self._connection.send(Opcode.FETCH_REPLY, self._request_id, reply.SerializeToString(), batches)
        if last:
            self._end()
        else:
            self._go_on(hosted)
        self._end_turn()

    def _is_last(self, batches: list[bytes], sealed: bool) -> bool:
        if not batches:
            return sealed or not self._wait_s or self._message.recovery_epoch > 0
        return 0 < self._message.end_offset <= self._offset

    def _go_on(self, hosted: HostedReplica) -> None:
        loop = self._connection.plane.loop
        self._deadline = loop.time() + self._wait_s
        if self._credit <= 0:
            self._out_of_credit = True
        elif self._is_at_end(hosted) and not self._connection.closed:
            self._wait_for_more(hosted)
        else:
            loop.call_soon(self._again)  # not at once: other fetches have a turn first

    def _fail(self, error: RangelogError) -> None:
        try:
            if not self._over:
                count_by(self._connection.store.counts.fetch_errors, error.code)
                self._connection.send_error(self._request_id, error)
        except Exception:
            _log.exception("a fetch's error could not be sent")
        self._end()
        self._end_turn()

    def _end(self) -> None:
        if self._over:
            return
        self._over = True
        self._forget_ahead()
        self._connection.fetches.end(self)
        self._connection.fetches.following.pop(self._request_id, None)
        if self._tick is not None:
            self._connection.plane.deadlines.discard(self, self._tick)
        if self._hosted is not None:
            self._hosted.waiters.pop(self._wake, None)
