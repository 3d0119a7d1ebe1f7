"""pysyncobj's Raft with the rules it lacks. Messages to followers are in replication.py, members in member_changes.py.

What holds: here, and not in the unchanged library:
- a follower truncates only conflicting entries; entries that it has already are neither cut nor written again, so no
  acknowledged entry is ever missing, not even for a moment;
- the commit index covers only entries that the leader is known to share (the library moves it over unverified entries
  while a snapshot arrives, and so confirms proposals that lost);
- a snapshot without new entries is not installed over a longer log;
- a position counts only in the term of its message, and only up to the end of the leader's log; a member that comes back
  with less than it had acknowledged counts for nothing that it has lost;
- a member that lost its disk neither votes nor stands for election until it holds all committed entries again;
- proposals of a tick are sent in one message per follower and share one flush; followers never forward proposals;
- an exception of apply is a result (`failure` of the proposal), never a retry; callbacks only append to a list.
All methods run on the tick thread. After an exception in `tick` the member must stop.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

from pysyncobj.config import SyncObjConf  # type: ignore[import-untyped, unused-ignore]
from pysyncobj.monotonic import monotonic  # type: ignore[import-untyped, unused-ignore]
from pysyncobj.node import Node  # type: ignore[import-untyped, unused-ignore]
from pysyncobj.syncobj import SyncObj  # type: ignore[import-untyped, unused-ignore]

from rangelog_core.errors import Corruption, ProtocolViolation
from rangelog_pd.consensus.network.messages import (
    KIND_COMMAND,
    KIND_CONFIGURATION,
    KIND_NO_OP,
    Append,
    Hello,
    LeaderCheck,
    LeaderChecked,
    Message,
    Position,
    Removed,
    SnapshotChunk,
    TakeOver,
    Vote,
    VoteRequest,
)
from rangelog_pd.consensus.network.transport import PeerTransport
from rangelog_pd.consensus.rules import pysyncobj_seams
from rangelog_pd.consensus.rules.follower_append import settle
from rangelog_pd.consensus.rules.leader_checks import FEATURE_LEVEL_LEADER_CHECKS, LeaderChecks
from rangelog_pd.consensus.rules.member_changes import KIND_CHANGE, KIND_TRANSFER, MemberChanges
from rangelog_pd.consensus.rules.raft_log import RaftLog
from rangelog_pd.consensus.rules.replication import Replication
from rangelog_pd.consensus.rules.snapshots import Snapshots
from rangelog_pd.consensus.rules.timings import Timings
from rangelog_pd.state.versions import FEATURE_LEVEL

log = logging.getLogger(__name__)

_SUCCESS, _DISCARDED = 0, 3  # pysyncobj's FAIL_REASON


class Applier(Protocol):
    """The interface of the code that proposes and applies."""

    def apply(self, index: int, command: bytes) -> Any:
        """Apply one committed command; the result is passed to the proposal's callback."""

    def take_proposals(self, *, leads: bool, paused: bool) -> list[tuple[bytes, Callable[[Any, int], None]]]:
        """Return the entries to append now, each with its callback(result, reason). Called once a tick, after the applies.

        An empty entry is a read: its callback gets the applied index once the read is allowed; no entry is appended. A
        wanted change of the members and a transfer of leadership come in the same way. `paused`: all of them wait.
        """


