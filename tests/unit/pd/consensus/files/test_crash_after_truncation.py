"""What cutting the Raft files at every call found: names and lengths that were relied on before they were flushed."""

from __future__ import annotations

from pathlib import Path
from random import Random

from rangelog_pd.consensus.files.journal import Journal
from rangelog_pd.consensus.rules.raft_log import RaftLog
from tests.simulation.raft_disk import ProcessGone, VirtualDisk

PATH = Path("/raft/journal")


class LateCuts(VirtualDisk):
    """A power cut that keeps every sector and loses the lengths that were not flushed."""

    def __init__(self) -> None:
        super().__init__(Random(1))
        self.flushed_bytes = 0

    def fdatasync(self, fd: int) -> None:
        super().fdatasync(fd)
        self.flushed_bytes = self.size(fd)

    def disk_image(self, fd: int, old: bytes) -> bytes:
        """What the sectors hold if the last `truncate` never reached the disk: old bytes behind the new ones."""
        new = self.pread(fd, self.size(fd), 0)
        return new + old[len(new) : self.flushed_bytes]


def fill(journal: Journal, first: int, count: int, term: int) -> None:
    """Append and flush, each alone."""
    for index in range(first, first + count):
        journal.append(b"entry-%d-%d" % (index, term), index, term)
        journal.sync()


def test_a_cut_is_on_the_disk_before_anything_is_written_over_it() -> None:
    """A power cut could leave new entries with the cut ones behind them, which looked like damage: no start any more."""
    disk = LateCuts()
    disk.boot()
    journal = Journal(PATH, files=disk)
    fill(journal, 1, 8, term=1)
    fd = journal._fd
    old = disk.pread(fd, disk.size(fd), 0)
    journal.truncate_from(4)
    journal.append(b"of another leader", 4, 2)
    image = disk.disk_image(fd, old)
    again = VirtualDisk(Random(1))
    again.boot()
    made = again.create(PATH)
    again.pwrite(made, image, 0)
    found = Journal(PATH, files=again, must_hold=3)
    assert [entry.log_index for entry in found.entries[:3]] == [1, 2, 3]


def test_names_that_a_killed_process_left_unflushed_are_flushed_before_anything_rests_on_them() -> None:
    """Killed between the vote file's first rename and the directory's flush, started again, then a power cut: it starts."""
    for seed in range(60):
        disk = VirtualDisk(Random(seed))
        disk.boot()
        calls = _calls_until_the_vote_is_renamed()
        for cut_after in (calls, calls + 1 + seed % 8):
            disk.boot()
            disk.cut_after = cut_after if cut_after == calls else cut_after - calls
            _open(disk)
            disk.process_gone()
        disk.lose_power()
        disk.boot()
        RaftLog(Path("/raft"), "a", None, files=disk)


def _calls_until_the_vote_is_renamed() -> int:
    disk = VirtualDisk(Random(0))
    disk.boot()
    calls = 0
    while "vote" not in disk._names:
        calls += 1
        disk.wipe()
        disk.boot()
        disk.cut_after = calls
        _open(disk)
    return calls


def _open(disk: VirtualDisk) -> None:
    try:
        RaftLog(Path("/raft"), "a", None, files=disk)
    except ProcessGone:
        pass
