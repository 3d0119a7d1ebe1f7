"""A seed of the simulated cluster: the same each time, and nothing of it stays. Which seeds are run, and which of them twice.

CI runs 60 fresh ones of each commit: `make sim-fresh SEEDS=60`. More of them: `make sweep`. Seeds that must reach all
corner cases: `make sim SEEDS=2000`. One again: `make sim SEED=17`.
"""

from __future__ import annotations

import gc
import types

import pytest

from tests.simulation.fresh_seeds import FRESH_FROM, FRESH_TO, fresh_seed, twice_of
from tests.simulation.simulate import run_seed
from tests.simulation.virtual_time import VirtualLoop


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


@pytest.mark.parametrize(
    ("seeds", "twice"), [(1, 1), (2, 2), (3, 3), (60, 3), (100, 5), (300, 15), (400, 20), (3000, 20)]
)
def test_one_seed_in_twenty_is_run_twice(seeds: int, twice: int) -> None:
    """At least three, at most twenty, spread over all of them."""
    again = twice_of(list(range(seeds)))
    assert len(again) == len(set(again)) == twice
    assert max(again) >= seeds - seeds // twice - 1
