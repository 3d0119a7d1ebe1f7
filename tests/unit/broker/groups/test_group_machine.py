"""The coordinator of groups as a machine: bounds of its results, time-outs, start positions, checkpoints, snapshots."""

from __future__ import annotations

import pytest

from rangelog_broker.groups.checkpoints import CHECKPOINTS_MAX, ShardKey
from rangelog_broker.groups.machine import POSITIONS_MAX, GroupCoordinator
from rangelog_broker.journal.entry import PIECE_BYTES_MAX
from rangelog_broker.journal.sessions import RESULT_BYTES_MAX
from rangelog_core.errors import GroupNotFound, InvalidArgument, MemberFenced, MemberNotFound, PreconditionFailed
from rangelog_core.versions import LEVEL_BROKERS
from rangelog_proto.v1 import group_pb2 as pb
from tests.support.journal_machines import restored

GROUP, TOPIC = "g", 1


class Machine:
    """A coordinator with one group, and the time."""

    def __init__(self) -> None:
        self.machine = GroupCoordinator()
        self.now_ms = 1_000

    def apply(self, **action: object) -> pb.GroupResult:
        """Apply a command; its result has the size that a journal allows."""
        command = pb.GroupCommand(group=GROUP, **action)  # type: ignore[arg-type]
        data = self.machine.apply(command.SerializeToString(), self.now_ms)
        assert len(data) <= RESULT_BYTES_MAX
        return pb.GroupResult.FromString(data)

    def learn(self, count: int, topic_id: int = TOPIC) -> None:
        """The topic has so many shards, none of which has ended."""
        facts = [pb.GroupShardFacts(shard_id=number) for number in range(count)]
        self.apply(shards=pb.GroupShards(topic_id=topic_id, map_version=1, shards=facts))


def test_the_largest_results_fit_into_a_journal() -> None:
    """A journal ends for good when a machine gives a result above its bound: no join and no commit may do that."""
    one = Machine()
    big = 1 << 60
    one.apply(join=pb.GroupJoin(member="a", session_ms=1_000, topic_ids=[big]))
    one.learn(3_000, big)
    one.apply(join=pb.GroupJoin(member="a", session_ms=1_000))
    positions = [
        pb.GroupPosition(shard=pb.GroupShard(topic_id=big, shard_id=number), offset=1 << 60, since=1)
        for number in range(1_000)
    ]
    assert len(one.apply(commit=pb.GroupCommit(member="a", positions=positions)).refused) == 1_000


def position(shard_id: int, offset: int, since: int = 0) -> pb.GroupPosition:
    """A position."""
    return pb.GroupPosition(shard=pb.GroupShard(topic_id=TOPIC, shard_id=shard_id), offset=offset, since=since)


def joined(*members: str, shards: int = 2) -> Machine:
    """A group of members that reads a topic."""
    one = Machine()
    for member in members:
        one.apply(join=pb.GroupJoin(member=member, session_ms=1_000, topic_ids=[TOPIC]))
    one.learn(shards)
    return one


def test_a_new_topic_begins_where_the_first_member_says() -> None:
    """Later members name a start in vain, and so does one of a topic that the group has read before."""
    one = Machine()
    for offset in (5, 9):
        one.apply(join=pb.GroupJoin(member="a", session_ms=1, topic_ids=[TOPIC], starts=[position(0, offset)]))
        one.learn(2)
        assert [each.offset for each in one.machine.views(GROUP)["a"].assigned] == [5, 0]
        assert [each.has_position for each in one.machine.views(GROUP)["a"].assigned] == [True, False]


def test_any_command_of_a_member_keeps_it_in() -> None:
    """Its silence is counted by the times of entries, from the last of them."""
    one = joined("a")
    group = one.machine.group(GROUP)
    for action in (
        {"heartbeat": pb.GroupHeartbeat(member="a")},
        {"commit": pb.GroupCommit(member="a")},
        {"release": pb.GroupRelease(member="a")},
        {"reach": pb.GroupReach(member="a")},
    ):
        one.now_ms += 999
        one.apply(**action)
        one.apply(expire=pb.GroupExpire(member="a", joined=group.members["a"].joined))
        assert "a" in group.members
    one.now_ms += 1_000
    one.apply(expire=pb.GroupExpire(member="a", joined=group.members["a"].joined))
    assert group.members == {}
    for action in ({"heartbeat": pb.GroupHeartbeat(member="a")}, {"commit": pb.GroupCommit(member="a")}):
        with pytest.raises(MemberNotFound):
            one.apply(**action)


