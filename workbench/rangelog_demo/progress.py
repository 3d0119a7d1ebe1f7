"""The progress of the demo: bars on a terminal, plain lines elsewhere (one per step, and one per tenth)."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self

from rangelog_demo.report import Step

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress as RichProgress

_NAME_CELLS, _NOTE_CELLS = 34, 24
_BAR_CELLS_MIN, _BAR_CELLS_MAX = 10, 28
_FIXED_CELLS = 1 + 4 + 7 + 5
"""Of the mark, the share, the clock, and the gaps between columns."""
_FRAMES_PER_S = 4.0
"""A frame is some hundred bytes of all bars: over ssh more are not smoother."""


class Bar(Protocol):
    """The progress of one step."""

    note: str

    def update(self, done: int) -> None:
        """Show the progress, out of the step's total."""

    def say(self, line: str) -> None:
        """Show a line that stays."""


class DemoProgress(AbstractContextManager["DemoProgress"]):
    """Keeps the list of finished steps with their times."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self._started_s = time.monotonic()
        self._rich = rich_progress() if sys.stdout.isatty() else None

    def __enter__(self) -> Self:
        if self._rich is not None:
            self._rich.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._rich is not None:
            self._rich.stop()

    @contextmanager
    def step(self, name: str, total: int | None = None) -> Iterator[Bar]:
        """One part of the demo: timed, and shown as done when the block ends without an error."""
        started_s = time.monotonic()
        bar: Bar = _RichBar(self._rich, name, total) if self._rich is not None else _PlainBar(self, name, total)
        yield bar
        if isinstance(bar, _RichBar):
            bar.finish()
        else:
            self.line(f"{name}: done in {time.monotonic() - started_s:.1f} s" + (f" ({bar.note})" if bar.note else ""))
        self.steps.append(Step(name, time.monotonic() - started_s, bar.note))

    def line(self, text: str) -> None:
        """A plain line with the time since the demo started."""
        print(f"[{time.monotonic() - self._started_s:6.1f} s] {text}", flush=True)


class _PlainBar:
    def __init__(self, progress: DemoProgress, name: str, total: int | None) -> None:
        self.note = ""
        self._progress = progress
        self._name = name
        self._total = total
        self._tenth = 0

    def update(self, done: int) -> None:
        if not self._total:
            return
        tenth = 10 * done // self._total
        if self._tenth < tenth < 10:
            self._progress.line(f"{self._name}: {10 * tenth}% ({done:,})")
        self._tenth = max(self._tenth, tenth)

    def say(self, line: str) -> None:
        self._progress.line(f"{self._name}: {line}")


class _RichBar:
    def __init__(self, rich: RichProgress, name: str, total: int | None) -> None:
        self.note = ""
        self._rich = rich
        self._total = total
        self._task = rich.add_task(name, total=total, note="")

    def update(self, done: int) -> None:
        self._rich.update(self._task, completed=done)

    def say(self, line: str) -> None:
        self._rich.console.print(f"  [dim]{line}[/dim]", highlight=False)

    def finish(self) -> None:
        total = self._total or 1
        self._rich.update(self._task, total=total, completed=total, note=self.note)


def rich_progress(console: Console | None = None) -> RichProgress:
    """Return bars of one line each that fit into the terminal: notes are cut first, then the bar goes, then the name is cut."""
    from rich import progress
    from rich.console import Console
    from rich.table import Column

    console = console or Console()
    room = console.width - _FIXED_CELLS - _NAME_CELLS
    bar_cells = min(_BAR_CELLS_MAX, room - _NOTE_CELLS)
    cut = {"no_wrap": True, "overflow": "ellipsis"}
    name_cells = max(8, min(_NAME_CELLS, console.width - _FIXED_CELLS))
    columns: list[progress.ProgressColumn] = [
        progress.SpinnerColumn(finished_text="[green]✓[/green]", table_column=Column(width=1)),
        progress.TextColumn("{task.description}", table_column=Column(width=name_cells, **cut)),  # type: ignore[arg-type]
    ]
    if bar_cells >= _BAR_CELLS_MIN:
        columns.append(progress.BarColumn(bar_width=bar_cells, table_column=Column(width=bar_cells)))
    columns += [
        progress.TaskProgressColumn(table_column=Column(width=4, justify="right")),
        progress.TimeElapsedColumn(table_column=Column(width=7, no_wrap=True)),
    ]
    if room >= _NOTE_CELLS:
        columns.append(progress.TextColumn("[dim]{task.fields[note]}[/dim]", table_column=Column(ratio=1, **cut)))  # type: ignore[arg-type]
    return progress.Progress(*columns, console=console, expand=True, refresh_per_second=_FRAMES_PER_S)
