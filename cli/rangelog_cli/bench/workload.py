"""The workload, the same for every system: what is measured, for how long, and from when to when.

- Throughput: the payload appended as fast as the client can, acked records over the time to the last ack.
- Latency: one append in flight, the next when it is acked.
- Open loop: appends due at a fixed rate whatever became of the earlier ones; counted from the moment each was due, so
  that a stall is charged to all that it delayed.
- Tail: the same, until a reader in the same process has the record; how many it had before their ack is counted.
- Catch-up: the whole log that the throughput measurement left, from its start.
- Failover: one in flight, the server in charge killed; the longest time between two acks.

Standard library only: the peers' processes import this as well.
"""

from __future__ import annotations

import asyncio
import os
import struct
import time
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from itertools import pairwise

from rangelog_cli.bench import measurement as m
from rangelog_cli.bench.measurement import Measurement
from rangelog_cli.bench.meter import Meter
from rangelog_cli.bench.system import System
from rangelog_cli.bench.ticker import tick

THROUGHPUT, LATENCY, OPEN_LOOP, TAIL, CATCHUP, FAILOVER = (
    "throughput", "latency", "open-loop", "tail", "catchup", "failover",
)  # fmt: skip
SHARED = frozenset({THROUGHPUT, LATENCY, OPEN_LOOP, TAIL, CATCHUP, FAILOVER})
"""What every system takes part in if it can."""

SIZES = (100, 1024, 16384)
ONE_SIZE = 1024
"""Of the measurements that are made with one record size only."""

_NOISE = os.urandom(1 << 20)
_HEAD = struct.Struct("<Qd")
_WARM_UP = (1 << 64) - 1
_POLL_S = 0.01

Emit = Callable[[Measurement], None]
now = time.perf_counter


@dataclass(frozen=True, slots=True)
class Effort:
    """How long everything takes."""

    seconds: float = 10.0
    rounds: int = 3
    rate_per_s: int = 1_000
    before_kill_s: float = 2.0
    after_kill_s: float = 8.0
    resume_s_max: float = 30.0
    stream_counts: tuple[int, ...] = (1, 100, 1_000)
    cold_bytes: int = 256 << 20
    sizes: tuple[int, ...] = SIZES


QUICK = Effort(
    seconds=1.5, rounds=1, before_kill_s=0.5, after_kill_s=2.0, stream_counts=(1, 100), cold_bytes=16 << 20
)  # fmt: skip


def make_record(size: int, number: int, stamp_s: float = 0.0) -> bytes:
    """`size` bytes (16 or more) that do not compress: a number, a time and noise."""
    return _HEAD.pack(number, stamp_s) + _NOISE[: size - _HEAD.size]


def read_record(payload: bytes) -> tuple[int, float]:
    """The number and the time in a record."""
    return _HEAD.unpack_from(payload)


async def run_round(system: System, effort: Effort, only: Collection[str], emit: Emit) -> list[str]:
    """Measure everything in `only` that the system can, once; it was started. Returns what failed, in words."""
    wanted = system.abilities & set(only)
    failed: list[str] = []
    await system.fresh_log()
    await system.pump(make_record(ONE_SIZE, _WARM_UP), min(1.0, effort.seconds / 2))
    if wanted & {THROUGHPUT, CATCHUP}:
        for size in effort.sizes:
            failed += await attempt(THROUGHPUT, measure_throughput(system, effort, size, wanted, emit))
    if LATENCY in wanted:
        for size in effort.sizes:
            failed += await attempt(LATENCY, measure_latency(system, effort, size, emit))
    if OPEN_LOOP in wanted:
        failed += await attempt(OPEN_LOOP, measure_open_loop(system, effort, emit))
    if TAIL in wanted:
        failed += await attempt(TAIL, measure_tail(system, effort, emit))
    if FAILOVER in wanted:
        failed += await attempt(FAILOVER, measure_failover(system, effort, emit))
    return failed


