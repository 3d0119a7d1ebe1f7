"""tools/install.py says how far pip is, in a few lines or in one that counts."""

from __future__ import annotations

import importlib.util
import io
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
PIP = [
    "Looking in indexes: https://example.org/simple\n",
    *(f"Collecting package-{number} (from -r requirements.lock (line {number}))\n" for number in range(1, 31)),
    "  Using cached package_30-1.0-py3-none-any.whl (97 kB)\n",
    "Installing collected packages: package-1, package-2\n",
    "Successfully installed package-1-1.0\n",
]


@pytest.fixture
def tool() -> ModuleType:
    """The program as a module."""
    spec = importlib.util.spec_from_file_location("install", ROOT / "tools" / "install.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_log_gets_a_line_now_and_then(tool: ModuleType) -> None:
    """The first package, each 25th after it, and the end."""
    output = io.StringIO()
    kept = tool.follow(PIP, tool.PipProgress(output, terminal=False, count_max=40))
    assert output.getvalue().splitlines() == [
        "  fetching 1 of at most 40 packages: package-1",
        "  fetching 26 of at most 40 packages: package-26",
        "  unpacking 30 packages",
    ]
    assert kept == PIP[-20:]


def test_a_terminal_has_one_line_that_counts(tool: ModuleType) -> None:
    """Every package is shown, over the one before it."""
    output = io.StringIO()
    tool.follow(PIP, tool.PipProgress(output, terminal=True, count_max=40))
    shown = output.getvalue()
    assert shown.count("fetching") == 30 and shown.count("\n") == 1 and shown.endswith("unpacking 30 packages\n")


def test_it_speaks_while_pip_is_silent(tool: ModuleType) -> None:
    """A large package is named again, and while pip unpacks the packages that are there are counted."""
    output, there = io.StringIO(), [2]
    progress = tool.PipProgress(output, terminal=False, count_max=40, installed_count=lambda: there[0])
    progress.tick()
    assert output.getvalue() == ""
    for line in PIP[:3]:
        progress.take(line)
    progress.tick()
    progress.take(PIP[-2])
    there[0] = 3
    progress.tick()
    assert output.getvalue().splitlines()[1:] == [
        "  fetching 2 of at most 40 packages: package-2",
        "  unpacking 2 packages",
        "  unpacking 2 packages, 1 done",
    ]
    assert progress.tick_s == tool.TICK_S <= 10 and tool.installed_count() > 10


def test_the_ticks_come_from_a_thread_that_ends(tool: ModuleType) -> None:
    """While the next line is waited for."""
    output, ticked = io.StringIO(), threading.Event()
    progress = tool.PipProgress(output, terminal=False, count_max=40)
    progress.tick_s = 0.001
    progress.tick = ticked.set

    def lines() -> Iterator[str]:
        yield PIP[1]
        assert ticked.wait(20)

    tool.follow(lines(), progress)
    assert not [each for each in threading.enumerate() if each.name.endswith("(_tick)")]


def test_a_failure_shows_what_pip_said(tmp_path: Path) -> None:
    """What pip refuses by itself, before it asks any index: its words and its exit code come through."""
    (tmp_path / "bad.lock").write_text("click=>1\n")
    command = [sys.executable, str(ROOT / "tools" / "install.py"), str(tmp_path / "bad.lock")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert "Invalid requirement" in done.stdout


def test_make_lists_its_targets_in_one_column_and_those_of_users_first() -> None:
    """However long a name is, the texts begin in one column."""
    done = subprocess.run(["make", "-s", "help"], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)
    lines = [line for line in done.stdout.splitlines() if line.startswith("  make ")]
    assert len(lines) > 25
    assert {len(line) - len(line[2:].split(maxsplit=2)[2]) for line in lines} == {27}
    assert [line.split()[1] for line in lines[:2]] == ["install", "demo"]
