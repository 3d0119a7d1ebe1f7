"""A check for slowdowns: the ratios of rangelog's figures to the floor's, in one run, against a baseline of such ratios.

No absolute figures, so that it passes on a slower machine; a wide margin, so that it passes with noise; it fails at half the
speed. Rates and latencies count in rounds in which other processes left the machine idle; processor time per byte, which
these disturb much less, in all rounds.
"""

from __future__ import annotations

import asyncio
import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import click

from rangelog_bench import measurement as m
from rangelog_bench.floor import Floor
from rangelog_bench.loop import run_on_loop
from rangelog_bench.measurement import Measurement
from rangelog_bench.ours import Rangelog
from rangelog_bench.progress import Progress
from rangelog_bench.scratch import scratch
from rangelog_bench.system import System
from rangelog_bench.workload import (
    CATCHUP,
    ONE_SIZE,
    QUICK,
    THROUGHPUT,
    Emit,
    measure_latency,
    measure_throughput,
)
from rangelog_core.errors import ConfigInvalid

SLOWER_MAX = 1.7
"""Fails when a ratio is worse than the kept one by more than this: below 2, above what noise does."""
_EFFORT = replace(QUICK, seconds=1.0, rounds=5, catchup_bytes=None)
_SMALL = 100
_OTHERS_CORES_MAX = 0.3
_QUIET_ROUNDS_MIN = 2
_TIMED = {
    "append_1k": (m.APPEND, ONE_SIZE),
    "append_100": (m.APPEND, _SMALL),
    "catchup_1k": (m.CATCHUP, ONE_SIZE),
    "latency_1k": (m.LATENCY, ONE_SIZE),
}


_WORKED = {
    "append_1k_cpu": (m.APPEND, ONE_SIZE),
    "append_100_cpu": (m.APPEND, _SMALL),
    "catchup_1k_cpu": (m.CATCHUP, ONE_SIZE),
}
"""Processor time per byte, of all processes; the floor's is that of its appends of 1 KiB."""


@dataclass(frozen=True, slots=True)
class Round:
    """Ratios to the floor, 0 to about 1, higher is better; `quiet`: no other process used the machine much."""

    timed: dict[str, float]
    worked: dict[str, float]
    quiet: bool


def make_round(ours: Sequence[Measurement], floor: Sequence[Measurement]) -> Round:
    """Set the measurements of one round against each other."""
    mine = {(each.metric, each.record_size): each for each in ours}
    least = {(each.metric, each.record_size): each for each in floor}
    timed: dict[str, float] = {}
    for name, key in _TIMED.items():
        ratio = mine[key].value / least[key].value
        timed[name] = 1 / ratio if key[0] == m.LATENCY else ratio
    work = float(least[m.APPEND, ONE_SIZE].details["cpu_s_per_gb"])
    worked = {name: work / float(mine[key].details["cpu_s_per_gb"]) for name, key in _WORKED.items()}
    others = statistics.median(float(each.details["cores_of_others"]) for each in (*ours, *floor))
    return Round(timed, worked, others <= _OTHERS_CORES_MAX)


def combine(rounds: Sequence[Round]) -> dict[str, float]:
    """Medians; without the timed ones when too few rounds were quiet."""
    found = {name: statistics.median(each.worked[name] for each in rounds) for name in _WORKED}
    quiet = [each for each in rounds if each.quiet]
    if len(quiet) >= _QUIET_ROUNDS_MIN:
        found |= {name: statistics.median(each.timed[name] for each in quiet) for name in _TIMED}
    return found


def slower(kept: Mapping[str, float], found: Mapping[str, float]) -> list[str]:
    """Return the ratios that fell by more than the margin, in words. A ratio that was not kept is not judged."""
    return [
        f"{name} is {kept[name] / found[name]:.1f} times slower than it was against the floor of the same run"
        for name in found
        if name in kept and kept[name] > SLOWER_MAX * found[name]
    ]


def read_baseline(path: Path) -> dict[str, float]:
    """Read a baseline. Raises ConfigInvalid for a file that is missing or malformed."""
    try:
        return {name: float(value) for name, value in json.loads(path.read_text())["ratios"].items()}
    except FileNotFoundError:
        raise ConfigInvalid(f"{path} does not exist: make it with --write-baseline") from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise ConfigInvalid(f"{path} is not a baseline: make it again with --write-baseline") from None


def write_baseline(path: Path, found: Mapping[str, float]) -> None:
    """Keep the ratios. Raises ConfigInvalid when the machine was too busy to measure all of them."""
    if not _TIMED.keys() <= found.keys():
        raise ConfigInvalid("other processes keep this machine busy: write the baseline when it is idle")
    kept = {name: round(value, 4) for name, value in found.items()}
    path.write_text(json.dumps({"ratios": kept}, indent=2) + "\n")


def run_smoke(path: Path, data_dir: Path, *, write: bool) -> int:
    """Measure and compare with the baseline (or write it); 1 when something became slower."""
    kept = {} if write else read_baseline(path)
    rounds = run_on_loop(lambda: _measure(data_dir))
    found = combine(rounds)
    if "append_1k" not in found:
        click.echo("other processes keep this machine busy: only processor time is compared", err=True)
    if write:
        write_baseline(path, found)
    worse = slower(kept, found)
    for line in worse:
        click.echo(f"slower: {line}", err=True)
    fields = " ".join(
        f"{name}={value:.3f}" + (f"/{kept[name]:.3f}" if name in kept else "") for name, value in found.items()
    )
    click.echo(f"bench-smoke: {'FAILED' if worse else 'OK'} {fields}")
    return 1 if worse else 0


async def _big(system: System, emit: Emit) -> None:
    await measure_throughput(system, _EFFORT, ONE_SIZE, {THROUGHPUT, CATCHUP}, emit)


async def _small(system: System, emit: Emit) -> None:
    await measure_throughput(system, _EFFORT, _SMALL, {THROUGHPUT}, emit)


async def _alone(system: System, emit: Emit) -> None:
    await measure_latency(system, _EFFORT, ONE_SIZE, emit)


_STEPS = (_big, _small, _alone)


async def _measure(data_dir: Path) -> list[Round]:
    """Measure rangelog and the floor in turn."""
    rounds: list[Round] = []
    with scratch(data_dir) as directory, Progress(_EFFORT.rounds * 2 * len(_STEPS)) as progress:
        ours, floor = Rangelog(directory / "ours"), Floor(directory / "floor")
        try:
            await asyncio.gather(ours.start(), floor.start())
            for number in range(_EFFORT.rounds):
                progress.say(f"round {number + 1} of {_EFFORT.rounds}")
                mine: list[Measurement] = []
                least: list[Measurement] = []
                for step in _STEPS:  # step by step in turn: what disturbs one is likely to disturb the other
                    await step(ours, mine.append)
                    progress.measured(mine[-1])
                    await step(floor, least.append)
                    progress.measured(least[-1])
                rounds.append(make_round(mine, least))
        finally:
            await ours.stop()
            await floor.stop()
    return rounds
