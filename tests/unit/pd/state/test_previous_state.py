"""The state that a placement driver of the previous release left: snapshot and journal, read without a process."""

from __future__ import annotations

import io
import json
import lzma
import tarfile
from pathlib import Path
from typing import Any

import pytest

from rangelog_core.errors import UnsupportedVersion
from rangelog_pd.consensus.files import snapshot_file
from rangelog_pd.consensus.files.journal import RaftJournal
from rangelog_pd.consensus.network.messages import KIND_COMMAND
from rangelog_pd.state.machine import Machine

FOLDER = Path(__file__).resolve().parents[3] / "fixtures" / "previous"
LEVEL: int = json.loads((FOLDER / "program.json").read_text())["feature_level"]


@pytest.fixture
def raft(tmp_path: Path) -> Path:
    """A copy of its Raft files."""
    with tarfile.open(fileobj=io.BytesIO(lzma.decompress((FOLDER / "data.tar.xz").read_bytes()))) as archive:
        archive.extractall(tmp_path, [each for each in archive if each.name.startswith("pd1/raft/")], filter="data")
    return tmp_path / "pd1" / "raft"


def replay(raft: Path, machine: Machine) -> int:
    """Apply the snapshot and what follows it: the only member had all of it committed. Return the number of entries."""
    snapshot = snapshot_file.read(raft / "snapshot")
    assert snapshot is not None
    machine.restore(snapshot.state)
    journal = RaftJournal(raft / "journal")
    try:
        entries = [each for each in journal.entries if snapshot.last.log_index < each.log_index]
        for each in entries:
            if each.command[:1] == bytes([KIND_COMMAND]):  # others are of Raft itself
                machine.apply(each.log_index, each.command[1:])
    finally:
        journal.close()
    return len(entries)


def test_the_present_state_machine_goes_on_from_it(raft: Path) -> None:
    """Streams, topics, cursors and objects; the version is that of the release that wrote it."""
    told: dict[str, Any] = json.loads((FOLDER / "data.json").read_text())
    machine = Machine()
    replay(raft, machine)
    state = machine.state
    state.validate_indexes()
    assert state.cluster_version == LEVEL
    assert {each.name for each in state.streams.values()} >= set(told["streams"])
    assert [each.name for each in state.topics.topics.values()] == ["flights"]
    assert state.range_objects.committed_count >= 6
    again = Machine()
    again.restore(machine.snapshot())
    assert again.snapshot() == machine.snapshot()


def test_a_program_before_it_refuses_it(raft: Path) -> None:
    """Before anything is changed."""
    machine = Machine(LEVEL - 1)
    with pytest.raises(UnsupportedVersion, match=f"cluster version {LEVEL}"):
        replay(raft, machine)
    assert not machine.state.streams
