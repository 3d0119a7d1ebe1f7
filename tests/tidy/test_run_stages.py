"""tools/run_stages.py: the row and the line that a target leaves, whether it passes, fails or is stopped."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from tests import conftest
from tests.support.figures import git

ROOT = Path(__file__).resolve().parents[2]
MAKEFILE = """
count = @echo '{"passed": $(1), "failed": $(2), "skipped": 1}' >> $$PYTEST_COUNTS_FILE
good:
	$(call count,3,0)
	$(call count,4,0)
told:
	@echo "told $(NAME)"
bad:
	$(call count,2,1)
	@exit 3
slow:
	@echo begun; trap 'kill $$!; exit 1' INT TERM; sleep 60 & wait
whole:
	@$(PROGRAM) part good
"""


@pytest.fixture
def tool() -> ModuleType:
    """The program as a module."""
    spec = importlib.util.spec_from_file_location("run_stages", ROOT / "tools" / "run_stages.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A repository with a Makefile of a few stages."""
    (tmp_path / "Makefile").write_text(MAKEFILE)
    (tmp_path / "core").mkdir()
    (tmp_path / "core" / "a.py").write_text("first")
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "config", "user.email", "a@example.org")
    git(tmp_path, "config", "user.name", "a")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--quiet", "-m", "first")
    return tmp_path


def row_of(tree: Path, target: str) -> dict[str, Any]:
    """What is kept of a target."""
    row: dict[str, Any] = json.loads((tree / "docs" / "reliability" / "runs.json").read_text())[target]
    return row


def test_a_target_leaves_a_row_and_a_line(tool: ModuleType, tree: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Seconds of each stage, the sum of what each pytest counted, the commit; settings reach every stage, output passes."""
    assert tool.main(["test", "NAME=all", "good", "told"], tree) == 0
    row = row_of(tree, "test")
    assert (row["result"], row["clean"], row["commit"]) == (
        "passed",
        True,
        git(tree, "rev-parse", "--short=10", "HEAD"),
    )
    assert list(row["seconds"]) == ["good", "told"] and row["whole_s"] == pytest.approx(sum(row["seconds"].values()))
    assert row["tests"] == {"passed": 7, "failed": 0, "skipped": 2}
    assert {"at", "machine"} <= set(row)
    lines = capfd.readouterr().out.splitlines()
    assert lines[0] == "told all"
    assert lines[1].startswith("test: good ") and lines[1].endswith(" s, 7 passed, 0 failed, 2 skipped")


def test_the_first_stage_that_fails_ends_the_run(
    tool: ModuleType, tree: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """It is kept as failed, with its counts, in place of the row before; other targets keep theirs."""
    assert tool.main(["test", "good"], tree) == tool.main(["long", "good"], tree) == 0
    assert tool.main(["test", "good", "bad", "told"], tree) == 2  # as make has it
    row = row_of(tree, "test")
    assert (row["result"], row["failed_in"], list(row["seconds"])) == ("failed", "bad", ["good", "bad"])
    assert row["tests"] == {"passed": 9, "failed": 1, "skipped": 3}
    assert row_of(tree, "long")["result"] == "passed"
    assert capfd.readouterr().out.splitlines()[-2].endswith("9 passed, 1 failed, 3 skipped, failed in bad")


def test_a_changed_tree_is_kept_as_such(tool: ModuleType, tree: Path) -> None:
    """The row vouches for its commit only where `clean` says so; the file of rows itself does not count."""
    assert tool.main(["test", "told"], tree) == tool.main(["test", "told"], tree) == 0
    assert row_of(tree, "test")["clean"]
    (tree / "core" / "a.py").write_text("changed")
    assert tool.main(["test", "told"], tree) == 0
    assert not row_of(tree, "test")["clean"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stopped_run_waits_for_its_stage_and_keeps_no_row(tree: Path, number: signal.Signals) -> None:
    """Ctrl-C comes to the stage too, as on a terminal; SIGTERM is passed on. No stack trace."""
    code = f"import runpy, sys; from pathlib import Path; tool = runpy.run_path({str(ROOT / 'tools' / 'run_stages.py')!r}); "
    code += f"sys.exit(tool['main'](['test', 'slow'], Path({str(tree)!r})))"
    run = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    assert run.stdout is not None
    assert run.stdout.readline() == "begun\n"
    os.killpg(run.pid, number) if number == signal.SIGINT else os.kill(run.pid, number)
    _, error = run.communicate(timeout=110)
    assert run.returncode == 128 + number
    assert "test: stopped in slow after" in error and "Traceback" not in error
    assert not (tree / "docs").exists()


def test_a_run_within_a_run_adds_its_counts(tree: Path) -> None:
    """So the gate's line has the tests of `make test`, which has stages of its own."""
    code = f"import runpy, sys; from pathlib import Path; tool = runpy.run_path({str(ROOT / 'tools' / 'run_stages.py')!r}); "
    program = tree / "program.py"
    program.write_text(f"{code}sys.exit(tool['main'](sys.argv[1:], Path({str(tree)!r})))\n")
    done = subprocess.run(
        [sys.executable, program, "gate", f"PROGRAM={sys.executable} {program}", "whole", "good"],
        capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    assert row_of(tree, "part")["tests"]["passed"] == 7 and row_of(tree, "gate")["tests"]["passed"] == 14
    assert [line.partition(":")[0] for line in done.stdout.splitlines()] == ["part", "chance", "gate", "chance"]


def test_the_table_and_what_is_stale(tool: ModuleType, tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The table has what ran at this commit; commits elsewhere than in the product make nothing stale."""
    tool.main(["test", "told"], tree)
    capsys.readouterr()
    tool.main(["--table"], tree)
    assert capsys.readouterr().out.startswith("test: told 0 s, whole 0 s, 0 passed")
    for name in ("core/a.py", "Makefile"):
        (tree / name).write_text("second\n")
        git(tree, "commit", "--quiet", "-am", name)
    tool.main(["--stale"], tree)
    assert capsys.readouterr().out.endswith("; 1 commits to the product since\n")
    tool.main(["--table"], tree)
    assert capsys.readouterr().out.strip() == ""


def test_each_pytest_adds_its_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The hook of tests/conftest.py adds a line; an error of a fixture counts as a failure."""
    counts = tmp_path / "counts"
    monkeypatch.setattr(conftest, "COUNTS_FILE", str(counts))
    reporter: Any = SimpleNamespace(
        stats={"": [0] * 9, "passed": [0] * 3, "failed": [0], "error": [0], "skipped": [0] * 2}
    )
    conftest.pytest_terminal_summary(reporter)
    conftest.pytest_terminal_summary(reporter)
    assert list(map(json.loads, counts.read_text().splitlines())) == [{"passed": 3, "failed": 2, "skipped": 2}] * 2
