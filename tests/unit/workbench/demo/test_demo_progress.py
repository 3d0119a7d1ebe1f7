"""The demo's bars on terminals of any width: a line each, with a whole clock."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from rangelog_demo.progress import rich_progress
from rangelog_demo.report_parts import STYLE

NAMES = ("append through three kills", "count in Parquet with pyarrow")
NOTE = "336,776 records, 3 kills, longest pause 188 ms, all of them on two of three disks"


@pytest.mark.parametrize("width", [40, 60, 80, 100, 120, 200])
def test_bars_fit(width: int) -> None:
    """No line is longer than the terminal, none wraps, and the clock is there as a whole."""
    console = Console(width=width, file=io.StringIO(), force_terminal=True, color_system=None)
    bars = rich_progress(console)
    for name in NAMES:
        bars.update(bars.add_task(name, total=100, note=NOTE), completed=50)
    console.print(bars.get_renderable())
    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert len(lines) == len(NAMES) and all(len(line) <= width for line in lines)
    for line, name in zip(lines, NAMES, strict=True):
        assert "0:00:00" in line and "50%" in line and name[:8] in line
        assert (name in line) == (width >= 60)
        assert ("336,776" in line) == (width >= 80), line
        assert ("━" * 10 in line) == (width >= 100), line


def test_plots_can_be_read_on_a_phone() -> None:
    """They keep their size there, and are moved within their frame."""
    assert "min-width: 760px" in STYLE and "overflow-x: auto" in STYLE
