"""One member's disk in memory, in the simulated world: flushes take virtual time, and what fails or survives is drawn.

The disk itself is `tests/fakes`. What holds here: of what was not flushed, a power cut keeps any 512-byte sectors, any length
between the flushed and the last one, and any of the changed names. A write that the crash falls into is there in part. After
a crash the disk answers nothing more to the process that ran before: every call of its raises `ProcessGone`.
"""

from __future__ import annotations

import errno
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random

from tests.fakes.disk import FLUSH, FLUSH_NAMES, TRUNCATE, WRITE
from tests.fakes.disk_file import DiskFile
from tests.fakes.faces import RaftDisk

_SYSTEM_CALLS = {WRITE: "pwrite", FLUSH: "fdatasync", FLUSH_NAMES: "sync_directory"}


class VirtualDisk(RaftDisk):
    """See the module."""

    def __init__(self, random: Random) -> None:
        super().__init__()
        self.random = random
        self.full = False
        self.failing_flushes = False
        self.failing_append = False
        """The next flush of what was appended fails, and all after it work again."""
        self.slow_s = 0.0
        self.cut_once_after: tuple[str, int] | None = None
        """So many calls after this one: `cut_after` from there on."""
        self.counts: Counter[str] = Counter()
        self.on_latency: Callable[[float], None] = lambda seconds: None
        self.on_gone: Callable[[str], None] = lambda call: None
        self.gone = True

    # ---- what happens to it

    def boot(self) -> None:
        """A new process has the disk."""
        self.kill()
        self.cut_once_after = None

    def process_gone(self) -> None:
        """The process died: nothing of it reaches the disk any more. What it wrote stays."""
        self.gone = True

    def lose_power(self) -> None:
        """See the module."""
        self.gone = True
        changes = self.directory.changes
        latest_only = self.random.random() < 0.5  # the order in which names were changed means nothing
        self.directory.cut_names(
            lambda number, of: changes[number][2] is changes[-1][2] if latest_only else self.random.random() < 0.5
        )
        for name in sorted(self.names):
            self._cut_power_of(self.names[name])

    def _cut_power_of(self, file: DiskFile) -> None:
        between = self.random.randint(*sorted((len(file.flushed), len(file.now))))
        length = self.random.choice([len(file.flushed), len(file.now), between])
        share = self.random.choice([0.0, 0.5, 1.0])
        file.survive_sectors(lambda: self.random.random() < share, length)

    def wipe(self) -> None:
        """A new disk in its place."""
        self.gone = True
        self.names.clear()
        self.directory.flush_names()

    # ---- calls

    def _change(
        self, call: str, file: DiskFile | None = None, name: str = "", position: int = 0, data: bytes = b""
    ) -> None:
        super()._change(call, file, name, position, data)
        if call == TRUNCATE:
            self.counts["cuts"] += 1
        if self.cut_once_after is not None and self.cut_once_after[0] == f"{call} {name}":
            self.cut_after = self.cut_once_after[1]
            self.cut_once_after = None

    def _end(self, call: str, name: str) -> None:
        super()._end(call, name)
        self.on_gone(f"{_SYSTEM_CALLS.get(call, call)} {name}".strip())

    def _torn(self, data: bytes) -> bytes:
        return data[: self.random.randrange(len(data) + 1)]

    def _taken(self, data: bytes) -> bytes:
        """A full disk takes a part, then nothing."""
        if not self.full:
            return data
        if self.random.random() < 0.5 or len(data) < 2:
            self.counts["full disk refused a write"] += 1
            raise OSError(errno.ENOSPC, "No space left on device")
        return data[: self.random.randrange(1, len(data))]

    def fdatasync(self, fd: int) -> None:
        """See Files."""
        fails, self.failing_append = self.failing_append, False
        self._flush(fd, fails=fails)

    def fsync(self, fd: int) -> None:
        """See Files."""
        self._flush(fd, fails=False)

    def _flush(self, fd: int, *, fails: bool) -> None:
        file = self.file(fd)
        self._change(FLUSH, file)
        self._wait()
        if (fails or self.failing_flushes) and file.dirty_sectors():
            self.counts["flush failed"] += 1
            file.fail_flush()
            raise OSError(errno.EIO, "Input/output error")
        file.flush()

    def sync_directory(self, path: Path) -> None:
        """See Files."""
        self._change(FLUSH_NAMES)
        self._wait()
        if self.failing_flushes:
            self.counts["flush failed"] += 1
            raise OSError(errno.EIO, "Input/output error")
        self.directory.flush_names()

    def _wait(self) -> None:
        self.on_latency(self.random.uniform(0.0001, 0.001) + self.slow_s * self.random.random())
