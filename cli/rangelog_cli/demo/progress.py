"""The progress of the demo: bars on a terminal, plain lines elsewhere (one per step, and one per tenth)."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self

from rangelog_cli.demo.report import Step

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress


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
        self._rich = _rich_progress() if sys.stdout.isatty() else None

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


def _rich_progress() -> RichProgress:
    from rich import progress

    return progress.Progress(
        progress.SpinnerColumn(finished_text="[green]✓[/green]"),
        progress.TextColumn("{task.description:<34}"),
        progress.BarColumn(bar_width=28),
        progress.TaskProgressColumn(),
        progress.TimeElapsedColumn(),
        progress.TextColumn("[dim]{task.fields[note]}[/dim]"),
    )
