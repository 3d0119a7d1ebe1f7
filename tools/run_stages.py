"""Runs the stages of a target of make one after the other, and keeps what came of them in docs/reliability/runs.json.

    python tools/run_stages.py test check unit integration   `make check`, `make unit`, …; the first that fails ends the run
    python tools/run_stages.py test SHORT="…" unit           a NAME=value is for each of them
    python tools/run_stages.py --table                       the stages of each target that ran at this commit
    python tools/run_stages.py --stale                       how many commits changed the product since each target ran

A target has one row, that of its last run that ended by itself. One that is stopped leaves the row as it was.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.support.chance import RUN_ENV, rows_of, summary
from tests.support.figures import KEPT, ROOT, commit, git, machine, now, replace
from tests.support.packages import PRODUCT

FILE = KEPT / "runs.json"
COUNTS = "PYTEST_COUNTS_FILE"
"""Names the file to which each pytest of a stage adds a line (tests/conftest.py); a run within a run adds its sum."""
OUTCOMES = ("passed", "failed", "skipped")
Row = dict[str, Any]


class Stages:
    """The stages of a target, run one after the other."""

    def __init__(self, tree: Path) -> None:
        self.tree = tree
        self.seconds: dict[str, float] = {}
        self.stopped_by = 0
        self._process: subprocess.Popen[bytes] | None = None

    def run(self, words: Sequence[str], counts: Path) -> int:
        """Run them up to the first that fails, and return its exit code. Output goes where this program's goes."""
        settings = [word for word in words if "=" in word]
        handlers = {each: signal.signal(each, self._stop) for each in (signal.SIGINT, signal.SIGTERM)}
        try:
            for stage in (word for word in words if "=" not in word):
                began_s = time.monotonic()
                command = ["make", "--no-print-directory", stage, *settings]
                self._process = subprocess.Popen(command, cwd=self.tree, env={**os.environ, COUNTS: str(counts)})
                code = self._process.wait()
                self.seconds[stage] = round(time.monotonic() - began_s, 1)
                if code or self.stopped_by:
                    return 128 + self.stopped_by if self.stopped_by else max(code, 1)
        finally:
            for each, handler in handlers.items():
                signal.signal(each, handler)
        return 0

    def _stop(self, number: int, frame: object) -> None:
        """Let the stage end. A terminal sends Ctrl-C to the stage as well; SIGTERM comes to this process alone."""
        self.stopped_by = number
        if number == signal.SIGTERM and self._process is not None:
            self._process.terminate()


def clean(tree: Path) -> bool:
    """Whether the files are those of the commit, but for what the suites count."""
    return not git(tree, "status", "--porcelain", "--", ".", f":!{KEPT}")


def counted(path: Path) -> dict[str, int]:
    """The sum of all lines."""
    total: Counter[str] = Counter()
    for line in path.read_text().splitlines() if path.exists() else ():
        total.update(json.loads(line))
    return {name: total[name] for name in OUTCOMES}


def rows(tree: Path) -> dict[str, Row]:
    """What is kept, by target."""
    path = tree / FILE
    found: dict[str, Row] = json.loads(path.read_text()) if path.exists() else {}
    return found


def table(target: str, row: Mapping[str, Any]) -> str:
    """One line: the seconds of each stage and of all, and what the tests came to."""
    stages = [*(f"{name} {seconds:.0f} s" for name, seconds in row["seconds"].items()), f"whole {row['whole_s']:.0f} s"]
    tests = [f"{row['tests'][name]:,} {name}" for name in OUTCOMES]
    ended = [] if row["result"] == "passed" else [f"failed in {row['failed_in']}"]
    return f"{target}: " + ", ".join([*stages, *tests, *ended])


def run(tree: Path, target: str, words: Sequence[str]) -> int:
    """Run a target, print its table, keep its row. Returns the exit code of the stage that ended it."""
    row: Row = {"at": now(), "commit": commit(tree), "clean": clean(tree), "machine": machine()}
    stages = Stages(tree)
    with tempfile.TemporaryDirectory() as folder:
        counts = Path(folder) / "counts"
        code = stages.run(words, counts)
        row["tests"] = counted(counts)
    row["seconds"], row["whole_s"] = stages.seconds, round(sum(stages.seconds.values()), 1)
    row["result"] = "failed" if code else "passed"
    if code:
        row["failed_in"] = list(stages.seconds)[-1]
    row["clean"] = row["clean"] and clean(tree) and commit(tree) == row["commit"]
    if stages.stopped_by:
        print(f"{target}: stopped in {row['failed_in']} after {row['whole_s']:.0f} s", file=sys.stderr)
        return code
    replace(tree / FILE, json.dumps({**rows(tree), target: row}, indent=1) + "\n")
    if outer := os.environ.get(COUNTS):
        with open(outer, "a") as file:
            file.write(json.dumps(row["tests"]) + "\n")
    print(table(target, row))
    print(summary(rows_of(tree / "build", os.environ.get(RUN_ENV, ""))), flush=True)
    return code


def stale(tree: Path) -> None:
    """Print for each target how many commits changed the product since it ran."""
    for target, row in rows(tree).items():
        try:
            since = git(tree, "rev-list", "--count", f"{row['commit']}..HEAD", "--", *PRODUCT)
        except subprocess.CalledProcessError:
            since = "an unknown number of"  # the row's commit is not in this repository
        print(f"{target}: {row['result']} at {row['commit']}, {row['at']}; {since} commits to the product since")


def main(words: Sequence[str], tree: Path = ROOT) -> int:
    """The exit code is that of the stage that failed."""
    if list(words) == ["--stale"]:
        stale(tree)
    elif list(words) == ["--table"]:
        here = commit(tree)
        print("\n".join(table(target, row) for target, row in rows(tree).items() if row["commit"] == here))
    elif len(words) < 2 or words[0].startswith("-"):
        print(__doc__, file=sys.stderr)
        return 2
    else:
        return run(tree, words[0], words[1:])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
