"""Install what a requirements file pins, and say how far it is: pip is silent for minutes, or prints hundreds of lines.

Run by the Python that gets the packages, so nothing but the standard library is there. On a terminal one line counts; elsewhere
a line is printed now and then. If pip fails its last lines are shown.
"""

from __future__ import annotations

import collections
import re
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TextIO

LINES_KEPT = 20
STEP = 25
"""Packages between two lines, where the output is no terminal."""
_COLLECTED = re.compile(r"\s*Collecting ([A-Za-z0-9._-]+)")
_PIP = ("-m", "pip", "install", "--disable-pip-version-check", "--progress-bar", "off")


class PipProgress:
    """Says how far pip is, from the lines that it prints."""

    def __init__(self, output: TextIO, *, terminal: bool, count_max: int) -> None:
        self._output = output
        self._terminal = terminal
        self._count_max = count_max
        self._count = 0

    def take(self, line: str) -> None:
        """Note one line of pip."""
        if (found := _COLLECTED.match(line)) is not None:
            self._count += 1
            self._say(
                f"fetching {self._count} of at most {self._count_max} packages: {found[1]}", self._count % STEP == 1
            )
        elif line.startswith("Installing collected packages"):
            self._say(f"unpacking {self._count} packages", True)

    def end(self) -> None:
        """Leave the line that counts."""
        if self._terminal and self._count:
            self._output.write("\n")

    def _say(self, text: str, is_due: bool) -> None:
        if self._terminal:
            self._output.write(f"\r\x1b[K  {text}")
            self._output.flush()
        elif is_due:
            self._output.write(f"  {text}\n")
            self._output.flush()


def follow(lines: Iterable[str], progress: PipProgress) -> list[str]:
    """Feed pip's lines to `progress`; return the last ones."""
    kept: collections.deque[str] = collections.deque(maxlen=LINES_KEPT)
    for line in lines:
        kept.append(line)
        progress.take(line)
    progress.end()
    return list(kept)


def main(arguments: list[str]) -> int:
    """Install; return pip's exit code."""
    (requirements,) = arguments
    count = len(re.findall(r"^[A-Za-z0-9._-]+(?:\[[^]]*\])?==", Path(requirements).read_text(), re.MULTILINE))
    progress = PipProgress(sys.stdout, terminal=sys.stdout.isatty(), count_max=count)
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
