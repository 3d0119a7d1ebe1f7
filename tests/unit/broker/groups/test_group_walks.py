"""Random walks of a group over a topic that splits and merges: members die, stall, come back; commits arrive late (T6, T4).

A member reads what it was told it has, from where it was told to begin, and commits as it likes; it may go on with what it had
after it was expired. Records are numbered per shard; each walk keeps who was given what, and when.
"""

from __future__ import annotations

import copy
import random
from collections import Counter
from dataclasses import dataclass, field

import pytest

from rangelog_broker.groups.group import ShardKey
from rangelog_broker.groups.machine import GroupCoordinator
from rangelog_core.errors import MemberNotFound, PreconditionFailed, RangelogError
from rangelog_proto.v1 import group_pb2
from tests.support.journal_machines import restored

GROUP, TOPIC = "g", 1
SESSION_MS = 1_000


@dataclass
class Shard:
    """What is so: its records, whether it is ended."""

    predecessors: list[int]
    end: int = 0
    ended: bool = False


@dataclass
class Assigned:
    """What a member believes that it has."""

    since: int
    position: int
    release: bool


@dataclass
class Member:
    name: str
    has: dict[int, Assigned] = field(default_factory=dict)
    expired: bool = False


class Walk:
    """One walk."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.machine = GroupCoordinator()
        self.shards: dict[int, Shard] = {0: Shard([])}
        self.members: dict[str, Member] = {}
        self.processed: set[tuple[int, int]] = set()
        self.committed: Counter[int] = Counter()
        self.handed: dict[int, tuple[int, str]] = {}  # the last (generation, member) of each shard
        self.skipped: Counter[int] = Counter()  # up to here a reset may have moved over records
        self.noted: dict[str, dict[int, int]] = {}  # positions of complete checkpoints
        self.at_start: dict[int, int] = {}  # what was committed when the last checkpoint began
        self.late: list[tuple[str, group_pb2.GroupPosition]] = []
        self.staged: dict[int, dict[int, int]] = {}  # transaction number → shard → offset
        self.transactions = 0
        self.map_version = 1
        self.now_ms = 0
        self.seen: Counter[str] = Counter()
        self.join()
        self.learn()

    # ---- the coordinator

    def apply(self, **action: object) -> group_pb2.GroupResult:
        command = group_pb2.GroupCommand(group=GROUP, **action)  # type: ignore[arg-type]
        if self.draw.random() < 0.05:
            other = GroupCoordinator()
            restored(other, self.machine.snapshot())
            assert list(other.snapshot()) == list(self.machine.snapshot())
            self.machine = other
        before = {key: shard.member for key, shard in self._group().items()}
        result = group_pb2.GroupResult.FromString(self.machine.apply(command.SerializeToString(), self.now_ms))
        self._check_settled()
        for key, shard in self._group().items():
            if shard.member:
                last = self.handed.get(key.shard_id, (0, ""))
                assert shard.since >= last[0]
                if (shard.since, shard.member) != last:
                    undecided = [number for number, positions in self.staged.items() if key.shard_id in positions]
                    assert not undecided, "who gets a shard begins behind what is staged, or before it"
                    assert shard.since > last[0], "whoever gets a shard gets it in a generation of its own"
                    assert self._ancestors_are_finished(key.shard_id), "a successor waits for all its ancestors"
                    self.handed[key.shard_id] = shard.since, shard.member
                    self.seen["handed out"] += 1
                    if before.get(key) and before[key] != shard.member:
                        self.seen["taken from one member for another"] += 1
        return result

    def _check_settled(self) -> None:
        """To hand out again changes nothing where the group says so."""
        group = self.machine.groups[GROUP]
        if group.is_settled:
            again = copy.deepcopy(group)
            again._hand_out()
            assert (again, again.changes) == (group, group.changes)
            self.seen["settled"] += 1

    def _group(self) -> dict[ShardKey, object]:
        group = self.machine.groups.get(GROUP)
        return group.shards if group is not None else {}  # type: ignore[return-value]

    def _ancestors_are_finished(self, shard_id: int) -> bool:
        return all(
            self.shards[each].ended
            and (self.machine.groups[GROUP].shards[ShardKey(TOPIC, each)].offset or 0) >= self.shards[each].end
            and self._ancestors_are_finished(each)
            for each in self.shards[shard_id].predecessors
        )

    def learn(self) -> None:
        """The owner hears of the map, perhaps of an earlier one again."""
        message = group_pb2.GroupShards(topic_id=TOPIC, map_version=self.map_version)
        for shard_id, shard in self.shards.items():
            end = shard.end if shard.ended else 0
            message.shards.add(shard_id=shard_id, predecessors=shard.predecessors, ended=shard.ended, end_offset=end)
        self.apply(shards=message)

    # ---- the topic

    def write(self) -> None:
        open_ones = [shard for shard in self.shards.values() if not shard.ended]
        self.draw.choice(open_ones).end += self.draw.randrange(0, 3)

    def scale(self) -> None:
        """Split a shard, or merge two."""
        current = [shard_id for shard_id, shard in self.shards.items() if not shard.ended]
        if len(self.shards) > 12:
            return
        merged = len(current) > 1 and self.draw.random() < 0.5
        parents = self.draw.sample(current, 2) if merged else [self.draw.choice(current)]
        for parent in parents:
            self.shards[parent].ended = True
        for _ in range(1 if merged else 2):
            self.shards[len(self.shards)] = Shard(parents)
        self.map_version += 1
        self.seen["merge" if merged else "split"] += 1
        if self.draw.random() < 0.7:
            self.learn()

    # ---- members

    def join(self) -> None:
        if len(self.members) < 6:
            name = f"m{len(self.members)}"
            self.apply(join=group_pb2.GroupJoin(member=name, session_ms=SESSION_MS, topic_ids=[TOPIC]))
            self.members[name] = Member(name)
            self._look(self.members[name])

    def join_again(self) -> None:
        gone = [member for member in self.members.values() if member.expired or self.draw.random() < 0.1]
        if gone:
            member = self.draw.choice(gone)
            newest = self.machine.groups[GROUP].generation
            self.apply(join=group_pb2.GroupJoin(member=member.name, session_ms=SESSION_MS))
            assert all(each.since > newest for each in self.machine.views(GROUP)[member.name].assigned), (
                "an earlier instance of it commits nothing more"
            )
            member.expired = False
            member.has = {}
            self._look(member)
            self.seen["joined again"] += 1

    def expire(self) -> None:
        alive = [member for member in self.members.values() if not member.expired]
        if len(alive) > 1:
            member = self.draw.choice(alive)
            joined = self.machine.groups[GROUP].members[member.name].joined
            if self.draw.random() < 0.2:
                self.now_ms += SESSION_MS
                self.apply(expire=group_pb2.GroupExpire(member=member.name, joined=joined - 1))
                assert member.name in self.machine.groups[GROUP].members, "one that joined since is not meant"
                return
            self.apply(heartbeat=group_pb2.GroupHeartbeat(member=member.name))
            self.now_ms += SESSION_MS - 1
            self.apply(expire=group_pb2.GroupExpire(member=member.name, joined=joined))
            assert member.name in self.machine.groups[GROUP].members, "it was heard of in its session's time"
            self.now_ms += 1
            self.apply(expire=group_pb2.GroupExpire(member=member.name, joined=joined))
            assert member.name not in self.machine.groups[GROUP].members
            member.expired = True

    def look(self) -> None:
        """A member asks what it has."""
        member = self.draw.choice(list(self.members.values()))
        if not member.expired:
            self._look(member)

    def _look(self, member: Member) -> None:
        view = self.machine.views(GROUP)[member.name]
        now = {}
        for each in view.assigned:
            had = member.has.get(each.shard.shard_id)
            kept = had is not None and had.since == each.since
            position = had.position if kept and had is not None else each.offset
            now[each.shard.shard_id] = Assigned(each.since, position, each.release)
        member.has = now

    def read(self) -> None:
        """Process a record; also of a shard that another member has by now."""
        member = self.draw.choice(list(self.members.values()))
        readable = [
            (at, one) for at, one in member.has.items() if one.position < self.shards[at].end and not one.release
        ]
        if readable:
            shard_id, one = self.draw.choice(readable)
            self.processed.add((shard_id, one.position))
            one.position += 1

    def commit(self) -> None:
        """Now, or later: then it arrives in any order."""
        member = self.draw.choice(list(self.members.values()))
        for shard_id, one in member.has.items():
            position = group_pb2.GroupPosition(
                shard=group_pb2.GroupShard(topic_id=TOPIC, shard_id=shard_id), offset=one.position, since=one.since
            )
            if self.draw.random() < 0.3:
                self.late.append((member.name, position))
            else:
                self._commit(member.name, position)

    def commit_late(self) -> None:
        if self.late:
            self._commit(*self.late.pop(self.draw.randrange(len(self.late))))

    def _commit(self, name: str, position: group_pb2.GroupPosition) -> None:
        shard_id = position.shard.shard_id
        current = self.handed.get(shard_id) == (position.since, name) and not self.members[name].expired
        try:
            refused = bool(self.apply(commit=group_pb2.GroupCommit(member=name, positions=[position])).refused)
        except MemberNotFound:
            refused = True
            assert self.members[name].expired
        shard = self.machine.groups[GROUP].shards[ShardKey(TOPIC, shard_id)]
        if refused:
            self.seen["a commit was refused"] += 1
            assert shard.offset is None or shard.offset >= self.committed[shard_id]
        else:
            assert current, "only who has the shard, under the generation that handed it out"
            self.committed[shard_id] = max(self.committed[shard_id], position.offset)
        assert (shard.offset or 0) == self.committed[shard_id], "the larger commit stays"

    def stage(self) -> None:
        """A transaction is about to commit all that a member has processed; also one that has lost a shard."""
        member = self.draw.choice(list(self.members.values()))
        if not member.has:
            return
        self.transactions += 1
        number = self.transactions
        held = {at for at, one in member.has.items() if self.handed.get(at) == (one.since, member.name)}
        commit = group_pb2.GroupCommit(member=member.name, positions=[
            group_pb2.GroupPosition(
                shard=group_pb2.GroupShard(topic_id=TOPIC, shard_id=at), offset=one.position, since=one.since
            )
            for at, one in member.has.items()
        ])  # fmt: skip
        stage = group_pb2.GroupStage(transactional_id="t", producer_id=7, number=number, commit=commit)
        try:
            refused = self.apply(stage=stage).refused
        except MemberNotFound:
            assert member.expired
            return
        if refused:
            self.seen["positions were not staged"] += 1
            assert number not in self._staged_numbers(), "all positions are staged, or none"
        else:
            assert held == member.has.keys(), "only who has the shards, under the generations that handed them out"
            self.staged[number] = {at: one.position for at, one in member.has.items()}
            self.seen["positions were staged"] += 1

    def _staged_numbers(self) -> set[int]:
        return {key.number for key, _ in self.machine.groups[GROUP].staged}

    def settle(self) -> None:
        """The coordinator's word on a transaction; perhaps again, or on one that staged nothing."""
        number = self.draw.choice([*self.staged, self.transactions + 5])
        committed = self.draw.random() < 0.6
        for at, offset in self.staged.pop(number, {}).items():
            if committed:
                self.committed[at] = max(self.committed[at], offset)
                self.seen["a staged position was committed"] += 1
        for _ in range(self.draw.randint(1, 2)):
            self.apply(settle=group_pb2.GroupSettle(producer_id=7, number=number, committed=committed))
        for at, offset in self.committed.items():
            assert (self.machine.groups[GROUP].shards[ShardKey(TOPIC, at)].offset or 0) == offset

    def release(self) -> None:
        for member in self.members.values():
            given_up = {shard_id: one for shard_id, one in member.has.items() if one.release}
            if given_up and not member.expired:
                for shard_id, one in given_up.items():
                    self._commit(member.name, group_pb2.GroupPosition(
                        shard=group_pb2.GroupShard(topic_id=TOPIC, shard_id=shard_id), offset=one.position, since=one.since,
                    ))  # fmt: skip
                    member.has.pop(shard_id)
                self.apply(release=group_pb2.GroupRelease(member=member.name, positions=[
                    group_pb2.GroupPosition(shard=group_pb2.GroupShard(topic_id=TOPIC, shard_id=each), since=one.since)
                    for each, one in given_up.items()
                ]))  # fmt: skip
                self.seen["released"] += 1

    # ---- resets and checkpoints

    def reset(self) -> None:
        """Move some positions anywhere, or all to a checkpoint."""
        if self.staged:
            with pytest.raises(PreconditionFailed, match="about to commit"):
                self.apply(reset=group_pb2.GroupReset())
            return
        complete = self.machine.groups[GROUP].checkpoints.complete
        known = [key.shard_id for key in self._group()]
        if complete and self.draw.random() < 0.5:
            name = self.draw.choice(list(complete))
            self.apply(reset=group_pb2.GroupReset(checkpoint=name))
            positions = {at: self.noted[name].get(at, 0) for at in known}
            self.seen["reset to a checkpoint"] += 1
        else:
            chosen = self.draw.sample(known, self.draw.randint(0, len(known)))
            positions = {at: self.draw.randint(0, self.shards[at].end) for at in chosen}
            self.apply(reset=group_pb2.GroupReset(positions=[
                group_pb2.GroupPosition(shard=group_pb2.GroupShard(topic_id=TOPIC, shard_id=at), offset=offset)
                for at, offset in positions.items()
            ]))  # fmt: skip
            self.seen["reset"] += 1
        for at, offset in positions.items():
            self.committed[at] = offset
            self.skipped[at] = max(self.skipped[at], offset)

    def checkpoint(self) -> None:
        """Ask for one; a checkpoint that is not complete stands in the way of another."""
        checkpoints = self.machine.groups[GROUP].checkpoints
        name = f"c{self.seen['checkpoint']}"
        if checkpoints.pending is None:
            self.at_start = dict(self.committed)
            self.apply(checkpoint=group_pb2.GroupCheckpoint(name=name))
            self.seen["checkpoint"] += 1
        else:
            with pytest.raises(PreconditionFailed):
                self.apply(checkpoint=group_pb2.GroupCheckpoint(name=name))

    def reach(self) -> None:
        """A member that is not expired reports where it is."""
        member = self.draw.choice(list(self.members.values()))
        if member.expired:
            return
        number = self.machine.views(GROUP)[member.name].checkpoint
        self.apply(reach=group_pb2.GroupReach(member=member.name, number=number, positions=[
            group_pb2.GroupPosition(
                shard=group_pb2.GroupShard(topic_id=TOPIC, shard_id=at), offset=one.position, since=one.since
            )
            for at, one in member.has.items()
        ]))  # fmt: skip

    def check_checkpoints(self) -> None:
        """What is below a position of a complete checkpoint was processed by then; it lies behind what was committed before."""
        for name, one in self.machine.groups[GROUP].checkpoints.complete.items():
            if name in self.noted:
                continue
            self.noted[name] = {key.shard_id: offset for key, offset in one.positions.items()}
            self.seen["a checkpoint is complete"] += 1
            for at, offset in self.noted[name].items():
                assert offset >= self.at_start.get(at, 0)
                assert all((at, each) in self.processed or each < self.skipped[at] for each in range(offset))

    # ---- the walk

    def run(self, steps: int) -> None:
        weights = {
            self.write: 4, self.scale: 0.4, self.learn: 1, self.join: 0.5, self.join_again: 0.5, self.expire: 0.4,
            self.look: 5, self.read: 10, self.commit: 3, self.commit_late: 1, self.release: 1,
            self.reset: 0.2, self.checkpoint: 0.3, self.reach: 1, self.stage: 0.7, self.settle: 0.7,
        }  # fmt: skip
        for _ in range(steps):
            self.draw.choices(list(weights), list(weights.values()))[0]()
            for shard_id, offset in self.committed.items():
                unread = range(self.skipped[shard_id], offset)
                missing = [each for each in unread if (shard_id, each) not in self.processed]
                assert not missing, f"{missing} of shard {shard_id} were committed and nobody processed them"
            self.check_checkpoints()
        self.finish()

    def finish(self) -> None:
        """In the calm, with one member that lives: everything is read and committed."""
        while self.staged:
            self.settle()
        self.learn()
        self.now_ms += SESSION_MS
        for name in list(self.machine.groups[GROUP].members):
            joined = self.machine.groups[GROUP].members[name].joined
            self.apply(expire=group_pb2.GroupExpire(member=name, joined=joined))
            self.members[name].expired = True
        member = self.members["m0"]
        self.apply(join=group_pb2.GroupJoin(member="m0", session_ms=SESSION_MS))
        member.expired, member.has = False, {}
        for _ in range(len(self.shards) + 1):
            self._look(member)
            for shard_id, one in member.has.items():
                self.processed |= {(shard_id, at) for at in range(one.position, self.shards[shard_id].end)}
                one.position = max(one.position, self.shards[shard_id].end)
            for shard_id, one in list(member.has.items()):
                self._commit("m0", group_pb2.GroupPosition(
                    shard=group_pb2.GroupShard(topic_id=TOPIC, shard_id=shard_id), offset=one.position, since=one.since,
                ))  # fmt: skip
        assert {at: self.committed[at] for at in self.shards} == {at: shard.end for at, shard in self.shards.items()}


