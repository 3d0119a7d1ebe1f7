"""Replacing a file so that a crash at any moment leaves the old one or the new one, whole."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

FILE_MODE = 0o600


def fsync_directory(directory: Path) -> None:
    """Make renames and new names in `directory` durable."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def write_fully(fd: int, data: bytes | memoryview, position: int) -> None:
    """Write all of `data` at `position`; a short write is continued (it ends in an OSError when the disk is full)."""
    view = memoryview(data)
    while len(view):
        written = os.pwrite(fd, view, position)
        view = view[written:]
        position += written


def write_new_file(path: Path, chunks: Iterable[bytes | memoryview]) -> int:
    """Create or empty `path`, write the chunks and fsync. Returns the open descriptor: the caller closes it."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, FILE_MODE)
    try:
        position = 0
        for chunk in chunks:
            write_fully(fd, chunk, position)
            position += len(chunk)
        os.fsync(fd)
    except BaseException:
        os.close(fd)
        raise
    return fd


def replace_durably(temporary: Path, path: Path) -> None:
    """Rename a file that was fsynced over `path` and make the name durable."""
    os.rename(temporary, path)
    fsync_directory(path.parent)


def write_atomically(path: Path, chunks: Iterable[bytes | memoryview]) -> None:
    """Replace `path` by the chunks: write aside, fsync, rename, fsync of the directory."""
    temporary = path.with_name(path.name + ".new")
    os.close(write_new_file(temporary, chunks))
    replace_durably(temporary, path)
