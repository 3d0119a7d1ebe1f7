"""Runs the failover seal of one range: performs the effects of protocol.recovery.

The seal creates the next range in the same command where there is a placement for it, since whoever takes over goes on there.
Raises SealBlocked, which names what is missing, when the deadline passes; the range is unsealed then, and a retry is safe.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from typing import Any

from rangelog._append.fencing import FENCE_TIMEOUT_S, fence_replica
from rangelog._append.placement_calls import PlacementCalls
from rangelog._metadata import Metadata, new_request_id
from rangelog.protocol.recovery import Answer, Commit, Copy, Fence, Recovery, RecoveryPhase
from rangelog_core.errors import (
    Corruption,
    NoPlacement,
    RangelogError,
    RequestTimeout,
    SealBelowFloor,
    SealBlocked,
    Unavailable,
    WriterFenced,
)
from rangelog_core.ids import ReplicaId
from rangelog_core.limits import FETCH_BYTES_MAX
from rangelog_core.net.data_connection import DataConnections, replica_id
from rangelog_core.net.replica_client import FenceOutcome, ReplicaClient, range_key
from rangelog_core.tracing import traced
from rangelog_proto.v1 import common_pb2, pd_pb2

_RETRY_S = 0.5
LOOK_S = 2.0
"""Between two looks at which servers the placement driver has."""
_ANSWERS = {
    FenceOutcome.TRUTHFUL: Answer.TRUTHFUL,
    FenceOutcome.DOUBTFUL: Answer.DOUBTFUL,
    FenceOutcome.UNKNOWN: Answer.UNKNOWN,
}


class FailoverSeal:
    """One seal of one range at one epoch. `run` returns the end in force."""

    def __init__(
        self,
        metadata: Metadata,
        calls: PlacementCalls,
        connections: DataConnections,
        last: common_pb2.Range,
        epoch: int,
        timeout_s: float,
        *,
        create_next: bool = False,
    ) -> None:
        """`create_next`: for whoever goes on writing; see `created`."""
        self.created: common_pb2.Range | None = None
        """The next range, if it was created together with the seal."""
        self.sealed = last
        """The range as the placement driver has sealed it, once `run` has returned."""
        self._create_next = create_next
        self._metadata = metadata
        self._calls = calls
        self._connections = connections
        self._range = last
        self._epoch = epoch
        self._deadline = time.monotonic() + timeout_s
        self._addresses = {replica_id(each.server, each.incarnation): each.data_address for each in last.replicas}
        self._core = Recovery(tuple(self._addresses), last.acks, last.start_offset)
        self._tasks: set[asyncio.Task[None]] = set()
        self._changed = asyncio.Event()
        self._failure: RangelogError | None = None
        self._looking = False

    @traced(
        "rangelog.failover.seal", stream_id=lambda seal: seal._range.stream_id, range=lambda seal: seal._range.index
    )
    async def run(self) -> int:
        """Fence, decide, copy, commit. Raises SealBlocked, WriterFenced, and the errors of the placement driver."""
        retry_at = time.monotonic() + _RETRY_S
        look_at = time.monotonic() + LOOK_S
        try:
            while self._core.end_offset is None or self._core.phase is not RecoveryPhase.DONE:
                self._start_effects()
                await self._wait()
                if self._failure is not None:
                    raise self._failure
                now = time.monotonic()
                if now > self._deadline:
                    raise SealBlocked(
                        f"range {self._range.stream_id}/{self._range.index} cannot be sealed: "
                        f"{self._core.blocked_because()}; bring range servers back and open the writer again"
                    )
                self._core.tick(_now_ms())
                if now > retry_at:
                    retry_at = now + _RETRY_S
                    self._core.retry_lost()
                    if now > look_at and not self._looking:
                        look_at = now + LOOK_S
                        self._looking = True
                        self._spawn(self._look())
            return self._core.end_offset
        finally:
            for task in list(self._tasks):
                task.cancel()

    async def _wait(self) -> None:
        tick_ms = self._core.next_tick_ms()
        wait_s = _RETRY_S if tick_ms is None else max(0.0, (tick_ms - _now_ms()) / 1000) + 0.001
        try:
            async with asyncio.timeout(min(wait_s, _RETRY_S)):
                await self._changed.wait()
        except TimeoutError:
            pass
        self._changed.clear()

    def _start_effects(self) -> None:
        for effect in self._core.effects():
            if isinstance(effect, Fence):
                self._spawn(self._fence(effect.replica))
            elif isinstance(effect, Copy):
                self._spawn(self._copy(effect))
            else:
                self._spawn(self._commit(effect))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task: asyncio.Task[None] = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._changed.set()
        if not task.cancelled() and task.exception() is not None:
            error = task.exception()
            self._failure = error if isinstance(error, RangelogError) else Unavailable(f"the seal failed: {error!r}")

    async def _look(self) -> None:
        """Take over the addresses of now: a server may have come back in another incarnation since the takeover began."""
        try:
            start, stream_id = self._range.start_offset, self._range.stream_id
            _, ranges = await self._metadata.ranges(f"{stream_id}", start, stream_id=stream_id)
            for each in ranges:
                if each.index == self._range.index:
                    now = {replica_id(one.server, one.incarnation): one.data_address for one in each.replicas}
                    self._addresses.update((key, now[key]) for key in self._addresses if key in now)
        except RangelogError:
            pass  # the next look may find it
        finally:
            self._looking = False

    async def _fence(self, replica: ReplicaId) -> None:
        try:
            address = self._addresses[replica]
            answer = await fence_replica(self._connections, replica, address, self._range, self._epoch)
        except WriterFenced:
            raise
        except RangelogError as error:
            gone = not self._addresses[replica]  # the placement driver has no address of a retired incarnation
            self._core.lost(_now_ms(), replica, error.message, gone=gone)
            return
        self._core.answered(_now_ms(), replica, _ANSWERS[answer.outcome], answer.durable_offset)

    async def _copy(self, copy: Copy) -> None:
        """Copy [start, end) batch by batch; a failed source or target is reported to the core as lost."""
        at_fault = copy.source
        try:
            source = await self._client(copy.source)
            position = copy.start_offset
            while position < copy.end_offset:
                at_fault = copy.source
                answer = await source.fetch(
                    position, bytes_max=FETCH_BYTES_MAX // 2, recovery_epoch=self._epoch, timeout_s=FENCE_TIMEOUT_S
                )
                batches = answer.batches.before(copy.end_offset)
                if not batches:
                    raise Corruption(f"{copy.source} has no record at {position}, below its own end")
                at_fault = copy.target
                target = await self._client(copy.target)
                end = batches[-1].header.end_offset
                position = await target.append_copy(
                    self._epoch, [each.data for each in batches], end, timeout_s=FENCE_TIMEOUT_S
                )
        except WriterFenced:
            raise
        except RangelogError as error:
            self._core.lost(_now_ms(), at_fault, error.message)
            return
        self._core.copied(_now_ms(), copy)

    async def _client(self, replica: ReplicaId) -> ReplicaClient:
        return ReplicaClient(await self._connections.get(replica, self._addresses[replica]), range_key(self._range))

    async def _commit(self, effect: Commit) -> None:
        left_s = max(1.0, self._deadline - time.monotonic())
        try:
            async with asyncio.timeout(left_s):
                response = await self._seal(effect.end_offset)
        except TimeoutError:
            raise RequestTimeout(f"the placement driver has not sealed a range within {left_s:.1f} s") from None
        except SealBelowFloor as error:  # beyond the promise: two of the range's disks lost flushed records
            raise SealBlocked(
                f"range {self._range.stream_id}/{self._range.index} would end at {effect.end_offset}, but readers have seen "
                f"records up to {error.offset}: more than one of its replicas lost data; bring their disks back"
            ) from error
        self.sealed = response.range
        if response.HasField("next_range"):
            self.created = response.next_range
        self._core.committed(response.range.end_offset)

    async def _seal(self, end_offset: int) -> pd_pb2.SealRangeResponse:
        request = pd_pb2.SealRangeRequest(
            request_id=new_request_id(),
            stream_id=self._range.stream_id,
            range_index=self._range.index,
            epoch=self._epoch,
            end_offset=end_offset,
            create_next=self._create_next,
        )
        try:
            return await self._calls.seal(request)
        except NoPlacement:  # nothing was changed
            request.request_id, request.create_next = new_request_id(), False
            return await self._calls.seal(request)


def _now_ms() -> float:
    return time.monotonic() * 1000
