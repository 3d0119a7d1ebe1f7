"""The progress of a job: lines on standard error, or one line that changes where that is a terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

_LINE_EVERY_S = 5.0
_DRAW_EVERY_S = 0.1
_WIDTH = 24


class Console:
    """The standard error of a command. `quiet`: only errors are shown.

    Example:
        ```python
        with console.progress("audit", "tasks") as show:
            show(3, 10)
        ```
    """

    def __init__(self, *, quiet: bool = False, file: TextIO | None = None) -> None:
        self.quiet = quiet
        self._file = file if file is not None else sys.stderr

    def say(self, text: str) -> None:
        """Print a line, unless quiet."""
        if not self.quiet:
            self.print_line(text)

    def print_line(self, text: str) -> None:
        """Print a line in any case: on one line, without control characters."""
        shown = "".join(each if each.isprintable() else "\ufffd" for each in " ".join(text.split()))
        self._file.write(f"{shown}\n")
        self._file.flush()

    @contextmanager
    def progress(self, what: str, noun: str) -> Iterator[_Progress]:
        """Show how far something is while the context lasts: call what is yielded with the count so far, and the total."""
        line = _Progress(self._file, what, noun, shown=not self.quiet)
        try:
            yield line
        finally:
            line.end()


class _Progress:
    """One line of progress. On a terminal it is drawn again and again; else a line is printed every few seconds."""

    def __init__(self, file: TextIO, what: str, noun: str, *, shown: bool) -> None:
        self._file, self._what, self._noun, self._shown = file, what, noun, shown
        self._is_terminal = file.isatty()
        self._drawn_s = 0.0 if self._is_terminal else time.monotonic()  # a short job prints no line
        self._is_drawn = False
        self._width = 0

    def __call__(self, count: int, total: int | None = None) -> None:
        """Show a count, of a total if it is known."""
        now_s = time.monotonic()
        wait_s = _DRAW_EVERY_S if self._is_terminal else _LINE_EVERY_S
        if not self._shown or now_s - self._drawn_s < wait_s:
            return
        self._drawn_s = now_s
        of = f" of {total:,}" if total is not None else ""
        bar = ""
        if self._is_terminal and total:
            filled = min(_WIDTH, _WIDTH * count // total)
            bar = f" [{'#' * filled}{'.' * (_WIDTH - filled)}]"
        text = f"{self._what}:{bar} {count:,}{of} {self._noun}"
        if self._is_terminal:
            self._file.write("\r" + text.ljust(self._width))
            self._width, self._is_drawn = len(text), True
        else:
            self._file.write(text + "\n")
        self._file.flush()

    def end(self) -> None:
        """Remove the line from a terminal."""
        if self._is_drawn:
            self._file.write("\r" + " " * self._width + "\r")
            self._file.flush()
            self._is_drawn = False
