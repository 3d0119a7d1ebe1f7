"""The log files of a local cluster: their last lines, and what is added to them.

What holds: of each file at most a bounded number of bytes is read at a time.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rangelog_core.errors import InvalidArgument

_READ_BYTES = 1 << 20
_POLL_S = 0.2


@dataclass
class ShownLogs:
    """What was shown: lines with the member before each, and how far each file was read."""

    lines: list[str] = field(default_factory=list)
    read_to: dict[Path, int] = field(default_factory=dict)
    width: int = 0

    def prefixed(self, path: Path, text: str) -> str:
        """Return a line of a file as it is shown."""
        return f"{path.stem:<{self.width}} | {text}"


def last_lines(data_dir: Path, members: Sequence[str], count: int) -> ShownLogs:
    """Return the last lines of the members' logs, by default of all. Raises InvalidArgument."""
    found = {path.stem: path for path in sorted((data_dir / "logs").glob("*.log"))}
    if not found:
        raise InvalidArgument(f"{data_dir} has no logs: is it the --data-dir of a cluster of `rangelog local`?")
    unknown = [name for name in members if name not in found]
    if unknown:
        raise InvalidArgument(f"there is no log of {', '.join(unknown)}: there are {', '.join(found)}")
    shown = ShownLogs(width=max(map(len, members or found)))
    for path in (found[name] for name in (members or found)):
        size = path.stat().st_size
        begin = max(0, size - _READ_BYTES)
        lines = _read(path, begin, size).split(b"\n")
        if begin:
            lines = lines[1:]  # it has no beginning
        rest = lines.pop()  # it has no end yet
        shown.lines += [shown.prefixed(path, _text(line)) for line in lines[max(0, len(lines) - count) :]]
        shown.read_to[path] = size - len(rest)
    return shown


def follow_logs(shown: ShownLogs, say: Callable[[str], None], wait: Callable[[float], None] = time.sleep) -> None:
    """Say each line that is added, until interrupted. A file that became shorter is read from its beginning."""
    while True:
        for path, place in shown.read_to.items():
            size = path.stat().st_size if path.exists() else 0
            begin = place if size >= place else 0
            data = _read(path, begin, min(size, begin + _READ_BYTES)) if size > begin else b""
            *lines, rest = data.split(b"\n")
            if len(data) == _READ_BYTES and not lines:
                lines, rest = [rest], b""
            for line in lines:
                say(shown.prefixed(path, _text(line)))
            shown.read_to[path] = begin + len(data) - len(rest)
        wait(_POLL_S)


def _read(path: Path, begin: int, end: int) -> bytes:
    with path.open("rb") as file:
        file.seek(begin, os.SEEK_SET)
        return file.read(end - begin)


def _text(line: bytes) -> str:
    return "".join(each if each.isprintable() or each == "\t" else "�" for each in line.decode("utf-8", "replace"))