def test_a_checkpoint_waits_for_all_members() -> None:
    """A position is fixed once: as reported, or as committed where the member loses the shard before it reports."""
    one = joined("a", "b", shards=3)
    has = {name: list(view.assigned) for name, view in one.machine.views(GROUP).items()}
    one.apply(checkpoint=pb.GroupCheckpoint(name="nightly"))
    view = one.machine.views(GROUP)["a"]
    assert (view.checkpoint, view.checkpoint_name) == (1, "nightly")
    reports = [position(each.shard.shard_id, 7, each.since) for each in has["a"]]
    one.apply(reach=pb.GroupReach(member="a", number=1, positions=reports))
    one.apply(
        commit=pb.GroupCommit(member="a", positions=[position(each.shard.shard_id, 8, each.since) for each in reports])
    )
    assert one.machine.views(GROUP)["a"].checkpoint == 0
    with pytest.raises(PreconditionFailed, match="not complete"):
        one.apply(checkpoint=pb.GroupCheckpoint(name="another"))
    one.apply(leave=pb.GroupLeave(member="b"))
    complete = one.machine.group(GROUP).checkpoints.complete["nightly"]
    mine = {each.shard.shard_id for each in has["a"]}
    assert complete.positions == {ShardKey(TOPIC, at): 7 if at in mine else 0 for at in range(3)}
    one.apply(reset=pb.GroupReset(checkpoint="nightly"))
    assert {each.shard.shard_id: each.offset for each in one.machine.views(GROUP)["a"].assigned} == {
        at: 7 if at in mine else 0 for at in range(3)
    }


def test_checkpoints_come_at_intervals_and_the_oldest_go() -> None:
    """However many members ask for one; who names one again changes nothing."""
    one = joined("a", shards=0)
    for number in range(30):
        one.apply(checkpoint=pb.GroupCheckpoint(name=f"auto-{number}", every_ms=1_000))
        one.now_ms += 500
    complete = one.machine.group(GROUP).checkpoints.complete
    assert list(complete) == [f"auto-{number}" for number in range(0, 30, 2)][-CHECKPOINTS_MAX:]
    one.apply(checkpoint=pb.GroupCheckpoint(name="auto-28"))
    one.apply(drop_checkpoint=pb.GroupDropCheckpoint(name="auto-10"))
    assert list(complete) == [f"auto-{number}" for number in range(12, 30, 2)]
    with pytest.raises(PreconditionFailed, match="no complete checkpoint"):
        one.apply(reset=pb.GroupReset(checkpoint="auto-10"))


def test_a_topic_that_is_forgotten_leaves_nothing() -> None:
    """Neither shards nor positions of checkpoints; a checkpoint that waits for nothing else is complete."""
    one = joined("a")
    one.apply(checkpoint=pb.GroupCheckpoint(name="c"))
    one.apply(forget=pb.GroupForget(topic_ids=[TOPIC, 99]))
    group = one.machine.group(GROUP)
    assert (group.topics, group.shards, group.checkpoints.complete["c"].positions) == ({}, {}, {})
    one.learn(2)
    assert group.shards == {}, "facts that come late bring nothing back"


def test_the_largest_state_fits_into_pieces() -> None:
    """Members, shards and checkpoints at their limits; what is restored is equal."""
    one = Machine()
    big = (1 << 64) - 1
    for number in range(200):
        one.apply(join=pb.GroupJoin(member=f"{number:0200}", session_ms=1_000, topic_ids=[big]))
    one.learn(3_000, big)
    for number in range(CHECKPOINTS_MAX):
        for name in list(one.machine.group(GROUP).members)[:100]:
            one.apply(leave=pb.GroupLeave(member=name))
        for name in list(one.machine.group(GROUP).members):
            one.apply(leave=pb.GroupLeave(member=name))
        one.apply(checkpoint=pb.GroupCheckpoint(name=f"c{number}"))
        one.apply(join=pb.GroupJoin(member="a", session_ms=1_000))
    one.apply(checkpoint=pb.GroupCheckpoint(name="pending"))
    pieces = list(one.machine.snapshot())
    assert max(map(len, pieces)) < PIECE_BYTES_MAX
    copy = GroupCoordinator()
    restored(copy, pieces)
    assert copy.groups == one.machine.groups
    assert copy.size_bytes == one.machine.size_bytes > 1_000_000
    one.apply(leave=pb.GroupLeave(member="a"))
    one.apply(delete=pb.GroupDelete())
    assert one.machine.size_bytes == 0


