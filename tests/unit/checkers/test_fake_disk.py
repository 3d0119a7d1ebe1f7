"""The disk in memory answers as a real one does, loses what it must, and keeps what it must: the suites rest on it."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from rangelog_pd.consensus.files.disk import Files
from rangelog_server.wal.io import Io
from tests.fakes.crashes import crashed
from tests.fakes.directory import Directory
from tests.fakes.disk import FLUSH, READ, WRITE, ProcessGone, Step
from tests.fakes.disk_file import SECTOR_BYTES
from tests.fakes.faces import LogDisk, RaftDisk

FILE = Path("/log/file")
NAMES = ("a", "b", "c")


def keep_none(number: int, of: int) -> bool:
    return False


def keep_all(number: int, of: int) -> bool:
    return True


def written(*pieces: tuple[int, bytes]) -> tuple[LogDisk, int]:
    """A disk with one durable file of two sectors of zeros, and writes that were not flushed."""
    disk = LogDisk()
    fd = disk.create(FILE, 2 * SECTOR_BYTES)
    disk.sync_directory(FILE.parent)
    for position, data in pieces:
        disk.pwritev(fd, [data], position)
    return disk, fd


# ---- as real disks


class Both:
    """Makes each call on a real directory and on the one in memory; the answers must be the same."""

    def __init__(self, real: Any, fake: Any, directory: Path) -> None:
        self._real, self._fake, self._directory = real, fake, directory

    def call(self, name: str, *arguments: Any) -> Any:
        """Return what the real one returned."""
        outcome = [self._outcome(each, name, arguments) for each in (self._real, self._fake)]
        assert outcome[0] == outcome[1], f"{name}{arguments}"
        return outcome[0]

    def with_file(self, path: Path, use: Callable[[int], tuple[Any, ...]], name: str) -> None:
        """The same with an open file, whose descriptor `use` puts among the arguments."""
        outcome = []
        for each in (self._real, self._fake):
            try:
                fd = each.open(path)
            except OSError as error:
                outcome.append(error.errno)
                continue
            outcome.append((self._outcome(each, name, use(fd)), each.size(fd), each.pread(fd, 1 << 20, 0)))
            each.close(fd)
        assert outcome[0] == outcome[1], name

    @staticmethod
    def _outcome(disk: Any, name: str, arguments: tuple[Any, ...]) -> Any:
        try:
            return getattr(disk, name)(*arguments)
        except OSError as error:
            return error.errno


@pytest.mark.parametrize("seed", range(10))
def test_the_log_disk_answers_as_the_real_calls_do(tmp_path: Path, seed: int) -> None:
    """Files made, written within and behind their end, cut, renamed over others, removed."""
    chance, both = Random(seed), Both(Io(), LogDisk(), tmp_path)
    for _ in range(80):
        path, other = (tmp_path / chance.choice(NAMES) for _ in range(2))
        data, position = chance.randbytes(chance.randrange(1, 3000)), chance.randrange(6000)
        present = path.name in both.call("list", tmp_path)
        match chance.randrange(7):
            case 0 if not present:
                for each in (Io(), both._fake):
                    each.close(each.create(path, position + 1))
            case 1:
                both.with_file(path, lambda fd, d=data, p=position: (fd, [d[:9], d[9:]], p), "pwritev")
            case 2:
                both.with_file(path, lambda fd: (fd,), "fdatasync")
            case 3 if present:
                both.call("truncate", path, min(position, os.path.getsize(path)))
            case 4 if present and path != other:
                both.call("rename", path, other)
            case 5 if present:
                both.call("unlink", path)
            case 6:
                both.call("sync_directory", tmp_path)


@pytest.mark.parametrize("seed", range(10))
def test_the_raft_disk_answers_as_the_real_calls_do(tmp_path: Path, seed: int) -> None:
    """Files made or emptied, written within and behind their end, cut, renamed over others."""
    chance, both = Random(seed), Both(Files(), RaftDisk(), tmp_path)
    for _ in range(80):
        path, other = (tmp_path / chance.choice(NAMES) for _ in range(2))
        data, position = chance.randbytes(chance.randrange(1, 3000)), chance.randrange(6000)
        present = both.call("exists", path)
        match chance.randrange(6):
            case 0:
                for each in (Files(), both._fake):
                    each.close(each.create(path))
            case 1:
                both.with_file(path, lambda fd, d=data, p=position: (fd, d, p), "pwrite")
            case 2:
                both.with_file(path, lambda fd: (fd,), chance.choice(("fdatasync", "fsync")))
            case 3 if present:
                length = min(position, os.path.getsize(path))
                both.with_file(path, lambda fd, n=length: (fd, n), "truncate")
            case 4 if present and path != other:
                both.call("rename", path, other)
            case 5:
                both.call("sync_directory", tmp_path)


@pytest.mark.parametrize("real", [Io(), Files()], ids=["log", "raft"])
def test_the_real_calls_flush_what_the_fakes_flush(
    tmp_path: Path, real: Io | Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`fdatasync` flushes the file, `sync_directory` the directory: a power cut in memory counts on both."""
    (tmp_path / "file").write_bytes(b"content")
    flushed: list[bool] = []
    for name in ("fsync", "fdatasync"):
        monkeypatch.setattr(os, name, lambda fd: flushed.append(stat.S_ISDIR(os.fstat(fd).st_mode)))
    fd = real.open(tmp_path / "file")
    real.fdatasync(fd)
    assert flushed == [False]
    real.sync_directory(tmp_path)
    assert flushed == [False, True]
    real.close(fd)


