"""`make sweep`: what it keeps of a commit's seeds, where it continues, and what it refuses to vouch for."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from tests.simulation import sweep as module
from tests.simulation.fresh_seeds import fresh_seed
from tests.simulation.probes import CORNER_CASES
from tests.simulation.simulate import Outcome
from tests.simulation.sweep import AFTER_SIM_FRESH, FILE, ROWS_MAX, alone, check, sweep
from tests.support.figures import git

RunSeed = Callable[[int], Outcome]
Run = Callable[[Iterable[int], int], Iterator[Outcome]]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A repository with one file of the product."""
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "config", "user.email", "a@example.org")
    git(tmp_path, "config", "user.name", "a")
    commit(tmp_path, "core/a.py", "first")
    return tmp_path


def commit(tree: Path, name: str, text: str) -> None:
    """Commit one file."""
    path = tree / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    git(tree, "add", name)
    git(tree, "commit", "--quiet", "-m", text)


def outcome(seed: int) -> Outcome:
    """A seed without a problem: every one reaches the first corner case, every fourth the second."""
    counters = {CORNER_CASES[0]: 7, CORNER_CASES[1]: int(seed % 4 == 0)}
    return Outcome(seed, counters=counters, trace_hash=str(seed), cpu_s=float(seed % 100))


def each(run_seed: RunSeed = outcome) -> Run:
    """Runs of seeds as the pool yields them."""
    return lambda seeds, processes: map(run_seed, seeds)


def kept(tree: Path) -> list[dict[str, Any]]:
    """The rows of the file."""
    rows: list[dict[str, Any]] = json.loads((tree / FILE).read_text())
    return rows


def first_of(tree: Path) -> int:
    """The first seed of the tree's commit."""
    return fresh_seed(git(tree, "rev-parse", "HEAD")) + AFTER_SIM_FRESH


