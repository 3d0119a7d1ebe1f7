"""One member's disk in memory: what was written, what was flushed, and what a power cut makes of the difference.

What holds: flushed bytes and names that were flushed with their directory survive everything but `wipe`. Of the rest, a
power cut keeps any 512-byte sectors, any length between the flushed and the last one, and any of the changed names. A
flush that fails marks its sectors clean: they are read back, the next flush says OK, and a power cut takes them. After a
crash the disk answers nothing more to the process that ran before: every call of its raises `ProcessGone`.
"""

from __future__ import annotations

import errno
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from rangelog_pd.consensus.files.disk import Files

SECTOR_BYTES = 512


class ProcessGone(BaseException):
    """The process that makes this call does not exist any more."""


@dataclass(eq=False)
class _File:
    content: bytearray = field(default_factory=bytearray)
    flushed: bytearray = field(default_factory=bytearray)
    dirty: dict[int, None] = field(default_factory=dict)
    never_flushed: dict[int, None] = field(default_factory=dict)  # after a failed flush: clean, and not on the disk

    def cut(self, random: Random) -> None:
        """The power went: see the module."""
        size = random.choice([len(self.flushed), len(self.content), self._some_length(random)])
        kept = bytearray(size)
        kept[: len(self.flushed)] = self.flushed[:size]
        share = random.choice([0.0, 0.5, 1.0])
        for sector in self.dirty:
            if random.random() < share:
                start, end = sector * SECTOR_BYTES, min((sector + 1) * SECTOR_BYTES, size)
                part = self.content[start:end]
                kept[start : start + len(part)] = part
        self.content = kept
        self.settle()

    def _some_length(self, random: Random) -> int:
        return random.randint(*sorted((len(self.flushed), len(self.content))))

    def settle(self) -> None:
        """All that is there is on the disk."""
        self.flushed = bytearray(self.content)
        self.dirty.clear()
        self.never_flushed.clear()

    def flush(self) -> None:
        """A flush that worked: of what an earlier one failed on it knows nothing."""
        flushed = bytearray(self.content)
        for sector in self.never_flushed:
            start, end = sector * SECTOR_BYTES, min((sector + 1) * SECTOR_BYTES, len(flushed))
            flushed[start:end] = self.flushed[start:end].ljust(end - start, b"\0")
        self.flushed = flushed
        self.dirty.clear()


