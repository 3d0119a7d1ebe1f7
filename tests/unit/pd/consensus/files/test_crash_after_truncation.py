"""What cutting the Raft files at every call found: names and lengths that were relied on before they were flushed."""

from __future__ import annotations

from pathlib import Path
from random import Random

from rangelog_pd.consensus.files.journal import RaftJournal
from rangelog_pd.consensus.rules.raft_log import RaftLog
from tests.fakes.disk import ProcessGone
from tests.fakes.faces import RaftDisk
from tests.simulation.raft_disk import VirtualDisk

PATH = Path("/raft/journal")


def fill(journal: RaftJournal, first: int, count: int, term: int) -> None:
    """Append and flush, each alone."""
    for index in range(first, first + count):
        journal.append(b"entry-%d-%d" % (index, term), index, term)
        journal.sync()


def test_a_cut_is_on_the_disk_before_anything_is_written_over_it() -> None:
    """A power cut could leave new entries with the cut ones behind them, which looked like damage: no start any more."""
    disk = RaftDisk()
    journal = RaftJournal(PATH, files=disk)
    fill(journal, 1, 8, term=1)
    journal.truncate_from(4)
    journal.append(b"of another leader", 4, 2)
    pieces = list(disk.names[PATH.name].pieces())
    without_cuts = disk.directory.power_cut(lambda number, of: pieces[number][1] is not None, lambda number, of: True)
    found = RaftJournal(PATH, files=RaftDisk(without_cuts), must_hold=3)
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
    while "vote" not in disk.names:
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
