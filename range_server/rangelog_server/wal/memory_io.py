"""A disk in memory that loses unflushed writes, for tests and simulation: the same calls as the real one.

`kill` leaves the state after the end of a process (all written bytes), `power_loss` that after a power cut: flushed bytes, and
of the others any selection of 512-byte sectors; renames that are not durable may be undone. `cut_after` stops the disk
after a number of calls, even in the middle of a write.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random

from rangelog_server.wal.io import Io

SECTOR_BYTES = 512


class PowerCut(BaseException):
    """The process ends here."""


class _File:
    def __init__(self, size: int) -> None:
        self.now = bytearray(size)
        self.flushed = bytearray(size)
        self.dirty: dict[int, None] = {}  # sectors written since the last flush


class MemoryIo(Io):
    """A disk in memory with one directory: only the names of paths count."""

    def __init__(self) -> None:
        self.names: dict[str, _File] = {}
        self.durable_names: dict[str, _File] = {}
        self.cut_after = -1  # so many more changing calls work; -1: all
        self.free_bytes = 1 << 40
        self.fail: Callable[[str], None] = lambda call: None  # raises OSError to inject a fault
        self._open: dict[int, _File] = {}
        self._direct: set[int] = set()
        self._fd = 100

    # ---- what tests do to it

    def kill(self) -> None:
        """End the process: open files are closed, written bytes stay."""
        self._open.clear()
        self.cut_after = -1
        self.fail = lambda call: None

    def power_loss(self, random: Random) -> None:
        """Cut the power: unflushed bytes and renames may be lost."""
        self.kill()
        if random.random() < 0.5:
            self.names = dict(self.durable_names)
        for file in self.names.values():
            for sector in file.dirty:
                start = sector * SECTOR_BYTES
                if random.random() < 0.5:
                    file.flushed[start : start + SECTOR_BYTES] = file.now[start : start + SECTOR_BYTES]
            file.now = bytearray(file.flushed)
            file.dirty.clear()
        self.durable_names = dict(self.names)

    def content(self, name: str) -> bytearray:
        """Return a file's bytes, for tests to damage: changes count as flushed after `settle`."""
        return self.names[name].now

    def settle(self) -> None:
        """Count all written bytes as flushed."""
        for file in self.names.values():
            file.flushed = bytearray(file.now)
            file.dirty.clear()
        self.durable_names = dict(self.names)

    def copy(self) -> MemoryIo:
        """Return another disk with the same content."""
        other = MemoryIo()
        for name, file in self.names.items():
            twin = other.names[name] = _File(0)
            twin.now, twin.flushed = bytearray(file.now), bytearray(file.flushed)
            twin.dirty = dict(file.dirty)
        other.durable_names = dict(other.names)
        return other

    # ---- Io

    def _change(self, call: str) -> None:
        self.fail(call)
        if self.cut_after == 0:
            raise PowerCut
        if self.cut_after > 0:
            self.cut_after -= 1

    def list(self, directory: Path) -> list[str]:
        """Return the names in a directory, sorted."""
        return sorted(self.names)

    def open(self, path: Path) -> int:
        """Open an existing file for reading and writing."""
        self._fd += 1
        self._open[self._fd] = self.names[path.name]
        return self._fd

    def open_direct(self, path: Path) -> int:
        """Open an existing file for reading and writing past the page cache; -1 where the file system does not support it."""
        fd = self.open(path)
        self._direct.add(fd)
        return fd

    def create(self, path: Path, size_bytes: int) -> int:
        """Create a file whose blocks are all reserved. A failure leaves no file."""
        self._change("create")
        if size_bytes > self.free_bytes:
            raise OSError(errno.ENOSPC, "No space left on device")
        self.free_bytes -= size_bytes
        self.names[path.name] = _File(size_bytes)
        return self.open(path)

    def close(self, fd: int) -> None:
        """Close a file."""
        del self._open[fd]
        self._direct.discard(fd)

    def size(self, fd: int) -> int:
        """Return a file's length."""
        return len(self._open[fd].now)

    def pwritev(self, fd: int, buffers: Sequence[bytes | memoryview], position: int) -> int:
        """Write; may write less than asked. Direct: from aligned memory, whole blocks at a block."""
        data = b"".join(buffers)
        if fd in self._direct and (position | len(data)) % 4096:
            raise OSError(errno.EINVAL, "a direct write that is not aligned")
        file = self._open[fd]
        cut = self.cut_after == 0
        if cut:
            data = data[: len(data) // 2]
        else:
            self._change("pwritev")
        if position + len(data) > len(file.now):
            raise OSError(errno.ENOSPC, "No space left on device")
        file.now[position : position + len(data)] = data
        first, last = position // SECTOR_BYTES, (position + max(len(data), 1) - 1) // SECTOR_BYTES
        file.dirty.update(dict.fromkeys(range(first, last + 1)))
        if cut:
            raise PowerCut
        return len(data)

    def pread(self, fd: int, length: int, position: int) -> bytes:
        """Read; may read less than asked."""
        self.fail("pread")
        return bytes(self._open[fd].now[position : position + length])

    def pread_into(self, fd: int, buffer: memoryview, position: int) -> int:
        """Read into memory; may read less than fits. Direct: whole blocks at a block into aligned memory."""
        if fd in self._direct and (position | len(buffer)) % 4096:
            raise OSError(errno.EINVAL, "a direct read that is not aligned")
        data = self.pread(fd, len(buffer), position)
        buffer[: len(data)] = data
        return len(data)

    def fdatasync(self, fd: int) -> None:
        """Return once all written bytes are on the disk."""
        self._change("fdatasync")
        file = self._open[fd]
        for sector in file.dirty:
            start = sector * SECTOR_BYTES
            file.flushed[start : start + SECTOR_BYTES] = file.now[start : start + SECTOR_BYTES]
        file.dirty.clear()

    def drop_cache(self, fd: int, position: int = 0, length: int = 0) -> None:
        """Drop clean cached pages (length 0: all from there on), so that the next read comes from the disk."""

    def rename(self, source: Path, target: Path) -> None:
        """Rename a file; durable after sync_directory."""
        self._change("rename")
        self.names[target.name] = self.names.pop(source.name)

    def truncate(self, path: Path, size_bytes: int) -> None:
        """Truncate a file to a length."""
        self._change("truncate")
        file = self.names[path.name]
        self.free_bytes += len(file.now) - size_bytes
        for content in (file.now, file.flushed):
            del content[size_bytes:]
        for sector in [sector for sector in file.dirty if sector * SECTOR_BYTES >= size_bytes]:
            del file.dirty[sector]

    def unlink(self, path: Path) -> None:
        """Remove a file."""
        self._change("unlink")
        self.free_bytes += len(self.names.pop(path.name).now)

    def sync_directory(self, directory: Path) -> None:
        """Make renames in a directory durable."""
        self._change("sync_directory")
        self.durable_names = dict(self.names)
