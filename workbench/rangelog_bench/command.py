"""`rangelog bench`: measures a cluster of its own, or a running one, and prints the results."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path

import click

from rangelog_bench.loop import run_on_loop
from rangelog_bench.measurement import Measurement, medians
from rangelog_bench.ours import Rangelog
from rangelog_bench.own_workload import NEEDS_OWN_CLUSTER, OWN, run_own_round
from rangelog_bench.progress import Progress
from rangelog_bench.report import plot, print_tables
from rangelog_bench.scratch import scratch
from rangelog_bench.topics.round import TOPICS, run_topics_round
from rangelog_bench.workload import (
    CATCHUP,
    FAILOVER,
    LATENCY,
    OPEN_LOOP,
    PRODUCERS,
    QUICK,
    TAIL,
    THROUGHPUT,
    Effort,
    Emit,
    run_round,
)
from rangelog_core.errors import InvalidArgument

NAMES = (THROUGHPUT, CATCHUP, LATENCY, OPEN_LOOP, TAIL, FAILOVER, *OWN)
"""The values of --only: what is measured by default. With --topics it is `TOPICS`, which --only takes as well."""
_FIGURES = {THROUGHPUT: 3, CATCHUP: 3, LATENCY: 3, "arrow": 3, "streams": 3, "cold": 4}
_FIGURES |= {PRODUCERS: 2, "journal": 2, "table": 2}


def run_bench(
    *,
    quick: bool,
    topics: bool,
    only: Sequence[str],
    as_json: bool,
    against: str | None,
    data_dir: Path,
    seconds: float | None,
    rounds: int | None,
    plot_path: Path | None,
    tls: bool = False,
) -> int:
    """Measure and report; return 0 if no measurement failed. Raises the cluster's errors."""
    effort = QUICK if quick else Effort()
    effort = replace(effort, seconds=seconds or effort.seconds, rounds=rounds or effort.rounds)
    wanted = choose(only, topics=topics, own_cluster=against is None)
    Rangelog.with_tls = tls
    results, failed = run_on_loop(lambda: _run(effort, wanted, against, data_dir))
    if as_json:
        for each in results:
            click.echo(each.to_json())
    else:
        print_tables(results)
    if plot_path is not None:
        drawn = plot(results, plot_path)
        click.echo(f"plot: {plot_path}" if drawn else "no plot: pip install matplotlib", err=True)
    for what in failed:
        click.echo(f"not measured: {what}", err=True)
    return 1 if failed else 0


def choose(only: Sequence[str], *, topics: bool = False, own_cluster: bool) -> list[str]:
    """Return the measurements, in order. Raises InvalidArgument for unknown names, or if one needs an own cluster."""
    of_own_clusters = NEEDS_OWN_CLUSTER | {FAILOVER, *TOPICS}
    for name in only:
        if name not in (*NAMES, *TOPICS):
            raise InvalidArgument(f"--only {name}: choose of {', '.join((*NAMES, *TOPICS))}")
        if topics and name not in TOPICS:
            raise InvalidArgument(f"--topics --only {name}: choose of {', '.join(TOPICS)}")
        if not own_cluster and name in of_own_clusters:
            raise InvalidArgument(f"--only {name} kills or reconfigures servers: leave out --against")
    if topics and not own_cluster:
        raise InvalidArgument("--topics kills or reconfigures servers: leave out --against")
    wanted = [name for name in (*NAMES, *TOPICS) if name in only] if only else list(TOPICS if topics else NAMES)
    return wanted if own_cluster else [name for name in wanted if name not in of_own_clusters]


async def _run(
    effort: Effort, wanted: Collection[str], against: str | None, data_dir: Path
) -> tuple[list[Measurement], list[str]]:
    found: list[Measurement] = []
    failed: list[str] = []
    expected = effort.rounds * sum(_FIGURES.get(name, 1) for name in wanted)
    with Progress(expected) as progress, scratch(data_dir) as directory:

        def emit(each: Measurement) -> None:
            found.append(each)
            progress.measured(each)

        for number in range(effort.rounds):
            progress.say(f"round {number + 1} of {effort.rounds}: starting a cluster")
            if not set(wanted) <= set(TOPICS):
                failed += await measure_ours(Rangelog(directory / str(number), against), effort, wanted, emit)
            failed += await run_topics_round(directory / f"{number}-topics", effort, wanted, emit)
    return medians(found), failed


async def measure_ours(ours: Rangelog, effort: Effort, wanted: Collection[str], emit: Emit) -> list[str]:
    """One round, on a fresh cluster; what kills servers comes last. Returns what failed, in words."""
    try:
        await ours.start()
        failed = await run_own_round(ours, effort, set(wanted) - NEEDS_OWN_CLUSTER, emit)
        failed += await run_round(ours, effort, wanted, emit)
        failed += await run_own_round(ours, effort, NEEDS_OWN_CLUSTER & set(wanted), emit)
        return failed
    finally:
        await ours.stop()
