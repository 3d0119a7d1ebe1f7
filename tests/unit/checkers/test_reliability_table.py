"""docs/RELIABILITY.md: its table is what the command makes from the stored figures, and its words name what is there."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs" / "RELIABILITY.md"


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    """The command as a module."""
    spec = importlib.util.spec_from_file_location("reliability_table", ROOT / "tools" / "reliability_table.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def entry(suite: str, **figures: object) -> dict[str, object]:
    """A suite's file, read."""
    run = {"command": "python run.py", "commit": "abc", "at": "2026-01-01", "machine": "2 cores"}
    return {"suite": suite, **run, "figures": figures}


def test_the_table_of_the_page_is_made_from_the_stored_figures(tool: ModuleType) -> None:
    """Nobody typed a figure into the page."""
    page = PAGE.read_text()
    assert tool.page_with(page, tool.table(tool.stored())) == page


def test_a_suite_that_did_not_run_is_named(tool: ModuleType) -> None:
    """Nothing is dropped silently: every suite has its block and its lines, run or not."""
    made = tool.table({"fuzz": entry("fuzz", inputs=1234567, crashes=0)})
    assert "| Bad inputs tried, crashes | 1,234,567; 0 | `make fuzz` |" in made
    for name, suite in tool.SUITES.items():
        assert f"### {suite.title}" in made
        assert (f"Missing: `{tool.made_by(suite, None)}` did not run." in made) == (name != "fuzz")
        assert all(f"| {question} | **missing" in made for question in suite.headlines) or name == "fuzz"


def test_what_is_not_known_is_shown_under_its_own_name(tool: ModuleType) -> None:
    """New suites and new figures need no change here; a figure that is expected and not there shows as a question mark."""
    made = tool.table(
        {"soak": entry("soak", hours_run=60, by_kind={"kill": 3, "pause": None}), "mutants": entry("mutants")}
    )
    assert "### Soak" in made
    assert "| hours run | 60 |" in made
    assert "| by kind | kill 3, pause – |" in made
    assert "| Wrong choices caught | ? of ? | `make mutants` |" in made


def test_figures_by_kind_become_a_table_with_its_largest_on_top(tool: ModuleType) -> None:
    """Gaps per kind of fault have a row each, and the worst is among the answers."""
    kinds = {
        "a": {"faults": 5, "gap_ms_p99": 7.5, "heal_s_max": 1},
        "b": {"faults": 6, "gap_ms_p99": 1200.5, "heal_s_max": 2},
    }
    made = tool.table({"chaos": entry("chaos", kinds=kinds, kinds_skipped={})})
    assert "| kinds | faults | gap ms p99 | heal s max |" in made
    assert "| b | 6 | 1,200.5 | 2 |" in made
    assert "| 1,200.5 ms; 2 s | `make chaos` |" in made
    assert "| kinds skipped | none |" in made


def test_a_page_without_marks_is_refused(tool: ModuleType) -> None:
    """The command never writes over a page that it does not know."""
    with pytest.raises(ValueError, match="has no"):
        tool.page_with("text", "table")


def test_the_files_commands_and_mutants_that_the_page_names_exist() -> None:
    """A reader who looks for a test, a target or a wrong choice finds it."""
    words = PAGE.read_text().partition("<!-- figures:begin -->")[0]
    tracked = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split("\n")
    names = {path.rpartition("/")[2] for path in tracked}
    assert [name for name in re.findall(r"`(test_\w+\.py)`", words) if name not in names] == []
    assert [path for path in re.findall(r"`(tests/[\w/]+(?:\.py)?)`", words) if not (ROOT / path).exists()] == []
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    code = "\n".join(re.findall(r"```console\n(.*?)```", words, re.DOTALL) + re.findall(r"`(make[^`]+)`", words))
    assert set(re.findall(r"\bmake\s+([a-z-]+)", code)) <= targets
    mutants = "".join(path.read_text() for path in (ROOT / "tests" / "mutants").glob("*.py"))
    named = [name for row in re.findall(r"; mutants? (.*?) \|", words) for name in re.findall(r"`([a-z-]+)`", row)]
    assert len(named) > 20
    assert [name for name in named if f'"{name}"' not in mutants] == []
