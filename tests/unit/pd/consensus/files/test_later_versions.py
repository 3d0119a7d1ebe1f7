"""Files of a later program: each is refused as that, whole as it is; damage to the same bytes is Corruption."""

from __future__ import annotations

from pathlib import Path

import google_crc32c
import pytest

from rangelog_core.errors import Corruption, UnsupportedVersion
from rangelog_pd.consensus.files import hard_state, snapshot_file
from rangelog_pd.consensus.files.configuration import Configuration, RaftMember
from rangelog_pd.consensus.files.hard_state import HardState
from rangelog_pd.consensus.files.journal import JournalEntry, RaftJournal
from rangelog_pd.consensus.files.snapshot_file import Snapshot

ENTRY = JournalEntry(b"command", 1, 1)


def test_vote(tmp_path: Path) -> None:
    """The version is part of the magic; from the second one on the checksum covers it."""
    path = tmp_path / "vote"
    hard_state.store(path, HardState("pd1", term=3))
    data = path.read_bytes()
    length, body = data[12:16], data[16:]
    later = b"RLVOTE02" + google_crc32c.value(b"RLVOTE02" + body).to_bytes(4, "little") + length + body
    path.write_bytes(later)
    with pytest.raises(UnsupportedVersion, match="vote is of version 2, this program reads 1: upgrade"):
        hard_state.load(path)
    for damaged in (later[:-1] + b"!", data.replace(b"RLVOTE01", b"RLVOTE02"), data.replace(b"RLVOTE01", b"RLVOTExx")):
        path.write_bytes(damaged)
        with pytest.raises(Corruption):
            hard_state.load(path)


def test_journal(tmp_path: Path) -> None:
    """The head has a checksum of its own, so a later version is told from damage; nothing is cut or written."""
    path = tmp_path / "journal"
    made = RaftJournal(path)
    made.append(ENTRY.command, index=1, term=1)
    made.close()
    data = path.read_bytes()
    head = data[:8] + (2).to_bytes(4, "little")
    later = head + google_crc32c.value(head).to_bytes(4, "little") + b"what a later program writes"
    path.write_bytes(later)
    with pytest.raises(UnsupportedVersion, match="journal is of version 2"):
        RaftJournal(path)
    assert path.read_bytes() == later
    path.write_bytes(head + data[12:])
    with pytest.raises(Corruption):
        RaftJournal(path)


def test_snapshot(tmp_path: Path) -> None:
    """From the second version on the checksum covers the version."""
    path = tmp_path / "snapshot"
    members = Configuration(bytes(32), (RaftMember("pd1", "a:1", "a:2"),))
    snapshot_file.write(path, Snapshot(ENTRY, JournalEntry(b"", 2, 1), b"state", members, 1))
    data = path.read_bytes()
    head, rest = data[:8] + (3).to_bytes(4, "little"), data[16:]
    path.write_bytes(head + google_crc32c.value(head + rest).to_bytes(4, "little") + rest)
    with pytest.raises(UnsupportedVersion, match="snapshot is of version 3"):
        snapshot_file.read(path)
    for damaged in (head + data[12:], data[:8] + bytes(4) + data[12:]):
        path.write_bytes(damaged)
        with pytest.raises(Corruption):
            snapshot_file.read(path)


def test_snapshot_of_a_group_that_never_changed(tmp_path: Path) -> None:
    """It is written as the first version, which earlier programs read; with a configuration it is the second one."""
    static = Snapshot(ENTRY, JournalEntry(b"", 2, 1), b"state")
    members = Configuration(bytes(32), (RaftMember("pd1", "a:1", "a:2"), RaftMember("pd2", "b:1", "", voter=False)))
    changed = Snapshot(ENTRY, JournalEntry(b"", 2, 1), b"state", members, 2)
    for snapshot, version in ((static, 1), (changed, 2)):
        data = b"".join(snapshot_file.encode(snapshot))
        assert int.from_bytes(data[8:12], "little") == version
        assert snapshot_file.decode(data, source="x") == snapshot
        for position in range(len(data)):
            damaged = bytearray(data)
            damaged[position] ^= 1
            with pytest.raises(Corruption):
                snapshot_file.decode(bytes(damaged), source="x")