def test_bounds_and_names() -> None:
    """Bad input is refused with a typed error, and changes nothing."""
    one = joined("a")
    before = list(one.machine.snapshot())
    for error, action in (
        (InvalidArgument, {"commit": pb.GroupCommit(member="a", positions=[position(0, 1)] * (POSITIONS_MAX + 1))}),
        (InvalidArgument, {"join": pb.GroupJoin(member="a/b", session_ms=1)}),
        (InvalidArgument, {"join": pb.GroupJoin(member="b", session_ms=0)}),
        (InvalidArgument, {"checkpoint": pb.GroupCheckpoint(name="")}),
        (PreconditionFailed, {"reset": pb.GroupReset(positions=[position(77, 1)])}),
        (PreconditionFailed, {"delete": pb.GroupDelete()}),
    ):
        with pytest.raises(error):
            one.apply(**action)
    with pytest.raises(GroupNotFound):
        one.machine.apply(pb.GroupCommand(group="other", delete=pb.GroupDelete()).SerializeToString(), 0)
    with pytest.raises(GroupNotFound):
        one.machine.views("other")
    assert list(one.machine.snapshot()) == before


@pytest.mark.parametrize("level", [LEVEL_BROKERS - 1, LEVEL_BROKERS])
def test_commands_of_an_earlier_instance_count_up_to_a_level(level: int) -> None:
    """Brokers of before apply them: so do all, until the log says that there is none of these left."""
    one = Machine()
    one.machine.level = level
    told = [one.apply(join=pb.GroupJoin(member="a", session_ms=1_000, topic_ids=[TOPIC])).joined for _ in range(2)]
    one.learn(1)
    assert told == ([1, 2] if level >= LEVEL_BROKERS else [0, 0])
    group = one.machine.group(GROUP)
    since = group.shards[ShardKey(TOPIC, 0)].since
    calls = (
        lambda joined: {"commit": pb.GroupCommit(member="a", joined=joined, positions=[position(0, 1, since)])},
        lambda joined: {"heartbeat": pb.GroupHeartbeat(member="a", joined=joined)},
        lambda joined: {"release": pb.GroupRelease(member="a", joined=joined)},
        lambda joined: {"reach": pb.GroupReach(member="a", joined=joined)},
        lambda joined: {"stage": pb.GroupStage(transactional_id="t", commit=pb.GroupCommit(member="a", joined=joined))},
    )
    for call in calls:
        one.now_ms += 1
        for joined in (0, 2):
            one.apply(**call(joined))
        heard_ms, one.now_ms = one.now_ms, one.now_ms + 1
        if level >= LEVEL_BROKERS:
            with pytest.raises(MemberFenced):
                one.apply(**call(1))
            assert group.members["a"].heard_ms == heard_ms
        else:
            one.apply(**call(1))
    one.apply(leave=pb.GroupLeave(member="a", joined=1))
    assert ("a" in group.members) == (level >= LEVEL_BROKERS)
    one.apply(leave=pb.GroupLeave(member="a", joined=2))
    assert "a" not in group.members


def test_a_shard_that_counted_as_read_at_an_earlier_level_stays_so() -> None:
    """Trimmed behind the group's position: successors that were handed out then are not taken away for it now."""
    one = Machine()

    def learn(*trimmed: bool) -> None:
        """Shard 0, split into 1 and 2, of which 1 ended, and 3 follows it."""
        facts = [
            pb.GroupShardFacts(
                shard_id=at, predecessors=before, ended=ended, end_offset=9 * ended, start_offset=9 * gone
            )
            for at, (before, ended, gone) in enumerate(zip(([], [0], [0], [1]), (True, True, False, False), trimmed))
        ]
        one.apply(shards=pb.GroupShards(topic_id=TOPIC, map_version=3, shards=facts))

    def has() -> list[tuple[int, int]]:
        return [(each.shard.shard_id, each.offset) for each in one.machine.views(GROUP)["a"].assigned]

    one.apply(
        join=pb.GroupJoin(member="a", session_ms=1_000, topic_ids=[TOPIC], starts=[position(0, 2), position(1, 4)])
    )
    learn(False, False, False, False)
    assert has() == [(0, 2)]
    learn(True, False, False, False)
    assert has() == [(1, 4), (2, 0)]
    generation = one.machine.group(GROUP).generation
    copy = restored(GroupCoordinator(), one.machine.snapshot())
    for machine in (copy, one.machine):
        machine.level = LEVEL_BROKERS
    assert list(copy.snapshot()) == list(one.machine.snapshot())
    one.apply(heartbeat=pb.GroupHeartbeat(member="a"))
    learn(True, True, False, False)
    assert has() == [(1, 4), (2, 0)] and one.machine.group(GROUP).generation == generation
    later = GroupCoordinator()
    later.level = LEVEL_BROKERS
    assert list(restored(later, one.machine.snapshot()).snapshot()) == list(one.machine.snapshot())
