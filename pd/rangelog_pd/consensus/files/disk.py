"""The interface of the Raft files to the disk: plain system calls. A simulated member uses a disk in memory."""

from __future__ import annotations

import os
from pathlib import Path

FILE_MODE = 0o600
DIRECTORY_MODE = 0o700


class Files:
    """System calls. All raise OSError. No byte is durable before `fdatasync`, no name before `sync_directory`."""

    def make_directory(self, path: Path) -> None:
        """Create a directory and its parents, unless they exist."""
        path.mkdir(parents=True, exist_ok=True, mode=DIRECTORY_MODE)

    def exists(self, path: Path) -> bool:
        """Whether the name exists."""
        return path.exists()

    def open(self, path: Path) -> int:
        """Open a file for reading and writing."""
        return os.open(path, os.O_RDWR | os.O_CLOEXEC)

    def create(self, path: Path) -> int:
        """Create an empty file, or truncate an existing one."""
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, FILE_MODE)

    def close(self, fd: int) -> None:
        """Close a file, without a flush."""
        os.close(fd)

    def size(self, fd: int) -> int:
        """Return the length in bytes."""
        return os.fstat(fd).st_size

    def pread(self, fd: int, length: int, position: int) -> bytes:
        """Read; may read less than asked."""
        return os.pread(fd, length, position)

    def pwrite(self, fd: int, data: bytes | memoryview, position: int) -> int:
        """Write; may write less than asked."""
        return os.pwrite(fd, data, position)

    def truncate(self, fd: int, length: int) -> None:
        """Truncate the file to a length."""
        os.ftruncate(fd, length)

    def fdatasync(self, fd: int) -> None:
        """Return once contents and length are on the disk."""
        os.fdatasync(fd)

    def fsync(self, fd: int) -> None:
        """As `fdatasync`, with the file's times and permissions."""
        os.fsync(fd)

    def rename(self, source: Path, target: Path) -> None:
        """Rename a file, in place of an existing one."""
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
    """Return a file's bytes, at most one more than `bytes_max`; None where there is no file."""
    try:
        fd = files.open(path)
    except FileNotFoundError:
        return None
    try:
        return read_all(files, fd, bytes_max=bytes_max)
    finally:
        files.close(fd)


def read_all(files: Files, fd: int, *, bytes_max: int | None = None) -> bytes:
    """Return the content of an open file, at most one byte more than `bytes_max`."""
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
