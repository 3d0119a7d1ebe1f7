"""The identity of a data directory and its count of starts, cut at every call: the count never goes back."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from rangelog_server.identity import DataDirectory, DirectoryIdentity
from rangelog_server.wal.io import Io

IDENTITY = "identity.json"


class Killed(BaseException):
    """The process ends here."""


class CutIo(Io):
    """The real disk, until so many calls were made; what it would lose in a power cut is put away.

    Not the disk of `tests/fakes`: a data directory is locked, read and listed past `Io`, so it has to be a real one.
    """

    def __init__(self, directory: Path, cut_after: int) -> None:
        self.left = cut_after
        self._path = directory / IDENTITY
        self.durable = self._path.read_bytes() if self._path.exists() else None

    def _call(self) -> None:
        if self.left == 0:
            raise Killed
        self.left -= 1

    def create(self, path: Path, size_bytes: int) -> int:
        self._call()
        return super().create(path, size_bytes)

    def pwritev(self, fd: int, buffers: Sequence[bytes], position: int) -> int:
        if self.left == 0:
            super().pwritev(fd, [b"".join(buffers)[:20]], position)
        self._call()
        return super().pwritev(fd, buffers, position)

    def fdatasync(self, fd: int) -> None:
        self._call()
        super().fdatasync(fd)

    def rename(self, source: Path, target: Path) -> None:
        self._call()
        super().rename(source, target)

    def sync_directory(self, directory: Path) -> None:
        self._call()
        super().sync_directory(directory)
        self.durable = self._path.read_bytes()

    def power_cut(self) -> None:
        """The name that was not flushed goes back to what it was."""
        if self.durable is None:
            self._path.unlink(missing_ok=True)
        else:
            self._path.write_bytes(self.durable)


def boot(path: Path, io: Io | None = None) -> DirectoryIdentity:
    """One start."""
    directory = DataDirectory(path, io)
    try:
        return directory.boot("rs1")
    finally:
        directory.close()


@pytest.mark.parametrize("power", [False, True], ids=["killed", "power-cut"])
@pytest.mark.parametrize("starts", [0, 1, 3])
def test_no_start_has_the_number_of_another(tmp_path: Path, starts: int, *, power: bool) -> None:
    """Cut at each call of a start, once and again: whoever is told a number is told a new one, of the same incarnation."""
    for cut_after in range(6):
        path = tmp_path / str(cut_after)
        told = [boot(path) for _ in range(starts)]
        for _ in range(2):
            path.mkdir(exist_ok=True)
            io = CutIo(path, cut_after)
            try:
                told.append(boot(path, io))
            except Killed:
                pass
            if power:
                io.power_cut()
        told.append(boot(path))
        assert [each.boot for each in told] == sorted({each.boot for each in told})
        assert len({each.incarnation for each in told}) == 1
