"""The workload of `rangelog bench`, on a system in memory whose faults are known: what is measured is what happened."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest

from rangelog_bench import measurement as m
from rangelog_bench.measurement import Measurement
from rangelog_bench.payload import make_record, read_record
from rangelog_bench.sampling import InProcessSampler
from rangelog_bench.system import OpenLoopSamples, Stop, System, TailSamples
from rangelog_bench.ticker import tick
from rangelog_bench.workload import (
    CATCHUP,
    FAILOVER,
    LATENCY,
    OPEN_LOOP,
    QUICK,
    SHARED,
    TAIL,
    catchup_records,
    longest_gap,
    measure_open_loop,
    measure_tail,
    run_round,
    top_up,
    warm_up,
)
from tests.support.waiting import until

EFFORT = replace(
    QUICK, seconds=0.2, before_kill_s=0.05, after_kill_s=0.2, resume_s_max=20.0, catchup_bytes=5_000_000, compile_s=0.05
)


class MemorySystem(System):
    """Keeps records in a list; acks are given at once, but while it is stalled."""

    name = "memory"
    setting = "none"
    abilities = SHARED
    append_timeout_s = 0.02

    def __init__(self) -> None:
        self.records: list[bytes] = []
        self.readers: list[Callable[[bytes], None]] = []
        self.open = asyncio.Event()
        self.open.set()
        self.show_before_ack = False
        self.forgets = 0
        self.restored: list[str] = []
        self.failed = 0
        self.killed_s = self.closed_s = 0.0
        self.pumped: list[tuple[int, float]] = []
        self.read: list[int] = []

    async def start(self) -> None:
        pass

    async def stop(self) -> None:
        pass

    def pids(self) -> Mapping[str, int]:
        return {}

    async def fresh_log(self) -> None:
        self.records = []

    async def pump(self, payload: bytes, seconds: float) -> int:
        self.records += [payload] * 1_000
        self.pumped.append((len(payload), seconds))
        await asyncio.sleep(seconds / 10)
        return 1_000

    async def append(self, payload: bytes) -> None:
        if self.show_before_ack:
            self._show(payload)
        await self.open.wait()
        await asyncio.sleep(0)
        self.records.append(payload)
        if not self.show_before_ack:
            asyncio.get_running_loop().call_later(0.001, self._show, payload)

    def _show(self, payload: bytes) -> None:
        for reader in self.readers:
            reader(payload)

    async def read_all(self, count: int) -> int:
        self.read.append(count)
        return min(count, len(self.records) - self.forgets)

    async def tail(self, on_record: Callable[[bytes], None]) -> Stop:
        self.readers.append(on_record)

        async def stop() -> None:
            self.readers.clear()

        return stop

    async def in_charge(self) -> str:
        return "leader"

    def kill(self, name: str) -> None:
        self.failed, self.killed_s = 0, asyncio.get_running_loop().time()
        self.open.clear()

    async def after_failed_append(self) -> None:
        """Acks come again after five tries: 100 ms of a machine that does nothing else."""
        self.failed += 1
        if self.failed == 5:
            self.open.set()
            self.closed_s = asyncio.get_running_loop().time() - self.killed_s

    async def restore(self, name: str) -> None:
        self.restored.append(name)

    def stall(self, seconds: float) -> None:
        """Give no ack for so long."""
        self.open.clear()
        asyncio.get_running_loop().call_later(seconds, self.open.set)


def test_a_record_carries_its_number_and_time() -> None:
    """Records of each size hold what the reader needs, and noise."""
    for size in (16, 100, 16_384):
        record = make_record(size, 77, 1.25)
        assert len(record) == size
        assert read_record(record) == (77, 1.25)


async def test_the_ticker_gives_every_tick_once_and_not_early() -> None:
    """A hundred ticks at 1,000/s come in order, none before it is due."""
    loop_time = []
    seen: list[tuple[int, float]] = []

    def due(number: int, due_s: float) -> None:
        import time

        loop_time.append(time.perf_counter() - due_s)
        seen.append((number, due_s))

    await tick(1_000, 100, due)
    assert [number for number, _ in seen] == list(range(100))
    assert min(loop_time) >= 0
    assert all(abs(due_s - seen[0][1] - number / 1_000) < 1e-9 for number, due_s in seen)


async def test_an_error_of_a_tick_ends_the_ticker() -> None:
    """What the callback raises, the caller gets."""

    def due(number: int, due_s: float) -> None:
        raise KeyError(number)

    with pytest.raises(KeyError):
        await tick(1_000, 10, due)


async def test_a_stall_is_charged_to_everything_that_was_due_meanwhile() -> None:
    """With no acks for 100 ms of 200, about half of the open loop's latencies are long: no coordinated omission."""
    system, found, began_s = MemorySystem(), list[Measurement](), asyncio.get_running_loop().time()
    measuring = asyncio.create_task(measure_open_loop(system, EFFORT, found.append))
    await until(lambda: len(system.records) >= 20)
    system.stall(0.1)
    await measuring
    took_ms = (asyncio.get_running_loop().time() - began_s) * 1_000
    details = found[0].details
    assert details["count"] == 200
    assert details["missing"] == 0
    assert 60 <= details["max"] <= took_ms
    assert details["p90"] > 20


