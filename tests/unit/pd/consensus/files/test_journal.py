"""The journal keeps what it flushed, cuts what it did not, and says so when flushed bytes are damaged."""

from __future__ import annotations

import os
from pathlib import Path
from random import Random

import pytest

from rangelog_core.errors import Corruption, InternalError
from rangelog_pd.consensus.files import hard_state, snapshot_file
from rangelog_pd.consensus.files.hard_state import HardState
from rangelog_pd.consensus.files.journal import JournalEntry, RaftJournal
from rangelog_pd.consensus.files.snapshot_file import Snapshot
from tests.simulation.raft_disk import VirtualDisk


def fill(journal: RaftJournal, count: int, *, term: int = 1, sync_each: int = 1) -> None:
    """Append `count` entries with a flush after each `sync_each`."""
    for number in range(count):
        index = journal.last_index + 1
        journal.append(b"command-%d" % index, index, term)
        if (number + 1) % sync_each == 0:
            journal.sync()


def flushed(path: Path, count: int) -> bytes:
    """Write a journal of `count` flushed entries; return its bytes."""
    journal = RaftJournal(path)
    fill(journal, count)
    journal.close()
    return path.read_bytes()


def reopen(path: Path, must_hold: int = 0) -> list[JournalEntry]:
    """The entries that a new process finds."""
    journal = RaftJournal(path, must_hold=must_hold)
    try:
        return list(journal.entries)
    finally:
        journal.close()


def test_what_was_synced_is_found_again(tmp_path: Path) -> None:
    """Entries come back with their command, index and term, over several flushes and reopenings."""
    path = tmp_path / "journal"
    for round_number in range(3):
        journal = RaftJournal(path, must_hold=round_number * 10)
        fill(journal, 10, term=round_number + 1, sync_each=4)
        journal.sync()
        assert journal.durable_index == journal.last_index
        journal.close()
    entries = reopen(path, must_hold=30)
    assert [entry.log_index for entry in entries] == list(range(1, 31))
    assert [entry.term for entry in entries] == [1] * 10 + [2] * 10 + [3] * 10
    assert entries[16].command == b"command-17"


def test_a_group_of_entries_costs_one_flush(tmp_path: Path) -> None:
    """Appends do not flush by themselves and a clean journal is not flushed again."""
    journal = RaftJournal(tmp_path / "journal")
    fill(journal, 100, sync_each=100)
    journal.sync()
    assert journal.flushes == 1
    journal.close()


def test_every_truncation_of_an_unflushed_tail_recovers_a_prefix(tmp_path: Path) -> None:
    """Cut at any length, a journal whose entries were never flushed opens with the whole entries that are left."""
    path = tmp_path / "journal"
    journal = RaftJournal(path)
    fill(journal, 6, sync_each=100)
    ends = [*journal._positions[1:], journal.size_bytes]
    journal.close()
    data = path.read_bytes()
    for length in range(16, len(data) + 1):
        path.write_bytes(data[:length])
        entries = reopen(path)
        assert len(entries) == sum(1 for end in ends if end <= length)
        assert entries == [JournalEntry(b"command-%d" % (i + 1), i + 1, 1) for i in range(len(entries))]
        assert reopen(path) == entries


def test_no_truncation_of_flushed_entries_goes_unnoticed(tmp_path: Path) -> None:
    """Cut at any length below what was flushed, the journal refuses to open."""
    path = tmp_path / "journal"
    data = flushed(path, 6)
    for length in range(len(data)):
        path.write_bytes(data[:length])
        with pytest.raises(Corruption):
            reopen(path, must_hold=6)


def test_every_bit_flip_in_a_flushed_journal_is_detected(tmp_path: Path) -> None:
    """One flipped bit anywhere is Corruption, and the file is left as it is for whoever repairs it."""
    path = tmp_path / "journal"
    data = flushed(path, 5)
    for position in range(len(data)):
        for bit in (0, 7):
            bad = bytearray(data)
            bad[position] ^= 1 << bit
            path.write_bytes(bad)
            with pytest.raises(Corruption):
                reopen(path, must_hold=5)
            assert path.read_bytes() == bad


