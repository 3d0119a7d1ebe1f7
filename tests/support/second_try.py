"""A second try, alone and reported, for a test of real processes whose error is a wait that ran out.

What holds:
- A failure is tried again only if all of its errors are waits that ran out (`is_wait_that_ran_out`), in the setup or the call
  of a test below tests/integration or tests/spark. Everything else is a verdict (a comparison, a checker, an exit code, a
  digest, a member that ended by itself, a test's own time limit) and fails the run; so does a verdict of a second try.
- A second try begins once all other tests of the command have ended, in a process of its own, one test at a time. It is made
  twice at most; two that fail by a wait again fail the run.
- More than `PER_RUN_MAX` tests that were tried again fail the run, whatever their second tries would give.
- What the first try printed is kept, and shown at the end; each row of `build/chance.jsonl` names the file.
- The teardown of the first try counts: a process that it leaves running fails the run.

`RANGELOG_TEST_RUN` names a run of several commands, which count together; tools/run_stages.py ends with their line.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

import pytest

from tests.support.chance import RUN_ENV, rows_of, summary
from tests.support.ran_out import is_wait_that_ran_out

TRIES_MAX = 2
"""Second tries of one test."""
PER_RUN_MAX = 4
"""Tests that one run may try again."""
TRY_TIMEOUT_S = 1_800.0
SHOWN_CHARACTERS = 4_000
FOLDERS = ("integration", "spark")
OUTCOME_ENV = "RANGELOG_SECOND_TRY"
"""Set in a second try: the file that gets its outcome."""
TRIED_AGAIN = "tried again"


@dataclass
class Chance:
    """One error of a first try, and the tests that had it: one, or all that a shared cluster did not start for."""

    tests: list[str]
    step: str
    error: str
    seconds: float
    load: float
    output: str = field(repr=False, default="")
    tries: int = 0
    passed: bool = False


class SecondTry:
    """The plugin of one pytest command: gathers what ran out, tries it again at the end, writes the rows."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.folder = config.rootpath / "build"
        self.run = os.environ.get(RUN_ENV, str(os.getpid()))
        self.found: dict[tuple[str, str], Chance] = {}

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Set a failure aside that may be tried again: it counts as none until its second try has failed."""
        error = getattr(report, "ran_out", None)
        if error is None:
            return
        file, _, _ = report.nodeid.partition("::")
        key = (file, error) if report.when == "setup" else (report.nodeid, "")
        chance = self.found.setdefault(key, Chance([], report.when, error, report.duration, os.getloadavg()[0]))
        chance.tests.append(report.nodeid)
        chance.output += "\n".join(
            [report.longreprtext, *(f"--- {name}\n{text}" for name, text in report.sections), ""]
        )
        report.outcome = TRIED_AGAIN  # type: ignore[assignment]

    def pytest_report_teststatus(self, report: pytest.TestReport) -> tuple[str, str, str] | None:
        """Show it as what it is."""
        return (TRIED_AGAIN, "A", "TRIED AGAIN") if report.outcome == TRIED_AGAIN else None  # type: ignore[comparison-overlap]

    @pytest.hookimpl(wrapper=True)
    def pytest_runtestloop(self, session: pytest.Session) -> Iterator[None]:
        """Try again once all tests have ended."""
        result = yield
        before = len({row["test"] for row in rows_of(self.folder, self.run)})
        for number, chance in enumerate(self.found.values(), before + 1):
            if number <= PER_RUN_MAX:
                self._try(chance, number)
            self._note(chance, number)
            session.testsfailed += not chance.passed
        return result

    def _try(self, chance: Chance, number: int) -> None:
        outcome_file = self.folder / "chance" / f"{self.run}-{number}.json"
        outcome_file.parent.mkdir(parents=True, exist_ok=True)
        while chance.tries < TRIES_MAX:
            chance.tries += 1
            outcome_file.unlink(missing_ok=True)
            chance.output += f"=== second try {chance.tries}\n"
            try:
                done = subprocess.run(
                    [sys.executable, "-m", "pytest", "-q", "-n", "0", *chance.tests],
                    cwd=self.config.invocation_params.dir,
                    env=os.environ | {OUTCOME_ENV: str(outcome_file)},
                    stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                    timeout=TRY_TIMEOUT_S, check=False, text=True, errors="replace",
                )  # fmt: skip
            except subprocess.TimeoutExpired:
                chance.output += f"it did not end within {TRY_TIMEOUT_S:g} s\n"
                return
            chance.passed = done.returncode == 0
            chance.output += done.stdout
            if chance.passed or not outcome_file.exists():
                return

    def _note(self, chance: Chance, number: int) -> None:
        kept = self.folder / "chance" / f"{self.run}-{number}.txt"
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_text(chance.output)
        row = {"run": self.run, "test": chance.tests[0], **asdict(chance)}
        row["output"] = str(kept.relative_to(self.config.rootpath))
        with (self.folder / "chance.jsonl").open("a") as rows:
            rows.write(json.dumps(row) + "\n")

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Show each first try and what became of it; the last line counts."""
        for chance in self.found.values():
            ended = (
                "passed"
                if chance.passed
                else "failed"
                if chance.tries
                else f"not made: more than {PER_RUN_MAX} in a run"
            )
            terminalreporter.section(f"{chance.tests[0]}: a wait ran out, second try {ended}", "=")
            text = chance.output
            if chance.passed and len(text) > SHOWN_CHARACTERS:
                text = f"{text[: SHOWN_CHARACTERS // 2]}\n[…]\n{text[-SHOWN_CHARACTERS // 2 :]}"
            terminalreporter.write(text)
        if self.found:
            terminalreporter.write_line(summary(rows_of(self.folder, self.run)))


class Classifier:
    """The plugin of whatever process runs tests, a worker too: marks the reports of waits that ran out."""

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
        """Give the report its error, if that is all it is."""
        report: pytest.TestReport = yield  # type: ignore[assignment]
        if report.failed and call.excinfo is not None and call.when in ("setup", "call"):
            folders = item.nodeid.partition("::")[0].split("/")[:-1]
            if set(FOLDERS) & set(folders) and is_wait_that_ran_out(call.excinfo.value):
                report.ran_out = str(call.excinfo.value)[:SHOWN_CHARACTERS]  # type: ignore[attr-defined]
        return report  # type: ignore[return-value]


class TryOutcome:
    """The plugin of a second try: says by a file that it failed by waits alone, so that a third may be made."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.failures: list[bool] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note each failure."""
        if report.failed:
            self.failures.append(hasattr(report, "ran_out"))

    def pytest_sessionfinish(self) -> None:
        """Write the file."""
        if self.failures and all(self.failures):
            self.path.write_text(json.dumps({"ran_out": len(self.failures)}))


def pytest_configure(config: pytest.Config) -> None:
    """Register what this process needs: a worker judges errors, the process that the user began tries again."""
    config.pluginmanager.register(Classifier(), "second-try-classifier")
    if OUTCOME_ENV in os.environ:
        config.pluginmanager.register(TryOutcome(Path(os.environ[OUTCOME_ENV])), "second-try-outcome")
    elif not hasattr(config, "workerinput"):
        config.pluginmanager.register(SecondTry(config), "second-try")