class VirtualDisk(Files):
    """See the module. One directory, as the Raft files have it."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.full = False
        self.failing_flushes = False
        self.failing_append = False
        """The next flush of what was appended fails, and all after it work again."""
        self.slow_s = 0.0
        self.calls = 0
        self.cut_after: int | None = None
        self.cut_once_after: tuple[str, int] | None = None
        """So many calls after this one: `cut_after` from there on."""
        self.counts: Counter[str] = Counter()
        self.on_latency: Callable[[float], None] = lambda seconds: None
        self.on_gone: Callable[[str], None] = lambda call: None
        self._names: dict[str, _File] = {}
        self._durable_names: dict[str, _File] = {}
        self._changed_names: list[tuple[str, str, _File]] = []  # from, to, what; a new name comes from nowhere
        self._open: dict[int, _File] = {}
        self._next_fd = 1000
        self._gone = True

    # ---- what happens to it

    def boot(self) -> None:
        """A new process has the disk."""
        self._open.clear()
        self.cut_after = self.cut_once_after = None
        self._gone = False

    def process_gone(self) -> None:
        """The process died: nothing of it reaches the disk any more. What it wrote stays."""
        self._gone = True

    def lose_power(self) -> None:
        """See the module."""
        self._gone = True
        names = dict(self._durable_names)
        latest_only = self.random.random() < 0.5  # the order in which names were changed means nothing
        for source, target, file in self._changed_names:
            if file is self._changed_names[-1][2] if latest_only else self.random.random() < 0.5:
                names[target] = file
                if names.get(source) is file:
                    del names[source]
        self._names = names
        for name in sorted(self._names):
            self._names[name].cut(self.random)
        self._names_are_durable()

    def wipe(self) -> None:
        """A new disk in its place."""
        self._gone = True
        self._names.clear()
        self._names_are_durable()

    def _names_are_durable(self) -> None:
        self._durable_names = dict(self._names)
        self._changed_names.clear()

    def surely_holds(self, name: str, length: int) -> bool:
        """Whether the first bytes of a file would be the same after any power cut."""
        file = self._names.get(name)
        if file is None or self._durable_names.get(name) is not file:
            return False
        return len(file.flushed) >= length and file.flushed[:length] == file.content[:length]

    # ---- Files

    def _call(self, name: str, path: str = "", *, changes: bool = True) -> None:
        if self._gone:
            raise ProcessGone
        if not changes:
            return
        self.calls += 1
        if self.cut_after is not None:
            self.cut_after -= 1
            if self.cut_after < 0:
                self._gone = True
                self.on_gone(f"{name} {path}".strip())
                raise ProcessGone
        if self.cut_once_after is not None and self.cut_once_after[0] == f"{name} {path}":
            self.cut_after = self.cut_once_after[1]
            self.cut_once_after = None

    def make_directory(self, path: Path) -> None:
        """See Files."""

    def exists(self, path: Path) -> bool:
        """See Files."""
        self._call("exists", changes=False)
        return path.name in self._names

    def open(self, path: Path) -> int:
        """See Files."""
        self._call("open", changes=False)
        if path.name not in self._names:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", path.name)
        return self._descriptor(self._names[path.name])

    def create(self, path: Path) -> int:
        """See Files."""
        self._call("create", path.name)
        if path.name not in self._names:
            self._names[path.name] = _File()
            self._changed_names.append(("", path.name, self._names[path.name]))
        file = self._names[path.name]
        file.content.clear()
        file.dirty.clear()
        file.never_flushed.clear()
        return self._descriptor(file)

    def _descriptor(self, file: _File) -> int:
        self._next_fd += 1
        self._open[self._next_fd] = file
        return self._next_fd

    def close(self, fd: int) -> None:
        """See Files."""
        self._open.pop(fd, None)

    def size(self, fd: int) -> int:
        """See Files."""
        self._call("size", changes=False)
        return len(self._open[fd].content)

    def pread(self, fd: int, length: int, position: int) -> bytes:
        """See Files."""
        self._call("pread", changes=False)
        return bytes(self._open[fd].content[position : position + length])

    def pwrite(self, fd: int, data: bytes | memoryview, position: int) -> int:
        """See Files. A write that the crash falls into is there in part; a full disk takes a part, then nothing."""
        written = bytes(data)
        try:
            self._call("pwrite")
        except ProcessGone:
            if self.cut_after == -1:
                self._store(fd, written[: self.random.randrange(len(written) + 1)], position)
            raise
        if self.full:
            if self.random.random() < 0.5 or len(written) < 2:
                self.counts["full disk refused a write"] += 1
                raise OSError(errno.ENOSPC, "No space left on device")
            written = written[: self.random.randrange(1, len(written))]
        self._store(fd, written, position)
        return len(written)

    def _store(self, fd: int, data: bytes, position: int) -> None:
        file = self._open[fd]
        if not data:
            return
        if position > len(file.content):
            file.content.extend(bytes(position - len(file.content)))
        file.content[position : position + len(data)] = data
        for sector in range(position // SECTOR_BYTES, (position + len(data) - 1) // SECTOR_BYTES + 1):
            file.dirty[sector] = None
            file.never_flushed.pop(sector, None)

    def truncate(self, fd: int, length: int) -> None:
        """See Files."""
        self._call("truncate")
        self.counts["cuts"] += 1
        file = self._open[fd]
        del file.content[length:]
        for sectors in (file.dirty, file.never_flushed):
            for sector in [each for each in sectors if each * SECTOR_BYTES >= length]:
                del sectors[sector]

    def fdatasync(self, fd: int) -> None:
        """See Files."""
        fails, self.failing_append = self.failing_append, False
        self._flush(fd, fails=fails)

    def fsync(self, fd: int) -> None:
        """See Files."""
        self._flush(fd, fails=False)

    def _flush(self, fd: int, *, fails: bool) -> None:
        self._call("fdatasync")
        self.on_latency(self.random.uniform(0.0001, 0.001) + self.slow_s * self.random.random())
        file = self._open[fd]
        if (fails or self.failing_flushes) and file.dirty:
            self.counts["flush failed"] += 1
            file.never_flushed.update(file.dirty)
            file.dirty.clear()
            raise OSError(errno.EIO, "Input/output error")
        file.flush()

    def rename(self, source: Path, target: Path) -> None:
        """See Files."""
        self._call("rename", target.name)
        self._names[target.name] = self._names.pop(source.name)
        self._changed_names.append((source.name, target.name, self._names[target.name]))

    def sync_directory(self, path: Path) -> None:
        """See Files."""
        self._call("sync_directory")
        self.on_latency(self.random.uniform(0.0001, 0.001) + self.slow_s * self.random.random())
        if self.failing_flushes:
            self.counts["flush failed"] += 1
            raise OSError(errno.EIO, "Input/output error")
        self._names_are_durable()
