"""The workload, the same for every system: what is measured, for how long, and from when to when.

- Throughput: the payload appended as fast as the client can, acked records over the time to the last ack.
- Latency: one append in flight, the next when it is acked.
- Open loop: appends due at a fixed rate whatever became of the earlier ones; counted from the moment each was due, so
  that a stall is charged to all that it delayed.
- Tail: the same, until a reader in the same process has the record; how many it had before their ack is counted.
- Catch-up: the log from its start; the same number of bytes of every system, more is appended where that was not enough.
- Failover: one in flight, the server in charge killed; the longest time between two acks.

Standard library only: the peers' processes import this as well.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from itertools import pairwise

from rangelog_bench import measurement as m
from rangelog_bench.measurement import Measurement
from rangelog_bench.meter import Meter
from rangelog_bench.payload import WARM_UP, make_record
from rangelog_bench.sampling import InProcessSampler
from rangelog_bench.system import Sampler, System

THROUGHPUT, LATENCY, OPEN_LOOP, TAIL, CATCHUP, FAILOVER = (
    "throughput", "latency", "open-loop", "tail", "catchup", "failover",
)  # fmt: skip
SHARED = frozenset({THROUGHPUT, LATENCY, OPEN_LOOP, TAIL, CATCHUP, FAILOVER})
"""The measurements for every system that supports them."""
PRODUCERS = "producers"
"""Of topics: many producers at once. For rangelog (see `topics.producing`) and for peers with topics."""
OF_PEERS = SHARED | {PRODUCERS}
PRODUCER_COUNT, PRODUCER_SHARDS, PRODUCER_KEYS = 100, 8, 1_000

SIZES = (100, 1024, 16384)
ONE_SIZE = 1024
"""The record size of the measurements that are made with one size only."""

_SMALL = 100
_POLL_S = 0.01
_TOP_UP_S_MIN, _TOP_UPS_MAX = 0.2, 50

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
    catchup_bytes: int | None = 256 << 20
    """What is read from the start, of every system; None: all that the append measurement left."""
    catchup_records_max: int = 500_000
    """At most so many of them, where records are small."""
    compile_s: float = 15.0
    """How long each kind of work is done before anything is measured, where a system compiles while it runs."""
    client_processes: int = 2
    """Of the measurements of topics for which one process is not enough."""
    shards: int = 1_000
    shards_of_broker: int = 100
    shards_of_group: int = 100
    splits: int = 10
    journal_state_bytes: int = 100_000_000


QUICK = Effort(
    seconds=1.5, rounds=1, before_kill_s=0.5, after_kill_s=2.0, stream_counts=(1, 100), cold_bytes=16 << 20,
    catchup_bytes=32 << 20, catchup_records_max=100_000, compile_s=4.0, shards=100, shards_of_broker=20,
    shards_of_group=20, splits=2, journal_state_bytes=10_000_000,
)  # fmt: skip


async def run_round(system: System, effort: Effort, only: Collection[str], emit: Emit) -> list[str]:
    """Measure everything in `only` that the system can, once; it was started. Returns what failed, in words."""
    wanted = system.abilities & set(only)
    failed: list[str] = []
    await warm_up(system, effort)
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
    if PRODUCERS in wanted:
        failed += await attempt(PRODUCERS, measure_producers(system, effort, emit))
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


def sampler_of(system: System) -> Sampler:
    """The system's own, or the one that calls its client for Python."""
    return system.sampler or InProcessSampler(system)


async def warm_up(system: System, effort: Effort) -> None:
    """Use the system for a moment; for `Effort.compile_s` with each kind of work if it compiles while it runs."""
    await system.fresh_log()
    await system.pump(make_record(ONE_SIZE, WARM_UP), min(1.0, effort.seconds / 2))
    if system.compiles_while_running:
        sampler = sampler_of(system)
        for size in (_SMALL, ONE_SIZE):
            await system.fresh_log()
            acked = await system.pump(make_record(size, WARM_UP), effort.compile_s)
            await system.read_all(min(acked, effort.catchup_records_max))
        await sampler.one_in_flight(ONE_SIZE, effort.compile_s)
        count = int(effort.rate_per_s * effort.compile_s)
        try:
            await sampler.start_reader(ONE_SIZE, effort.resume_s_max)
            await sampler.tail(ONE_SIZE, effort.rate_per_s, count, effort.resume_s_max)
        finally:
            await sampler.stop_reader()


async def measure_throughput(system: System, effort: Effort, size: int, wanted: Collection[str], emit: Emit) -> None:
    """Append flat out, then read from the start."""
    await system.fresh_log()
    meter, started_s = Meter(system.pids()), now()
    acked = await system.pump(make_record(size, 0), effort.seconds)
    took_s = now() - started_s
    used = meter.stop(acked * size)
    if THROUGHPUT in wanted:
        emit(_rate(system, m.APPEND, size, acked, took_s, used))
    if CATCHUP in wanted:
        count = catchup_records(effort, size, acked)
        await top_up(system, size, acked, count, acked / took_s)
        await measure_catchup(system, m.CATCHUP, system.read_all, size, count, emit)