@pytest.mark.parametrize("first", range(0, 300, 30))
def test_walks(first: int) -> None:
    """Nothing is skipped, nothing is read early, no stale member moves a position, and everything is read in the end."""
    seen: Counter[str] = Counter()
    for seed in range(first, first + 30):
        walk = Walk(seed)
        walk.run(200)
        seen += walk.seen
    assert set(seen) == {
        "settled", "handed out", "split", "merge", "joined again", "a commit was refused", "released",
        "reset", "reset to a checkpoint", "checkpoint", "a checkpoint is complete",
        "positions were staged", "positions were not staged", "a staged position was committed",
    } | ({"taken from one member for another"} & set(seen))  # fmt: skip


def test_a_group_is_shared_evenly_and_moves_little() -> None:
    """A member that joins gets its part of what the others release; one that dies leaves its part to the others at once."""
    machine = GroupCoordinator()

    def apply(**action: object) -> group_pb2.GroupResult:
        command = group_pb2.GroupCommand(group=GROUP, **action)  # type: ignore[arg-type]
        return group_pb2.GroupResult.FromString(machine.apply(command.SerializeToString(), 0))

    def counts() -> Counter[str]:
        return Counter(shard.member for shard in machine.groups[GROUP].shards.values())

    apply(join=group_pb2.GroupJoin(member="a", session_ms=1, topic_ids=[TOPIC]))
    facts = [group_pb2.GroupShardFacts(shard_id=number) for number in range(100)]
    apply(shards=group_pb2.GroupShards(topic_id=TOPIC, map_version=1, shards=facts))
    for name in ("b", "c", "d"):
        apply(join=group_pb2.GroupJoin(member=name, session_ms=1))
        for other in "abcd":
            if other in machine.groups[GROUP].members:
                given_up = [each for each in machine.views(GROUP)[other].assigned if each.release]
                apply(release=group_pb2.GroupRelease(
                    member=other, positions=[group_pb2.GroupPosition(shard=each.shard, since=each.since) for each in given_up]
                ))  # fmt: skip
    assert counts() == {"a": 25, "b": 25, "c": 25, "d": 25}
    before = {key: (shard.member, shard.since) for key, shard in machine.groups[GROUP].shards.items()}
    apply(leave=group_pb2.GroupLeave(member="b"))
    assert sorted(counts().values()) == [33, 33, 34]
    after = {key: (shard.member, shard.since) for key, shard in machine.groups[GROUP].shards.items()}
    assert {key: one for key, one in before.items() if one[0] != "b"}.items() <= after.items(), "who has one keeps it"


def test_bad_commands_are_typed() -> None:
    """And change nothing."""
    machine = GroupCoordinator()
    for command in (b"\xff", b"", group_pb2.GroupCommand(group="g").SerializeToString()):
        with pytest.raises(RangelogError):
            machine.apply(command, 0)
    assert machine.groups == {}
