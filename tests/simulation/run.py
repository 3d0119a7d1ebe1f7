"""The command behind `make sim`: many seeds on all cores, the corner cases they reached, one line at the end.

python tests/simulation/run.py --seeds 2000          # seeds 0 … 1999, and one in twenty of them twice: at least 3, at most 20
python tests/simulation/run.py --seeds 1000 --fresh  # 1,000 that no run has seen: drawn from the commit's id
python tests/simulation/run.py --seed 17 --trace     # one seed again, with all that happened
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from multiprocessing import resource_tracker
from pathlib import Path

if not __package__:  # run by its path: imports begin at the project's folder
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from tests.simulation import (
    probes_of_repairs,
    virtual_disaster,
    virtual_following,
    virtual_leader_deaths,
    virtual_packing,
    virtual_quotas,
    virtual_repacking,
)
from tests.simulation.fresh_seeds import commit_id, fresh_seed, twice_of
from tests.simulation.probes import CORNER_CASES
from tests.simulation.probes_of_topics import RARE
from tests.simulation.run_quiet import quiet
from tests.simulation.simulate import Outcome, run_seed
from tests.support.figures import publish

SEEDS_FOR_RARE = 2_000
SEEDS_FOR_CORNER_CASES = 200
"""Fewer seeds are asked for violations alone."""

FAULTS = (
    "crash", "power cut", "power cut of all", "pause", "pd crash", "pd pause", "client killed", "client paused",
    "partition", "one-way partition", "connections reset", "slow host", "slow disk", "call lost", "answer lost",
    "flush failed: the process ended", "disk full", "append refused", "disk lost", "disk rolled back",
    "disk rolled back within one run", "bit rot",
    "object store in trouble", "object store unavailable", "object stored wrong", "object stored, answer lost",
    "object read wrong", "clock skew",
)  # fmt: skip


def outcomes(seeds: Iterable[int], processes: int) -> Iterator[Outcome]:
    """Run seeds, in any order. Workers do not hear Ctrl-C: this process ends them."""
    if processes == 1:
        quiet()
        yield from map(run_seed, seeds)
        return
    resource_tracker.ensure_running()  # its start would unblock the signal
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:  # workers, and the thread that starts further ones, inherit the mask
        pool = multiprocessing.get_context("spawn").Pool(processes, quiet, maxtasksperchild=200)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    with pool:
        yield from pool.imap_unordered(run_seed, seeds)


class Summary:
    """What all seeds together came to."""

    def __init__(self) -> None:
        self.counters: Counter[str] = Counter()
        self.violations: list[tuple[int, str]] = []
        self.hashes: dict[int, str] = {}
        self.differing: list[int] = []
        self.seeds = self.acked = self.unknown = self.steps = 0
        self.virtual_s = 0.0
        self.heal_s: list[float] = []

    def add(self, outcome: Outcome) -> None:
        """Take one seed's outcome; a seed that comes twice must have the same trace."""
        known = self.hashes.setdefault(outcome.seed, outcome.trace_hash)
        if known != outcome.trace_hash:
            self.differing.append(outcome.seed)
        self.seeds += 1
        self.violations += [(outcome.seed, problem) for problem in outcome.violations[:1]]
        self.counters.update(outcome.counters)
        self.acked += outcome.acked
        self.unknown += outcome.unknown
        self.steps += outcome.steps
        self.virtual_s += outcome.virtual_s
        self.heal_s.append(outcome.heal_s)

    @property
    def missed(self) -> list[str]:
        """Corner cases that no seed reached, without those that so few seeds need not reach."""
        if len(self.hashes) < SEEDS_FOR_CORNER_CASES:
            return []
        rare = (
            *RARE,
            *virtual_repacking.RARE,
            *virtual_packing.RARE,
            *virtual_quotas.RARE,
            *virtual_following.RARE,
            *virtual_disaster.RARE,
            *probes_of_repairs.RARE,
            *virtual_leader_deaths.RARE_CASES,
        )
        excused = rare if len(self.hashes) < SEEDS_FOR_RARE else ()
        return [each for each in CORNER_CASES if not self.counters[each] and each not in excused]

    @property
    def reached(self) -> int:
        """How many corner cases any seed reached."""
        return sum(1 for each in CORNER_CASES if self.counters[each])

    def figures(self, seconds: float, twice: int) -> dict[str, object]:
        """For the table."""
        heal = sorted(self.heal_s)
        return {
            "seeds": len(self.hashes),
            "violations": len(self.violations),
            "corner_cases_reached": self.reached,
            "corner_cases": len(CORNER_CASES),
            "virtual_hours": round(self.virtual_s / 3600, 2),
            "events": self.steps,
            "acked_records_checked": self.acked,
            "lost": 0 if not self.violations else None,
            "outcomes_unknown": self.unknown,
            "seeds_run_twice_with_equal_traces": twice - len(self.differing),
            "heal_s_p50": round(heal[len(heal) // 2], 2),
            "heal_s_max": round(heal[-1], 2),
            "wall_s": round(seconds, 1),
            "faults": {name: self.counters[name] for name in FAULTS},
            "corner_case_counts": {name: self.counters[name] for name in CORNER_CASES},
        }


def tell_violation(outcome: Outcome) -> None:
    """Print what a seed broke, and how to run it again."""
    for problem in outcome.violations[:1]:
        print(f"\nSEED={outcome.seed}: {problem[:2000]}\n  again: make sim SEED={outcome.seed}", file=sys.stderr)


def one(seed: int, trace: bool) -> int:
    """Replay one seed and say all about it."""
    quiet()
    outcome = run_seed(seed, keep_trace=trace)
    if trace:
        print("\n".join(outcome.trace))
    for name, count in sorted(outcome.counters.items()):
        print(f"{count:8}  {name}")
    for problem in outcome.violations:
        print(f"VIOLATION: {problem}")
    print(f"sim: seed={seed} violations={len(outcome.violations)} acked={outcome.acked} "
          f"virtual_s={outcome.virtual_s:.1f} events={outcome.steps} trace={outcome.trace_hash}")  # fmt: skip
    return 1 if outcome.violations else 0


def many(first: int, count: int, processes: int, *, fresh: bool) -> int:
    """Run many seeds; the last line says it all. Fresh ones are for violations: what they reach is chance, and no figure."""
    began = time.monotonic()
    summary = Summary()
    seeds = list(range(first, first + count))
    twice = twice_of(seeds)
    total = count + len(twice)
    for outcome in outcomes(seeds + twice, processes):
        summary.add(outcome)
        tell_violation(outcome)
        if sys.stderr.isatty() or summary.seeds % 100 == 0:
            print(f"\r{summary.seeds}/{total} seeds, {summary.acked} records acked", end="", file=sys.stderr)
    print(file=sys.stderr)
    for name in CORNER_CASES:
        print(f"{summary.counters[name]:9}  {name}")
    for seed in summary.differing:
        print(f"SEED={seed} gives another trace when it is run again")
    for name in summary.missed:
        print(f"no seed reached: {name}")
    if not fresh:
        publish("simulation", summary.figures(time.monotonic() - began, len(twice)))
    print(f"sim: acked={summary.acked} twice={len(twice)} differing={len(summary.differing)} "
          f"wall_s={time.monotonic() - began:.0f}")  # fmt: skip
    print(f"sim: seeds={count} violations={len(summary.violations)} "
          f"corner_cases={summary.reached}/{len(CORNER_CASES)} "
          f"virtual_hours={summary.virtual_s / 3600:.2f}")  # fmt: skip
    return 1 if summary.violations or summary.differing or (summary.missed and not fresh) else 0


def main() -> int:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=300, help="how many (default 300)")
    parser.add_argument("--first", type=int, default=0, help="the first of them (default 0)")
    parser.add_argument(
        "--fresh", action="store_true", help="the first is drawn from the commit's id: nobody ran it before"
    )
    parser.add_argument("--seed", type=int, help="replay this one only")
    parser.add_argument("--trace", action="store_true", help="with --seed: print all that happened")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, help="default: one for each core")
    given = parser.parse_args()
    if given.seeds < 1:
        parser.error("--seeds must be at least 1")
    try:
        if given.seed is not None:
            return one(given.seed, given.trace)
        first = fresh_seed(commit_id()) if given.fresh else given.first
        print(f"sim: first seed {first}", file=sys.stderr)
        return many(first, given.seeds, given.processes, fresh=given.fresh)
    except KeyboardInterrupt:
        print("\nsim: stopped", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