def catchup_records(effort: Effort, size: int, acked: int) -> int:
    """How many records are read from the start: of one size the same for every system, unless `effort` wants all."""
    if effort.catchup_bytes is None:
        return acked
    return min(effort.catchup_bytes // size, effort.catchup_records_max)


async def top_up(system: System, size: int, acked: int, count: int, rate_per_s: float) -> None:
    """Append until the log has `count` records; it has `acked`. Raises RuntimeError when it gets nowhere."""
    for _ in range(_TOP_UPS_MAX):
        if acked >= count:
            return
        seconds = (count - acked) / max(1.0, rate_per_s)
        acked += await system.pump(make_record(size, 0), max(_TOP_UP_S_MIN, seconds))
    raise RuntimeError(f"{system.name} has {acked} of {count} records to read after {_TOP_UPS_MAX} times of appending")


async def measure_catchup(
    system: System, metric: str, read: Callable[[int], Awaitable[int]], size: int, count: int, emit: Emit
) -> None:
    """Read the log from its start. Raises RuntimeError when records are missing."""
    meter, started_s = Meter(system.pids()), now()
    came = await read(count)
    took_s = now() - started_s
    if came < count:
        raise RuntimeError(f"{system.name} gave {came} of {count} acked records back")
    used = meter.stop(came * size) | {"bytes_read": came * size}
    emit(_rate(system, metric, size, came, took_s, used))


async def measure_latency(system: System, effort: Effort, size: int, emit: Emit) -> None:
    """One in flight."""
    await system.fresh_log()
    sampler = sampler_of(system)
    await sampler.one_in_flight(size, effort.seconds / 10)
    meter = Meter(system.pids())
    latencies_s = await sampler.one_in_flight(size, effort.seconds)
    emit(_latency(system, m.LATENCY, size, latencies_s, meter.stop()))


async def measure_open_loop(system: System, effort: Effort, emit: Emit) -> None:
    """Appends due at a fixed rate."""
    await system.fresh_log()
    sampler = sampler_of(system)
    await sampler.one_in_flight(ONE_SIZE, 0)
    count = int(effort.rate_per_s * effort.seconds)
    meter = Meter(system.pids())
    found = await sampler.open_loop(ONE_SIZE, effort.rate_per_s, count, effort.resume_s_max)
    used = meter.stop() | {"rate_per_s": effort.rate_per_s, "missing": count - len(found.latencies_s)}
    used["sender_late_p99"] = m.latency_details(found.late_s)["p99"]
    emit(_latency(system, m.OPEN_LOOP, ONE_SIZE, found.latencies_s, used))


async def measure_tail(system: System, effort: Effort, emit: Emit) -> None:
    """From when an append was due until a reader has the record."""
    await system.fresh_log()
    sampler = sampler_of(system)
    await sampler.one_in_flight(ONE_SIZE, 0)
    count = int(effort.rate_per_s * effort.seconds)
    try:
        await sampler.start_reader(ONE_SIZE, effort.resume_s_max)
        meter = Meter(system.pids())
        found = await sampler.tail(ONE_SIZE, effort.rate_per_s, count, effort.resume_s_max)
        used = meter.stop() | {"rate_per_s": effort.rate_per_s, "missing": count - len(found.latencies_s)}
    finally:
        await sampler.stop_reader()
    used["seen_before_acked"] = found.seen_before_acked
    emit(_latency(system, m.TAIL, ONE_SIZE, found.latencies_s, used))


async def measure_producers(system: System, effort: Effort, emit: Emit) -> None:
    """Many producers of one topic, flat out, without keys and with keys."""
    for metric, keys in ((m.PRODUCERS, 0), (m.PRODUCERS_KEYED, PRODUCER_KEYS)):
        await system.produce_together(make_record(ONE_SIZE, 0), effort.compile_s, keys)
        meter = Meter(system.pids())
        acked, took_s = await system.produce_together(make_record(ONE_SIZE, 0), effort.seconds, keys)
        emit(_rate(system, metric, ONE_SIZE, acked, took_s, meter.stop(acked * ONE_SIZE)))


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
    """Records that were read back at the end: as many as were acked, or more."""
    failed_appends: int


async def longest_gap(system: System, effort: Effort, kill: Callable[[], Awaitable[None]]) -> Gap:
    """Append one at a time, do the harm, and go on until acks have come again for a while.

    Raises RuntimeError when an acked record is gone, or acks do not come again.
    """
    sampler = sampler_of(system)
    await sampler.start_appending(ONE_SIZE)
    try:
        await asyncio.sleep(effort.before_kill_s)
        killed_s = now()
        await kill()
        end_s = now() + effort.after_kill_s
        give_up_s = end_s + effort.resume_s_max
        while now() < give_up_s:
            if now() > end_s and await sampler.last_ack_s() > now() - 0.5:
                break
            await asyncio.sleep(_POLL_S)
    except BaseException:
        await sampler.stop_appending(0)
        raise
    acks_s, failed = await sampler.stop_appending(effort.resume_s_max)
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
