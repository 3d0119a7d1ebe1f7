"""The progress of a run on standard error: a bar on a terminal, a line for each figure elsewhere."""

from __future__ import annotations

import sys
import time
from contextlib import AbstractContextManager
from types import TracebackType
from typing import TYPE_CHECKING, Self

from rangelog_bench.measurement import Measurement
from rangelog_bench.report import show_value

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress


class Progress(AbstractContextManager["Progress"]):
    """Counts figures; how many there will be is a guess that the last one corrects."""

    def __init__(self, expected: int) -> None:
        self._started_s = time.monotonic()
        self._rich = _rich_progress() if sys.stderr.isatty() else None
        self._task = self._rich.add_task("starting", total=expected) if self._rich is not None else None

    def __enter__(self) -> Self:
        if self._rich is not None:
            self._rich.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._rich is not None:
            self._rich.stop()

    def say(self, text: str) -> None:
        """Show the current step."""
        if self._rich is not None and self._task is not None:
            self._rich.update(self._task, description=text)
        else:
            print(f"[{time.monotonic() - self._started_s:6.1f} s] {text}", file=sys.stderr, flush=True)

    def measured(self, each: Measurement) -> None:
        """Show a figure."""
        size = f" {each.record_size} B" if each.record_size else ""
        line = f"{each.system} {each.metric}{size}: {show_value(each)}"
        if self._rich is not None and self._task is not None:
            self._rich.console.print(f"  [dim]{line}[/dim]", highlight=False)
            self._rich.advance(self._task)
        else:
            self.say(line)


def _rich_progress() -> RichProgress:
    from rich import progress
    from rich.console import Console

    return progress.Progress(
        progress.SpinnerColumn(),
        progress.TextColumn("{task.description:<34}"),
        progress.BarColumn(bar_width=28),
        progress.MofNCompleteColumn(),
        progress.TimeElapsedColumn(),
        console=Console(stderr=True),
    )
