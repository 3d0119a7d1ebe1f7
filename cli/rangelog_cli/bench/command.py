"""`rangelog bench`: measure a cluster of its own (or one that runs), and tell people and programs."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Callable, Collection, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import click

from rangelog.errors import InvalidArgument
from rangelog_cli.bench.measurement import Measurement, medians
from rangelog_cli.bench.ours import Rangelog
from rangelog_cli.bench.own_workload import NEEDS_OWN_CLUSTER, OWN, run_own_round
from rangelog_cli.bench.progress import Progress
from rangelog_cli.bench.report import plot, print_tables
from rangelog_cli.bench.workload import (
    CATCHUP,
    FAILOVER,
    LATENCY,
    OPEN_LOOP,
    QUICK,
    TAIL,
    THROUGHPUT,
    Effort,
    Emit,
    run_round,
)

_T = TypeVar("_T")
NAMES = (THROUGHPUT, CATCHUP, LATENCY, OPEN_LOOP, TAIL, FAILOVER, *OWN)
"""What --only takes."""
_MEMORY_FILE_SYSTEMS = ("tmpfs", "ramfs")
_FIGURES = {THROUGHPUT: 3, CATCHUP: 3, LATENCY: 3, "arrow": 3, "streams": 3, "cold": 3}


def run_bench(
    *,
    quick: bool,
    only: Sequence[str],
    as_json: bool,
    against: str | None,
    data_dir: Path,
    seconds: float | None,
    rounds: int | None,
    plot_path: Path | None,
) -> int:
    """Measure and report; 0 when all was measured. Raises what the cluster raises."""
    effort = QUICK if quick else Effort()
    effort = replace(effort, seconds=seconds or effort.seconds, rounds=rounds or effort.rounds)
    wanted = choose(only, own_cluster=against is None)
    results = run_on_loop(lambda: _run(effort, wanted, against, data_dir))
    if as_json:
        for each in results:
            click.echo(each.to_json())
    else:
        print_tables(results)
    if plot_path is not None:
        drawn = plot(results, plot_path)
        click.echo(f"plot: {plot_path}" if drawn else "no plot: pip install matplotlib", err=True)
    return 0


def choose(only: Sequence[str], *, own_cluster: bool) -> list[str]:
    """What to measure, in order. Raises InvalidArgument for unknown names and what a foreign cluster is spared."""
    for name in only:
        if name not in NAMES:
            raise InvalidArgument(f"--only {name}: choose of {', '.join(NAMES)}")
        if not own_cluster and name in NEEDS_OWN_CLUSTER | {FAILOVER}:
            raise InvalidArgument(f"--only {name} kills or reconfigures servers: leave out --against")
    wanted = [name for name in NAMES if not only or name in only]
    return wanted if own_cluster else [name for name in wanted if name not in NEEDS_OWN_CLUSTER | {FAILOVER}]


async def _run(effort: Effort, wanted: Collection[str], against: str | None, data_dir: Path) -> list[Measurement]:
    found: list[Measurement] = []
    expected = effort.rounds * sum(_FIGURES.get(name, 1) for name in wanted)
    with Progress(expected) as progress, scratch(data_dir) as directory:

        def emit(each: Measurement) -> None:
            found.append(each)
            progress.measured(each)

        for number in range(effort.rounds):
            progress.say(f"round {number + 1} of {effort.rounds}: starting a cluster")
            await measure_ours(directory / str(number), against, effort, wanted, emit)
    return medians(found)


async def measure_ours(
    directory: Path, against: str | None, effort: Effort, wanted: Collection[str], emit: Emit
) -> None:
    """One round, on a fresh cluster."""
    ours = Rangelog(directory, against)
    try:
        await ours.start()
        await run_own_round(ours, effort, [name for name in wanted if name in ("arrow", "streams", "takeover")], emit)
        await run_round(ours, effort, wanted, emit)
        await run_own_round(ours, effort, [name for name in wanted if name in NEEDS_OWN_CLUSTER], emit)
    finally:
        await ours.stop()


def run_on_loop(work: Callable[[], Coroutine[Any, Any, _T]]) -> _T:
    """asyncio.run, on uvloop where it is installed; Ctrl-C cancels the work, which cleans up, and is raised then."""
    factory: Callable[[], asyncio.AbstractEventLoop] | None = None
    try:
        import uvloop

        factory = uvloop.new_event_loop
    except ImportError:
        pass
    with asyncio.Runner(loop_factory=factory) as runner:
        return runner.run(work())


@contextmanager
def scratch(parent: Path) -> Iterator[Path]:
    """A new directory below `parent` that goes at the end; warns when it is in memory: flushes cost nothing there."""
    parent.mkdir(parents=True, exist_ok=True)
    kind = file_system_of(parent)
    if kind in _MEMORY_FILE_SYSTEMS:
        click.echo(f"warning: {parent} is on {kind}: flushing costs nothing there; use --data-dir", err=True)
    path = Path(tempfile.mkdtemp(prefix="run-", dir=parent))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def file_system_of(path: Path) -> str:
    """The type of file system that `path` is on, as the kernel names it; empty when it cannot be told."""
    try:
        mounts = Path("/proc/mounts").read_text().splitlines()
    except OSError:
        return ""
    best, kind = "", ""
    where = str(path.resolve())
    for line in mounts:
        point, fs_type = line.split()[1:3]
        inside = where == point or where.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best):
            best, kind = point, fs_type
    return kind
