"""docs/PERFORMANCE.md: its tables are what the command writes, and the command is as careful as the figures."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from rangelog_bench import measurement as m
from rangelog_bench.measurement import Measurement

ROOT = Path(__file__).resolve().parents[4]
TOOL = ROOT / "tools" / "performance_tables.py"


@pytest.fixture
def tool() -> ModuleType:
    """The tool as a module."""
    spec = importlib.util.spec_from_file_location("performance_tables", TOOL)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_what_the_command_writes() -> None:
    """Nobody changed a figure by hand, and nobody forgot to write the tables anew."""
    done = subprocess.run([sys.executable, str(TOOL), "--check"], capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done.stdout + done.stderr


def test_tables_replace_what_was_between_the_markers(tool: ModuleType) -> None:
    """The rest of the page stays as it was, and writing twice changes nothing more."""
    page = f"# before\n{tool.BEGIN}\nold\n{tool.END}\nafter\n"
    once = tool.with_tables(page, "new")
    assert once == f"# before\n{tool.BEGIN}\nnew\n{tool.END}\nafter\n"
    assert tool.with_tables(once, "new") == once


@pytest.mark.parametrize("page", ["", "<!-- tables: begin -->", "<!-- tables: end -->"])
def test_a_page_without_markers_is_refused(tool: ModuleType, page: str) -> None:
    """Tables are not put just anywhere."""
    with pytest.raises(ValueError, match="has no"):
        tool.with_tables(page, "new")


def test_tables_say_what_they_were_measured_on(tool: ModuleType) -> None:
    """The machine, the line that compares and a table come from the kept files alone."""
    line = Measurement("rangelog", "flushed", m.APPEND, 1024, 123_456.0, m.RECORDS_PER_S, {"mb_per_s": 126.4}).to_json()
    text = tool.tables(line, json.dumps({"cores": "2", "processor": "A Processor"}))
    assert "Measured: cores 2, A Processor." in text
    assert "bench: append_1k=-" in text
    assert "| rangelog, flushed | 123k (126) |" in text