async def attempt(name: str, measuring: Awaitable[None]) -> list[str]:
    """Await one measurement; what went wrong does not stop the others: it is returned."""
    try:
        await measuring
    except Exception as error:
        task = asyncio.current_task()
        if task is not None and task.cancelling():  # a client library made something else of it
            raise asyncio.CancelledError from error
        return [f"{name}: {type(error).__name__}: {error}"]
    return []


async def measure_throughput(system: System, effort: Effort, size: int, wanted: Collection[str], emit: Emit) -> None:
    """Append flat out, then read all of it."""
    await system.fresh_log()
    meter, started_s = Meter(system.pids()), now()
    acked = await system.pump(make_record(size, 0), effort.seconds)
    took_s = now() - started_s
    used = meter.stop(acked * size)
    if THROUGHPUT in wanted:
        emit(_rate(system, m.APPEND, size, acked, took_s, used))
    if CATCHUP in wanted:
        await measure_catchup(system, m.CATCHUP, system.read_all, size, acked, emit)


async def measure_catchup(
    system: System, metric: str, read: Callable[[int], Awaitable[int]], size: int, count: int, emit: Emit
) -> None:
    """Read the log from its start. Raises RuntimeError when records are missing."""
    meter, started_s = Meter(system.pids()), now()
    came = await read(count)
    took_s = now() - started_s
    if came < count:
        raise RuntimeError(f"{system.name} gave {came} of {count} acked records back")
    emit(_rate(system, metric, size, came, took_s, meter.stop(came * size)))


async def measure_latency(system: System, effort: Effort, size: int, emit: Emit) -> None:
    """One in flight."""
    await system.fresh_log()
    latencies_s: list[float] = []
    warm_s = now() + effort.seconds / 10
    while now() < warm_s:
        await system.append(make_record(size, _WARM_UP))
    meter, end_s, number = Meter(system.pids()), now() + effort.seconds, 0
    while (sent_s := now()) < end_s:
        await system.append(make_record(size, number))
        latencies_s.append(now() - sent_s)
        number += 1
    emit(_latency(system, m.LATENCY, size, latencies_s, meter.stop()))


async def measure_open_loop(system: System, effort: Effort, emit: Emit) -> None:
    """Appends due at a fixed rate."""
    await system.fresh_log()
    await system.append(make_record(ONE_SIZE, _WARM_UP))
    count = int(effort.rate_per_s * effort.seconds)
    latencies_s: list[float] = []
    late_s: list[float] = []

    def send(number: int, due_s: float) -> None:
        late_s.append(now() - due_s)
        system.send(make_record(ONE_SIZE, number), lambda: latencies_s.append(now() - due_s))

    meter = Meter(system.pids())
    await tick(effort.rate_per_s, count, send)
    await _until(lambda: len(latencies_s) == count, effort.resume_s_max)
    used = meter.stop() | {"rate_per_s": effort.rate_per_s, "missing": count - len(latencies_s)}
    used["sender_late_p99"] = m.latency_details(late_s)["p99"]
    emit(_latency(system, m.OPEN_LOOP, ONE_SIZE, latencies_s, used))


async def measure_tail(system: System, effort: Effort, emit: Emit) -> None:
    """From when an append was due until a reader has the record."""
    await system.fresh_log()
    await system.append(make_record(ONE_SIZE, _WARM_UP))
    count = int(effort.rate_per_s * effort.seconds)
    latencies_s: list[float] = []
    acked: set[int] = set()
    early, ready = 0, False

    def seen(payload: bytes) -> None:
        nonlocal early, ready
        seen_s = now()
        number, due_s = read_record(payload)
        if number == _WARM_UP:
            ready = True
            return
        latencies_s.append(seen_s - due_s)
        early += number not in acked

    def send(number: int, due_s: float) -> None:
        system.send(make_record(ONE_SIZE, number, due_s), lambda: acked.add(number))

    stop = await system.tail(seen)
    try:
        end_s = now() + effort.resume_s_max
        while not ready and now() < end_s:  # until the reader is known to follow
            await system.append(make_record(ONE_SIZE, _WARM_UP))
            await asyncio.sleep(_POLL_S)
        meter = Meter(system.pids())
        await tick(effort.rate_per_s, count, send)
        await _until(lambda: len(latencies_s) >= count, effort.resume_s_max)
        used = meter.stop() | {"rate_per_s": effort.rate_per_s, "missing": count - len(latencies_s)}
    finally:
        await stop()
    emit(_latency(system, m.TAIL, ONE_SIZE, latencies_s, used | {"seen_before_acked": early}))


