"""The directory of the measured systems' files: on a disk, below the current directory, removed at the end."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

_MEMORY_FILE_SYSTEMS = ("tmpfs", "ramfs")


@contextmanager
def scratch(parent: Path) -> Iterator[Path]:
    """Make a new directory below `parent`, removed at the end; warn when it is in memory, where flushes cost nothing."""
    parent.mkdir(parents=True, exist_ok=True)
    kind = file_system_of(parent)
    if kind in _MEMORY_FILE_SYSTEMS:
        click.echo(f"warning: {parent} is on {kind}: flushing costs nothing there; use --data-dir", err=True)
    path = Path(tempfile.mkdtemp(prefix="run-", dir=parent))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def file_system_of(path: Path) -> str:
    """The type of file system that `path` is on, as the kernel names it; empty when it is unknown."""
    try:
        mounts = Path("/proc/mounts").read_text().splitlines()
    except OSError:
        return ""
    best, kind = "", ""
    where = str(path.resolve())
    for line in mounts:
        point, fs_type = line.split()[1:3]
        inside = where == point or where.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best):
            best, kind = point, fs_type
    return kind
