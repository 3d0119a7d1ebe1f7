"""Runs the appender core: its effects become frames, calls to the placement driver and tasks; their results become events.

What holds: effects are performed in the core's order; effects that follow from one are performed after it, not in between.
A confirm offset is sent by itself only when no append is about to carry it, and with a delay to replicas without readers;
to a replica that requests it, at once and each time it moves, until all batches sent before the request are confirmed.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
from typing import Any, Protocol, TypeVar, cast

from rangelog._append.batch_spans import BatchSpans
from rangelog._append.placement_calls import PlacementCalls
from rangelog._append.replica_links import ReplicaLinks
from rangelog._append.roll import send_end
from rangelog._append.shared_dials import SharedDials
from rangelog._append.within import Waits, end_waits, within
from rangelog._metadata import Metadata
from rangelog.protocol.appender import (
    TICK_CALM_MS,
    Appender,
    Confirmed,
    Connect,
    Effect,
    Leave,
    NoRoom,
    OpenRange,
    Probe,
    SealRange,
    Send,
    SendConfirm,
    Stopped,
)
from rangelog.protocol.lag_limits import LagLimits
from rangelog_core import tracing
from rangelog_core.errors import (
    AppendTimeout,
    InternalError,
    RangelogError,
    SealBelowFloor,
    StorageFull,
    StreamNotFound,
    WriterClosed,
    WriterFenced,
)
from rangelog_core.ids import ReplicaId
from rangelog_core.net.data_connection import DataConnections, replica_id
from rangelog_proto.v1 import common_pb2

_log = logging.getLogger("rangelog.writer")
_T = TypeVar("_T")

_CONFIRM_DELAY_S = 0.005
"""The delay for replicas where no reader waits: usually an append carries the confirm offset before it is over."""
_CONFIRM_DELAY_S_MAX = 0.25
_CONFIRM_DELAY_LATENCIES = 4.0
"""The delay in recent latencies of confirms, between both: where an ack takes long, so does what is appended after it."""
_WHY_TIMEOUT_S = 1.0


class WriterHost(Protocol):
    """The client of a writer."""

    metadata: Metadata
    connections: DataConnections
    calls: PlacementCalls
    dials: SharedDials
    lag_limits: LagLimits


class AppenderRunner:
    """Runs one writer's appender. All methods are for the event loop."""

    def __init__(
        self,
        host: WriterHost,
        stream: common_pb2.Stream,
        created: common_pb2.Range,
        *,
        confirmed: Callable[[int], None],
        stopping: Callable[[], None],
        stopped: Callable[[RangelogError], None],
        send_gathered: Callable[[], None],
        no_room: Callable[[StorageFull], object],
    ) -> None:
        """`confirmed` gets each new confirm offset. `send_gathered` submits the gathered records, if any.

        `stopping`: the core accepts no more batches; `stopped`, now or soon after, gets the error.
        `no_room` gets the error with which waits have failed.
        """
        self._host = host
        self._stream = stream
        self._confirmed = confirmed
        self._stopping = stopping
        self._stopped = stopped
        self._send_gathered = send_gathered
        self._no_room = no_room
        self._loop = asyncio.get_running_loop()
        self._links: dict[int, ReplicaLinks] = {}
        self._confirms: dict[ReplicaId, tuple[int, int]] = {}  # range and offset of confirms that wait for an append
        self._asked: dict[ReplicaId, int] = {}  # replicas that wait, with the confirm offset that they need
        self._refusals: dict[str, str] = {}  # by server: why it took no append, until it acks one
        self._confirm_soon = False
        self._confirm_later: asyncio.TimerHandle | None = None
        self._performing = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._sealing: asyncio.Task[None] | None = None
        self._ticker: asyncio.TimerHandle | None = None
        self._tick_due_s = self._tick_delay_ms = 0.0
        self._closed = False
        self.waits: Waits = {}
        self._spans = BatchSpans(stream.name) if tracing.is_active() else None
        self.core = Appender(stream.epoch, self._enter(created), _now_ms(), lag_limits=host.lag_limits)

    def start(self) -> None:
        """Start the core and its timer."""
        self._tick_in_time()
        self._perform()

    def submit(self, base_offset: int, end_offset: int, data: bytes) -> None:
        """Send the next encoded batch. Raises the error that stopped the core."""
        self.core.submit(_now_ms(), base_offset, end_offset, data)
        if self._spans is not None:
            self._spans.submitted(base_offset, end_offset, len(data))
        if self._tick_delay_ms == TICK_CALM_MS or self.core.holds_much or self.core.waits:
            self._tick_in_time()
        self._perform()

    def held_s(self) -> float:
        """Return for how long quotas have held this writer off: time that no server is late by."""
        return self.core.held_ms / 1000

    @property
    def problem(self) -> str:
        """Why servers take no append, by server: what they refused the last one with, or why they are not connected."""
        links = self._links.get(self.core.range_index)
        found = {replica.server: message for replica, message in links.problems.items()} if links is not None else {}
        return "; ".join(f"{server}: {message}" for server, message in sorted({**self._refusals, **found}.items()))

    async def wait(self, future: asyncio.Future[_T], limit_s: float, *, outcome_unknown: bool, paced: bool) -> _T:
        """Wait for a future that has no other waiter. `paced`: for the time longer for which quotas hold this writer off."""

        def error() -> RangelogError:
            return self.not_acked(limit_s, outcome_unknown=outcome_unknown)

        if self.core.room.without and not future.done():
            future.cancel()  # its own error would have no waiter, and be logged
            raise error()
        return await within(future, limit_s, error, self.held_s if paced else None, self.waits)

    def not_acked(self, limit_s: float, *, outcome_unknown: bool) -> RangelogError:
        """Return the error of a wait that is over: in time, or since there is no room."""
        so_far = f"(confirmed up to {self.core.confirm_offset}): {self.problem or 'too few range servers answer?'}"
        if without := self.core.room.without:
            none = f"no room at {', '.join(without)}, and too few other range servers"
            goes_on = "what was taken is tried again until there is room: free space, or add servers"
            return StorageFull(f"{none} {so_far}; {goes_on}", outcome_unknown=outcome_unknown)
        late = f"not acked within {limit_s:g} s {so_far}; the writer retries; see `pdctl server list`"
        return AppendTimeout(late, outcome_unknown=outcome_unknown)

    def check_room(self) -> None:
        """Raise StorageFull while no range server that could take appends has room."""
        if self.core.room.without:
            raise self.not_acked(0.0, outcome_unknown=False)

    def close(self) -> None:
        """Stop; connections stay open for other writers. The last confirm offset is sent, since no other program sends it."""
        self._closed = True
        if self._spans is not None:
            self._spans.stopped(WriterClosed("the writer was closed before the ack"))
        self._confirm_alone(followed_only=False)
        if self._ticker is not None:
            self._ticker.cancel()
        for links in self._links.values():
            links.close()
        for task in list(self._tasks):
            task.cancel()

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run a task; its failure stops the writer."""
        task: asyncio.Task[None] = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._task_ended)
        return task

    # ---- events of the links

    def connected(self, range_index: int, replica: ReplicaId) -> None:
        """The replica is connected."""
        self.core.connected(_now_ms(), range_index, replica)
        self._perform()

    def disconnected(self, range_index: int, replica: ReplicaId) -> None:
        """The replica is not connected."""
        self.core.disconnected(_now_ms(), range_index, replica)
        self._tick_in_time()
        self._perform()

    def acked(self, range_index: int, replica: ReplicaId, durable_offset: int) -> None:
        """The replica holds all records below `durable_offset` durably."""
        if self._spans is not None:
            self._spans.flushed(replica.server, durable_offset)
        if self._refusals:
            self._refusals.pop(replica.server, None)
        self.core.acked(_now_ms(), range_index, replica, durable_offset)
        self._perform()

    def throttled(self, range_index: int, replica: ReplicaId, hold_ms: int) -> None:
        """The replica holds the writer off: it is over a quota."""
        self.core.throttled(_now_ms(), range_index, replica, hold_ms)
        if self.core.waits:
            self._tick_in_time()

    def refused(self, range_index: int, replica: ReplicaId, error: RangelogError) -> None:
        """The replica refused an append."""
        _log.info("%s refused an append of range %d: %s", replica, range_index, error)
        if isinstance(error, WriterFenced):
            taken = f"stream {self._stream.name!r}: {error.message}: a later writer took the stream over"
            error = WriterFenced(taken, epoch=error.epoch)
        self._refusals[replica.server] = error.message
        self.core.refused(_now_ms(), range_index, replica, error)
        self._tick_in_time()
        self._perform()

    def confirm_wanted(self, range_index: int, replica: ReplicaId) -> None:
        """A reader waits at the replica until the confirm offset moves."""
        if range_index == self.core.range_index:
            self._asked[replica] = self.core.next_offset
            self._answer_asked()

    def leave_wanted(self, range_index: int) -> None:
        """The next range can have more replicas."""
        self.core.leave_wanted(_now_ms(), range_index)
        self._tick_in_time()
        self._perform()

    def _answer_asked(self) -> None:
        core = self.core
        links = self._links.get(core.range_index)
        for replica, until_offset in list(self._asked.items()):
            if links is not None:
                links.send_confirm(replica, core.confirm_offset)
            if links is None or core.confirm_offset >= until_offset:
                del self._asked[replica]

    # ---- effects

    def _perform(self) -> None:
        core = self.core
        if self._performing:
            return
        self._performing = True
        try:
            while effects := core.effects():
                for effect in effects:
                    self._perform_one(core, effect)
        finally:
            self._performing = False

    def _perform_one(self, core: Appender, effect: Effect) -> None:
        if isinstance(effect, Send):
            links = self._links.get(effect.range_index)
            if links is not None:
                links.send(effect.replicas, [batch.data for batch in effect.batches], effect.confirm_offset)
                if self._confirms:
                    for replica in effect.replicas:
                        self._confirms.pop(replica, None)
        elif isinstance(effect, Confirmed):
            if self._spans is not None:
                self._spans.confirmed(effect.confirm_offset)
            self._confirmed(effect.confirm_offset)
            if self._asked:
                self._answer_asked()
        elif isinstance(effect, SendConfirm):
            for replica in effect.replicas:
                self._confirms[replica] = effect.range_index, effect.confirm_offset
            links = self._links.get(effect.range_index)
            if links is None or not links.followed:  # nobody waits for it: at the cost of a timer now and then
                self._confirm_in_time()
            elif not self._confirm_soon:
                self._confirm_soon = True
                self._loop.call_soon(self._send_confirms)
        elif isinstance(effect, Stopped):
            _log.warning("the writer of %s stopped: %s", self._stream.name, effect.error)
            if self._spans is not None:
                self._spans.stopped(effect.error)
            for links in self._links.values():
                links.close()
            self._stopping()
            if isinstance(effect.error, WriterFenced) and not self._closed:
                self.spawn(self._tell_why(effect.error))
            else:
                self._stopped(effect.error)
        else:
            self._perform_rare(core, effect)

    def _send_confirms(self) -> None:
        """Send the confirm offset by itself, unless a batch that the application has appended since then carries it."""
        self._confirm_soon = False
        if self._confirms:
            self._send_gathered()
        self._confirm_alone(followed_only=True)
        self._confirm_in_time()

    def _confirm_in_time(self) -> None:
        """Start the timer that sends the confirm offset to replicas without readers, unless an append carries it before."""
        if self._confirms and self._confirm_later is None and not self._closed:
            delay_s = _CONFIRM_DELAY_LATENCIES * self.core.latency_ms / 1000
            delay_s = max(_CONFIRM_DELAY_S, min(_CONFIRM_DELAY_S_MAX, delay_s))
            self._confirm_later = self._loop.call_later(delay_s, self._send_later_confirms)

    def _send_later_confirms(self) -> None:
        self._confirm_later = None
        self._confirm_alone(followed_only=False)

    def _confirm_alone(self, *, followed_only: bool) -> None:
        for replica, (range_index, confirm_offset) in list(self._confirms.items()):
            links = self._links.get(range_index)
            if links is not None and followed_only and replica not in links.followed:
                continue
            del self._confirms[replica]
            if links is not None:
                links.send_confirm(replica, confirm_offset)

    def _perform_rare(self, core: Appender, effect: Connect | Probe | SealRange | Leave | NoRoom) -> None:
        if isinstance(effect, Connect):
            links = self._links.get(effect.range_index)
            if links is not None:
                links.connect(effect.replica)
        elif isinstance(effect, Probe):
            self.spawn(self._probe(effect))
        elif isinstance(effect, SealRange):
            self._sealing = self.spawn(self._seal(core, effect))
        elif isinstance(effect, NoRoom):
            _log.warning("the writer of %s finds no room at %s", self._stream.name, ", ".join(effect.servers))
            end_waits(self.waits)
            self._no_room(cast("StorageFull", self.not_acked(0.0, outcome_unknown=True)))
        else:
            self._asked.clear()  # readers of the old range get its end instead
            links = self._links.pop(effect.range_index, None)
            if links is not None:
                links.close()
            send_end(self._host.connections, self._stream.stream_id, core.epoch, effect)

    async def _probe(self, effect: Probe) -> None:
        """Ask, and leave: a range that still works waits for its turn before it is frozen, and goes on acking meanwhile."""
        async with self._host.calls.turn(urgent=not effect.strictly) as waited:
            possible = await self._host.calls.probe(effect)
            if waited and not self.core.should_leave(_now_ms()):
                possible = False  # the replica is back
            self.core.probed(_now_ms(), possible=possible)
            self._tick_in_time()
            self._perform()
            if self._sealing is not None:
                await asyncio.wait([self._sealing])

    @tracing.traced("rangelog.range.seal", stream=lambda runner: runner._stream.name)
    async def _seal(self, core: Appender, effect: SealRange) -> None:
        try:
            response = await self._host.calls.seal_and_create(self._stream.stream_id, core.epoch, effect)
            if response is None:
                core.seal_refused(_now_ms())
            else:
                core.sealed(_now_ms(), response.range.end_offset, self._enter(response.next_range))
        except WriterFenced as error:
            core.fenced(error)
        except SealBelowFloor as error:
            core.floor_refused(_now_ms(), error.offset or 0)
        except RangelogError as error:
            core.fail(error)
        self._tick_in_time()
        self._perform()

    async def _tell_why(self, error: WriterFenced) -> None:
        """Replace WriterFenced by StreamNotFound where the stream was deleted, since range servers fence its writer too."""
        why: RangelogError = error
        try:
            await self._host.metadata.ranges(
                self._stream.name,
                self.core.opened.start_offset,
                stream_id=self._stream.stream_id,
                timeout_s=_WHY_TIMEOUT_S,
            )
        except StreamNotFound as deleted:
            why = self.core.error = deleted
        except RangelogError:
            pass
        self._stopped(why)

    def _enter(self, created: common_pb2.Range) -> OpenRange:
        """Create the links of a new range; the core's Connect effects start them."""
        config = self._stream.config
        self._host.connections.learn(created)
        links = ReplicaLinks(
            self,
            self._host.connections,
            self._host.dials,
            stream_id=created.stream_id,
            range_index=created.index,
            start_offset=created.start_offset,
            epoch=created.epoch,
            memory=(created.durability or config.durability) == common_pb2.DURABILITY_MEMORY,
        )
        self._links[created.index] = links
        return OpenRange(
            created.index,
            created.start_offset,
            created.acks,
            tuple(replica_id(each.server, each.incarnation) for each in created.replicas),
            _now_ms(),
            config.range_size_bytes_max,
            config.range_age_ms_max,
        )

    def _tick_in_time(self) -> None:
        """Set the timer to the core's next tick."""
        delay_ms = self.core.tick_after_ms(_now_ms())
        due_s = self._loop.time() + delay_ms / 1000
        if self._ticker is not None:
            if self._tick_due_s <= due_s:
                return
            self._ticker.cancel()
        if not self._closed and self.core.error is None:
            self._tick_due_s, self._tick_delay_ms = due_s, delay_ms
            self._ticker = self._loop.call_at(due_s, self._tick)

    def _tick(self) -> None:
        self._ticker = None
        self.core.tick(_now_ms())
        self._tick_in_time()
        self._perform()

    def _task_ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if task is self._sealing:
            self._sealing = None
        if not task.cancelled() and task.exception() is not None:
            _log.error("a writer task failed", exc_info=task.exception())
            self.core.fail(InternalError(f"a writer task failed: {task.exception()!r}"))
            self._perform()


def _now_ms() -> float:
    return time.monotonic() * 1000
