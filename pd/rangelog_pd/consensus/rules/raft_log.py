"""The journal, the vote file and the configuration of one member, under the names by which pysyncobj calls them.

What holds: opening checks vote file, journal and snapshot against each other and raises Corruption rather than start with
a part of them; no committed entry is ever truncated; a vote is on disk before it is cast; the configuration is always that
of the last entry of the log that has one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rangelog_core.errors import Corruption, ProtocolViolation
from rangelog_pd.consensus.files import hard_state, snapshot_file
from rangelog_pd.consensus.files.configuration import NOBODY, Configuration, decode
from rangelog_pd.consensus.files.disk import REAL_FILES, Files
from rangelog_pd.consensus.files.hard_state import HardState
from rangelog_pd.consensus.files.journal import JournalEntry, RaftJournal
from rangelog_pd.consensus.files.snapshot_file import Snapshot
from rangelog_pd.consensus.network.messages import KIND_CONFIGURATION
from rangelog_pd.consensus.rules.membership import ConfigurationHistory


class RaftLog:
    """The log of one member, owned by the tick thread. Camel-case names are pysyncobj's."""

    def __init__(
        self,
        directory: Path,
        name: str,
        snapshot: Snapshot | None,
        *,
        initial: Configuration = NOBODY,
        files: Files = REAL_FILES,
    ) -> None:
        """Open or create. `initial` counts until the log has a configuration.

        Raises Corruption, also for another member's directory.
        """
        self._files = files
        self._initial = initial
        self.on_configuration: Callable[[], None] = lambda: None
        """Called when another configuration counts."""
        # A killed process may have renamed files without flushing the names, on which all later writes depend.
        files.sync_directory(directory)
        self._state_path = directory / "vote"
        state = hard_state.load(self._state_path, files=files)
        if state is None:
            if files.exists(directory / "journal") or snapshot is not None:
                raise Corruption(f"{self._state_path} is missing beside a journal: this member has lost its vote")
            state = HardState(name)
            hard_state.store(self._state_path, state, files=files)
        if state.name != name:
            raise Corruption(f"{directory} belongs to member {state.name}, not to {name}")
        self.journal = RaftJournal(directory / "journal", must_hold=state.durable_index, files=files)
        self._commit_index = max(state.commit_index, snapshot.last.log_index if snapshot else 0)
        self._state = state
        self._state_changed = False
        self._rebuilding: list[JournalEntry] | None = None
        self._installing: Snapshot | None = None
        self._store()
        snapshot_file.align(self.journal, snapshot)
        self.membership = self._configurations(snapshot)
        self._commit_index = max(min(self._commit_index, self.journal.last_index), 1)

    def _configurations(self, snapshot: Snapshot | None) -> ConfigurationHistory:
        configuration, index = (snapshot.configuration, snapshot.configuration_index) if snapshot else (None, 0)
        membership = ConfigurationHistory(configuration or self._initial, index)
        for entry in self.journal.entries:
            if entry.command[0] == KIND_CONFIGURATION:
                membership.append(entry.log_index, _configuration_of(entry))
        return membership

    def configuration_for_snapshot(self, index: int) -> tuple[Configuration | None, int]:
        """Return what a snapshot up to `index` has of it: nothing while it is that of the start."""
        configuration, at = self.membership.at(index)
        return (configuration, at) if at else (None, 0)

    def will_install(self, snapshot: Snapshot) -> None:
        """Note the snapshot by whose two entries the library replaces all others next."""
        self._installing = snapshot

    @property
    def voter(self) -> bool:
        """Whether this member has held all committed entries at some time since its disk was new."""
        return self._state.voter

    def become_voter(self) -> None:
        """Make this member a voter. Durable on return."""
        if not self._state.voter:
            self.journal.sync()
            self._store(voter=True)

    def flush(self) -> None:
        """Make all entries durable. Raises OSError: fatal, never retried."""
        self.journal.sync()

    def __len__(self) -> int:
        return len(self.journal)

    def __getitem__(self, item: Any) -> Any:
        return self.journal.entries[item]

    def add(self, command: bytes, idx: int, term: int) -> None:
        """Append; durable after `flush`."""
        if self._rebuilding is None:
            self.journal.append(command, idx, term)
            if command[0] == KIND_CONFIGURATION:
                self.membership.append(idx, _configuration_of(self.journal.entries[-1]))
                self.on_configuration()
            return
        # The library replaces all entries by a snapshot's two entries: here this is one step.
        self._rebuilding.append(JournalEntry(command, idx, term))
        if len(self._rebuilding) == 2:
            self.journal.replace(self._rebuilding)
            self._rebuilding = None
            self.membership, self._installing = self._configurations(self._installing), None
            self.on_configuration()

    def clear(self) -> None:
        """Replace all entries by the two that are added next."""
        self._rebuilding = []

    def deleteEntriesFrom(self, entryFrom: int) -> None:
        """Cut the entries from this position on. Raises Corruption if one of them was committed."""
        index = self.journal.first_index + entryFrom
        if index <= self._commit_index < self.journal.last_index + 1:
            raise Corruption(f"the leader contradicts entry {index}, but {self._commit_index} was committed here")
        self.journal.truncate_from(index)
        if self.membership.index >= index:
            self.membership.cut_from(index)
            self.on_configuration()

    def deleteEntriesTo(self, entryTo: int) -> None:
        """Remove the entries before this position: the snapshot holds them."""
        index = self.journal.first_index + entryTo
        self.journal.drop_before(index)
        self.membership.forget_before(index)

    def setRaftCommitIndex(self, raftCommitIndex: int) -> None:
        """Set the commit index; it is stored within a second."""
        if raftCommitIndex != self._commit_index:
            self._commit_index = raftCommitIndex
            self._state_changed = True

    def getRaftCommitIndex(self) -> int:
        """Return the commit index."""
        return self._commit_index

    def setCurrentTerm(self, term: int, votedForNodeId: str | None) -> None:
        """Set the term. Durable on return."""
        self._store(term=term, voted_for=votedForNodeId)

    def getCurrentTerm(self) -> int:
        """Return the current term."""
        return self._state.term

    def getVotedForNodeId(self) -> str | None:
        """Return the member's vote in the current term."""
        return self._state.voted_for

    def onOneSecondTimer(self) -> None:
        """Store a changed commit index, so that a restart replays up to it."""
        if self._state_changed:
            self._store()

    def _destroy(self) -> None:
        self.journal.sync()
        self._commit_index = min(self._commit_index, self.journal.last_index)
        self._store(durable_index=self.journal.last_index)
        self.journal.close()

    def _store(self, **changes: Any) -> None:
        # Entries up to the stored commit index must be in the journal after a power cut.
        self.journal.sync()
        changes = {"commit_index": self._commit_index, "durable_index": self._commit_index} | changes
        changes["durable_index"] = min(changes["durable_index"], self.journal.last_index)
        self._state = dataclasses.replace(self._state, **changes)
        hard_state.store(self._state_path, self._state, files=self._files)
        self._state_changed = False


def _configuration_of(entry: JournalEntry) -> Configuration:
    try:
        return decode(entry.command[1:])
    except ProtocolViolation as error:
        raise Corruption(f"entry {entry.log_index} of the journal is no configuration: {error}") from error
