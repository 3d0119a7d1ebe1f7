"""The command behind `make sweep`: fresh seeds of the commit at low priority; what they came to: docs/reliability/sweep.json.

python tests/simulation/sweep.py              # until Ctrl-C or SIGTERM
python tests/simulation/sweep.py --minutes 60 # or --seeds 500
python tests/simulation/sweep.py --check      # whether the committed product has its 500 seeds without a violation

A sweep continues where the last one of its commit ended: a seed runs once for a commit. One in twenty runs again in another
process, where its trace must be the same.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import NoReturn

if not __package__:  # run by its path: imports begin at the project's folder
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from tests.simulation.fresh_seeds import TWICE_EVERY, fresh_seed
from tests.simulation.probes import CORNER_CASES
from tests.simulation.run import outcomes, tell_violation
from tests.simulation.simulate import Outcome
from tests.support.figures import KEPT, ROOT, git, machine, now, replace
from tests.support.packages import PRODUCT

FILE = KEPT / "sweep.json"
LOCK = Path("build") / "sweep.lock"
SWEPT = (*PRODUCT, "tests/simulation", "tests/fakes")
"""What decides how a seed goes: a row vouches for these paths as its commit has them."""
JUDGES = ("tests/support",)
"""These must be as in the commit while a sweep runs; a later change of them asks for no new sweep."""
AFTER_SIM_FRESH = 1_000
"""`make sim-fresh` runs the seeds before."""
SEEDS_WANTED = 500
ROWS_MAX = 50
WRITE_SEEDS, WRITE_S = 25, 60.0
RAREST, SLOWEST = 10, 5
STOPS = (signal.SIGINT, signal.SIGTERM)

Run = Callable[[Iterable[int], int], Iterator[Outcome]]


class SweepRefused(Exception):
    """The reason why nothing runs or counts, as the command prints it."""


@dataclass
class Row:
    """All sweeps of one commit."""

    commit: str
    product: str
    """A digest of the swept paths: commits that differ elsewhere have the same."""
    date: str
    machine: str
    first: int
    next: int
    """One above the highest seed that ended."""
    unfinished: list[int] = field(default_factory=list)
    """Those below it that did not end, as the sweep was stopped: they are the next ones."""
    seeds: int = 0
    run_twice: int = 0
    violations: dict[str, str] = field(default_factory=dict)
    """The first line by seed."""
    differing: list[int] = field(default_factory=list)
    corner_cases: int = len(CORNER_CASES)
    corner_cases_reached: int = 0
    rarest: dict[str, int] = field(default_factory=dict)
    """The corner cases that the fewest seeds reached, and how many did."""
    slowest: dict[str, float] = field(default_factory=dict)
    """The seeds that took longest, in seconds of one core."""
    reached_by: list[int] = field(default_factory=lambda: [0] * len(CORNER_CASES))
    """How many seeds reached each corner case, in the order of CORNER_CASES at the commit."""
    wall_s: float = 0.0

    def planned(self) -> Iterator[int]:
        """Yield the seeds to run, without an end; every twentieth twice, one directly after the other."""
        yield from list(self.unfinished)
        seed = self.next
        while True:
            yield from [seed] * (1 if (seed - self.first) % TWICE_EVERY else 2)
            seed += 1

    def take(self, outcome: Outcome) -> None:
        """Count a seed that has ended for the first time."""
        if outcome.seed >= self.next:
            self.unfinished += range(self.next, outcome.seed)
            self.next = outcome.seed + 1
        else:
            self.unfinished.remove(outcome.seed)
        self.seeds += 1
        self.reached_by = [
            count + bool(outcome.counters.get(name)) for count, name in zip(self.reached_by, CORNER_CASES)
        ]
        self.corner_cases_reached = sum(map(bool, self.reached_by))
        by_count = sorted(zip(self.reached_by, CORNER_CASES))
        self.rarest = {name: count for count, name in by_count[:RAREST]}
        took = {**self.slowest, str(outcome.seed): round(outcome.cpu_s, 1)}
        self.slowest = dict(sorted(took.items(), key=lambda each: -each[1])[:SLOWEST])

    def judge(self, outcome: Outcome) -> None:
        """Keep what a seed broke."""
        if outcome.violations:
            self.violations[str(outcome.seed)] = outcome.violations[0].partition("\n")[0]

    @property
    def good(self) -> bool:
        """Whether nothing was broken."""
        return not self.violations and not self.differing


def product(tree: Path) -> str:
    """A digest of the swept paths as they are committed."""
    return hashlib.sha256(git(tree, "ls-tree", "HEAD", "--", *SWEPT).encode()).hexdigest()[:16]


def changed(tree: Path, commit: str) -> list[str]:
    """The files that decide about seeds and are not as the commit has them."""
    paths = ("--", *SWEPT, *JUDGES)
    differing = git(tree, "diff", "--name-only", commit, *paths)
    return (differing + "\n" + git(tree, "ls-files", "--others", "--exclude-standard", *paths)).split()


def rows(tree: Path) -> list[Row]:
    """What is kept, newest first."""
    path = tree / FILE
    return [Row(**each) for each in json.loads(path.read_text())] if path.exists() else []


def write(tree: Path, row: Row) -> None:
    """Put the row first, in place of an earlier one of its commit."""
    kept = [row, *(each for each in rows(tree) if each.commit != row.commit)][:ROWS_MAX]
    texts = [
        ",\n".join(
            f" {json.dumps(key)}: {json.dumps(value, ensure_ascii=False)}" for key, value in asdict(each).items()
        )
        for each in kept
    ]
    replace(tree / FILE, "[\n{\n" + "\n},\n{\n".join(texts) + "\n}\n]\n")


@contextmanager
def alone(tree: Path) -> Iterator[None]:
    """Hold the lock of the tree. Raises SweepRefused while another sweep holds it."""
    path = tree / LOCK
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            raise SweepRefused(f"process {lock.read().strip()} sweeps this tree already; stop it first") from None
        lock.truncate(0)
        lock.write(f"{os.getpid()}\n")
        lock.flush()
        yield


class Sweep:
    """One run of the command."""

    def __init__(self, tree: Path) -> None:
        """Raises SweepRefused where the files are not those of a commit."""
        self.tree = tree
        commit = git(tree, "rev-parse", "HEAD")
        if names := changed(tree, commit):
            raise SweepRefused(
                f"a row vouches for a commit, and these files differ from it: {_some(names)}; commit them, "
                f"or sweep the commit in a tree of its own: git worktree add --detach ../sweep"
            )
        first = fresh_seed(commit) + AFTER_SIM_FRESH
        known = [row for row in rows(tree) if row.commit == commit]
        self.row = (known or [Row(commit, product(tree), now(), machine(), first, first)])[0]
        self.hashes: dict[int, str] = {}
        self.began_s = self.written_s = time.monotonic()
        self.before_s = self.row.wall_s
        self.written_seeds = 0

    @property
    def elapsed_s(self) -> float:
        """How long it has run."""
        return time.monotonic() - self.began_s

    def run(self, count: int | None, seconds: float | None, processes: int, run: Run) -> None:
        """Take outcomes until so many seeds or seconds are over; write now and then. Raises SweepRefused: see `keep`."""
        for outcome in run(self.row.planned(), processes):
            if outcome.violations:
                tell_violation(outcome)
                self.row.judge(outcome)
            if outcome.seed not in self.hashes:
                self.hashes[outcome.seed] = outcome.trace_hash
                self.row.take(outcome)
            else:
                self.row.run_twice += 1
                if self.hashes[outcome.seed] != outcome.trace_hash:
                    self.row.differing.append(outcome.seed)
                    print(f"\nSEED={outcome.seed} gives another trace when it is run again", file=sys.stderr)
            ended = len(self.hashes)
            is_due = ended - self.written_seeds >= WRITE_SEEDS or time.monotonic() - self.written_s >= WRITE_S
            if is_due:
                self.keep()
            self.show(is_due)
            if ended == count or (seconds is not None and self.elapsed_s >= seconds):
                return

    def keep(self) -> None:
        """Write the row. Raises SweepRefused when files changed meanwhile: what was counted since the last time is not kept."""
        if names := changed(self.tree, self.row.commit):
            raise SweepRefused(
                f"the tree changed meanwhile: {_some(names)}; "
                f"the last {len(self.hashes) - self.written_seeds} seeds do not count"
            )
        self.row.date, self.row.machine = now(), machine()
        self.row.wall_s = round(self.before_s + self.elapsed_s, 1)
        write(self.tree, self.row)
        self.written_s, self.written_seeds = time.monotonic(), len(self.hashes)

    def show(self, is_due: bool) -> None:
        """Tell how far it is: on a terminal always, in a log when the row was written."""
        text = (
            f"sweep: {len(self.hashes)} seeds, {self.row.seeds} of {self.row.commit[:10]}, "
            f"{60 * len(self.hashes) / max(self.elapsed_s, 0.001):.1f} a minute, {self.elapsed_s / 60:.0f} min, "
            f"violations={len(self.row.violations)}"
        )
        if sys.stderr.isatty():
            print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)
        elif is_due:
            print(text, file=sys.stderr, flush=True)

    def said(self) -> str:
        """What it came to."""
        row = self.row
        return (
            f"sweep: commit={row.commit[:10]} seeds={len(self.hashes)} of_commit={row.seeds} "
            f"violations={len(row.violations)} differing={len(row.differing)} "
            f"corner_cases={row.corner_cases_reached}/{row.corner_cases} wall_s={self.elapsed_s:.0f} written={FILE}"
        )


def _some(names: list[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def sweep(tree: Path, count: int | None, seconds: float | None, processes: int, run: Run = outcomes) -> int:
    """Sweep the commit of a tree. The exit code is 1 when a seed of the commit broke a promise, 2 when seeds were not kept."""
    before = {each: signal.signal(each, _stop) for each in STOPS}
    try:
        with alone(tree):
            swept = Sweep(tree)
            with suppress(KeyboardInterrupt):
                swept.run(count, seconds, processes, run)
            if swept.hashes:
                swept.keep()
            print(("\n" if sys.stderr.isatty() else "") + swept.said())
            return 0 if swept.row.good else 1
    except KeyboardInterrupt:
        print("sweep: stopped before its first seed", file=sys.stderr)
        return 0
    except SweepRefused as refused:
        print(f"sweep: {refused}", file=sys.stderr)
        return 2
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def _stop(number: int, frame: object) -> NoReturn:
    for each in STOPS:
        signal.signal(each, lambda *_: None)  # the end is not interrupted; SIG_IGN would be inherited by workers
    raise KeyboardInterrupt


def check(tree: Path) -> int:
    """Say whether the committed product has its seeds. The exit code is 1 when it has not, or when one broke a promise."""
    digest = product(tree)
    vouching = [row for row in rows(tree) if row.product == digest]
    seeds = sum(row.seeds for row in vouching)
    newest = git(tree, "log", "-1", "--format=%h", "--", *SWEPT)
    print(f"sweep: the product of {newest} has {seeds} seeds of {SEEDS_WANTED}")
    if seeds < SEEDS_WANTED:
        print(f"  missing: make sweep SEEDS={SEEDS_WANTED - seeds}")
    for row in vouching:
        for seed, line in row.violations.items():
            print(f"  SEED={seed}: {line}\n    again: make sim SEED={seed}")
        for number in row.differing:
            print(f"  SEED={number} gives another trace when it is run again")
    return 0 if seeds >= SEEDS_WANTED and all(row.good for row in vouching) else 1


def _yield_to_others() -> None:
    """Run at the lowest priority of processor and disk; workers inherit both."""
    os.nice(19)
    if shutil.which("ionice"):
        subprocess.run(["ionice", "-c", "3", "-p", str(os.getpid())], check=False, capture_output=True)


def main() -> int:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, help="end after so many (default: none)")
    parser.add_argument("--minutes", type=float, help="end after so long (default: none)")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, help="default: one for each core")
    parser.add_argument("--check", action="store_true", help="say what the committed product lacks; run nothing")
    given = parser.parse_args()
    if (given.seeds is not None and given.seeds < 1) or (given.minutes is not None and given.minutes <= 0):
        parser.error("--seeds and --minutes must be above 0")
    if given.check:
        return check(ROOT)
    _yield_to_others()
    return sweep(ROOT, given.seeds, given.minutes and given.minutes * 60, given.processes)


if __name__ == "__main__":
    sys.exit(main())
