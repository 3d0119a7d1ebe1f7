"""The crash disk as the write-ahead log sees a disk, and as the Raft files do."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from pathlib import Path

from rangelog_pd.consensus.files.disk import Files
from rangelog_server.wal.io import Io
from tests.crash_points.crash_disk import CrashDisk, DiskState


class CrashIo(Io):
    """For the write-ahead log. Paths count by name: one directory."""

    def __init__(self, state: DiskState | None = None) -> None:
        self.disk = CrashDisk(state)

    def list(self, directory: Path) -> list[str]:
        """See Io."""
        return sorted(self.disk.state.names)

    def open(self, path: Path) -> int:
        """See Io."""
        try:
            return self.disk.descriptor(path.name)
        except KeyError:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", path.name) from None

    def open_direct(self, path: Path) -> int:
        """See Io."""
        return self.open(path)

    def create(self, path: Path, size_bytes: int) -> int:
        """See Io."""
        return self.disk.create(path.name, size_bytes)

    def close(self, fd: int) -> None:
        """See Io."""
        self.disk.close(fd)

    def size(self, fd: int) -> int:
        """See Io."""
        return len(self.disk.file(fd).now)

    def pwritev(self, fd: int, buffers: Sequence[bytes | memoryview], position: int) -> int:
        """See Io."""
        data = b"".join(buffers)
        self.disk.write(fd, data, position)
        return len(data)

    def pread(self, fd: int, length: int, position: int) -> bytes:
        """See Io."""
        return bytes(self.disk.file(fd).now[position : position + length])

    def pread_into(self, fd: int, buffer: memoryview, position: int) -> int:
        """See Io."""
        data = self.pread(fd, len(buffer), position)
        buffer[: len(data)] = data
        return len(data)

    def fdatasync(self, fd: int) -> None:
        """See Io."""
        self.disk.flush(fd)

    def drop_cache(self, fd: int, position: int = 0, length: int = 0) -> None:
        """See Io."""

    def rename(self, source: Path, target: Path) -> None:
        """See Io."""
        self.disk.rename(source.name, target.name)

    def truncate(self, path: Path, size_bytes: int) -> None:
        """See Io."""
        fd = self.disk.descriptor(path.name)
        try:
            self.disk.cut(fd, size_bytes)
        finally:
            self.disk.close(fd)

    def unlink(self, path: Path) -> None:
        """See Io."""
        self.disk.unlink(path.name)

    def sync_directory(self, directory: Path) -> None:
        """See Io."""
        self.disk.flush_names()


class CrashFiles(Files):
    """For the Raft files of one member."""

    def __init__(self, state: DiskState | None = None) -> None:
        self.disk = CrashDisk(state)

    def make_directory(self, path: Path) -> None:
        """See Files."""

    def exists(self, path: Path) -> bool:
        """See Files."""
        return path.name in self.disk.state.names

    def open(self, path: Path) -> int:
        """See Files."""
        try:
            return self.disk.descriptor(path.name)
        except KeyError:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", path.name) from None

    def create(self, path: Path) -> int:
        """See Files."""
        return self.disk.create(path.name)

    def close(self, fd: int) -> None:
        """See Files."""
        self.disk.close(fd)

    def size(self, fd: int) -> int:
        """See Files."""
        return len(self.disk.file(fd).now)

    def pread(self, fd: int, length: int, position: int) -> bytes:
        """See Files."""
        return bytes(self.disk.file(fd).now[position : position + length])

    def pwrite(self, fd: int, data: bytes | memoryview, position: int) -> int:
        """See Files."""
        self.disk.write(fd, bytes(data), position)
        return len(data)

    def truncate(self, fd: int, length: int) -> None:
        """See Files."""
        self.disk.cut(fd, length)

    def fdatasync(self, fd: int) -> None:
        """See Files."""
        self.disk.flush(fd)

    def fsync(self, fd: int) -> None:
        """See Files."""
        self.disk.flush(fd)

    def rename(self, source: Path, target: Path) -> None:
        """See Files."""
        self.disk.rename(source.name, target.name)

    def sync_directory(self, path: Path) -> None:
        """See Files."""
        self.disk.flush_names()