# ---- what a crash leaves


def test_a_power_cut_takes_what_was_not_flushed_and_a_kill_does_not() -> None:
    """Bytes need the file's flush, names the directory's."""
    disk, fd = written((0, b"flushed"))
    disk.fdatasync(fd)
    disk.pwritev(fd, [b"not flushed"], 100)
    disk.create(Path("/log/new"), 1)
    disk.kill()
    assert disk.content("file").startswith(b"flushed") and b"not flushed" in disk.content("file")
    left = disk.directory.power_cut(keep_none, keep_none).content()
    assert left.keys() == {"file"} and left["file"].startswith(b"flushed") and b"not flushed" not in left["file"]
    assert disk.directory.power_cut(keep_all, keep_all).content() == disk.directory.content()


def test_a_write_survives_in_any_of_its_sectors() -> None:
    """The second without the first, and an old write of a sector without the new one."""
    disk, _ = written((SECTOR_BYTES - 2, b"onetwo"), (SECTOR_BYTES - 2, b"X"))
    second = disk.directory.power_cut(lambda number, of: number == 1, keep_all).content()["file"]
    assert second[SECTOR_BYTES - 2 : SECTOR_BYTES + 4] == b"\0\0etwo"
    old = disk.directory.power_cut(lambda number, of: number < 2, keep_all).content()["file"]
    assert old[SECTOR_BYTES - 2 : SECTOR_BYTES + 4] == b"onetwo"


def test_a_cut_that_was_not_flushed_may_be_undone() -> None:
    """The bytes behind it are there again, also behind what was written after it."""
    disk = RaftDisk(Directory.of({"file": b"0123456789"}))
    fd = disk.open(FILE)
    disk.truncate(fd, 3)
    disk.pwrite(fd, b"XY", 3)
    assert disk.directory.power_cut(lambda number, of: number == 1, keep_all).content() == {"file": b"012XY56789"}
    assert not disk.directory.surely_holds("file", 4) and disk.directory.surely_holds("file", 3)
    disk.fdatasync(fd)
    assert disk.directory.power_cut(keep_none, keep_none).content() == {"file": b"012XY"}


def test_a_rename_that_was_not_flushed_may_be_undone() -> None:
    """Then both files are what they were."""
    disk = RaftDisk(Directory.of({"old": b"old", "new": b"new"}))
    disk.rename(Path("/new"), Path("/old"))
    assert disk.directory.content() == {"old": b"new"}
    assert disk.directory.power_cut(keep_all, keep_none).content() == {"old": b"old", "new": b"new"}
    disk.sync_directory(Path("/"))
    assert disk.directory.power_cut(keep_none, keep_none).content() == {"old": b"new"}


def test_what_a_failed_flush_lost_no_later_flush_brings_back() -> None:
    """It reads as written, until the cache is dropped or the power goes; written once more, it is flushed."""
    disk, fd = written((0, b"lost"))
    disk.file(fd).fail_flush()
    disk.pwritev(fd, [b"kept"], SECTOR_BYTES)
    disk.fdatasync(fd)
    assert disk.pread(fd, 4, 0) == b"lost"
    left = disk.directory.power_cut(keep_all, keep_all).content()["file"]
    assert left[:4] == bytes(4) and left[SECTOR_BYTES : SECTOR_BYTES + 4] == b"kept"
    again = disk.copy()
    again.drop_cache(again.open(FILE))
    assert again.content("file")[:4] == bytes(4)
    disk.pwritev(fd, [b"LO"], 0)
    disk.fdatasync(fd)
    assert disk.directory.power_cut(keep_none, keep_none).content()["file"][:4] == b"LOst"