def test_damage_in_the_middle_is_detected_without_the_mark(tmp_path: Path) -> None:
    """Later records say what was durable before them: damage to that is never cut off as a torn tail."""
    path = tmp_path / "journal"
    journal = RaftJournal(path)
    fill(journal, 5)
    last = journal._positions[-1]
    journal.close()
    data = path.read_bytes()
    for position in range(last):
        bad = bytearray(data)
        bad[position] ^= 0x10
        path.write_bytes(bad)
        with pytest.raises(Corruption):
            reopen(path)


def test_a_hole_in_an_unflushed_group_is_a_torn_tail(tmp_path: Path) -> None:
    """A page that did not reach the disk while a later one of the same group did: cut, because nobody relied on it."""
    path = tmp_path / "journal"
    journal = RaftJournal(path)
    fill(journal, 2)
    start = journal.size_bytes
    fill(journal, 4, sync_each=100)
    journal.close()
    data = bytearray(path.read_bytes())
    data[start : start + 40] = bytes(40)
    path.write_bytes(data)
    assert len(reopen(path, must_hold=2)) == 2


def test_losing_entries_are_replaced(tmp_path: Path) -> None:
    """A conflicting tail is cut and written anew, and the old bytes do not come back."""
    path = tmp_path / "journal"
    journal = RaftJournal(path)
    fill(journal, 5)
    journal.truncate_from(3)
    assert (journal.last_index, journal.durable_index) == (2, 2)
    journal.append(b"other", 3, 2)
    journal.sync()
    journal.close()
    assert [e.command for e in reopen(path, must_hold=3)] == [b"command-1", b"command-2", b"other"]


def test_losing_entries_behind_a_dropped_head_are_replaced(tmp_path: Path) -> None:
    """What was rewritten with the head makes no claim about a tail that is cut later."""
    journal = RaftJournal(tmp_path / "journal")
    fill(journal, 10)
    journal.drop_before(4)
    journal.truncate_from(8)
    journal.sync()
    journal.close()
    assert [entry.log_index for entry in reopen(journal.path, must_hold=7)] == [4, 5, 6, 7]


