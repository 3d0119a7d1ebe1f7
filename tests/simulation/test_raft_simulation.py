"""pysyncobj with our journal, snapshots, transport and rules, on virtual time, through crashes, cuts and bad disks.

`SEEDS=n` runs the first n seeds, `SEED=k` one alone. A run is a function of its seed alone.
"""

from __future__ import annotations

import os
import time
from collections import Counter

import pytest

from tests.simulation.fresh_seeds import commit_id, fresh_seed, twice_of
from tests.simulation.raft_scenario import Outcome, run_scenario
from tests.support.figures import publish

RICH = (2, 5, 6, 8, 10, 11, 13, 18, 33, 35, 42)
"""Of the first 45 seeds: between them they meet each corner case three times. Where that no longer holds, others do."""
FRESH = 3
"""Seeds that belong to the commit, which no run has seen before. `make raft-sim` runs 300 others."""


def _seeds() -> list[int]:
    if "SEED" in os.environ:
        return [int(os.environ["SEED"])]
    if "SEEDS" in os.environ:
        return list(range(int(os.environ["SEEDS"])))
    first = fresh_seed(commit_id())
    return [*RICH, *range(first, first + FRESH)]


RUN = _seeds()

CORNER_CASES = (
    "a cut-off leader was believed",
    "commands OK",
    "conflicting tails cut",
    "connections reset",
    "crashed in fdatasync",
    "crashed in pwrite",
    "crashed in sync_directory",
    "crashed soon after create journal.new",
    "crashed soon after create snapshot.new",
    "crashed soon after rename journal",
    "crashed soon after rename snapshot",
    "died while a new disk was filled",
    "disks replaced",
    "elections won",
    "fault: all at once",
    "fault: cut a pair",
    "fault: cut at a call",
    "fault: cut in a compaction",
    "fault: cut one way",
    "fault: failing disk",
    "fault: full disk",
    "fault: isolate",
    "fault: kill",
    "fault: leave",
    "fault: lose power",
    "fault: lossy",
    "fault: new disk",
    "fault: pause",
    "fault: slow disk",
    "fault: slow network",
    "fault: strand the leader",
    "flush failed",
    "full disk refused a write",
    "left cleanly",
    "reads answered",
    "reads at a deposed leader",
    "reads refused",
    "requests repeated after their answer",
    "snapshots installed",
    "snapshots taken",
    "states read from a snapshot",
    "stopped itself",
    "torn tails cut off",
    "unknown, found applied",
    "unknown, not applied",
    "votes given, then crashed",
)
"""What a run of all seeds must have met; a counter that stays 0 means that nothing was shown."""

_outcomes: dict[int, Outcome] = {}


@pytest.mark.timeout(60 + 3 * len(RUN))
def test_promises_hold_in_every_seed() -> None:
    """Nothing acked is lost, done twice or answered in two ways; no read is stale; members end up equal, and soon."""
    started_s = time.monotonic()
    for seed in RUN:
        _outcomes[seed] = run_scenario(seed)
        assert not _outcomes[seed].violations, f"SEED={seed}: " + "; ".join(_outcomes[seed].violations[:5])
    counters: Counter[str] = Counter()
    for outcome in _outcomes.values():
        counters += outcome.counters
    met = [case for case in CORNER_CASES if counters[case]]
    virtual_s = sum(outcome.virtual_s for outcome in _outcomes.values())
    again_s = sorted(outcome.leader_again_s for outcome in _outcomes.values())
    if "SEED" not in os.environ:
        publish(
            "raft_simulation",
            {
                "seeds": len(RUN),
                "violations": 0,
                "virtual_hours": round(virtual_s / 3600, 2),
                "real_s": round(time.monotonic() - started_s, 1),
                "corner_cases": len(met),
                "corner_cases_of": len(CORNER_CASES),
                "command_again_after_faults_p50_s": round(again_s[len(again_s) // 2], 2),
                "command_again_after_faults_max_s": round(again_s[-1], 2),
                "counters": dict(sorted(counters.items())),
            },
        )
    print(
        f"\nraft_simulation: seeds={len(RUN)} violations=0 corner_cases={len(met)}/{len(CORNER_CASES)} "
        f"virtual_hours={virtual_s / 3600:.2f} acked={counters['commands OK']} "
        f"elections={counters['elections won']} snapshots_installed={counters['snapshots installed']}"
    )
    if set(RICH) <= set(RUN):
        assert len(met) == len(CORNER_CASES), sorted(set(CORNER_CASES) - set(met))


def test_a_seed_run_twice_gives_the_same_trace() -> None:
    """Every packet, step and end of a process, at the same virtual microsecond."""
    for seed in twice_of(RUN):
        first = _outcomes.get(seed) or run_scenario(seed)
        assert run_scenario(seed).digest == first.digest, f"SEED={seed}"