@pytest.mark.parametrize("seed", range(20))
def test_a_drawn_power_cut_leaves_each_sector_as_flushed_or_as_written(seed: int) -> None:
    """Nothing else, and what was flushed."""
    disk, fd = written((0, b"a" * SECTOR_BYTES))
    disk.fdatasync(fd)
    disk.pwritev(fd, [b"b" * 2 * SECTOR_BYTES], 0)
    disk.power_loss(Random(seed))
    first, second = disk.content("file")[:SECTOR_BYTES], disk.content("file")[SECTOR_BYTES:]
    assert first in (b"a" * SECTOR_BYTES, b"b" * SECTOR_BYTES)
    assert second in (bytes(SECTOR_BYTES), b"b" * SECTOR_BYTES)
    assert disk.directory.power_cut(keep_none, keep_none).content() == disk.directory.content()


def test_a_crash_in_a_write_leaves_parts_of_it() -> None:
    """Of a killed process the first bytes, of a power cut any sectors."""
    disk, _ = written()
    data = b"x" * 2 * SECTOR_BYTES
    left = {
        kind: each.content()["file"]
        for kind, each in crashed(disk.directory, Step(WRITE, "file", 0, data), Random(1), 0)
    }
    assert 0 < left["killed in a write"].count(b"x") < len(data)
    assert left["killed"] == left["nothing unflushed"] == bytes(len(data))
    assert (
        left["first half of the sectors"].count(b"x") == left["second half of the sectors"].count(b"x") == SECTOR_BYTES
    )
    assert left["all of it"] == data


# ---- faults of calls


def test_the_process_ends_at_a_call_and_makes_no_other() -> None:
    """A write in which it ends is there in part; another process has the disk after `kill`."""
    disk, fd = written()
    disk.cut_after = 1
    disk.pwritev(fd, [b"first"], 0)
    with pytest.raises(ProcessGone):
        disk.pwritev(fd, [b"second"], 100)
    for call in (lambda: disk.pread(fd, 1, 0), lambda: disk.fdatasync(fd), lambda: disk.open(FILE)):
        with pytest.raises(ProcessGone):
            call()
    disk.kill()
    assert disk.pread(disk.open(FILE), 6, 100) == b"sec\0\0\0"


def test_calls_fail_as_the_test_wants_it() -> None:
    """By name, at a place, for want of room, or for want of alignment; a failed call changes nothing."""
    disk, fd = written((0, b"content"))
    disk.refuse_reads("file", 10, 12, errno.EIO)
    assert disk.pread(fd, 10, 0)[:7] == b"content" and disk.pread(fd, 10, 12)
    with pytest.raises(OSError, match="cannot be read"):
        disk.pread(fd, 11, 0)
    calls: list[str] = []

    def fail(call: str) -> None:
        calls.append(call)
        if call == FLUSH:
            raise OSError(errno.EIO, "no flush")

    disk.fail = fail
    with pytest.raises(OSError, match="no flush"):
        disk.fdatasync(fd)
    disk.pread(fd, 1, 0)
    assert calls == [FLUSH, READ]
    disk.free_bytes = 100
    with pytest.raises(OSError, match="No space"):
        disk.create(Path("/log/other"), 101)
    with pytest.raises(OSError, match="No space"):
        disk.pwritev(fd, [bytes(101)], 2 * SECTOR_BYTES)
    assert disk.list(FILE.parent) == ["file"] and disk.size(fd) == 2 * SECTOR_BYTES
    disk.unlink(FILE)
    assert disk.free_bytes == 100 + 2 * SECTOR_BYTES
    disk.create(FILE, 512)
    with pytest.raises(OSError, match="aligned"):
        disk.pwritev(disk.open_direct(FILE), [b"x"], 0)


def test_a_snapshot_is_put_back() -> None:
    """What happened after it is undone, flushed or not."""
    disk, fd = written((0, b"before"))
    image = disk.copy()
    disk.pwritev(fd, [b"behind"], 0)
    disk.fdatasync(fd)
    disk.unlink(FILE)
    assert image.content("file")[:6] == b"before"
    assert image.directory.power_cut(keep_none, keep_none).content()["file"] == bytes(2 * SECTOR_BYTES)
