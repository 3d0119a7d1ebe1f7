"""All crash points: which workloads are cut, in the short form and in the whole one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from rangelog_server.wal.encryption import ENCRYPTED_START_BYTES
from tests.crash_points.crash_tally import Tally
from tests.crash_points.journal_crash import MemberCrashes
from tests.crash_points.store_crash import StoreCrashes
from tests.crash_points.store_workload import SALT, Scenario
from tests.simulation.fresh_seeds import commit_id, fresh_seed
from tests.support.log_keys import NonceWatch, encrypted_keys

SMALL_SEGMENT_BYTES = 4096
LARGE_SEGMENT_BYTES = 24 * 1024
"""Holds writes of more than 8 KiB, which go to the disk in two steps."""

Run = tuple[str, Callable[[], Tally]]


def small(seed: int, rounds: int) -> Scenario:
    """Many segments, small writes."""
    return Scenario(seed, SMALL_SEGMENT_BYTES, 300, rounds)


def large(seed: int, rounds: int) -> Scenario:
    """Large writes."""
    return Scenario(seed, LARGE_SEGMENT_BYTES, 3000, rounds)


def encrypted(seed: int, rounds: int) -> Scenario:
    """A log of encrypted segments, each with room for its header; small or large writes."""
    value_bytes_max, room = (3000, LARGE_SEGMENT_BYTES) if seed % 2 else (300, SMALL_SEGMENT_BYTES)
    return Scenario(seed, room + ENCRYPTED_START_BYTES, value_bytes_max, rounds, lambda: encrypted_keys(SALT))


def watched(scenario: Scenario, *, draws: int, again: int) -> Callable[[], Tally]:
    """A run in which no nonce may be used twice under one key: by no start, on no disk that a crash may leave."""

    def run() -> Tally:
        watch = NonceWatch()
        with watch.watching():
            tally = StoreCrashes(scenario, draws=draws, again=again).run()
        tally.problems += watch.problems
        return tally

    return run


def short_form() -> Iterator[Run]:
    """What `make test` runs: a crash at every call of several workloads, two crashes in a row in the shortest ones.

    Of the workloads that differ by their seed alone, one is drawn from the commit's id.
    """
    for seed in (1, fresh_seed(commit_id())):  # with 1 every kind of call is there, whatever is drawn
        yield f"store {seed}", StoreCrashes(small(seed, 25), draws=2, again=0).run
        yield f"journal {seed}", MemberCrashes(seed, 60, draws=2, again=0).run
    yield "store 7", StoreCrashes(large(7, 14), draws=2, again=0).run
    for seed in (10, 11):
        yield f"store encrypted {seed}", watched(encrypted(seed, 14), draws=2, again=0)
    yield "store encrypted again 12", watched(encrypted(12, 6), draws=1, again=100)
    yield "store again 0", StoreCrashes(small(0, 8), draws=1, again=300).run
    yield "store again 1", StoreCrashes(large(1, 5), draws=1, again=300).run
    yield "journal again 1", MemberCrashes(1, 25, draws=2, again=200).run


def whole_form(seeds: int) -> Iterator[Run]:
    """What `make crash-points` runs."""
    for seed in range(seeds):
        scenario = large(seed, 40) if seed % 2 else small(seed, 60)
        yield f"store {seed}", StoreCrashes(scenario, draws=6, again=50).run
        yield f"store encrypted {seed}", watched(encrypted(seed, 40), draws=6, again=50)
        yield f"journal {seed}", MemberCrashes(seed, 80, draws=6, again=50).run


def figures(runs: dict[str, Tally]) -> dict[str, Any]:
    """What is published: measured numbers only."""
    store, journal, both = Tally(), Tally(), Tally()
    for name, tally in runs.items():
        (store if name.startswith("store") else journal).add(tally)
        both.add(tally)
    return {
        "cuts": both.cuts.total() + both.second_cuts,
        "cuts_by_kind": dict(sorted(both.cuts.items())),
        "cuts_of_the_store": store.cuts.total(),
        "cuts_of_the_journal": journal.cuts.total(),
        "second_cuts": both.second_cuts,
        "disks": both.recoveries,
        "disks_by_kind": dict(sorted(both.disks.items())),
        "recoveries": both.recoveries,
        "torn_tails_in_doubt": store.doubts,
        "lost": both.lost,
        "served_wrong": both.served_wrong,
        "other_problems": len(both.problems) - both.lost - both.served_wrong,
    }


def last_line(counted: dict[str, Any]) -> str:
    """The summary."""
    keys = ("cuts", "disks", "lost", "served_wrong")
    return "crash-points: " + " ".join(f"{key}={counted[key]}" for key in keys)
