"""Seeds of the simulated cluster in the tests: nothing acked may be lost, everything must heal.

More of them, which must reach all corner cases as well: `make sim SEEDS=2000`. One again: `make sim SEED=17`.
"""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import types
from pathlib import Path

import pytest

from tests.simulation.fresh_seeds import FRESH_FROM, FRESH_TO, fresh_seed
from tests.simulation.simulate import run_seed
from tests.simulation.virtual_time import VirtualLoop

RUN = Path(__file__).with_name("run.py")


@pytest.mark.timeout(600)
def test_no_seed_breaks_a_promise() -> None:
    """Many seeds in a process of their own: no violation, equal traces when run twice."""
    seeds = os.environ.get("SEEDS", "30")
    processes = "1" if "PYTEST_XDIST_WORKER" in os.environ else str(os.cpu_count() or 1)
    command = [sys.executable, str(RUN), "--seeds", seeds, "--processes", processes]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=580)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert f"sim: seeds={seeds} violations=0" in done.stdout


def test_a_seed_runs_the_same_twice() -> None:
    """The same seed gives the same trace, in the same process too."""
    first, second = run_seed(7), run_seed(7)
    assert first.trace_hash == second.trace_hash
    assert first.counters == second.counters
    assert not first.violations


def test_nothing_of_a_world_outlives_its_seed() -> None:
    """What is left ends when a collection happens to strike: inside `ast.parse` that ended the whole test run."""
    run_seed(7)
    left = [one for one in gc.get_objects() if isinstance(one, VirtualLoop | types.CoroutineType)]
    assert not left, left[:5]


def test_fresh_seeds_belong_to_a_commit() -> None:
    """The first seed of a sweep follows from the commit alone, and lies far from those that are run by hand."""
    first = fresh_seed("f" * 40)
    assert first == fresh_seed("f" * 12 + "0" * 28)
    assert first != fresh_seed("e" * 40)
    assert all(FRESH_FROM <= fresh_seed(f"{number:040x}") < FRESH_TO for number in (0, 1 << 159, (1 << 160) - 1))
