"""The state that a new group begins with: nothing that the lost one may have given is given again."""

from __future__ import annotations

from pathlib import Path

import pytest

from rangelog_core import state_file
from rangelog_core.errors import ConfigInvalid, UnsupportedVersion
from rangelog_pd.consensus.files import hard_state, snapshot_file
from rangelog_pd.restoring import restore
from rangelog_pd.settings import MemberSettings, PdSettings
from rangelog_pd.state.machine import Machine, response_of
from rangelog_pd.state.restored import GAP, leave_gap
from rangelog_pd.state.snapshot import freeze, thaw
from rangelog_pd.state.versions import FEATURE_LEVEL
from rangelog_proto.v1 import members_pb2, pd_pb2, pd_state_pb2


def machine_with_a_stream() -> Machine:
    """One stream with a writer."""
    machine = Machine()
    for number, action in enumerate(
        (
            {"create_stream": pd_pb2.CreateStreamRequest(name="s")},
            {"open_writer": pd_pb2.OpenWriterRequest(name="s")},
        )
    ):
        command = pd_state_pb2.Command(version=1, request_id=f"r{number}", now_ms=1, **action)  # type: ignore[arg-type]
        response_of(machine.apply(number + 1, command.SerializeToString()))
    return machine


def settings(directory: Path) -> PdSettings:
    """A group of one."""
    member = MemberSettings(raft_address="127.0.0.1:1", api_address="127.0.0.1:2")
    return PdSettings(name="pd1", data_dir=directory, members={"pd1": member})


def test_ids_epochs_and_versions_leave_a_gap_that_stays() -> None:
    """Over another snapshot, and over another restore."""
    machine = machine_with_a_stream()
    state, results = machine.state, machine._results
    before = state.stream("s")
    next_ids = (state.next_stream_id, state.next_object_id, state.topics.next_topic_id)
    leave_gap(state)
    after = state.stream("s")
    assert (after.stream_id, after.epoch, after.version) == (before.stream_id, before.epoch + GAP, before.version + GAP)
    assert (state.next_stream_id, state.next_object_id, state.topics.next_topic_id) == tuple(
        each + GAP for each in next_ids
    )
    again, _ = thaw(b"".join(freeze(state, results)), FEATURE_LEVEL)
    assert again.lost_streams == (next_ids[0], next_ids[0] + GAP)
    leave_gap(again)
    assert again.lost_streams == (next_ids[0], next_ids[0] + 2 * GAP)
    again.validate()


def test_the_directory_of_a_restored_group_appears_whole(tmp_path: Path) -> None:
    """With another identity each time; never over another state."""
    machine = machine_with_a_stream()
    header = members_pb2.SavedState(cluster_id="c", cluster_version=1, stream_count=1).SerializeToString()
    file = tmp_path / "saved"
    file.write_bytes(b"".join(state_file.encode(header, machine.freeze())))
    groups = set()
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        assert restore(settings(tmp_path / name), file).stream_count == 1
        snapshot = snapshot_file.read(tmp_path / name / "raft" / "snapshot")
        vote = hard_state.load(tmp_path / name / "raft" / "vote")
        assert snapshot is not None and snapshot.configuration is not None and vote is not None and vote.voter
        assert snapshot.configuration.voters == {"pd1"}
        assert snapshot.previous.log_index > 1, "an empty log has entry 1 of term 0: it must not match"
        groups.add(snapshot.configuration.group)
    assert len(groups) == 2
    with pytest.raises(ConfigInvalid):
        restore(settings(tmp_path / "one"), file)


def test_a_state_of_a_later_program_is_refused(tmp_path: Path) -> None:
    """Before anything is written."""
    header = members_pb2.SavedState(cluster_version=FEATURE_LEVEL + 1).SerializeToString()
    (tmp_path / "saved").write_bytes(b"".join(state_file.encode(header, [])))
    with pytest.raises(UnsupportedVersion):
        restore(settings(tmp_path / "pd"), tmp_path / "saved")
    assert not (tmp_path / "pd").exists()