def test_a_row_has_what_the_seeds_came_to(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Counts, the rarest corner cases, the seeds that took longest; of the first twenty seeds one ran twice."""
    assert sweep(tree, 20, None, 1, each()) == 0
    (row,) = kept(tree)
    first = first_of(tree)
    assert row["commit"] == git(tree, "rev-parse", "HEAD")
    assert (row["first"], row["next"], row["seeds"], row["run_twice"]) == (first, first + 20, 20, 1)
    assert (row["violations"], row["differing"], row["unfinished"]) == ({}, [], [])
    assert (row["corner_cases_reached"], row["corner_cases"]) == (2, len(CORNER_CASES))
    assert row["reached_by"][:3] == [20, 5, 0] and set(row["rarest"].values()) == {0}
    took = sorted((float(seed % 100) for seed in range(first, first + 20)), reverse=True)
    assert list(row["slowest"].values()) == took[:5]
    said = capsys.readouterr().out
    assert "seeds=20 of_commit=20 violations=0 differing=0" in said and said.endswith(f"written={FILE}\n")


def test_a_sweep_continues_where_the_last_one_of_its_commit_ended(tree: Path) -> None:
    """No seed runs in two sweeps, and the row counts both."""
    ran: list[list[int]] = []

    def noted(seeds: Iterable[int], processes: int) -> Iterator[Outcome]:
        ran.append([])
        for seed in seeds:
            ran[-1].append(seed)
            yield outcome(seed)

    sweep(tree, 30, None, 1, noted)
    sweep(tree, 12, None, 1, noted)
    first = first_of(tree)
    assert set(ran[0]) == set(range(first, first + 30)) and set(ran[1]) == set(range(first + 30, first + 42))
    (row,) = kept(tree)
    assert (row["seeds"], row["reached_by"][0]) == (42, 42)


def test_seeds_that_had_not_ended_come_first_in_the_next_sweep(tree: Path) -> None:
    """A slow seed is not left out because others overtook it before the sweep was stopped."""
    first = first_of(tree)

    def overtaken(seeds: Iterable[int], processes: int) -> Iterator[Outcome]:
        return (outcome(seed) for seed in seeds if seed not in (first + 1, first + 3))

    sweep(tree, 4, None, 1, overtaken)
    assert kept(tree)[0]["unfinished"] == [first + 1, first + 3]
    sweep(tree, 3, None, 1, each())
    (row,) = kept(tree)
    assert (row["unfinished"], row["next"], row["seeds"]) == ([], first + 7, 7)


def test_a_violation_is_kept_told_and_fails_the_sweep(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The row has the first line, the output how to run the seed again; a later sweep of the commit fails as well."""
    bad = first_of(tree) + 2

    def broken(seed: int) -> Outcome:
        found = outcome(seed)
        found.violations = ["a record is lost\n  and more", "another"] if seed == bad else []
        return found

    assert sweep(tree, 5, None, 1, each(broken)) == 1
    assert kept(tree)[0]["violations"] == {str(bad): "a record is lost"}
    assert f"again: make sim SEED={bad}" in capsys.readouterr().err
    assert sweep(tree, 1, None, 1, each()) == 1
    assert check(tree) == 1
    assert f"SEED={bad}: a record is lost" in capsys.readouterr().out


def test_a_trace_that_differs_fails_the_sweep(tree: Path) -> None:
    """The first seed runs twice."""
    hashes = iter("ab")
    assert sweep(tree, 1, None, 1, each(lambda seed: Outcome(seed, trace_hash="a"))) == 0
    commit(tree, "core/a.py", "second")
    assert sweep(tree, 2, None, 1, each(lambda seed: Outcome(seed, trace_hash=next(hashes, "c")))) == 1
    assert kept(tree)[0]["differing"] == [first_of(tree)]


@pytest.mark.parametrize("name", ["core/a.py", "core/new.py", "tests/simulation/x.py", "tests/support/y.py"])
def test_a_tree_that_differs_from_its_commit_is_refused(
    tree: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Changed and new files alike, where they decide about seeds: the message names them and says what to do."""
    (tree / name).parent.mkdir(parents=True, exist_ok=True)
    (tree / name).write_text("changed")
    assert sweep(tree, 1, None, 1, each()) == 2
    said = capsys.readouterr().err
    assert name in said and "git worktree add" in said
    assert not (tree / FILE).exists()


def test_changes_elsewhere_are_no_matter(tree: Path) -> None:
    """The page of a document decides about no seed."""
    (tree / "docs").mkdir()
    (tree / "docs" / "page.md").write_text("x")
    assert sweep(tree, 1, None, 1, each()) == 0


def test_seeds_do_not_count_once_the_tree_has_changed(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Workers that start later would run other code than the row says: what was written before stays as it is."""

    def changing(seed: int) -> Outcome:
        if seed == first_of(tree) + 30:
            (tree / "core" / "a.py").write_text("changed")
        return outcome(seed)

    assert sweep(tree, 40, None, 1, each(changing)) == 2
    assert kept(tree)[0]["seeds"] == 25
    assert "changed meanwhile: core/a.py; the last 15 seeds do not count" in capsys.readouterr().err


def test_a_sweep_beside_another_one_is_refused(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The message names the process that holds the lock."""
    with alone(tree):
        assert sweep(tree, 1, None, 1, each()) == 2
    assert f"process {os.getpid()} sweeps this tree already" in capsys.readouterr().err
    assert sweep(tree, 1, None, 1, each()) == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stopped_sweep_keeps_what_has_ended(
    tree: Path, number: signal.Signals, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ctrl-C and SIGTERM end it as a count does."""

    def stopped(seeds: Iterable[int], processes: int) -> Iterator[Outcome]:
        yield from map(outcome, islice(seeds, 8))
        signal.raise_signal(number)
        raise AssertionError("the signal did not stop it")

    handler = signal.getsignal(number)
    assert sweep(tree, None, None, 1, stopped) == 0
    assert kept(tree)[0]["seeds"] == 7  # the first of them twice
    assert "seeds=7 " in capsys.readouterr().out
    assert signal.getsignal(number) is handler


def test_the_row_is_written_now_and_then(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each 25 seeds, whole: a killed sweep loses few of them."""
    written: list[int] = []
    real = module.write
    monkeypatch.setattr(module, "write", lambda tree, row: (written.append(row.seeds), real(tree, row)))
    sweep(tree, 60, None, 1, each())
    assert written == [25, 50, 60]
    assert sorted(path.name for path in (tree / FILE).parent.iterdir()) == [FILE.name]


def test_a_sweep_ends_in_time(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With `MINUTES=n` at the first seed that ends after them."""
    clock = iter(range(0, 10_000, 5))
    monkeypatch.setattr(module.time, "monotonic", lambda: float(next(clock)))
    assert sweep(tree, None, 600, 1, each()) == 0
    assert 0 < kept(tree)[0]["seeds"] < 120


def test_rows_are_newest_first_and_bounded(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One row a commit."""
    assert ROWS_MAX == 50
    monkeypatch.setattr(module, "ROWS_MAX", 3)
    for number in range(5):
        commit(tree, "docs/page.md", f"edition {number}")
        sweep(tree, 1, None, 1, each())
    rows = kept(tree)
    assert len(rows) == 3 == len({row["commit"] for row in rows})
    assert rows[0]["commit"] == git(tree, "rev-parse", "HEAD")


def test_check_asks_for_the_seeds_of_the_product_as_it_is(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Rows of all commits with the same product count together; a change of the product asks for new ones."""
    assert check(tree) == 1
    assert "missing: make sweep SEEDS=500" in capsys.readouterr().out
    sweep(tree, 480, None, 1, each())
    commit(tree, "docs/page.md", "words")
    sweep(tree, 20, None, 1, each())
    assert check(tree) == 0
    commit(tree, "tests/simulation.py", "no part of it")
    assert check(tree) == 0
    commit(tree, "core/a.py", "second")
    capsys.readouterr()
    assert check(tree) == 1
    newest = git(tree, "rev-parse", "--short", "HEAD")
    assert f"the product of {newest} has 0 seeds of 500" in capsys.readouterr().out
