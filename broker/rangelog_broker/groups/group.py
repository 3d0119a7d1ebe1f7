"""One consumer group: members, the shards that each reads, committed positions (T6).

What holds (the rules are those that the exhaustive model finds necessary):
- A shard is handed to at most one member at a time, in a generation of its own; a commit counts only from that member, under
  that generation. A shard that is kept keeps its generation and its position, whatever else is handed out.
- A position moves forward only; the larger of two commits stays. A reset moves it anywhere, and hands every shard out anew.
- A shard is handed out when all its ancestors are finished: ended by the placement driver, and committed up to that end.
- A shard that moves while its member lives is taken away only when the member has released it: it commits first, so the next
  member repeats nothing.

Deterministic: the same calls in the same order give the same group.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from rangelog_core.errors import InvalidArgument, Overloaded, PreconditionFailed
from rangelog_proto.v1 import group_pb2

MEMBERS_MAX = 1_000
TOPICS_MAX = 1_000
SHARDS_MAX = 5_000
"""Of all topics of a group, ended ones included."""
METADATA_BYTES_MAX = 64
RELEASES_AT_ONCE = 100
"""Shards that move at a time while their members live."""
SESSION_MS_MAX = 24 * 3_600_000


class ShardKey(NamedTuple):
    """A shard of a topic."""

    topic_id: int
    shard_id: int


@dataclass(slots=True)
class Member:
    """A member, and the generation in which it joined."""

    joined: int
    session_ms: int


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

    @property
    def finished(self) -> bool:
        """Whether it is ended, and all of it is committed."""
        facts = self.facts
        if facts is None or not facts.ended:
            return False
        return facts.end_offset <= facts.start_offset or (self.offset or 0) >= facts.end_offset


@dataclass(slots=True)
class Group:
    """See the module."""

    generation: int = 0
    members: dict[str, Member] = field(default_factory=dict)
    topics: dict[int, int] = field(default_factory=dict)
    """The map version of each subscribed topic."""
    shards: dict[ShardKey, Shard] = field(default_factory=dict)

    # ---- members

    def join(self, member: str, session_ms: int, topic_ids: Iterable[int]) -> None:
        """Take a member in; what it had is handed out anew. Raises Overloaded, InvalidArgument."""
        if member not in self.members and len(self.members) >= MEMBERS_MAX:
            raise Overloaded(f"the group has {MEMBERS_MAX} members, its limit")
        if not 0 < session_ms <= SESSION_MS_MAX:
            raise InvalidArgument(f"a session of {session_ms} ms; 1 to {SESSION_MS_MAX} are allowed")
        topics = self.topics | {topic_id: 0 for topic_id in topic_ids if topic_id not in self.topics}
        if len(topics) > TOPICS_MAX:
            raise Overloaded(f"the group reads more than {TOPICS_MAX} topics")
        self.topics = topics
        self._take_away(member)
        self.generation += 1
        self.members[member] = Member(self.generation, session_ms)
        self._hand_out()

    def leave(self, member: str) -> None:
        """Remove a member. Without such a member nothing changes."""
        if self.members.pop(member, None) is not None:
            self._take_away(member)
            self._hand_out()

    def expire(self, member: str, joined: int) -> None:
        """Remove a member if it joined in that generation: it may have joined again since it was found silent."""
        found = self.members.get(member)
        if found is not None and found.joined == joined:
            self.leave(member)

    # ---- shards

    def learn(self, topic_id: int, map_version: int, facts: Iterable[group_pb2.GroupShardFacts]) -> None:
        """Take over what the placement driver lists of a topic. An earlier map, or one of another topic, changes nothing."""
        if map_version < self.topics.get(topic_id, map_version + 1):
            return
        listed = {ShardKey(topic_id, each.shard_id): each for each in facts}
        if len(self.shards.keys() | listed.keys()) > SHARDS_MAX:
            raise Overloaded(f"the group's topics have more than {SHARDS_MAX} shards")
        self.topics[topic_id] = map_version
        for key, each in listed.items():
            self.shards.setdefault(key, Shard()).facts = each
        self._hand_out()

    def weigh(self, weights: Iterable[tuple[ShardKey, int]]) -> None:
        """Balance anew by what is to be read of each shard."""
        for key, weight in weights:
            if key in self.shards:
                self.shards[key].weight = max(1, weight)
        self._hand_out()

    # ---- positions

    def commit(self, member: str, position: group_pb2.GroupPosition) -> str:
        """Commit one position; return why it was refused, or nothing."""
        shard = self.shards.get(key_of(position.shard))
        if shard is None:
            return "the group does not read this shard"
        if len(position.metadata) > METADATA_BYTES_MAX:
            return f"metadata of {len(position.metadata)} bytes; the limit is {METADATA_BYTES_MAX}"
        if shard.member != member or shard.since != position.since or member not in self.members:
            return f"the shard was handed to another member, or anew, in generation {shard.since}"
        facts = shard.facts
        if facts is not None and facts.ended and position.offset > facts.end_offset:
            return f"offset {position.offset} is beyond the shard's end {facts.end_offset}"
        if shard.offset is None or position.offset >= shard.offset:
            shard.offset, shard.metadata = position.offset, position.metadata
            if shard.finished:
                self._hand_out()
        return ""

    def release(self, member: str, key: ShardKey, since: int) -> None:
        """Take a shard from a member that has stopped reading it. Without such an assignment nothing changes."""
        shard = self.shards.get(key)
        if shard is not None and shard.member == member and shard.since == since:
            shard.member, shard.release = "", False
            self._hand_out()

    def reset(self, positions: Iterable[tuple[ShardKey, int]]) -> None:
        """Move positions anywhere; hand every shard out anew. Raises PreconditionFailed: the group does not read a shard."""
        wanted = dict(positions)
        for key in wanted:
            if key not in self.shards:
                raise PreconditionFailed(f"the group does not read shard {key.shard_id} of topic {key.topic_id}")
        for key, offset in wanted.items():
            self.shards[key].offset, self.shards[key].metadata = offset, b""
        for member in self.members:
            self._take_away(member)
        self.generation += 1
        self._hand_out()

    def assigned_to(self, member: str) -> Iterator[tuple[ShardKey, Shard]]:
        """Yield the shards of a member, in order."""
        return ((key, shard) for key, shard in sorted(self.shards.items()) if shard.member == member)

    # ---- handing out

    def _take_away(self, member: str) -> None:
        for shard in self.shards.values():
            if shard.member == member:
                shard.member, shard.release = "", False

    def _hand_out(self) -> None:
        """Give what nobody has to who has least; ask who has too much to release some."""
        readable = self._readable()
        for key, shard in self.shards.items():
            if shard.member and key not in readable:
                shard.member, shard.release = "", False
        if not self.members:
            return
        loads = dict.fromkeys(sorted(self.members), 0)
        for key in readable:
            shard = self.shards[key]
            if shard.member and not shard.release:
                loads[shard.member] += shard.weight
        free = [key for key in readable if not self.shards[key].member]
        if free:
            self.generation += 1
        by_load = [(load, name) for name, load in loads.items()]
        heapq.heapify(by_load)
        for key in sorted(free, key=lambda each: (-self.shards[each].weight, each)):
            shard = self.shards[key]
            load, least = by_load[0]
            shard.member, shard.since = least, self.generation
            loads[least] = load + shard.weight
            heapq.heapreplace(by_load, (loads[least], least))
        self._ask_for_releases(readable, loads)

    def _ask_for_releases(self, readable: list[ShardKey], loads: dict[str, int]) -> None:
        """What is given up counts for nobody; it is handed out when it is released."""
        kept: dict[str, list[ShardKey]] = {name: [] for name in loads}
        for key in readable:
            shard = self.shards[key]
            if shard.member and not shard.release:
                kept[shard.member].append(key)
        promised = dict(loads)
        for key in readable:
            if self.shards[key].release:
                least = min(promised, key=lambda name: (promised[name], name))
                promised[least] += self.shards[key].weight
        for _ in range(RELEASES_AT_ONCE):
            most = max(promised, key=lambda name: (promised[name], name))
            least = min(promised, key=lambda name: (promised[name], name))
            gap = promised[most] - promised[least]
            movable = [key for key in kept[most] if self.shards[key].weight < gap]
            if not movable:
                return
            key = max(movable, key=lambda each: (self.shards[each].weight, each))
            weight = self.shards[key].weight
            kept[most].remove(key)
            self.shards[key].release = True
            promised[most] -= weight
            promised[least] += weight

    def _readable(self) -> list[ShardKey]:
        """All shards that are not finished, and whose ancestors all are, in order. Predecessors have lower ids."""
        found: list[ShardKey] = []
        unfinished: set[ShardKey] = set()  # or behind one that is
        for key, shard in sorted(self.shards.items()):
            facts = shard.facts
            if facts is None:
                continue
            waits = any(ShardKey(key.topic_id, each) in unfinished for each in facts.predecessors)
            if not waits and not shard.finished:
                found.append(key)
            if waits or not shard.finished:
                unfinished.add(key)
        return found


def key_of(shard: group_pb2.GroupShard) -> ShardKey:
    """Return the key of a message's shard."""
    return ShardKey(shard.topic_id, shard.shard_id)
