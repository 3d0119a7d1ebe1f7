"""Install what a requirements file pins, and say how far it is: pip is silent for minutes, or prints hundreds of lines.

Run by the Python that gets the packages, so nothing but the standard library is there. On a terminal one line counts; elsewhere
a line is printed every ten seconds at least. If pip fails its last lines are shown.
"""

from __future__ import annotations

import collections
import re
import subprocess
import sys
import sysconfig
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TextIO

LINES_KEPT = 20
STEP = 25
"""Packages between two lines, where the output is no terminal."""
TICK_S = 10.0
TICK_TERMINAL_S = 0.5
_COLLECTED = re.compile(r"\s*Collecting ([A-Za-z0-9._-]+)")
_PIP = ("-m", "pip", "install", "--disable-pip-version-check", "--progress-bar", "off")


class PipProgress:
    """Says how far pip is, from the lines that it prints, and while it prints none. For two threads.

    `installed_count`: of the packages that are there now, since pip does not say how many it has unpacked.
    """

    def __init__(
        self, output: TextIO, *, terminal: bool, count_max: int, installed_count: Callable[[], int] = lambda: 0
    ) -> None:
        self.tick_s = TICK_TERMINAL_S if terminal else TICK_S
        self._output = output
        self._terminal = terminal
        self._count_max = count_max
        self._count = 0
        self._installed_count = installed_count
        self._before: int | None = None
        """How many were there when the unpacking began."""
        self._text = ""
        self._lock = threading.Lock()

    def take(self, line: str) -> None:
        """Note one line of pip."""
        with self._lock:
            self._take(line)

    def tick(self) -> None:
        """Say how far pip is although it says nothing."""
        with self._lock:
            if self._before is not None:
                unpacked = min(self._count, max(0, self._installed_count() - self._before))
                self._text = f"unpacking {self._count} packages, {unpacked} done"
            if self._text:
                self._say(self._text, True)

    def _take(self, line: str) -> None:
        if (found := _COLLECTED.match(line)) is not None:
            self._count += 1
            self._say(
                f"fetching {self._count} of at most {self._count_max} packages: {found[1]}", self._count % STEP == 1
            )
        elif line.startswith("Installing collected packages"):
            self._before = self._installed_count()
            self._say(f"unpacking {self._count} packages", True)

    def end(self) -> None:
        """Leave the line that counts."""
        if self._terminal and self._count:
            self._output.write("\n")

    def _say(self, text: str, is_due: bool) -> None:
        self._text = text
        if self._terminal:
            self._output.write(f"\r\x1b[K  {text}")
            self._output.flush()
        elif is_due:
            self._output.write(f"  {text}\n")
            self._output.flush()


def follow(lines: Iterable[str], progress: PipProgress) -> list[str]:
    """Feed pip's lines to `progress`; return the last ones."""
    kept: collections.deque[str] = collections.deque(maxlen=LINES_KEPT)
    ended = threading.Event()
    ticker = threading.Thread(target=_tick, args=(progress, ended), daemon=True)
    ticker.start()
    try:
        for line in lines:
            kept.append(line)
            progress.take(line)
    finally:
        ended.set()
        ticker.join()
    progress.end()
    return list(kept)


def _tick(progress: PipProgress, ended: threading.Event) -> None:
    while not ended.wait(progress.tick_s):
        progress.tick()


def installed_count() -> int:
    """Return how many packages this Python has."""
    return sum(1 for _ in Path(sysconfig.get_path("purelib")).glob("*.dist-info"))


def main(arguments: list[str]) -> int:
    """Install; return pip's exit code."""
    (requirements,) = arguments
    count = len(re.findall(r"^[A-Za-z0-9._-]+(?:\[[^]]*\])?==", Path(requirements).read_text(), re.MULTILINE))
    terminal = sys.stdout.isatty()
    progress = PipProgress(sys.stdout, terminal=terminal, count_max=count, installed_count=installed_count)
    started_s = time.monotonic()
    command = [sys.executable, *_PIP, "--require-hashes", "-r", requirements]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        kept = follow(process.stdout, progress)
    if process.returncode:
        print("".join(kept), end="")
        return process.returncode
    print(f"  installed in {time.monotonic() - started_s:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