async def test_a_stalled_sender_is_charged_as_well() -> None:
    """Ticks that a busy loop fired late count from when they were due."""
    system, found = MemorySystem(), list[Measurement]()
    measuring = asyncio.create_task(measure_open_loop(system, EFFORT, found.append))
    await until(lambda: len(system.records) >= 20)
    end_s = asyncio.get_running_loop().time() + 0.08
    while asyncio.get_running_loop().time() < end_s:
        pass  # the loop is busy: nothing can be sent
    await measuring
    assert found[0].details["max"] >= 70
    assert found[0].details["sender_late_p99"] >= 50


@pytest.mark.parametrize("early", [False, True])
async def test_records_seen_before_their_ack_are_counted(early: bool) -> None:
    """A system that shows records before it acks them is found out, and one that does not is not accused."""
    system, found = MemorySystem(), list[Measurement]()
    system.show_before_ack = early
    await measure_tail(system, EFFORT, found.append)
    assert found[0].details["count"] == 200
    assert found[0].details["seen_before_acked"] == (200 if early else 0)


@pytest.mark.parametrize(
    "late_s_max", [pytest.param(math.inf, id="seen"), pytest.param(0.4, marks=pytest.mark.measure, id="no-longer")]
)
async def test_the_longest_gap_is_the_one_of_the_kill(late_s_max: float) -> None:
    """100 ms without acks are seen as such, and appends that timed out were sent again. Measured: no other gap is longer."""
    system = MemorySystem()

    async def kill() -> None:
        system.kill("leader")

    gap = await longest_gap(system, EFFORT, kill)
    assert 0.09 <= gap.longest_s <= system.closed_s + late_s_max
    assert gap.failed_appends >= 2
    assert gap.found >= gap.acked > 0


async def test_a_lost_record_is_no_figure() -> None:
    """A system that lost an acked record gets an error instead of a gap."""
    system = MemorySystem()
    system.forgets = 10_000_000

    async def kill() -> None:
        system.kill("leader")

    with pytest.raises(RuntimeError, match="lost"):
        await longest_gap(system, EFFORT, kill)


async def test_a_round_measures_everything_and_restores_what_it_killed() -> None:
    """All measurements of the shared workload come out of one round."""
    system, found = MemorySystem(), list[Measurement]()
    assert await run_round(system, EFFORT, SHARED, found.append) == []
    sizes = [each.record_size for each in found if each.metric == m.APPEND]
    assert sizes == [100, 1024, 16384]
    expected = {m.APPEND, m.CATCHUP, m.LATENCY, m.OPEN_LOOP, m.TAIL, m.GAP_SERVER}
    assert {each.metric for each in found} == expected
    assert system.restored == ["leader"]