def test_dropping_the_head_leaves_old_or_new(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A crash before the rename leaves all entries, after it the shorter journal; positions stay right."""
    path = tmp_path / "journal"
    journal = RaftJournal(path)
    fill(journal, 10)
    real = os.rename

    def crash(*_: object) -> None:
        raise OSError("crash")

    monkeypatch.setattr(os, "rename", crash)
    with pytest.raises(OSError):
        journal.drop_before(8)
    with pytest.raises(InternalError):
        journal.append(b"x", 11, 1)
    journal.close()
    assert len(reopen(path, must_hold=10)) == 10
    monkeypatch.setattr(os, "rename", real)
    journal = RaftJournal(path, must_hold=10)
    journal.drop_before(8)
    fill(journal, 2)
    journal.close()
    assert [e.log_index for e in reopen(path, must_hold=12)] == [8, 9, 10, 11, 12]


def test_after_a_failed_flush_nothing_is_accepted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """fdatasync that failed once is never retried: the journal is dead."""
    journal = RaftJournal(tmp_path / "journal")
    fill(journal, 1)

    def fail(_: int) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", fail)
        journal.append(b"x", 2, 1)
        with pytest.raises(OSError):
            journal.sync()
    for act in (journal.sync, lambda: journal.append(b"y", 3, 1), lambda: journal.truncate_from(1)):
        with pytest.raises(InternalError):
            act()
    journal.close()


def test_gaps_and_falling_terms_are_refused(tmp_path: Path) -> None:
    """An entry must follow the last one."""
    journal = RaftJournal(tmp_path / "journal")
    fill(journal, 2, term=5)
    for index, term in ((4, 5), (2, 5), (3, 4)):
        with pytest.raises(InternalError):
            journal.append(b"x", index, term)
    journal.close()


def test_a_missing_journal_is_not_an_empty_one(tmp_path: Path) -> None:
    """Where entries were flushed, no file means that they are lost."""
    with pytest.raises(Corruption):
        RaftJournal(tmp_path / "journal", must_hold=1)


def snapshot_at(index: int, term: int = 1) -> Snapshot:
    """A snapshot up to `index`, of the entries that `fill` makes."""
    return Snapshot(
        JournalEntry(b"command-%d" % (index - 1), index - 1, term),
        JournalEntry(b"command-%d" % index, index, term),
        b"state" * 10,
    )


@pytest.mark.parametrize(
    ("snapshot", "expected"),
    [
        (snapshot_at(4), [3, 4, 5, 6, 7, 8]),  # renamed, not yet trimmed
        (snapshot_at(8), [7, 8]),
        (snapshot_at(20), [19, 20]),  # sent by the leader, ahead of the journal
        (snapshot_at(4, term=9), [3, 4]),  # sent by the leader; the journal's own entries lost an election
    ],
)
def test_the_journal_goes_on_from_the_snapshot(tmp_path: Path, snapshot: Snapshot, expected: list[int]) -> None:
    """Whatever a crash left behind, the journal's head becomes the snapshot's two entries and its tail is kept."""
    journal = RaftJournal(tmp_path / "journal")
    fill(journal, 8)
    snapshot_file.align(journal, snapshot)
    assert [entry.log_index for entry in journal.entries] == expected
    assert list(journal.entries[:2]) == [snapshot.previous, snapshot.last]
    journal.close()
    assert [entry.log_index for entry in reopen(journal.path)] == expected


def test_a_hole_between_snapshot_and_journal_is_corruption(tmp_path: Path) -> None:
    """A snapshot that was lost or rolled back is not papered over."""
    journal = RaftJournal(tmp_path / "journal")
    fill(journal, 8)
    journal.drop_before(6)
    for snapshot in (None, snapshot_at(4)):
        with pytest.raises(Corruption):
            snapshot_file.align(journal, snapshot)
    journal.close()


def test_every_damage_to_a_snapshot_is_detected(tmp_path: Path) -> None:
    """Each flipped byte and each truncation is Corruption; the whole file reads back."""
    path = tmp_path / "snapshot"
    assert snapshot_file.read(path) is None
    snapshot_file.write(path, snapshot_at(7))
    assert snapshot_file.read(path) == snapshot_at(7)
    data = path.read_bytes()
    damaged = [data[:length] for length in range(len(data))] + [data + b"x"]
    damaged += [data[:p] + bytes([data[p] ^ 1]) + data[p + 1 :] for p in range(len(data))]
    for bad in damaged:
        path.write_bytes(bad)
        with pytest.raises(Corruption):
            snapshot_file.read(path)


def test_every_damage_to_the_vote_file_is_detected(tmp_path: Path) -> None:
    """A vote is never forgotten because of a flipped bit."""
    path = tmp_path / "vote"
    assert hard_state.load(path) is None
    state = HardState("a", 7, "b", 100, 120, True)
    hard_state.store(path, state)
    assert hard_state.load(path) == state
    data = path.read_bytes()
    damaged = [data[:length] for length in range(len(data))] + [data + b"x"]
    damaged += [data[:p] + bytes([data[p] ^ 1]) + data[p + 1 :] for p in range(len(data))]
    for bad in damaged:
        path.write_bytes(bad)
        with pytest.raises(Corruption):
            hard_state.load(path)


def test_what_a_failed_flush_left_is_written_again_before_it_counts() -> None:
    """A flush that failed leaves bytes that read well, that no later flush writes, and that a power cut takes."""
    disk = VirtualDisk(Random(1))
    disk.boot()
    path = Path("/raft/journal")
    journal = RaftJournal(path, files=disk)
    fill(journal, 20)
    journal.append(b"never flushed", 21, 1)
    disk.failing_flushes = True
    with pytest.raises(OSError):
        journal.sync()
    disk.failing_flushes = False
    disk.boot()
    again = RaftJournal(path, files=disk)
    assert again.durable_index == again.last_index == 21
    disk.lose_power()
    disk.boot()
    assert RaftJournal(path, files=disk).last_index == 21
