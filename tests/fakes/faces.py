"""The disk in memory as the write-ahead log has it (`Io`), and as the Raft files have it (`Files`)."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from pathlib import Path

from rangelog_pd.consensus.files.disk import Files
from rangelog_server.wal.io import Io
from tests.fakes.directory import Directory
from tests.fakes.disk import CREATE, UNLINK, Disk
from tests.fakes.disk_file import DiskFile

BLOCK_BYTES = 4096
"""What direct reads and writes are aligned to."""


class LogDisk(Disk, Io):
    """For the write-ahead log: files are made with all their blocks, and may be opened past the page cache."""

    def __init__(self, directory: Directory | None = None) -> None:
        super().__init__(directory)
        self._direct: set[int] = set()

    def copy(self) -> LogDisk:
        """Return another disk of the same content, without faults."""
        return type(self)(self.directory.copy())

    def list(self, directory: Path) -> list[str]:
        """See Io."""
        self._alive()
        return sorted(self.names)

    def open_direct(self, path: Path) -> int:
        """See Io."""
        fd = self.open(path)
        self._direct.add(fd)
        return fd

    def create(self, path: Path, size_bytes: int) -> int:
        """See Io. Raises OSError, and leaves no file, where there is no room."""
        self._change(CREATE, None, path.name)
        self._take_room(size_bytes)
        file = DiskFile(bytes(size_bytes))
        self.directory.change("", path.name, file)
        return self._descriptor(file)

    def pwritev(self, fd: int, buffers: Sequence[bytes | memoryview], position: int) -> int:
        """See Io."""
        data = b"".join(buffers)
        self._check_aligned(fd, position, len(data))
        return self._write(fd, data, position)

    def pread_into(self, fd: int, buffer: memoryview, position: int) -> int:
        """See Io."""
        self._check_aligned(fd, position, len(buffer))
        data = self.pread(fd, len(buffer), position)
        buffer[: len(data)] = data
        return len(data)

    def _check_aligned(self, fd: int, position: int, length: int) -> None:
        if fd in self._direct and (position | length) % BLOCK_BYTES:
            raise OSError(errno.EINVAL, "a direct read or write that is not aligned")

    def drop_cache(self, fd: int, position: int = 0, length: int = 0) -> None:
        """See Io. The whole file's cache is dropped."""
        self.descriptors[fd].drop_cache()

    def truncate(self, path: Path, size_bytes: int) -> None:
        """See Io."""
        self._cut(self.names[path.name], size_bytes)

    def unlink(self, path: Path) -> None:
        """See Io."""
        self._change(UNLINK, None, path.name)
        file = self.names[path.name]
        self.free_bytes += len(file.now)
        self.directory.change(path.name, "", file)


class RaftDisk(Disk, Files):
    """For the Raft files of one member: files are made empty and grow."""

    def make_directory(self, path: Path) -> None:
        """See Files."""

    def exists(self, path: Path) -> bool:
        """See Files."""
        self._alive()
        return path.name in self.names

    def create(self, path: Path) -> int:
        """See Files."""
        self._change(CREATE, None, path.name)
        file = self.names.get(path.name)
        if file is None:
            file = DiskFile()
            self.directory.change("", path.name, file)
        else:
            self.free_bytes += len(file.now)
            file.cut(0)
        return self._descriptor(file)

    def pwrite(self, fd: int, data: bytes | memoryview, position: int) -> int:
        """See Files."""
        return self._write(fd, bytes(data), position)

    def truncate(self, fd: int, length: int) -> None:
        """See Files."""
        self._cut(self.descriptors[fd], length)

    def fsync(self, fd: int) -> None:
        """See Files."""
        self.fdatasync(fd)