async def test_every_system_reads_the_same_number_of_bytes() -> None:
    """What is read from the start depends on the record size only, and more is appended where the log is shorter."""
    system, found = MemorySystem(), list[Measurement]()
    assert await run_round(system, EFFORT, [CATCHUP], found.append) == []
    assert system.read == [50_000, 5_000_000 // 1024, 5_000_000 // 16384]
    assert [each.details["bytes_read"] for each in found] == [5_000_000, 4_882 * 1024, 305 * 16384]
    assert len([size for size, _ in system.pumped if size == 100]) == 50


def test_small_records_are_bounded_by_their_number_and_all_can_be_asked_for() -> None:
    """A log of small records is read up to a number of them; without a bound everything that was acked is read."""
    assert catchup_records(replace(EFFORT, catchup_records_max=700), 100, 5) == 700
    assert catchup_records(replace(EFFORT, catchup_bytes=None), 100, 5) == 5


async def test_a_log_that_does_not_grow_ends_the_top_up() -> None:
    """A system that acks nothing more is an error, not an endless wait."""

    class Full(MemorySystem):
        async def pump(self, payload: bytes, seconds: float) -> int:
            return 0

    with pytest.raises(RuntimeError, match="5 of 10 records"):
        await top_up(Full(), 100, 5, 10, 1.0)


@pytest.mark.parametrize("compiles", [False, True])
async def test_what_compiles_while_it_runs_is_warmed_up_with_each_kind_of_work(compiles: bool) -> None:
    """Appends of two sizes, reads, single appends and a reader come first where they change the speed of what follows."""
    system = MemorySystem()
    system.compiles_while_running = compiles
    await warm_up(system, EFFORT)
    assert [size for size, _ in system.pumped] == ([1024, 100, 1024] if compiles else [1024])
    assert bool(system.read) == compiles


class OtherSampler(InProcessSampler):
    """A system's own loops, with figures that no clock gives."""

    async def one_in_flight(self, size: int, seconds: float) -> list[float]:
        return [0.25] * 4

    async def open_loop(self, size: int, rate_per_s: int, count: int, limit_s: float) -> OpenLoopSamples:
        return OpenLoopSamples([0.5] * (count - 1), [0.0] * count)

    async def tail(self, size: int, rate_per_s: int, count: int, limit_s: float) -> TailSamples:
        return TailSamples([0.75] * count, 3)


async def test_a_system_that_samples_itself_gives_the_same_figures() -> None:
    """Samples that another process took become measurements like all others, missing acks included."""
    system, found = MemorySystem(), list[Measurement]()
    system.sampler = OtherSampler(system)
    assert await run_round(system, EFFORT, [LATENCY, OPEN_LOOP, TAIL], found.append) == []
    assert [(each.metric, each.value) for each in found] == [
        *[(m.LATENCY, 250.0)] * 3,
        (m.OPEN_LOOP, 500.0),
        (m.TAIL, 750.0),
    ]
    assert found[3].details["missing"] == 1
    assert found[4].details["seen_before_acked"] == 3


async def test_what_fails_does_not_stop_the_rest() -> None:
    """A measurement that raises is reported in words; the others are made."""

    class NoTail(MemorySystem):
        async def tail(self, on_record: Callable[[bytes], None]) -> Stop:
            raise OSError("no such thing")

    found = list[Measurement]()
    failed = await run_round(NoTail(), EFFORT, [TAIL, FAILOVER], found.append)
    assert failed == ["tail: OSError: no such thing"]
    assert [each.metric for each in found] == [m.GAP_SERVER]


class SwallowingSystem(MemorySystem):
    """Its client turns a cancellation into an error of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = asyncio.Event()

    async def append(self, payload: bytes) -> None:
        self.asked.set()
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            raise ConnectionError("stalled") from None


async def test_ctrl_c_ends_a_round_whatever_a_library_makes_of_it() -> None:
    """A client library that swallows the cancellation does not keep the round going."""
    system, found = SwallowingSystem(), list[Measurement]()
    running = asyncio.create_task(run_round(system, EFFORT, [TAIL, FAILOVER], found.append))
    await system.asked.wait()
    running.cancel()
    await asyncio.wait([running], timeout=5)
    assert running.cancelled()
    assert found == []
