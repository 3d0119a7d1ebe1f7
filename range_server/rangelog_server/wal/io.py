"""The interface to the disk. Production and tests use the same calls; tests pass a disk that fails or loses writes."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from pathlib import Path


class Io:
    """Plain system calls. Everything raises OSError."""

    def list(self, directory: Path) -> list[str]:
        """Return the names in a directory, sorted."""
        return sorted(os.listdir(directory))

    def open(self, path: Path) -> int:
        """Open an existing file for reading and writing."""
        return os.open(path, os.O_RDWR | os.O_CLOEXEC)

    def open_direct(self, path: Path) -> int:
        """Open an existing file for reading and writing past the page cache; -1 where the file system does not support it."""
        try:
            return os.open(path, os.O_RDWR | os.O_DIRECT | os.O_CLOEXEC)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            return -1

    def create(self, path: Path, size_bytes: int) -> int:
        """Create a file whose blocks are all reserved. A failure leaves no file."""
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(fd, 0, size_bytes)
            os.fsync(fd)
        except OSError:
            os.close(fd)
            os.unlink(path)
            raise
        return fd

    def close(self, fd: int) -> None:
        """Close a file."""
        os.close(fd)

    def size(self, fd: int) -> int:
        """Return a file's length."""
        return os.fstat(fd).st_size

    def pwritev(self, fd: int, buffers: Sequence[bytes | memoryview], position: int) -> int:
        """Write; may write less than asked. Direct: from aligned memory, whole blocks at a block."""
        return os.pwritev(fd, buffers, position)

    def pread(self, fd: int, length: int, position: int) -> bytes:
        """Read; may read less than asked."""
        return os.pread(fd, length, position)

    def pread_into(self, fd: int, buffer: memoryview, position: int) -> int:
        """Read into memory; may read less than fits. Direct: whole blocks at a block into aligned memory."""
        return os.preadv(fd, [buffer], position)

    def fdatasync(self, fd: int) -> None:
        """Return once all written bytes are on the disk."""
        os.fdatasync(fd)

    def drop_cache(self, fd: int, position: int = 0, length: int = 0) -> None:
        """Drop clean cached pages (length 0: all from there on), so that the next read comes from the disk."""
        os.posix_fadvise(fd, position, length, os.POSIX_FADV_DONTNEED)

    def rename(self, source: Path, target: Path) -> None:
        """Rename a file; durable after sync_directory."""
        os.rename(source, target)

    def truncate(self, path: Path, size_bytes: int) -> None:
        """Truncate a file to a length."""
        os.truncate(path, size_bytes)

    def unlink(self, path: Path) -> None:
        """Remove a file."""
        os.unlink(path)

    def sync_directory(self, directory: Path) -> None:
        """Make renames in a directory durable."""
        fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def write_all(io: Io, fd: int, buffers: Sequence[bytes], position: int) -> int:
    """Write all of `buffers` at `position`; return the position after it."""
    wanted = sum(map(len, buffers))
    done = io.pwritev(fd, buffers, position)
    if done < wanted:
        rest = b"".join(buffers)
        while done < wanted:
            step = io.pwritev(fd, [rest[done:]], position + done)
            if step <= 0:
                raise OSError(5, "a write made no progress")
            done += step
    return position + wanted


def read_all(io: Io, fd: int, length: int, position: int) -> bytes:
    """Read exactly `length` bytes, or fewer at the end of the file."""
    data = io.pread(fd, length, position)
    if len(data) == length:
        return data
    parts, have = [data], len(data)
    while data and have < length:
        data = io.pread(fd, length - have, position + have)
        parts.append(data)
        have += len(data)
    return b"".join(parts)


def replace_file(io: Io, path: Path, parts: Sequence[bytes]) -> None:
    """Write a small file atomically and durably: temporary file, flush, rename, flush of the directory."""
    temporary = path.with_name(path.name + ".tmp")
    fd = io.create(temporary, max(1, sum(map(len, parts))))
    try:
        write_all(io, fd, parts, 0)
        io.fdatasync(fd)
    finally:
        io.close(fd)
    io.rename(temporary, path)
    io.sync_directory(path.parent)
