"""A disk in memory: what a directory of files is to a process that may be killed, lose its power, or be refused.

The module holds the calls that both interfaces to the disk are made of (`faces.py` has the rest of each) and every fault that
several suites inject: a process that ends at a call, in the middle of a write too (`cut_after`); a call that fails (`fail`);
places that cannot be read (`refuse_reads`); no room (`free_bytes`); a caller that looks at the disk before each change
(`before`). What a crash leaves is decided in `disk_file.py` and `directory.py`, which choices there are in `crashes.py`.
Only the names of paths count.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random

from tests.fakes.directory import Directory
from tests.fakes.disk_file import DiskFile

CREATE = "create"
READ = "read"
WRITE = "write"
TRUNCATE = "truncate"
FLUSH = "flush"
RENAME = "rename"
UNLINK = "unlink"
FLUSH_NAMES = "flush of the directory"

FREE_BYTES = 1 << 40


class ProcessGone(BaseException):
    """The process that makes this call does not exist any more."""


@dataclass(frozen=True, slots=True)
class Step:
    """A call that is about to change the disk; of a write also what it would write."""

    call: str
    name: str
    position: int = 0
    data: bytes = b""


@dataclass(frozen=True, slots=True)
class BadPlace:
    """Bytes that cannot be read, and the error's number."""

    file: DiskFile
    start: int
    end: int
    number: int


class Disk:
    """See the module."""

    def __init__(self, directory: Directory | None = None) -> None:
        self.directory = directory if directory is not None else Directory()
        self.calls = 0
        """Calls that change the disk, so far."""
        self.before: Callable[[Step], None] | None = None
        """Called before each change."""
        self.fail: Callable[[str], None] = _nothing
        """Called in each change and each read, with its name; raises OSError to have it fail."""
        self.cut_after: int | None = None
        """So many more changes are made; in the next one the process ends. None: all."""
        self.gone = False
        """Whether the process that has the disk does not exist any more."""
        self.free_bytes = FREE_BYTES
        self.bad_places: list[BadPlace] = []
        self.descriptors: dict[int, DiskFile] = {}
        self._last_fd = 1000

    @property
    def names(self) -> dict[str, DiskFile]:
        """The files by name, as they read."""
        return self.directory.names

    def file(self, fd: int) -> DiskFile:
        """Return an open file."""
        return self.descriptors[fd]

    def content(self, name: str) -> bytearray:
        """Return what a file reads, to be changed by a test: changes count as flushed after `settle`."""
        return self.names[name].now

    # ---- what happens to the disk and to the process that has it

    def kill(self) -> None:
        """The process ends, and another one may have the disk: nothing is open, written bytes stay, faults of calls end."""
        self.descriptors.clear()
        self.cut_after = None
        self.fail = _nothing
        self.gone = False

    def power_loss(self, random: Random) -> None:
        """Cut the power: names that were not flushed are all there or none, of the dirty sectors any."""
        self.kill()
        durable_only = random.random() < 0.5
        self.directory.cut_names(lambda number, of: not durable_only)
        for file in self.names.values():
            file.survive_sectors(lambda: random.random() < 0.5, len(file.now))

    def settle(self) -> None:
        """Count all written bytes and all names as flushed."""
        self.directory.settle()

    def refuse_reads(self, name: str, start: int, end: int, number: int) -> None:
        """From now on reads of a file that touch bytes [start, end) fail with this error number."""
        self.bad_places.append(BadPlace(self.names[name], start, end, number))

    # ---- the calls that both interfaces have

    def open(self, path: Path) -> int:
        """Open an existing file for reading and writing."""
        self._alive()
        if path.name not in self.names:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", path.name)
        return self._descriptor(self.names[path.name])

    def close(self, fd: int) -> None:
        """Close a file."""
        self.descriptors.pop(fd, None)

    def size(self, fd: int) -> int:
        """Return a file's length in bytes."""
        self._alive()
        return len(self.descriptors[fd].now)

    def pread(self, fd: int, length: int, position: int) -> bytes:
        """Read; returns less than asked at the end of the file."""
        self._alive()
        self.fail(READ)
        file = self.descriptors[fd]
        for bad in self.bad_places:
            if bad.file is file and position < bad.end and bad.start < position + length:
                raise OSError(bad.number, "a place that cannot be read")
        return bytes(file.now[position : position + length])

    def fdatasync(self, fd: int) -> None:
        """Return once content and length are on the disk."""
        file = self.descriptors[fd]
        self._change(FLUSH, file)
        file.flush()

    def rename(self, source: Path, target: Path) -> None:
        """Rename a file, in place of an existing one."""
        self._change(RENAME, None, target.name)
        self.directory.change(source.name, target.name, self.names[source.name])

    def sync_directory(self, directory: Path) -> None:
        """Make names durable."""
        self._change(FLUSH_NAMES)
        self.directory.flush_names()

    # ---- for the faces

    def _alive(self) -> None:
        if self.gone:
            raise ProcessGone

    def _change(
        self, call: str, file: DiskFile | None = None, name: str = "", position: int = 0, data: bytes = b""
    ) -> None:
        """Note that the disk is about to change; raise what was injected."""
        self._alive()
        self.calls += 1
        self.fail(call)
        if self.before is not None:
            self.before(Step(call, name if file is None else self._name_of(file), position, data))
        if self.cut_after is not None:
            if self.cut_after == 0:
                self._end(call, name)
                raise ProcessGone
            self.cut_after -= 1

    def _end(self, call: str, name: str) -> None:
        """The process ends in this call."""
        self.gone = True

    def _torn(self, data: bytes) -> bytes:
        """Return what is there of a write in which the process ended."""
        return data[: len(data) // 2]

    def _name_of(self, file: DiskFile) -> str:
        return next((name for name, each in self.names.items() if each is file), "removed")

    def _descriptor(self, file: DiskFile) -> int:
        self._last_fd += 1
        self.descriptors[self._last_fd] = file
        return self._last_fd

    def _write(self, fd: int, data: bytes, position: int) -> int:
        file = self.descriptors[fd]
        if self.cut_after == 0 and not self.gone:
            self.calls += 1
            self._end(WRITE, "")
            file.write(position, self._torn(data))
            raise ProcessGone
        self._change(WRITE, file, "", position, data)
        data = self._taken(data)
        self._take_room(position + len(data) - len(file.now))
        file.write(position, data)
        return len(data)

    def _taken(self, data: bytes) -> bytes:
        """Return what the disk takes of a write: a disk may take less than asked. Raises OSError."""
        return data

    def _take_room(self, missing_bytes: int) -> None:
        if missing_bytes <= 0:
            return
        if missing_bytes > self.free_bytes:
            raise OSError(errno.ENOSPC, "No space left on device")
        self.free_bytes -= missing_bytes

    def _cut(self, file: DiskFile, length: int) -> None:
        self._change(TRUNCATE, file)
        self.free_bytes += max(0, len(file.now) - length)
        file.cut(length)


def _nothing(call: str) -> None:
    """No fault."""
