"""One consumer group: members, the shards that each reads, committed positions (T6).

What holds (the rules are those that the exhaustive model finds necessary):
- A shard is handed to at most one member at a time, in a generation of its own; a commit counts only from that member, under
  that generation. A shard that is kept keeps its generation and its position, whatever else is handed out.
- Of two instances of one member the later one is the member: nothing counts any more that the earlier one sends.
- A position moves forward only; the larger of two commits stays. A reset moves it anywhere, and hands every shard out anew.
- A shard is handed out when all its ancestors are finished: ended by the placement driver, and committed up to that end. One
  that was trimmed behind a position is not: its member gets OffsetTrimmed, or goes on behind it with `skip_trimmed`.
- A shard that moves while its member lives is taken away only when the member has released it: it commits first, so the next
  member repeats nothing.
- What a transaction is about to commit counts by its coordinator's word; until then the shard is handed to nobody else.
- A member is taken out for its silence by the times of the commands that were applied, whoever proposed to do so.

Deterministic: the same calls in the same order give the same group.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from rangelog_broker.groups.checkpoints import Checkpoints, ShardKey
from rangelog_broker.groups.loads import Loads
from rangelog_broker.groups.staged_positions import StagedPosition, StagedPositions
from rangelog_broker.shards.staging import TransactionKey
from rangelog_core.errors import InvalidArgument, MemberFenced, MemberNotFound, Overloaded, PreconditionFailed
from rangelog_proto.v1 import group_pb2

MEMBERS_MAX = 1_000
TOPICS_MAX = 1_000
SHARDS_MAX = 5_000
"""Of all topics of a group, ended ones included."""
METADATA_BYTES_MAX = 64
RELEASES_AT_ONCE = 100
"""Shards that move at a time while their members live."""
SESSION_MS_MAX = 24 * 3_600_000


@dataclass(slots=True)
class Member:
    """A member, the generation in which it joined, and when a command of it was applied last."""

    joined: int
    session_ms: int
    heard_ms: int


@dataclass(slots=True)
class Shard:
    """What a group knows of one shard."""

    facts: group_pb2.GroupShardFacts | None = None
    offset: int | None = None
    """The committed position."""
    metadata: bytes = b""
    member: str = ""
    since: int = 0
    release: bool = False
    weight: int = 1


@dataclass(slots=True)
class Group:
    """See the module."""

    generation: int = 0
    members: dict[str, Member] = field(default_factory=dict)
    topics: dict[int, int] = field(default_factory=dict)
    """The map version of each subscribed topic."""
    shards: dict[ShardKey, Shard] = field(default_factory=dict)
    checkpoints: Checkpoints = field(default_factory=Checkpoints)
    staged: StagedPositions = field(default_factory=StagedPositions)
    retains: bool = False
    """Whether topics that are trimmed by consumption keep what the group has not consumed."""
    leaving: dict[int, None] = field(default_factory=dict)
    """Topics of which the placement driver may keep a position of the group that is to be taken back."""
    changes: int = field(default=0, compare=False)
    """Raised with what members have, or are to report. Not part of the state."""
    passes_trimmed: bool = field(default=False, compare=False)
    """By the rules of an earlier level: what was trimmed of an ended shard counts as read, also behind a position."""
    is_settled: bool = field(default=False, compare=False)
    """Whether to hand out once more would change nothing, until something else changes. Not part of the state."""

    # ---- members

    def join(
        self, member: str, session_ms: int, topic_ids: Iterable[int], starts: Mapping[ShardKey, int], now_ms: int
    ) -> None:
        """Take a member in; what it had is handed out anew. Raises Overloaded, InvalidArgument.

        `starts`: where to begin, of topics that the group did not read before.
        """
        if member not in self.members and len(self.members) >= MEMBERS_MAX:
            raise Overloaded(f"the group has {MEMBERS_MAX} members, its limit")
        if not 0 < session_ms <= SESSION_MS_MAX:
            raise InvalidArgument(f"a session of {session_ms} ms; 1 to {SESSION_MS_MAX} are allowed")
        new = {topic_id: 0 for topic_id in topic_ids if topic_id not in self.topics}
        if len(self.topics) + len(new) + len(self.leaving) > TOPICS_MAX:
            raise Overloaded(f"the group reads more than {TOPICS_MAX} topics")
        begin = {key: offset for key, offset in starts.items() if key.topic_id in new}
        self._check_count(begin)
        self.topics = self.topics | new
        if self.retains:
            self.retain(retains=True)
        self.shards.update((key, Shard(offset=offset)) for key, offset in begin.items())
        self._take_away(member)
        self.generation += 1
        self.changes += 1
        self.members[member] = Member(self.generation, session_ms, now_ms)
        self._hand_out()

    def member(self, member: str, joined: int) -> Member:
        """Return a member that joined in that generation; 0: in any. Raises MemberNotFound, MemberFenced."""
        found = self.members.get(member)
        if found is None:
            raise MemberNotFound(f"{member!r} is no member of the group: its session expired, or it never joined")
        if joined not in (0, found.joined):
            raise MemberFenced(f"another instance of the member {member!r} has joined the group: this one is taken out")
        return found

    def hear(self, member: str, now_ms: int, joined: int = 0) -> None:
        """Note that a member is there. Raises as `member`."""
        self.member(member, joined).heard_ms = now_ms

    def leave(self, member: str, joined: int = 0) -> None:
        """Remove a member. Without such a member, or if another instance of it joined, nothing changes."""
        found = self.members.get(member)
        if found is not None and joined not in (0, found.joined):
            return
        if self.members.pop(member, None) is not None:
            self.changes += 1
            self._take_away(member)
            self._hand_out()

    def expire(self, member: str, joined: int, now_ms: int) -> None:
        """Remove a member that is silent, if it joined in that generation: it may have joined again since."""
        found = self.members.get(member)
        if found is not None and found.joined == joined and now_ms - found.heard_ms >= found.session_ms:
            self.leave(member)

    # ---- shards

    def position(self, shard: Shard) -> int:
        """Return where a member begins to read a shard: the committed position, also where its records are trimmed by now."""
        start = shard.facts.start_offset if shard.facts is not None else 0
        if shard.offset is None or self.passes_trimmed:
            return max(start, shard.offset or 0)
        return shard.offset

    def finished(self, shard: Shard) -> bool:
        """Return whether a shard is ended, and all of it is committed, or was trimmed before the group had a position in it."""
        return shard.facts is not None and shard.facts.ended and self.position(shard) >= shard.facts.end_offset

    def end_passing(self) -> None:
        """Go by the rules of now. What counts as finished stays so: as if it was trimmed before the group had a position."""
        if self.passes_trimmed:
            for shard in self.shards.values():
                if shard.offset is not None and self.position(shard) > shard.offset:
                    shard.offset, shard.metadata = None, b""
            self.passes_trimmed = False

    def learn(self, topic_id: int, map_version: int, facts: Iterable[group_pb2.GroupShardFacts]) -> None:
        """Take over what the placement driver lists of a topic. An earlier map, or one of another topic, changes nothing."""
        if map_version < self.topics.get(topic_id, map_version + 1):
            return
        listed = {ShardKey(topic_id, each.shard_id): each for each in facts}
        self._check_count(listed)
        self.topics[topic_id] = map_version
        changed = not self.is_settled
        for key, each in listed.items():
            shard = self.shards.get(key)
            if shard is None:
                shard = self.shards[key] = Shard()
            if shard.facts != each:
                shard.facts, changed = each, True
        if changed:
            self._hand_out()

    def forget(self, topic_ids: Iterable[int]) -> None:
        """Read topics no more: their shards and positions are dropped."""
        for topic_id in topic_ids:
            if self.topics.pop(topic_id, None) is None:
                continue
            for key in [each for each in self.shards if each.topic_id == topic_id]:
                del self.shards[key]
            self.checkpoints.forget(topic_id)
            self.staged.forget(topic_id)
            if self.retains:
                self.leaving[topic_id] = None
            self.changes += 1
        self._hand_out()

    def _check_count(self, more: Mapping[ShardKey, object]) -> None:
        if len(self.shards) + sum(key not in self.shards for key in more) > SHARDS_MAX:
            raise Overloaded(f"the group's topics have more than {SHARDS_MAX} shards")

    def weigh(self, weights: Iterable[tuple[ShardKey, int]]) -> None:
        """Balance anew by what is to be read of each shard."""
        for key, weight in weights:
            if key in self.shards:
                self.shards[key].weight = max(1, weight)
        self._hand_out()

    # ---- positions

    def commit(self, member: str, position: group_pb2.GroupPosition) -> group_pb2.GroupRefusal:
        """Commit one position; return why it was refused, or UNSPECIFIED: it was not."""
        why = self.refusal(member, position)
        if not why and self._move(key_of(position.shard), position.offset, position.metadata):
            self._hand_out()
        return why

    def refusal(self, member: str, position: group_pb2.GroupPosition) -> group_pb2.GroupRefusal:
        """Return why a member may not commit a position, or UNSPECIFIED: it may."""
        key = key_of(position.shard)
        shard = self.shards.get(key)
        if shard is None:
            return group_pb2.GROUP_REFUSAL_NOT_READ
        if len(position.metadata) > METADATA_BYTES_MAX:
            return group_pb2.GROUP_REFUSAL_METADATA
        if not self._has(member, key, position.since):
            return group_pb2.GROUP_REFUSAL_NOT_ASSIGNED
        facts = shard.facts
        if facts is not None and facts.ended and position.offset > facts.end_offset:
            return group_pb2.GROUP_REFUSAL_BEYOND_END
        return group_pb2.GROUP_REFUSAL_UNSPECIFIED

    def _move(self, key: ShardKey, offset: int, metadata: bytes) -> bool:
        """Move a position forward; return whether that finished the shard."""
        shard = self.shards[key]
        if shard.offset is not None and offset < shard.offset:
            return False
        shard.offset, shard.metadata = offset, metadata
        return self.finished(shard)

    def stage(self, place: TransactionKey, transactional_id: str, commit: group_pb2.GroupCommit) -> None:
        """Stage positions that `refusal` lets pass. Raises Overloaded."""
        positions = {key_of(each.shard): StagedPosition(each.offset, each.metadata) for each in commit.positions}
        self.staged.add(place, transactional_id, positions)

    def settle(self, place: TransactionKey, *, committed: bool) -> None:
        """Commit what a transaction has staged, whoever has the shards by now, or drop it. A repeat changes nothing."""
        positions = self.staged.take(place)
        for key, position in positions.items():
            if committed and key in self.shards:
                self._move(key, position.offset, position.metadata)
        if positions:
            self._hand_out()

    def _has(self, member: str, key: ShardKey, since: int) -> bool:
        shard = self.shards.get(key)
        return shard is not None and shard.member == member != "" and shard.since == since

    def release(self, member: str, key: ShardKey, since: int) -> None:
        """Take a shard from a member that has stopped reading it. Without such an assignment nothing changes."""
        if self._has(member, key, since):
            self._take(key)
            self._hand_out()

    def reset_positions(self, reset: group_pb2.GroupReset) -> dict[ShardKey, int | None]:
        """Return where a reset moves which shards; None: to where a shard begins. Raises PreconditionFailed."""
        if not reset.checkpoint:
            return {key_of(each.shard): each.offset for each in reset.positions}
        found = self.checkpoints.complete.get(reset.checkpoint)
        if found is None:
            raise PreconditionFailed(f"the group has no complete checkpoint {reset.checkpoint!r}")
        anew = 0 if self.passes_trimmed else None
        return {key: found.positions.get(key, anew) for key in self.shards}

    def reset(self, wanted: Mapping[ShardKey, int | None]) -> None:
        """Move positions anywhere; hand every shard out anew.

        Raises PreconditionFailed: the group does not read a shard, or a transaction is about to commit positions.
        """
        if len(self.staged):
            raise PreconditionFailed(
                f"{len(self.staged)} transactions are about to commit positions of the group: try again once they are decided"
            )
        for key in wanted:
            if key not in self.shards:
                raise PreconditionFailed(f"the group does not read shard {key.shard_id} of topic {key.topic_id}")
        for key, offset in wanted.items():
            self.shards[key].offset, self.shards[key].metadata = offset, b""
        self.checkpoints.drop_pending()
        for member in self.members:
            self._take_away(member)
        self.generation += 1
        self._hand_out()

    # ---- retention

    def retain(self, *, retains: bool) -> None:
        """Turn retention by consumption on or off. A repeat changes nothing."""
        if retains:
            self.leaving = {each: None for each in self.leaving if each not in self.topics}
        elif self.retains:
            self.leaving.update(dict.fromkeys(self.topics))
        self.retains = retains

    def retained(self, topic_ids: Iterable[int]) -> None:
        """Note that the placement driver keeps no position of topics any more."""
        for topic_id in topic_ids:
            self.leaving.pop(topic_id, None)

    # ---- checkpoints

    def begin_checkpoint(self, name: str, every_ms: int, now_ms: int) -> None:
        """Note where every member is. Raises PreconditionFailed while another checkpoint is not complete."""
        idle = {key: self.position(shard) for key, shard in self.shards.items() if not shard.member}
        assigned = [key for key, shard in self.shards.items() if shard.member]
        if self.checkpoints.begin(name, now_ms, every_ms, idle, assigned):
            self.changes += 1

    def reach(self, member: str, number: int, positions: Iterable[group_pb2.GroupPosition]) -> None:
        """Take over where a member was when it met a checkpoint. What it does not have is passed over."""
        pending = self.checkpoints.pending
        if pending is None or pending.number != number:
            return
        for each in positions:
            key = key_of(each.shard)
            if self._has(member, key, each.since):
                self.checkpoints.fix(key, each.offset)
        self.changes += 1

    # ---- handing out

    def _take(self, key: ShardKey) -> None:
        shard = self.shards[key]
        shard.member, shard.release = "", False
        self.checkpoints.fix(key, self.position(shard))
        self.changes += 1

    def _take_away(self, member: str) -> None:
        for key, shard in self.shards.items():
            if shard.member == member:
                self._take(key)

    def _hand_out(self) -> None:
        """Give what nobody has to who has least; ask who has too much to release some."""
        readable = self._readable()
        among = set(readable)
        for key, shard in self.shards.items():
            if shard.member and key not in among:
                self._take(key)
        self.is_settled = not self.members
        if self.is_settled:
            return
        loads = dict.fromkeys(sorted(self.members), 0)
        for key in readable:
            shard = self.shards[key]
            if shard.member and not shard.release:
                loads[shard.member] += shard.weight
        undecided = self.staged.shards()
        free = [key for key in readable if not self.shards[key].member and key not in undecided]
        if free:
            self.generation += 1
            self.changes += 1
        by_load = [(load, name) for name, load in loads.items()]
        heapq.heapify(by_load)
        for key in sorted(free, key=lambda each: (-self.shards[each].weight, each)):
            shard = self.shards[key]
            load, least = by_load[0]
            shard.member, shard.since = least, self.generation
            loads[least] = load + shard.weight
            heapq.heapreplace(by_load, (loads[least], least))
        self.is_settled = self._ask_for_releases(readable, loads)

    def _ask_for_releases(self, readable: list[ShardKey], loads: dict[str, int]) -> bool:
        """Return whether that is all to be asked for. What is given up counts for nobody; it is handed out when released."""
        kept: dict[str, list[tuple[int, ShardKey]]] = {name: [] for name in loads}
        promised = Loads(loads)
        for key in readable:
            shard = self.shards[key]
            if shard.release:
                promised.add(promised.least(), shard.weight)
            elif shard.member:
                kept[shard.member].append((shard.weight, key))
        ordered: set[str] = set()
        for _ in range(RELEASES_AT_ONCE):
            most, least = promised.most(), promised.least()
            held = kept[most]
            if most not in ordered:
                ordered.add(most)
                held.sort()
            at = bisect_left(held, (promised[most] - promised[least],)) - 1
            if at < 0:
                return True
            weight, key = held.pop(at)
            self.shards[key].release = True
            self.changes += 1
            promised.add(most, -weight)
            promised.add(least, weight)
        return False

    def _readable(self) -> list[ShardKey]:
        """All shards that are not finished, and whose ancestors all are, in order. Predecessors have lower ids."""
        found: list[ShardKey] = []
        unfinished: set[ShardKey] = set()  # or behind one that is
        for key in sorted(self.shards):
            shard = self.shards[key]
            facts = shard.facts
            if facts is None:
                continue
            waits = any(ShardKey(key.topic_id, each) in unfinished for each in facts.predecessors)
            if waits or not self.finished(shard):
                unfinished.add(key)
                if not waits:
                    found.append(key)
        return found


def key_of(shard: group_pb2.GroupShard) -> ShardKey:
    """Return the key of a message's shard."""
    return ShardKey(shard.topic_id, shard.shard_id)
