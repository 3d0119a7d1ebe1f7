"""The loops of the workload for every system with a client for Python: one in flight, open loop, tail, failover.

What holds: each latency of the open loop and of the tail counts from the moment the append was due, so a stall is
charged to all that it delays. Standard library only: the peers' processes import this as well.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from rangelog_bench.payload import WARM_UP, make_record, read_record
from rangelog_bench.system import OpenLoopSamples, Sampler, Stop, System, TailSamples
from rangelog_bench.ticker import tick

_POLL_S = 0.01
now = time.perf_counter


class InProcessSampler(Sampler):
    """Calls the system's `append`, `send` and `tail` in this process."""

    def __init__(self, system: System) -> None:
        self._system = system
        self._stop_reader: Stop | None = None
        self._on_record: Callable[[bytes], None] | None = None
        self._appending: asyncio.Task[None] | None = None
        self._stopping = False
        self._acks_s: list[float] = []
        self._failed = 0

    async def one_in_flight(self, size: int, seconds: float) -> list[float]:
        """Append one record at a time for so long, but one at least; return the seconds that each took."""
        latencies_s: list[float] = []
        end_s = now() + seconds
        while not latencies_s or now() < end_s:
            sent_s = now()
            await self._system.append(make_record(size, len(latencies_s)))
            latencies_s.append(now() - sent_s)
        return latencies_s

    async def open_loop(self, size: int, rate_per_s: int, count: int, limit_s: float) -> OpenLoopSamples:
        """Append `count` records at a fixed rate; wait for missing acks for up to `limit_s` after the last is due."""
        latencies_s: list[float] = []
        late_s: list[float] = []

        def send(number: int, due_s: float) -> None:
            late_s.append(now() - due_s)
            self._system.send(make_record(size, number), lambda: latencies_s.append(now() - due_s))

        await tick(rate_per_s, count, send)
        await until(lambda: len(latencies_s) == count, limit_s)
        return OpenLoopSamples(latencies_s, late_s)

    async def start_reader(self, size: int, limit_s: float) -> None:
        """Start a reader of new records, and return once it has one, or after `limit_s`."""
        ready = False

        def waiting(_payload: bytes) -> None:
            nonlocal ready
            ready = True

        self._on_record = waiting
        self._stop_reader = await self._system.tail(self._deliver)
        end_s = now() + limit_s
        while not ready and now() < end_s:
            await self._system.append(make_record(size, WARM_UP))
            await asyncio.sleep(_POLL_S)

    def _deliver(self, payload: bytes) -> None:
        if self._on_record is not None:
            self._on_record(payload)

    async def tail(self, size: int, rate_per_s: int, count: int, limit_s: float) -> TailSamples:
        """The same as `open_loop`, seen by the reader."""
        latencies_s: list[float] = []
        acked: set[int] = set()
        early = 0

        def seen(payload: bytes) -> None:
            nonlocal early
            seen_s = now()
            number, due_s = read_record(payload)
            if number != WARM_UP:
                latencies_s.append(seen_s - due_s)
                early += number not in acked

        def send(number: int, due_s: float) -> None:
            self._system.send(make_record(size, number, due_s), lambda: acked.add(number))

        self._on_record = seen
        await tick(rate_per_s, count, send)
        await until(lambda: len(latencies_s) >= count, limit_s)
        return TailSamples(latencies_s, early)

    async def stop_reader(self) -> None:
        """End the reader. Idempotent, also when none was started."""
        stop, self._stop_reader, self._on_record = self._stop_reader, None, None
        if stop is not None:
            await stop()

    async def start_appending(self, size: int) -> None:
        """Append one record at a time in the background, a failed one again, until `stop_appending`."""
        self._stopping, self._acks_s, self._failed = False, [], 0
        self._appending = asyncio.ensure_future(self._append(size))

    async def _append(self, size: int) -> None:
        system = self._system
        while not self._stopping:
            try:
                async with asyncio.timeout(system.append_timeout_s):
                    await system.append(make_record(size, len(self._acks_s)))
            except Exception:
                self._failed += 1
                await system.after_failed_append()
                await asyncio.sleep(0.002)
                continue
            self._acks_s.append(now())

    async def last_ack_s(self) -> float:
        """When the last ack came; 0 before the first."""
        return self._acks_s[-1] if self._acks_s else 0.0

    async def stop_appending(self, limit_s: float) -> tuple[list[float], int]:
        """End that, waiting up to `limit_s` for the append under way; (when each ack came, failed appends)."""
        self._stopping = True
        appending, self._appending = self._appending, None
        if appending is not None:
            try:
                await asyncio.wait([appending], timeout=limit_s)
            finally:
                appending.cancel()
        return self._acks_s, self._failed


async def until(condition: Callable[[], bool], limit_s: float) -> None:
    """Return once the condition holds, or after `limit_s`."""
    end_s = now() + limit_s
    while now() < end_s:
        if condition():
            return
        await asyncio.sleep(_POLL_S)