async def measure_failover(system: System, effort: Effort, emit: Emit) -> None:
    """Kill the server in charge while appending."""
    await system.prepare_failover()
    await system.fresh_log()
    victim = ""

    async def kill() -> None:
        nonlocal victim
        victim = await system.in_charge()
        system.kill(victim)

    gap = await longest_gap(system, effort, kill)
    emit(gap_measurement(system, m.GAP_SERVER, gap))
    await system.restore(victim)


@dataclass(frozen=True, slots=True)
class Gap:
    """Times between acks, in seconds."""

    longest_s: float
    usual_s: list[float]
    """Between acks before the kill."""
    acked: int
    found: int
    """Records in the log at the end: more than were acked when something was sent again."""
    failed_appends: int


async def longest_gap(system: System, effort: Effort, kill: Callable[[], Awaitable[None]]) -> Gap:
    """Append one at a time, do the harm, and go on until acks have come again for a while.

    Raises RuntimeError when an acked record is gone, or acks do not come again.
    """
    acks_s: list[float] = []
    failed = 0
    stopping = False

    async def produce() -> None:
        nonlocal failed
        while not stopping:
            try:
                async with asyncio.timeout(system.append_timeout_s):
                    await system.append(make_record(ONE_SIZE, len(acks_s)))
            except Exception:
                failed += 1
                await system.after_failed_append()
                await asyncio.sleep(0.002)
                continue
            acks_s.append(now())

    producing = asyncio.ensure_future(produce())
    try:
        await asyncio.sleep(effort.before_kill_s)
        killed_s = now()
        await kill()
        end_s = now() + effort.after_kill_s
        await _until(
            lambda: now() > end_s and bool(acks_s) and acks_s[-1] > now() - 0.5,
            effort.after_kill_s + effort.resume_s_max,
        )
        stopping = True
        await asyncio.wait([producing], timeout=effort.resume_s_max)
    finally:
        producing.cancel()
    gaps = [(later, later - earlier) for earlier, later in pairwise(acks_s)]
    after = [gap for later, gap in gaps if later > killed_s]
    if not (after and acks_s[-1] > end_s - 1):
        raise RuntimeError(f"{system.name} acked nothing any more after the kill")
    found = await system.read_all(len(acks_s))
    if found < len(acks_s):
        raise RuntimeError(f"{system.name} lost {len(acks_s) - found} of {len(acks_s)} acked records")
    return Gap(max(after), [gap for later, gap in gaps if later <= killed_s], len(acks_s), found, failed)


def gap_measurement(system: System, metric: str, gap: Gap) -> Measurement:
    """As a figure in ms."""
    usual = m.latency_details(gap.usual_s)
    details = {"usual_p50": usual["p50"], "usual_p99.9": usual["p99.9"], "acked": gap.acked, "found": gap.found}
    details["failed_appends"] = gap.failed_appends
    return Measurement(system.name, system.setting, metric, ONE_SIZE, round(gap.longest_s * 1e3, 2), m.MS, details)


def _rate(system: System, metric: str, size: int, count: int, took_s: float, used: dict[str, object]) -> Measurement:
    details = {"mb_per_s": round(count * size / took_s / 1e6, 2), "records": count, "seconds": round(took_s, 3)} | used
    return Measurement(system.name, system.setting, metric, size, round(count / took_s, 1), m.RECORDS_PER_S, details)


def _latency(system: System, metric: str, size: int, latencies_s: list[float], used: dict[str, object]) -> Measurement:
    details = m.latency_details(latencies_s)
    return Measurement(system.name, system.setting, metric, size, details["p50"], m.MS, details | used)


async def _until(condition: Callable[[], bool], limit_s: float) -> None:
    end_s = now() + limit_s
    while now() < end_s:
        if condition():
            return
        await asyncio.sleep(_POLL_S)
