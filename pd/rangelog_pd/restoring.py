"""A new group of one begins from a saved state (`rangelog pd --restore-snapshot FILE`).

What holds: the data directory must be new; the file is checked whole before anything is written; the directory appears whole or
not at all. The new group has another identity than the one that saved the state: a member of that one cannot connect, so the
two never mix. Ids and epochs that the lost group gave after the save are not given again (state/restored.py).
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from google.protobuf.message import DecodeError

from rangelog_core import state_file
from rangelog_core.errors import ConfigInvalid, Corruption, UnsupportedVersion
from rangelog_pd.consensus.files import hard_state, snapshot_file
from rangelog_pd.consensus.files.configuration import GROUP_BYTES, Configuration, RaftMember
from rangelog_pd.consensus.files.disk import REAL_FILES
from rangelog_pd.consensus.files.hard_state import HardState
from rangelog_pd.consensus.files.journal import JournalEntry
from rangelog_pd.consensus.files.snapshot_file import Snapshot
from rangelog_pd.consensus.network.messages import KIND_NO_OP
from rangelog_pd.settings import PdSettings
from rangelog_pd.state.restored import leave_gap
from rangelog_pd.state.snapshot import freeze, thaw
from rangelog_proto.v1 import members_pb2 as pb

_TERM = 1
_LAST_INDEX = 3
"""The snapshot's two entries are the second and the third: an empty log has the first one already, and what came before it is
nothing. A new member must not be taken to have the state because it has that entry."""


def restore(settings: PdSettings, path: Path) -> pb.SavedState:
    """Make the data directory of a group of one. Raises ConfigInvalid, Corruption, UnsupportedVersion, OSError."""
    directory = settings.data_dir / "raft"
    if directory.exists():
        raise ConfigInvalid(
            f"{settings.data_dir} has a state already: a saved one is restored into an empty directory; to start the group "
            "that was restored, leave --restore-snapshot out"
        )
    saved, state = _read(settings, path)
    member = settings.members[settings.name]
    no_op = bytes([KIND_NO_OP])
    snapshot = Snapshot(
        JournalEntry(no_op, _LAST_INDEX - 1, _TERM),
        JournalEntry(no_op, _LAST_INDEX, _TERM),
        state,
        Configuration(os.urandom(GROUP_BYTES), (RaftMember(settings.name, member.raft_address, member.api_address),)),
        _LAST_INDEX,
    )
    temporary = directory.with_name("raft.restoring")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    snapshot_file.write(temporary / "snapshot", snapshot)
    state_of_member = HardState(settings.name, term=_TERM, commit_index=_LAST_INDEX, voter=True)
    hard_state.store(temporary / "vote", state_of_member)
    os.rename(temporary, directory)
    REAL_FILES.sync_directory(settings.data_dir)
    return saved


def _read(settings: PdSettings, path: Path) -> tuple[pb.SavedState, bytes]:
    try:
        header, encoded = state_file.read(path)
    except OSError as error:
        raise ConfigInvalid(f"cannot read {path}: {error.strerror}: check --restore-snapshot") from error
    try:
        saved = pb.SavedState.FromString(header)
    except DecodeError as error:
        raise Corruption(f"{path}: the header is of another program") from error
    if saved.cluster_version > settings.feature_level_max:
        raise UnsupportedVersion(
            f"{path} is of cluster version {saved.cluster_version}, and this placement driver has feature level "
            f"{settings.feature_level_max}: start it with the program that saved it, or a later one"
        )
    state, results = thaw(encoded, settings.feature_level_max)
    leave_gap(state)
    return saved, b"".join(freeze(state, results))
