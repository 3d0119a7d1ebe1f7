"""What one placement driver member does to its disk, as the Raft library has it done, and what it has promised by then.

A vote answered, an entry whose flush returned, the right to vote: these are promises. Entries that lose an election are
cut, snapshots are taken and the journal is trimmed, a leader's snapshot replaces everything: then others are.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from rangelog_pd.consensus.files.journal import JournalEntry
from rangelog_pd.consensus.files.snapshot_file import Snapshot
from rangelog_pd.consensus.network.messages import KIND_COMMAND, KIND_NO_OP
from rangelog_pd.consensus.rules.raft_log import RaftLog
from rangelog_pd.consensus.rules.snapshots import Snapshots
from tests.fakes.faces import RaftDisk
from tests.support.tape import Tape

DIRECTORY = Path("/raft")
NAME = "a"
Vote = tuple[int, str | None]


class Member:
    """The files of one member, opened by the production code in its order."""

    def __init__(self, files: RaftDisk) -> None:
        """Raises Corruption."""
        self.applied = Tape()
        self.snapshots = Snapshots(DIRECTORY / "snapshot", self.applied, threading.Lock(), files=files)
        loaded = self.snapshots.loaded
        if loaded is not None:
            self.snapshots.deserialize()
        self.snapshot_index = loaded.last.log_index if loaded is not None else 0
        self.log = RaftLog(DIRECTORY, NAME, loaded, files=files)

    @property
    def vote(self) -> Vote:
        """Term, and whom it voted for."""
        return self.log.getCurrentTerm(), self.log.getVotedForNodeId()


@dataclass
class MemberPromises:
    """See the module."""

    vote: Vote = (0, None)
    vote_under_way: Vote = (0, None)
    held: dict[int, JournalEntry] = field(default_factory=dict)  # flushed
    ever: dict[int, list[JournalEntry]] = field(default_factory=dict)  # written at some time
    committed: list[JournalEntry] = field(default_factory=list)
    voter: bool = False
    voter_under_way: bool = False

    def problems(self, member: Member) -> list[str]:
        """What a member that was opened has lost, or has that nobody gave it."""
        entries = {entry.log_index: entry for entry in member.log.journal.entries}
        behind = member.snapshot_index
        commit = member.log.getRaftCommitIndex()
        truth = {entry.log_index: entry for entry in self.committed}
        checks = {
            f"its vote went from {self.vote} to {member.vote}": member.vote not in (self.vote, self.vote_under_way),
            "a flushed entry is lost": any(
                entries.get(index) != entry for index, entry in self.held.items() if index > behind
            ),
            "an entry out of nothing": any(entry not in self.ever.get(index, ()) for index, entry in entries.items()),
            "a hole between snapshot and journal": bool(entries) and min(entries) > behind + 1,
            "its snapshot is not what was committed": member.applied.commands != _commands(self.committed, behind),
            "it calls committed what is not": commit > max(1, len(self.committed)),
            "a committed entry differs": any(
                entries[index] != truth[index] for index in entries if index <= commit and index in truth
            ),
            "it forgot that it may vote": self.voter and not member.log.voter,
            "it votes too early": member.log.voter and not self.voter_under_way,
        }
        return [name for name, wrong in checks.items() if wrong]

    @classmethod
    def of_opened(cls, member: Member, before: MemberPromises) -> MemberPromises:
        """What a member that was opened says and does from then on rests on this."""
        held = {entry.log_index: entry for entry in member.log.journal.entries}
        voter = member.log.voter
        return cls(member.vote, member.vote, held, before.ever, before.committed, voter, voter)


def _commands(committed: list[JournalEntry], index: int) -> list[bytes]:
    return [entry.command[1:] for entry in committed[:index] if entry.command[0] == KIND_COMMAND]


class MemberWorkload:
    """See the module. `promises` holds at every moment what was promised up to there."""

    def __init__(self, files: RaftDisk, promises: MemberPromises, seed: int) -> None:
        self.files, self.promises = files, promises
        self.chance = Random(seed)
        self._made = 0
        self.member = Member(files)

    def run(self, rounds: int) -> None:
        """All of it."""
        self._add(bytes([KIND_NO_OP]), 0)  # the library's first entry, the same everywhere, counts as committed
        self.promises.committed.append(self.member.log.journal.entries[0])
        actions = [self._append] * 5 + [self._flush] * 4 + [self._commit] * 4 + [self._elect] * 2
        actions += [self._second, self._lose_election, self._snapshot, self._snapshot, self._from_leader, self._voter]
        actions += [self._restart]
        for _ in range(rounds):
            self.chance.choice(actions)()

    # ---- what is done

    def _add(self, command: bytes, term: int) -> None:
        entry = JournalEntry(command, self.member.log.journal.last_index + 1, term)
        self.promises.ever.setdefault(entry.log_index, []).append(entry)
        self.member.log.add(*entry)

    def _append(self) -> None:
        for _ in range(self.chance.randrange(1, 4)):
            self._made += 1
            command = b"%d" % self._made + b"x" * self.chance.choice((0, 5, 400, 1500))
            self._add(bytes([KIND_COMMAND]) + command, self.member.log.getCurrentTerm())

    def _flush(self) -> None:
        self.member.log.flush()
        self.promises.held = {entry.log_index: entry for entry in self.member.log.journal.entries}

    def _commit(self) -> None:
        """The leader says how much is committed: at most what is flushed here."""
        top = max(self.promises.held, default=0)
        done = len(self.promises.committed)
        if top > done:
            index = self.chance.randrange(done, top) + 1
            self.promises.committed += [self.promises.held[each] for each in range(done + 1, index + 1)]
            for entry in self.promises.committed[done:]:
                if entry.command[0] == KIND_COMMAND:
                    self.member.applied.apply(entry.log_index, entry.command[1:])
            self.member.log.setRaftCommitIndex(index)

    def _elect(self) -> None:
        term = self.member.log.getCurrentTerm() + self.chance.randrange(1, 3)
        self._vote((term, self.chance.choice((None, "a", "b"))))

    def _vote(self, vote: Vote) -> None:
        self.promises.vote_under_way = vote
        self.member.log.setCurrentTerm(*vote)
        self.promises.vote = vote

    def _second(self) -> None:
        self.member.log.onOneSecondTimer()

    def _voter(self) -> None:
        if self.promises.committed:
            self.promises.voter_under_way = True
            self.member.log.become_voter()
            self.promises.voter = True
            self._flushed_by_the_way()

    def _flushed_by_the_way(self) -> None:
        journal = self.member.log.journal
        self.promises.held = {
            each.log_index: each for each in journal.entries if each.log_index <= journal.durable_index
        }

    def _lose_election(self) -> None:
        """A new leader has other entries behind what is committed."""
        journal = self.member.log.journal
        first = max(len(self.promises.committed) + 1, journal.first_index + 2)
        if journal.last_index < first:
            return
        index = self.chance.randrange(first, journal.last_index + 1)
        self._elect()
        self.promises.held = {each: entry for each, entry in self.promises.held.items() if each < index}
        self.member.log.deleteEntriesFrom(index - journal.first_index)
        if self.chance.random() < 0.8:
            self._append()
            self._flush()

    def _snapshot(self) -> None:
        """At what is applied; then the journal is trimmed to the snapshot's two entries and what follows."""
        index = len(self.promises.committed)
        if index <= max(self.member.snapshot_index, 2):
            return
        journal = self.member.log.journal
        previous, last = journal.entries[index - 1 - journal.first_index], journal.entries[index - journal.first_index]
        self.member.snapshots.serialize((None, last, previous, None), 1)
        self.member.snapshots.wait()
        self.member.snapshots.checkSerializing()
        self.member.snapshot_index = index
        self.member.log.deleteEntriesTo(index - 1 - journal.first_index)
        self._flushed_by_the_way()

    def _from_leader(self) -> None:
        """This member was left behind: the leader's snapshot takes the place of its journal."""
        promises, log = self.promises, self.member.log
        self._elect()
        term = log.getCurrentTerm()
        top = max(log.journal.last_index, len(promises.committed)) + self.chance.randrange(2, 6)
        for index in range(len(promises.committed) + 1, top + 1):
            entry = JournalEntry(bytes([KIND_COMMAND]) + b"of the leader %d" % index, index, term)
            promises.ever.setdefault(index, []).append(entry)
            promises.committed.append(entry)
        previous, last = promises.committed[-2:]
        state = b"\n".join(_commands(promises.committed, top))
        promises.held = {}
        self.member.snapshots.install(Snapshot(previous, last, state))
        self.member.snapshots.deserialize()
        self.member.snapshot_index = top
        log.clear()
        log.add(*previous)
        log.add(*last)
        log.setRaftCommitIndex(top)
        self._flushed_by_the_way()

    def _restart(self) -> None:
        """A clean stop, or a kill that nothing was lost in."""
        if self.chance.random() < 0.5:
            self.member.log._destroy()
            self._flushed_by_the_way()
        self.member = Member(self.files)
        self._flushed_by_the_way()
        index = self.member.log.getRaftCommitIndex()
        for entry in self.promises.committed[self.member.snapshot_index :]:
            if entry.command[0] == KIND_COMMAND:
                self.member.applied.apply(entry.log_index, entry.command[1:])
        self.member.log.setRaftCommitIndex(max(index, len(self.promises.committed)))
