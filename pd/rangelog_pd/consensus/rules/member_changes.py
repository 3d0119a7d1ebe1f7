"""The part of `Raft` that follows the configuration of its log, changes it as the leader, and hands leadership over.

What holds:
- the configuration of the last entry that has one counts, from the moment it is appended;
- a leader begins a change only when the one before it is committed, and an entry of its own term too (else two leaders that
  follow each other could each begin one, and their majorities would have no member in common);
- each step leaves a majority of its voters within reach, who hold what the leader began with, as far as it sees;
- a leader that is no voter any more does not count itself, and leaves once the change is committed;
- who is no voter does not stand for election, but one whose removal it does not know to be committed: it may be the only one
  that has the entry, and then no other member can win (Ongaro, "Consensus: Bridging Theory and Practice", 4.2.2); what others
  than voters ask is passed over while a leader is heard; a removed member gets a message about it, and stops;
- a voter that was alone while all others were replaced comes back: it hears a leader that is a stranger to it, however many
  others there are, and a leader of an earlier term hears of its own.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pysyncobj.monotonic import monotonic  # type: ignore[import-untyped, unused-ignore]
from pysyncobj.node import Node  # type: ignore[import-untyped, unused-ignore]

from rangelog_core.errors import PreconditionFailed, RangelogError, Unavailable
from rangelog_pd.consensus.files.configuration import Configuration, encode
from rangelog_pd.consensus.interface import MemberRemoved
from rangelog_pd.consensus.network.messages import KIND_CONFIGURATION, Removed, TakeOver, VoteRequest
from rangelog_pd.consensus.network.transport import PeerTransport
from rangelog_pd.consensus.rules.catching_up import Rounds
from rangelog_pd.consensus.rules.changes import MemberChange, changed, decode_change, next_step
from rangelog_pd.consensus.rules.leader_checks import LeaderChecks
from rangelog_pd.consensus.rules.raft_log import RaftLog
from rangelog_pd.consensus.rules.transfer import BEHIND_ENTRIES_MAX, TRANSFER_TIMEOUT_S, Act, Transfer

log = logging.getLogger(__name__)

KIND_CHANGE, KIND_TRANSFER = 16, 17
"""First byte of what is proposed here and is no entry: a wanted change, and the name of the next leader."""
FEATURE_LEVEL_MEMBER_CHANGES = 6
STRANGERS_MAX = 8
"""Connected members that the configuration does not have: it may be behind, or they are removed or not added yet."""

_FOLLOWER, _CANDIDATE = 0, 1  # pysyncobj's _RAFT_STATE
_SUCCESS = 0  # pysyncobj's FAIL_REASON
_NEVER_S = float("-inf")

Callback = Callable[[Any, int], None]


class MemberChanges:
    """A part of `Raft`, whose attributes these are. Names that begin with `_SyncObj__` are the library's."""

    peers: PeerTransport
    levels: dict[str, int]
    raftCurrentTerm: int  # noqa: N815
    raftCommitIndex: int  # noqa: N815
    on_members: Callable[[dict[str, str]], None]
    _name: str
    _log: RaftLog
    _checks: LeaderChecks
    _timings: Any
    _SyncObj__connectedNodes: set[Any]
    _SyncObj__otherNodes: set[Any]
    _SyncObj__readonlyNodes: set[Any]
    _SyncObj__raftNextIndex: dict[Any, int]
    _SyncObj__raftMatchIndex: dict[Any, int]
    _SyncObj__lastResponseTime: dict[Any, float]
    _SyncObj__commandsWaitingCommit: dict[int, list[tuple[int, Callback]]]
    _SyncObj__raftLeader: Any
    _SyncObj__raftState: int
    _SyncObj__noopIDx: int | None

    if TYPE_CHECKING:

        def _follow_timings(self) -> None: ...
        def _isLeader(self) -> bool: ...
        def _SyncObj__sendAppendEntries(self) -> None: ...
        def _SyncObj__setState(self, state: int) -> None: ...

    def _begin_with_members(self) -> None:
        """Set up what this part keeps, before the library is."""
        self._known_nodes: dict[str, Any] = {}
        self._nodes: dict[str, Any] = {}
        self.configuration: Configuration = self._log.membership.current
        """The members, as they count now."""
        self._rounds = Rounds()
        self._transfer: Transfer | None = None
        self._heard_leader_s = _NEVER_S
        self._told_index = 0
        self._leaving: MemberRemoved | None = None
        self._not_voting = Node("")
        """Stands, in the library's counts, for this member's own voice where it has none: with one more member that never
        answers, the library's "this member and the others, more than half" becomes "more than half of the voters"."""

    # --- following the configuration

    @property
    def votes(self) -> bool:
        """Whether this member is a voter of the configuration."""
        return self._name in self.configuration.voters

    @property
    def _is_being_removed(self) -> bool:
        """Whether this member was a voter before the configuration, which is not known to be committed."""
        membership = self._log.membership
        if self.votes or membership.index <= self.raftCommitIndex:
            return False
        return self._name in membership.at(membership.index - 1)[0].voters

    @property
    def _votes_alone(self) -> bool:
        return self.configuration.voters == {self._name}

    def _node(self, name: str) -> Any:
        return self._known_nodes.setdefault(name, Node(name))

    def _library_nodes(self, configuration: Configuration) -> tuple[set[Any], set[Any]]:
        """Return the nodes that the library counts, and those that only get the log."""
        voting = {self._node(name) for name in configuration.voters if name != self._name}
        if self._name not in configuration.voters:
            voting.add(self._not_voting)
        return voting, {self._node(name) for name in configuration.by_name if name != self._name} - voting

    def _follow_configuration(self) -> None:
        """Take over the configuration that counts now, if it is another one."""
        if self._log.membership.current != self.configuration:
            self._adopt(self._log.membership.current)

    def _adopt(self, configuration: Configuration) -> None:
        self.configuration = configuration
        voting, learning = self._library_nodes(configuration)
        self._SyncObj__otherNodes, self._SyncObj__readonlyNodes = voting, learning
        self._nodes = {name: self._node(name) for name in sorted(configuration.by_name) if name != self._name}
        wanted, now_s = {*voting, *learning}, monotonic()
        for node in set(self._SyncObj__raftMatchIndex) - wanted:
            for kept in (self._SyncObj__raftNextIndex, self._SyncObj__raftMatchIndex, self._SyncObj__lastResponseTime):
                kept.pop(node, None)
        for node in wanted:
            self._SyncObj__raftNextIndex.setdefault(node, self._log.journal.last_index + 1)
            self._SyncObj__raftMatchIndex.setdefault(node, 0)
            self._SyncObj__lastResponseTime.setdefault(node, now_s)
        self._SyncObj__lastResponseTime[self._not_voting] = _NEVER_S
        self._checks.follow(configuration.voters)
        self._rounds.clear()
        self._follow_timings()
        self.on_members({name: member.raft_address for name, member in configuration.by_name.items()})

    # --- as the leader

    def _is_settled(self) -> bool:
        """Whether the configuration and an entry of this term are committed."""
        committed = self.raftCommitIndex
        return self._log.membership.index <= committed and self._log.journal.term_at(committed) == self.raftCurrentTerm

    def _within_reach(self, configuration: Configuration) -> list[str]:
        """Return the voters that answered lately and have what this leader began with, this member included.

        One that lacks that, because its disk is new, does not vote: it would not help to elect the next leader.
        """
        return [name for name in sorted(configuration.voters) if name == self._name or self._is_within_reach(name)]

    def _is_within_reach(self, name: str) -> bool:
        begun_with = self._SyncObj__noopIDx or 0
        return self._answers(name) and self._SyncObj__raftMatchIndex.get(self._node(name), 0) >= begun_with

    def _answers(self, name: str) -> bool:
        since_s = monotonic() - self._timings.election_min_s
        answered_s = self._SyncObj__lastResponseTime.get(self._node(name), _NEVER_S)
        return name in self.peers.connected and answered_s >= since_s

    def _has_majority(self, configuration: Configuration) -> bool:
        return 2 * len(self._within_reach(configuration)) > len(configuration.voters)

    def _begin_change(self, command: bytes, callback: Callback) -> None:
        """Append the first step of a change that was asked for; or refuse it."""
        try:
            wanted = self._first_step(decode_change(command[1:]))
        except RangelogError as error:
            callback(error, _SUCCESS)
            return
        if wanted is None:
            callback(self._log.membership.index, _SUCCESS)
        else:
            self._append_configuration(wanted, callback)

    def _first_step(self, change: MemberChange) -> Configuration | None:
        wanted = changed(self.configuration, change)
        if wanted is None:
            return None
        if not self._is_settled() or self._transfer is not None:
            raise Unavailable("the last change of the members is not committed yet; try again")
        if not self._has_majority(wanted):
            reached = ", ".join(self._within_reach(wanted)) or "none"
            raise PreconditionFailed(
                f"of {', '.join(sorted(wanted.voters))} only {reached} answers: there would be no majority any more"
            )
        return wanted

    def _continue_changes(self) -> None:
        """Append the step that follows by itself, if one does."""
        if self._log.membership.index == 0 or not self._is_settled() or self._transfer is not None:
            return
        now_s, journal = monotonic(), self._log.journal
        caught_up = [
            name
            for name, node in self._nodes.items()
            if name not in self.configuration.voters
            and name in self.peers.connected
            and self.levels.get(name, 0) >= FEATURE_LEVEL_MEMBER_CHANGES
            and self._SyncObj__raftMatchIndex.get(node, 0) > 0
            and self._rounds.caught_up(
                name,
                now_s,
                acknowledged=self._SyncObj__raftMatchIndex[node],
                last=journal.last_index,
                limit_s=self._timings.election_min_s,
            )
        ]
        step = next_step(self.configuration, caught_up)
        if step is not None and self._has_majority(step):
            self._append_configuration(step, lambda _result, _reason: None)

    def _append_configuration(self, configuration: Configuration, callback: Callback) -> None:
        index = self._log.journal.last_index + 1
        log.info("raft: the members from entry %d on: %s", index, ", ".join(configuration.by_name))
        self._log.add(bytes([KIND_CONFIGURATION]) + encode(configuration), index, self.raftCurrentTerm)
        self._SyncObj__commandsWaitingCommit[index].append((self.raftCurrentTerm, callback))

    def _notice_commit(self) -> None:
        """Tell those whom a committed change removed; a removed leader leaves."""
        membership = self._log.membership
        if membership.index <= self._told_index or membership.index > self.raftCommitIndex:
            return
        self._told_index = membership.index
        for peer in self.peers.connected:
            self._tell_removed(peer)
        if self._isLeader() and not self.votes:
            self._SyncObj__sendAppendEntries()  # with the commit index
            target = self._most_advanced()
            if target is not None:
                self.peers.send(target, TakeOver(self.raftCurrentTerm))
            self._SyncObj__setState(_FOLLOWER)
            self._SyncObj__raftLeader = None
            self._leave()

    # --- handing over

    def _begin_transfer(self, name: str, callback: Callback) -> None:
        """Begin to hand leadership to `name`; "": to the voter that has most of the log."""
        target = name or self._most_advanced()
        if target == self._name:
            callback(target, _SUCCESS)
            return
        try:
            self._check_target(target)
        except RangelogError as error:
            callback(error, _SUCCESS)
            return
        assert target is not None
        deadline_s = monotonic() + TRANSFER_TIMEOUT_S
        self._transfer = Transfer(target, self.raftCurrentTerm, deadline_s, callback)

    def _most_advanced(self) -> str | None:
        able = [name for name in self._within_reach(self.configuration) if name != self._name]
        return max(able, key=lambda name: self._SyncObj__raftMatchIndex.get(self._node(name), 0), default=None)

    def _check_target(self, target: str | None) -> None:
        if self._transfer is not None:
            raise Unavailable(f"leadership is being handed to {self._transfer.target} already; try again")
        if target is None or target not in self.configuration.voters:
            raise PreconditionFailed(f"{target or 'no other member'} is no voting member that could lead")
        if not self._answers(target):
            raise PreconditionFailed(f"{target} does not answer {self._name}, so it cannot take over")
        behind = self._log.journal.last_index - self._SyncObj__raftMatchIndex.get(self._node(target), 0)
        if behind > BEHIND_ENTRIES_MAX:
            raise Unavailable(f"{target} lacks {behind} entries of the log: try again once it has them")

    def _continue_transfer(self) -> None:
        """Do the next act of a transfer, or end it."""
        transfer = self._transfer
        if transfer is None:
            return
        if not self._isLeader() or self.raftCurrentTerm != transfer.term:
            self._await_successor(transfer)
            return
        act = transfer.act(
            monotonic(),
            acknowledged_index=self._SyncObj__raftMatchIndex.get(self._node(transfer.target), 0),
            last_index=self._log.journal.last_index,
            repeat_s=self._timings.heartbeat_s,
        )
        if act is Act.ASK:
            self.peers.send(transfer.target, TakeOver(self.raftCurrentTerm))
        elif act is Act.GIVE_UP:
            self._transfer = None
            message = f"{transfer.target} did not take over within {TRANSFER_TIMEOUT_S:g} s; {self._name} still leads"
            transfer.callback(Unavailable(message), _SUCCESS)

    def _await_successor(self, transfer: Transfer) -> None:
        leader = self._SyncObj__raftLeader
        if leader is not None:
            self._transfer = None
            transfer.callback(leader.id, _SUCCESS)
        elif monotonic() > transfer.deadline_s:
            self._transfer = None
            transfer.callback(Unavailable("nobody leads after the transfer yet; try again"), _SUCCESS)

    # --- strangers

    def _bear_strangers(self) -> None:
        """Close the oldest connections of strangers above the bound, but that of the leader: the latest one may lead."""
        leader = self._SyncObj__raftLeader
        strangers = [name for name in self.peers.connected if name not in self._nodes and self._node(name) != leader]
        for name in strangers[:-STRANGERS_MAX]:
            self.peers.drop(name, f"{name} is no member, and {STRANGERS_MAX} others that are none connected later")

    def _answer_old_leader(self, peer: str) -> None:
        """Ask a leader of an earlier term for its vote, if this candidate does not know it as a member: so it hears the term.

        One that it knows was asked when the election began.
        """
        if peer in self._nodes or self._SyncObj__raftState != _CANDIDATE:
            return
        last_index = self._log.journal.last_index
        last_term = self._log.journal.term_at(last_index) or 0
        self.peers.send(peer, VoteRequest(self.raftCurrentTerm, last_index, last_term, self.raftCommitIndex))

    # --- removed members

    def _hears_a_leader(self) -> bool:
        """Whether this member leads, or heard a leader lately."""
        return self._isLeader() or monotonic() - self._heard_leader_s < self._timings.election_min_s

    def _tell_removed(self, peer: str) -> None:
        """Tell a connected peer that is no member so, if that is certain."""
        membership = self._log.membership
        certain = 0 < membership.index <= self.raftCommitIndex and peer not in membership.current.by_name
        if certain and self.levels.get(peer, 0) >= FEATURE_LEVEL_MEMBER_CHANGES:
            self.peers.send(peer, Removed(membership.index))

    def _receive_removed(self, message: Removed) -> None:
        """Leave, if this member has been one and knows no later configuration that has it."""
        membership = self._log.membership
        is_member = self._name in membership.current.by_name
        if self._log.voter and (
            message.index > membership.index or (not is_member and message.index == membership.index)
        ):
            self._leave()

    def _leave(self) -> None:
        self._leaving = MemberRemoved(
            f"{self._name} was removed from the group of placement drivers: its data directory is of no use any more; to "
            "add it again, start it on an empty one with --join"
        )