class Raft(MemberChanges, Replication, SyncObj):  # type: ignore[misc, unused-ignore]
    """The Raft of one member, of the group that its log names."""

    def __init__(
        self,
        name: str,
        raft_log: RaftLog,
        snapshots: Snapshots,
        applier: Applier,
        *,
        timings: Timings,
        snapshot_entries: int,
        feature_level: int = FEATURE_LEVEL,
    ) -> None:
        """`timings`: those of a group with others; alone, a member has others."""
        pysyncobj_seams.prepare()
        self.feature_level = feature_level
        self.levels: dict[str, int] = {name: feature_level}
        """The feature level that each member announced last; an absent peer keeps its level."""
        self._name = name
        self._log = raft_log
        self.snapshots = snapshots
        self._applier = applier
        self.on_members: Callable[[dict[str, str]], None] = lambda _addresses: None
        """Called with the Raft addresses of all members when others count."""
        self._begin_with_members()
        self._checks = LeaderChecks(name, self.configuration.voters)
        self._given_timings, silent_s = timings, timings.connection_silent_s
        self._timings = timings = self._fitting_timings()
        self._ticked_at_s = monotonic()
        self.peers: PeerTransport
        conf = SyncObjConf(
            autoTick=False,
            appendEntriesUseBatch=True,
            appendEntriesPeriod=timings.heartbeat_s,
            raftMinTimeout=timings.election_min_s,
            raftMaxTimeout=timings.election_max_s,
            leaderFallbackTimeout=timings.leader_fallback_s,
            connectionTimeout=silent_s,
            journalFile=raft_log,
            fullDumpFile=snapshots,
            serializer=pysyncobj_seams._refuse_pickle,
            deserializer=pysyncobj_seams._refuse_pickle,
            useFork=False,
            logCompactionMinEntries=snapshot_entries,
            logCompactionMinTime=3600.0,
            dynamicMembershipChange=False,
        )
        super().__init__(Node(name), [], conf, transportClass=self._make_transport)
        self.addOnTickCallback(self._before_poll)
        raft_log.on_configuration = self._follow_configuration
        snapshots.configuration_at = raft_log.configuration_for_snapshot
        self._adopt(self.configuration)

    def _fitting_timings(self) -> Timings:
        alone = self._log.membership.current.by_name.keys() <= {self._name}
        return Timings.single() if alone else self._given_timings

    def _follow_timings(self) -> None:
        self._timings = self._fitting_timings()
        self.conf.appendEntriesPeriod = self._timings.heartbeat_s
        self.conf.raftMinTimeout = self._timings.election_min_s
        self.conf.raftMaxTimeout = self._timings.election_max_s
        self.conf.leaderFallbackTimeout = self._timings.leader_fallback_s

    @property
    def configuration_index(self) -> int:
        """The entry that named the members; 0: they are those of the start."""
        return self._log.membership.index

    @property
    def last_index(self) -> int:
        """The index of the last entry."""
        return self._log.journal.last_index

    def acknowledged_index(self, name: str) -> int:
        """Return how much of this leader's log a member is known to have; 0 where that is not known."""
        if not self._isLeader():
            return 0
        if name == self._name:
            return self._log.journal.last_index
        return self._SyncObj__raftMatchIndex.get(self._node(name), 0)

    # --- one tick

    def tick(self) -> None:
        """Apply, propose, send, wait shortly for messages, handle them, send the replies."""
        before_s, self._ticked_at_s = self._ticked_at_s, monotonic()
        if self._nodes and self._ticked_at_s - before_s > self._timings.tick_s + self._timings.election_min_s / 2:
            # Suspended for a while: read the received messages before the leader counts as dead.
            self.peers.slept()
            self._move_deadline(max, self._timings.election_min_s)
            self._poller.poll(0.0)
        lacks = not self._log.voter and self.raftCommitIndex > 1
        if (lacks or not (self.votes or self._is_being_removed)) and not self._isLeader():
            # Its own vote is as bad as the one that it refuses others: it may lack committed entries, or it does not count.
            self._move_deadline(max, self._timings.election_min_s)
        self.doTick(self._timings.tick_s)
        self._before_poll()
        if self._leaving is not None:
            raise self._leaving

    def _move_deadline(self, choose: Callable[[float, float], float], delay_s: float) -> None:
        name = pysyncobj_seams.private("raftElectionDeadline")
        setattr(self, name, choose(getattr(self, name), monotonic() + delay_s))

    def _before_poll(self) -> None:
        if self.snapshots.failure is not None:
            raise self.snapshots.failure
        self.peers.check()
        self.peers.flush(self._log.flush)

    def _checkCommandsToApply(self) -> None:
        """Take the proposals of this tick. The library calls this hook between apply and compaction."""
        leads = self._isLeader()
        if leads and not self._log.voter and self.raftCommitIndex > 1:
            self._log.become_voter()
        self._notice_commit()
        self._continue_transfer()
        proposals = self._applier.take_proposals(leads=leads, paused=leads and self._transfer is not None)
        term = self.raftCurrentTerm
        if not leads or (self._checks.round is not None and self._checks.round.term != term):
            self._give_up_reads()
        if not leads:
            return
        reads = [callback for command, callback in proposals if not command]
        proposals = [(command, callback) for command, callback in proposals if command]
        if reads and not self._can_check():
            proposals.append((bytes([KIND_NO_OP]), lambda result, reason: _answer_all(reads, result, reason)))
        else:
            for callback in reads:
                self._checks.ask(partial(_answer_read, callback))
        last_index = self._log.journal.last_index
        for command, callback in proposals:
            self._take_proposal(command, callback)
        self._continue_changes()
        if self._log.journal.last_index > last_index:
            self._SyncObj__sendAppendEntries()
            if self._votes_alone:
                self.peers.wake()  # alone: the flush before the poll is the majority
        else:
            self._send_what_waits()
        self._check_leadership()

    def _take_proposal(self, command: bytes, callback: Callable[[Any, int], None]) -> None:
        if command[0] == KIND_CHANGE:
            self._begin_change(command, callback)
        elif command[0] == KIND_TRANSFER:
            self._begin_transfer(command[1:].decode(), callback)
        else:
            index, term = self._log.journal.last_index + 1, self.raftCurrentTerm
            self._log.add(command, index, term)
            self._SyncObj__commandsWaitingCommit[index].append((term, callback))

    # --- reads

    def _can_check(self) -> bool:
        """Whether a majority supports leader checks, and an entry of this term is committed."""
        journal = self._log.journal
        if journal.term_at(self.raftCommitIndex) != self.raftCurrentTerm:
            return False
        reached = {self._name, *self.peers.connected} & self.configuration.voters
        able = sum(self.levels.get(name, 0) >= FEATURE_LEVEL_LEADER_CHECKS for name in reached)
        knows = self.feature_level >= FEATURE_LEVEL_LEADER_CHECKS
        return knows and 2 * able > len(self.configuration.voters)

    def _check_leadership(self) -> None:
        """Start the next round if it is due, and release the reads that are allowed."""
        self._checks.finish(self.raftLastApplied)
        if self._checks.begin(self.raftCurrentTerm, self.raftCommitIndex) is not None:
            self._send_check()
            self._checks.finish(self.raftLastApplied)
            if self._votes_alone:
                self.peers.wake()  # alone: the read is allowed already, and is answered with the next tick

    def _send_check(self) -> None:
        asked = self._checks.round
        if asked is None or asked.is_won:
            return
        for peer in self.peers.connected:
            if self.levels.get(peer, 0) >= FEATURE_LEVEL_LEADER_CHECKS and peer not in asked.answered:
                self.peers.send(peer, LeaderCheck(asked.term, asked.number))

    def _give_up_reads(self) -> None:
        for then in self._checks.give_up():
            then(-1)

    def _receive_check(self, peer: str, message: LeaderCheck) -> None:
        if message.term == self.raftCurrentTerm and not self._isLeader() and self._log.voter:
            self.peers.send(peer, LeaderChecked(message.term, message.round))

    def _receive_checked(self, peer: str, message: LeaderChecked) -> None:
        if message.term == self.raftCurrentTerm and self._isLeader():
            self._checks.answered(peer, message.term, message.round)
            self._checks.finish(self.raftLastApplied)

    def _SyncObj__doApplyCommand(self, command: bytes) -> Any:
        kind = command[0]
        if kind in (KIND_NO_OP, KIND_CONFIGURATION):
            return self.raftLastApplied + 1
        if kind != KIND_COMMAND:
            raise Corruption(f"entry {self.raftLastApplied + 1} is of kind {kind}, which no member proposes")
        return self._applier.apply(self.raftLastApplied + 1, command[1:])

    # --- sending

    def _make_transport(self, *_: Any) -> _LibraryTransport:
        self.peers = PeerTransport(self._poller, silent_s=self._given_timings.connection_silent_s)
        self.peers.on_message = self._receive
        self.peers.on_connected = self._connected
        self.peers.on_disconnected = self._disconnected
        return _LibraryTransport(self)

    # --- receiving

    def _connected(self, peer: str) -> None:
        self._bear_strangers()
        self.snapshots.cancelTransmisstion(peer)
        self.peers.send(peer, Hello(self.feature_level))
        self._SyncObj__onNodeConnected(self._node(peer))

    def _disconnected(self, peer: str) -> None:
        self.snapshots.cancelTransmisstion(peer)
        self._SyncObj__onNodeDisconnected(self._node(peer))
        if peer not in self._nodes:
            self.levels.pop(peer, None)
        if self._SyncObj__raftLeader == self._node(peer):
            self._heard_leader_s = float("-inf")
            # A killed leader's connection breaks at once: do not wait for the whole timeout. All others notice it at the
            # same time: stand for election one after the other, so that the votes are not split.
            self.snapshots.forget_received()
            rank = sorted({self._name, *self.configuration.voters} - {peer}).index(self._name)
            self._move_deadline(min, (0.2 + 0.3 * rank + random.uniform(0.0, 0.1)) * self._timings.election_min_s)

    def _receive(self, peer: str, message: Message) -> None:
        node = self._node(peer)
        match message:
            case Append():
                self._receive_append(peer, node, message)
            case SnapshotChunk():
                self._receive_snapshot(peer, node, message)
            case Position():
                self._receive_position(node, message)
            case VoteRequest():
                self._receive_vote_request(peer, node, message)
            case Vote():
                if peer in self.configuration.voters:
                    self._deliver(node, {"type": "response_vote", "term": message.term})
            case TakeOver():
                if self.votes:
                    self._deliver(node, {"type": "timeout_now", "term": message.term})
            case Hello():
                self.levels[peer] = message.feature_level
                self._tell_removed(peer)
            case Removed():
                self._receive_removed(message)
            case LeaderCheck():
                self._receive_check(peer, message)
            case LeaderChecked():
                self._receive_checked(peer, message)

    def _deliver(self, node: Any, message: dict[str, Any]) -> None:
        self._SyncObj__onMessageReceived(node, message)

    def _receive_append(self, peer: str, node: Any, message: Append) -> None:
        if message.term < self.raftCurrentTerm:
            self._answer_old_leader(peer)
            return
        self._heard_leader_s = monotonic()
        settled = settle(self._log.journal, message)
        known: dict[str, Any] = {"type": "append_entries", "term": message.term}
        if settled.keeps_tail:
            # The log has all entries of the message, and more: acknowledge, cut nothing.
            verified = settled.previous_index
            self._deliver(node, known | {"commit_index": min(message.commit_index, verified), "serialized": None})
            self.peers.send(peer, Position(self.raftCurrentTerm, verified + 1, reset=False, success=True))
        else:
            known |= {"prevLogIdx": settled.previous_index, "prevLogTerm": settled.previous_term}
            self._deliver(node, known | {"commit_index": message.commit_index, "entries": list(settled.entries)})
        is_member = self._name in self.configuration.by_name
        if not self._log.voter and is_member and 1 < message.commit_index <= self.raftCommitIndex:
            self._log.become_voter()

    def _receive_snapshot(self, peer: str, node: Any, message: SnapshotChunk) -> None:
        if message.term < self.raftCurrentTerm:
            self._answer_old_leader(peer)
            return
        self._heard_leader_s = monotonic()
        snapshot = self.snapshots.receive(message.data, first=message.first, last=message.last)
        heartbeat = {"type": "append_entries", "term": message.term, "commit_index": 0, "serialized": None}
        if snapshot is None:
            self._deliver(node, heartbeat)
            return
        last = snapshot.last
        if last.log_index <= self.raftCommitIndex or self._log.journal.term_at(last.log_index) == last.term:
            self._deliver(node, heartbeat)
            self.peers.send(peer, Position(self.raftCurrentTerm, last.log_index + 1, reset=False, success=True))
            return
        self.snapshots.install(snapshot)
        self._log.will_install(snapshot)
        self._deliver(node, heartbeat | {"commit_index": last.log_index, "serialized": True})
        waiting = self._SyncObj__commandsWaitingCommit
        for index in [index for index in waiting if index <= last.log_index]:
            del waiting[index]  # their results are in the snapshot; the proposers time out with an unknown outcome

    def _receive_position(self, node: Any, message: Position) -> None:
        if message.term != self.raftCurrentTerm or not self._isLeader() or node.id not in self._nodes:
            return
        if not 1 < message.next_index <= self._log.journal.last_index + 1:
            if message.success:
                raise ProtocolViolation(f"{node.id} claims entry {message.next_index - 1}, which does not exist")
            message = Position(message.term, self._log.journal.last_index + 1, message.reset, success=False)
        elif message.reset:
            if message.next_index <= self._SyncObj__raftMatchIndex[node]:
                self._SyncObj__raftMatchIndex[node] = 0  # it had more and has lost it: its disk is new
            # Each of several messages in flight is refused: the answer to a later one takes back nothing of an earlier one.
            next_index = min(message.next_index, self._SyncObj__raftNextIndex[node])
            message = Position(message.term, next_index, message.reset, message.success)
        self._deliver(
            node,
            {
                "type": "next_node_idx",
                "next_node_idx": message.next_index,
                "reset": message.reset,
                "success": message.success,
            },
        )

    def _receive_vote_request(self, peer: str, node: Any, message: VoteRequest) -> None:
        if not self._log.voter and message.commit_index > 1:
            log.warning("raft: no vote for %s: this member's disk is new and does not hold what was committed", peer)
            return
        if peer not in self.configuration.voters and self._hears_a_leader():
            self._tell_removed(peer)
            return
        self._deliver(
            node,
            {
                "type": "request_vote",
                "term": message.term,
                "last_log_index": message.last_index,
                "last_log_term": message.last_term,
            },
        )

    def library_sends(self, node: Any, message: dict[str, Any]) -> bool:
        """Send the library's own messages as messages of rangelog."""
        kind = message["type"]
        term = self.raftCurrentTerm
        if kind == "next_node_idx":
            position = Position(term, message["next_node_idx"], message["reset"], message["success"])
            return self.peers.send(node.id, position)
        if kind == "request_vote":
            request = VoteRequest(
                message["term"], message["last_log_index"], message["last_log_term"], self.raftCommitIndex
            )
            return self.peers.send(node.id, request)
        if kind == "response_vote":
            return self.peers.send(node.id, Vote(message["term"]))
        if kind == "timeout_now":
            return self.peers.send(node.id, TakeOver(message["term"]))
        raise ProtocolViolation(f"the Raft library wants to send {kind}")


def _answer_read(callback: Callable[[Any, int], None], index: int) -> None:
    """Resolve a read. An index below 0: this member leads no more."""
    callback(index, _SUCCESS if index >= 0 else _DISCARDED)


def _answer_all(callbacks: list[Callable[[Any, int], None]], result: Any, reason: int) -> None:
    for callback in callbacks:
        callback(result, reason)


class _LibraryTransport:
    """The transport in the library's form. It never delivers administrative messages."""

    ready = True

    def __init__(self, raft: Raft) -> None:
        self._raft = raft

    def send(self, node: Any, message: dict[str, Any]) -> bool:
        return self._raft.library_sends(node, message)

    def destroy(self) -> None:
        self._raft.peers.close()
        self._raft.snapshots.wait()

    def __getattr__(self, name: str) -> Callable[..., None]:
        if name.startswith("setOn"):
            return lambda *_: None
        raise AttributeError(name)
