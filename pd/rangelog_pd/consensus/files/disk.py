"""The one seam between the Raft files and the disk: plain system calls. A simulated member is given a disk in memory."""

from __future__ import annotations

import os
from pathlib import Path

FILE_MODE = 0o600
DIRECTORY_MODE = 0o700


class Files:
    """Everything raises OSError. Nothing is durable before `fdatasync`, no name before `sync_directory`."""

    def make_directory(self, path: Path) -> None:
        """Make it, and those above it, unless they are there."""
        path.mkdir(parents=True, exist_ok=True, mode=DIRECTORY_MODE)

    def exists(self, path: Path) -> bool:
        """Whether there is such a name."""
        return path.exists()

    def open(self, path: Path) -> int:
        """Open for reading and writing."""
        return os.open(path, os.O_RDWR | os.O_CLOEXEC)

    def create(self, path: Path) -> int:
        """Make an empty file, or empty the one that is there."""
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, FILE_MODE)

    def close(self, fd: int) -> None:
        """Close a file, without a flush."""
        os.close(fd)

    def size(self, fd: int) -> int:
        """Length in bytes."""
        return os.fstat(fd).st_size

    def pread(self, fd: int, length: int, position: int) -> bytes:
        """Read; may read less than asked."""
        return os.pread(fd, length, position)

    def pwrite(self, fd: int, data: bytes | memoryview, position: int) -> int:
        """Write; may write less than asked."""
        return os.pwrite(fd, data, position)

    def truncate(self, fd: int, length: int) -> None:
        """Cut the file."""
        os.ftruncate(fd, length)

    def fdatasync(self, fd: int) -> None:
        """Return once contents and length are on the disk."""
        os.fdatasync(fd)

    def fsync(self, fd: int) -> None:
        """As `fdatasync`, with the file's times and rights."""
        os.fsync(fd)

    def rename(self, source: Path, target: Path) -> None:
        """Put a file in another's place."""
        os.rename(source, target)

    def sync_directory(self, path: Path) -> None:
        """Make renames and new names in a directory durable."""
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


REAL_FILES = Files()


def read_whole(files: Files, path: Path, *, bytes_max: int) -> bytes | None:
    """A file's bytes, at most one more than `bytes_max`; None where there is no file."""
    try:
        fd = files.open(path)
    except FileNotFoundError:
        return None
    try:
        return read_all(files, fd, bytes_max=bytes_max)
    finally:
        files.close(fd)


def read_all(files: Files, fd: int, *, bytes_max: int | None = None) -> bytes:
    """Everything that is in an open file, at most one byte more than `bytes_max`."""
    size = files.size(fd)
    if bytes_max is not None:
        size = min(size, bytes_max + 1)
    parts = []
    position = 0
    while position < size:
        part = files.pread(fd, min(size - position, 64 * 1024 * 1024), position)
        if not part:
            break
        parts.append(part)
        position += len(part)
    return b"".join(parts)
