"""Replaces a file so that a crash at any moment leaves the whole old or the whole new one."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from rangelog_pd.consensus.files.disk import Files


def write_fully(files: Files, fd: int, data: bytes | memoryview, position: int) -> None:
    """Write all of `data` at `position`; a short write is continued (it ends in an OSError when the disk is full)."""
    view = memoryview(data)
    while len(view):
        written = files.pwrite(fd, view, position)
        view = view[written:]
        position += written


def write_new_file(files: Files, path: Path, chunks: Iterable[bytes | memoryview]) -> int:
    """Create or empty `path`, write the chunks and fsync. Returns the open descriptor: the caller closes it."""
    fd = files.create(path)
    try:
        position = 0
        for chunk in chunks:
            write_fully(files, fd, chunk, position)
            position += len(chunk)
        files.fsync(fd)
    except BaseException:
        files.close(fd)
        raise
    return fd


def replace_durably(files: Files, temporary: Path, path: Path) -> None:
    """Rename a file that was fsynced over `path` and make the name durable."""
    files.rename(temporary, path)
    files.sync_directory(path.parent)


def write_atomically(files: Files, path: Path, chunks: Iterable[bytes | memoryview]) -> None:
    """Replace `path` by the chunks: write aside, fsync, rename, fsync of the directory."""
    temporary = path.with_name(path.name + ".new")
    files.close(write_new_file(files, temporary, chunks))
    replace_durably(files, temporary, path)
