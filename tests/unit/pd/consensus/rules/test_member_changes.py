"""Changes of a group's members, rule by rule: steps, the configuration of a log, catching up, transfers."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import pytest

from rangelog_core.errors import InvalidArgument, MemberNotFound, PreconditionFailed, ProtocolViolation, Unavailable
from rangelog_pd.consensus.files import group_file
from rangelog_pd.consensus.files.configuration import Configuration, RaftMember, decode, encode
from rangelog_pd.consensus.interface import MemberRemoved
from rangelog_pd.consensus.network.messages import (
    KIND_CONFIGURATION,
    Append,
    Hello,
    JournalEntry,
    Position,
    Removed,
    TakeOver,
    Vote,
    VoteRequest,
)
from rangelog_pd.consensus.network.transport import PeerTransport
from rangelog_pd.consensus.pysyncobj_consensus import initial_configuration
from rangelog_pd.consensus.rules.catching_up import Rounds
from rangelog_pd.consensus.rules.changes import ADD, REMOVE, MemberChange, changed, encode_change, is_passing, next_step
from rangelog_pd.consensus.rules.member_changes import KIND_CHANGE, KIND_TRANSFER
from rangelog_pd.consensus.rules.membership import ConfigurationHistory
from rangelog_pd.consensus.rules.transfer import Act, Transfer
from tests.unit.pd.consensus.rules.test_raft_rules import Member, append

GROUP = initial_configuration({name: f"{name}:1" for name in "abc"}, {})


@pytest.fixture
def member(tmp_path: Path) -> Member:
    """Member "a" of a, b and c."""
    made = Member(tmp_path / "a")
    made.raft.tick()
    return made


def add(name: str, replaces: str = "") -> MemberChange:
    """A change that adds a member."""
    return MemberChange(ADD, name, f"{name}:1", f"{name}:2", replaces)


def of(*names: str, learning: str = "", group: bytes = GROUP.group) -> Configuration:
    """A configuration of these voters, and a learner."""
    members = [RaftMember(name, f"{name}:1", f"{name}:2") for name in names]
    more = [RaftMember(learning, f"{learning}:1", f"{learning}:2", voter=False)] if learning else []
    return Configuration(group, ()).with_members([*members, *more])


def entry(index: int, term: int, configuration: Configuration) -> JournalEntry:
    """The log entry of a configuration."""
    return JournalEntry(bytes([KIND_CONFIGURATION]) + encode(configuration), index, term)


# ---- steps


def test_every_step_keeps_a_member_in_common_of_all_majorities() -> None:
    """Of any change's steps, from any size: voters differ by one at most."""
    for size in range(1, 6):
        configuration: Configuration | None = of(*"abcde"[:size])
        for change in (add("x"), add("x", replaces="a"), MemberChange(REMOVE, "a")):
            try:
                step = changed(configuration, change)  # type: ignore[arg-type]
            except (PreconditionFailed, InvalidArgument):
                continue
            before = configuration
            while step is not None:
                assert before is not None and len(before.voters ^ step.voters) <= 1
                for some in combinations(before.voters, len(before.voters) // 2 + 1):
                    for others in combinations(step.voters, len(step.voters) // 2 + 1):
                        assert set(some) & set(others)
                before, step = step, next_step(step, {"x"})


def test_a_member_learns_then_votes_then_the_one_that_it_replaces_goes() -> None:
    """Each step by itself, and none before its time."""
    learning = changed(GROUP, add("d", replaces="a"))
    assert learning is not None and learning.voters == GROUP.voters and is_passing(learning)
    assert next_step(learning, []) is None
    voting = next_step(learning, ["d"])
    assert voting is not None and voting.voters == {*"abcd"} and is_passing(voting)
    replaced = next_step(voting, [])
    assert replaced is not None and replaced.voters == {*"bcd"} and not is_passing(replaced)
    assert next_step(replaced, []) is None
    assert decode(encode(voting)) == voting


def test_what_is_as_wanted_stays_so() -> None:
    """A repeated call does no harm."""
    learning = changed(GROUP, add("d"))
    assert learning is not None and changed(learning, add("d")) is None
    assert changed(GROUP, MemberChange(REMOVE, "nobody")) is None


@pytest.mark.parametrize(
    ("configuration", "change", "error"),
    [
        (of("a", "b", "c", learning="d"), add("e"), PreconditionFailed),
        (of(*"abcde"), add("f"), PreconditionFailed),
        (of(*"abc"), MemberChange(ADD, "d", "a:1", "d:2"), PreconditionFailed),
        (of(*"abc"), MemberChange(ADD, "a", "z:1", "z:2"), PreconditionFailed),
        (of(*"abc"), add("d", replaces="nobody"), MemberNotFound),
        (of("a", "b", learning="d"), add("e", replaces="d"), PreconditionFailed),
        (of("a", learning="d"), MemberChange(REMOVE, "a"), InvalidArgument),
        (of("a"), add("bad name"), InvalidArgument),
        (of("a"), MemberChange(ADD, "d", "no address", "d:2"), InvalidArgument),
    ],
)
def test_what_is_no_change_is_refused(
    configuration: Configuration, change: MemberChange, error: type[Exception]
) -> None:
    """Before anything is changed."""
    with pytest.raises(error):
        changed(configuration, change)


def test_a_full_group_may_replace() -> None:
    """Six voters, for as long as it takes."""
    learning = changed(of(*"abcde"), add("f", replaces="a"))
    assert learning is not None
    voting = next_step(learning, ["f"])
    assert voting is not None and len(voting.voters) == 6
    done = next_step(voting, [])
    assert done is not None and done.voters == {*"bcdef"}


@pytest.mark.parametrize("data", [b"", b"\xc0", encode(of("a"))[:-1], encode(of("a")) + b"\0", encode(of("a"))[1:]])
def test_bytes_that_are_no_configuration_are_refused(data: bytes) -> None:
    """Whoever sends them."""
    with pytest.raises(ProtocolViolation):
        decode(data)


def test_the_group_file_of_a_joining_member(tmp_path: Path) -> None:
    """It comes back; damage is seen."""
    assert group_file.read(tmp_path / "group") is None
    group_file.write(tmp_path / "group", GROUP)
    assert group_file.read(tmp_path / "group") == GROUP


# ---- the configuration of a log


def test_a_configuration_counts_until_its_entry_is_cut() -> None:
    """And after a snapshot only what comes after it can be cut."""
    history = ConfigurationHistory(GROUP)
    history.append(5, of(*"abc", learning="d"))
    history.append(9, of(*"abcd"))
    assert history.at(8) == (of(*"abc", learning="d"), 5) and history.at(3) == (GROUP, 0)
    history.cut_from(9)
    assert (history.index, history.current) == (5, of(*"abc", learning="d"))
    history.append(7, of(*"abcd"))
    history.forget_before(6)
    history.cut_from(1)
    assert history.index == 5
    assert history.at(4)[1] == 5, "nothing before it is known any more"


def test_a_follower_takes_over_a_configuration_and_gives_it_up(member: Member) -> None:
    """Its entry counts when it is appended; another leader's entry in its place brings the one before back."""
    message = Append(1, 1, 1, 0, (entry(2, 1, of("a", "b")),))
    member.hear("b", message)
    assert member.raft.configuration == of("a", "b") and set(member.raft._nodes) == {"b"}
    member.hear("c", append(2, (1, 0), [2, 2]))
    assert member.raft.configuration.voters == {*"abc"} and set(member.raft._nodes) == {"b", "c"}


def test_a_configuration_is_found_again_after_a_restart(tmp_path: Path) -> None:
    """In the journal, and behind it in the snapshot."""
    first = Member(tmp_path / "a")
    first.raft.tick()
    first.hear("b", Append(1, 3, 1, 0, (entry(2, 1, of("a", "b")), JournalEntry(b"\0x", 3, 1))))
    assert first.raft._log.configuration_for_snapshot(3) == (of("a", "b"), 2)
    first.raft.forceLogCompaction()
    for _ in range(200):
        first.raft.tick()
        if first.log.journal.first_index > 1:
            break
    first.raft.destroy()
    again = Member(tmp_path / "a")
    assert again.log.journal.first_index == 2 and again.raft.configuration == of("a", "b")
    again.raft.destroy()


# ---- the leader


def change(member: Member, wanted: MemberChange) -> object:
    """Propose a change at the leader; its answer, None while there is none."""
    before = len(member.answers)
    command = bytes([KIND_CHANGE]) + encode_change(wanted)
    member.proposals.append((command, lambda result, reason: member.answers.append((result, reason))))
    member.raft.tick()
    return member.answers[-1][0] if len(member.answers) > before else None


def settle(member: Member, term: int, *peers: str) -> None:
    """Peers acknowledge all that there is, until it is committed."""
    for _ in range(3):
        for peer in peers:
            member.hear(peer, Position(term, member.log.journal.last_index + 1, reset=False, success=True))


def reachable(member: Member, *names: str) -> None:
    """As if these were connected."""
    member.raft.peers.__class__ = type("Reaching", (PeerTransport,), {"connected": frozenset(names)})


def test_no_change_before_an_entry_of_the_own_term_is_committed(member: Member) -> None:
    """Nor before the last change is."""
    term = member.lead()
    reachable(member, "b", "c")
    assert isinstance(change(member, add("d")), Unavailable)
    settle(member, term, "b")
    assert change(member, add("d")) is None
    assert member.raft.configuration.by_name.keys() == {*"abcd"} and member.raft.configuration.voters == {*"abc"}
    assert isinstance(change(member, MemberChange(REMOVE, "d")), Unavailable)
    settle(member, term, "b")
    assert member.answers[-1][0] == member.raft.configuration_index


def test_a_learner_counts_for_nothing(member: Member) -> None:
    """Neither its acknowledgements nor its vote."""
    term = member.lead()
    reachable(member, "b", "c")
    settle(member, term, "b")
    change(member, add("d"))
    settle(member, term, "b")
    committed = member.raft.raftCommitIndex
    member.propose(b"x")
    settle(member, term, "d")
    assert member.raft.raftCommitIndex == committed
    settle(member, term, "c")
    assert member.raft.raftCommitIndex == committed + 1


def test_a_change_that_leaves_no_majority_within_reach_is_refused(member: Member) -> None:
    """With c away, b is needed."""
    term = member.lead()
    reachable(member, "b")
    settle(member, term, "b")
    refused = change(member, MemberChange(REMOVE, "b"))
    assert isinstance(refused, PreconditionFailed) and "only a answers" in refused.message
    assert change(member, MemberChange(REMOVE, "c")) is None
    assert member.raft.configuration.voters == {"a", "b"}


def test_a_leader_that_removed_itself_does_not_count_itself_and_leaves(member: Member) -> None:
    """Two of two others must have the entry; then another is asked to take over, and this one stops."""
    term = member.lead()
    reachable(member, "b", "c")
    settle(member, term, "b", "c")
    assert change(member, MemberChange(REMOVE, "a")) is None
    index = member.log.journal.last_index
    settle(member, term, "b")
    assert member.raft.raftCommitIndex < index
    with pytest.raises(MemberRemoved):
        settle(member, term, "c")
    assert any(isinstance(said, TakeOver) for _, said in member.sent)
    assert not member.raft._isLeader()


def elapse(member: Member) -> None:
    """Its election timeout."""
    member.sent.clear()
    member.raft._move_deadline(lambda _now, _then: 0.0, 0.0)
    member.raft.tick()


def test_a_member_stands_until_its_removal_is_known_to_be_committed(member: Member) -> None:
    """Nobody else may have the entry, and then nobody else can win: its log is the longest."""
    member.hear("b", Append(1, 1, 1, 0, (entry(2, 1, of(*"abc")),)))
    member.log.become_voter()
    member.hear("b", Append(1, 2, 2, 1, (entry(3, 1, of(*"bc")),)))
    assert not member.raft.votes
    elapse(member)
    assert {"b", "c"} <= {peer for peer, said in member.sent if isinstance(said, VoteRequest)}


def test_a_member_whose_removal_is_committed_does_not_stand(member: Member) -> None:
    """Nor one that has never voted."""
    member.hear("b", Append(1, 1, 1, 0, (entry(2, 1, of(*"abc")),)))
    member.log.become_voter()
    member.hear("b", Append(1, 3, 2, 1, (entry(3, 1, of(*"bc")),)))
    elapse(member)
    assert not [said for _, said in member.sent if isinstance(said, VoteRequest)]


def test_leadership_is_handed_to_the_chosen_one_once_it_has_everything(member: Member) -> None:
    """Until then nothing is proposed; the one that takes over is the answer."""
    term = member.lead()
    reachable(member, "b", "c")
    settle(member, term, "b")
    member.proposals.append((b"\0last", lambda result, reason: None))
    member.proposals.append(
        (bytes([KIND_TRANSFER]) + b"c", lambda result, reason: member.answers.append((result, reason)))
    )
    member.sent.clear()
    member.raft.tick()
    last_index = member.log.journal.last_index
    member.proposals.append((b"\0waits", lambda result, reason: None))
    settle(member, term, "b")
    assert member.log.journal.last_index == last_index and len(member.proposals) == 1
    assert not any(isinstance(said, TakeOver) for _, said in member.sent)
    asked = member.hear("c", Position(term, member.log.journal.last_index + 1, reset=False, success=True))
    assert TakeOver(term) in asked or TakeOver(term) in [said for _, said in member.sent]
    member.hear("c", append(term + 1, (1, 0), []))
    assert member.answers[-1][0] == "c"


def test_a_transfer_has_a_time_limit() -> None:
    """A lost request is repeated; then the leader goes on."""
    transfer = Transfer("b", 1, 2.0, lambda result, reason: None)
    assert transfer.act(0.0, acknowledged_index=4, last_index=5, repeat_s=0.1) is Act.WAIT
    assert transfer.act(0.1, acknowledged_index=5, last_index=5, repeat_s=0.1) is Act.ASK
    assert transfer.act(0.15, acknowledged_index=5, last_index=5, repeat_s=0.1) is Act.WAIT
    assert transfer.act(0.21, acknowledged_index=5, last_index=5, repeat_s=0.1) is Act.ASK
    assert transfer.act(2.1, acknowledged_index=5, last_index=5, repeat_s=0.1) is Act.GIVE_UP


def test_a_learner_has_caught_up_after_a_short_round() -> None:
    """A round that took longer than an election begins another one."""
    rounds = Rounds()
    assert not rounds.caught_up("d", 0.0, acknowledged=1, last=100, limit_s=0.5)
    assert not rounds.caught_up("d", 3.0, acknowledged=100, last=200, limit_s=0.5)
    assert not rounds.caught_up("d", 3.1, acknowledged=150, last=210, limit_s=0.5)
    assert rounds.caught_up("d", 3.2, acknowledged=200, last=220, limit_s=0.5)


# ---- who is no member


def test_a_vote_request_of_no_voter_is_passed_over_while_a_leader_is_heard(member: Member) -> None:
    """Of a voter it counts, as ever; of others only when there is no leader."""
    member.hear("b", append(1, (1, 0), [1], commit=1))
    member.log.become_voter()
    request = VoteRequest(9, 50, 9, 40)
    assert member.hear("x", request) == [] and member.raft.raftCurrentTerm == 1
    member.raft._heard_leader_s = float("-inf")
    assert member.hear("x", request) == [Vote(9)]


def test_a_removed_member_is_told_and_stops(member: Member) -> None:
    """Only by an entry that it does not know to be older than its own."""
    member.hear("b", Append(1, 2, 1, 0, (entry(2, 1, of(*"abc")),)))
    assert member.log.voter
    member.hear("b", Removed(2))
    with pytest.raises(MemberRemoved):
        member.hear("b", Removed(3))


def test_a_member_that_joins_is_not_taken_for_a_removed_one(member: Member) -> None:
    """It has never held what was committed, so it does not know better."""
    member.hear("b", Append(1, 1, 1, 0, (entry(2, 1, of("b", "c")),)))
    assert not member.log.voter
    member.hear("b", Removed(7))


def test_strangers_are_told_that_they_are_removed(member: Member) -> None:
    """Once it is committed, and as soon as they say hello."""
    member.hear("b", Append(1, 2, 1, 0, (entry(2, 1, of("a", "b")),)))
    assert member.hear("c", Hello(6)) == [Removed(2)]
    assert member.hear("b", Hello(6)) == []
