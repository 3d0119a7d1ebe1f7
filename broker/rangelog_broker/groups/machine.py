"""The groups of one coordinator: a machine on a journal.

What holds: a command that is refused leaves its group as it was. What a member may read is asked of the machine, by a read of
the journal; a stale answer does no harm, since commits are checked against the newest state.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator

from google.protobuf.message import DecodeError

from rangelog_broker.groups.group import Group, Member, Shard, key_of
from rangelog_broker.journal.entry import PIECE_BYTES_MAX
from rangelog_core.errors import (
    Corruption,
    GroupNotFound,
    InvalidArgument,
    MemberNotFound,
    Overloaded,
    PreconditionFailed,
)
from rangelog_core.ids import check_name
from rangelog_core.limits import KIB
from rangelog_proto.v1 import group_pb2

GROUPS_MAX = 100_000
POSITIONS_MAX = 1_000
"""In one commit: its result names each that is refused."""
_PIECE_BYTES = 256 * KIB
_SHARD_BYTES = 200


class GroupCoordinator:
    """See the module."""

    def __init__(self) -> None:
        self.groups: dict[str, Group] = {}
        self._shard_count = 0

    # ---- JournalMachine

    @property
    def size_bytes(self) -> int:
        """About the size of a snapshot."""
        return self._shard_count * _SHARD_BYTES

    def apply(self, command: bytes, now_ms: int) -> bytes:
        """Apply a GroupCommand; return a GroupResult. Raises InvalidArgument, GroupNotFound, and what Group raises."""
        try:
            message = group_pb2.GroupCommand.FromString(command)
        except DecodeError as error:
            raise InvalidArgument("a command of a group does not decode") from error
        action = message.WhichOneof("action")
        if action is None:
            raise InvalidArgument("a command of a group without an action")
        if action == "join":
            return self._join(message.group, message.join)
        group = self.groups.get(message.group)
        if group is None:
            raise GroupNotFound(f"there is no group {message.group!r}")
        before = len(group.shards)
        result = group_pb2.GroupResult()
        if action == "leave":
            group.leave(message.leave.member)
        elif action == "expire":
            group.expire(message.expire.member, message.expire.joined)
        elif action == "shards":
            group.learn(message.shards.topic_id, message.shards.map_version, message.shards.shards)
        elif action == "commit":
            self._commit(group, message.commit, result)
        elif action == "release":
            for each in message.release.positions:
                group.release(message.release.member, key_of(each.shard), each.since)
        elif action == "weigh":
            group.weigh((key_of(each.shard), each.weight) for each in message.weigh.weights)
        elif action == "reset":
            group.reset((key_of(each.shard), each.offset) for each in message.reset.positions)
        else:
            self._delete(message.group, group)
            return result.SerializeToString()
        self._shard_count += len(group.shards) - before
        result.generation = group.generation
        return result.SerializeToString()

    def snapshot(self) -> Iterator[bytes]:
        """See JournalMachine."""
        return _pieces({name: copy.copy(group) for name, group in _frozen(self.groups)})

    def restore(self, pieces: Iterable[bytes]) -> None:
        """See JournalMachine. Raises Corruption."""
        self.groups, self._shard_count = {}, 0
        for piece in pieces:
            try:
                state = group_pb2.GroupState.FromString(piece)
            except DecodeError as error:
                raise Corruption("a group's snapshot does not decode") from error
            group = self.groups.setdefault(state.group, Group())
            group.generation = state.generation
            group.members.update({each.member: Member(each.joined, each.session_ms) for each in state.members})
            group.topics.update({each.topic_id: each.map_version for each in state.topics})
            for each in state.shards:
                group.shards[key_of(each.shard)] = Shard(
                    each.facts if each.known else None,
                    each.offset if each.has_position else None,
                    each.metadata,
                    each.member,
                    each.since,
                    each.release,
                    each.weight,
                )
            self._shard_count += len(state.shards)

    # ---- reads

    def view(self, group: str, member: str) -> group_pb2.GroupResult:
        """Return what a member has now. Raises GroupNotFound, MemberNotFound: it is to join again."""
        found = self.groups.get(group)
        if found is None:
            raise GroupNotFound(f"there is no group {group!r}")
        if member not in found.members:
            raise MemberNotFound(f"{member!r} is no member of {group!r}: its session expired, or it never joined")
        return _view(found, member)

    # ---- inside

    def _join(self, name: str, join: group_pb2.GroupJoin) -> bytes:
        check_name("group", name)
        check_name("member", join.member)
        group = self.groups.get(name)
        if group is None:
            if len(self.groups) >= GROUPS_MAX:
                raise Overloaded(f"this coordinator has {GROUPS_MAX} groups, its limit")
            group = Group()
        group.join(join.member, join.session_ms, join.topic_ids)
        self.groups[name] = group
        return _view(group, join.member).SerializeToString()

    @staticmethod
    def _commit(group: Group, commit: group_pb2.GroupCommit, result: group_pb2.GroupResult) -> None:
        if len(commit.positions) > POSITIONS_MAX:
            raise InvalidArgument(f"a commit of {len(commit.positions)} positions; the limit is {POSITIONS_MAX}")
        for each in commit.positions:
            why = group.commit(commit.member, each)
            if why:
                result.refused.add(shard=each.shard, why=why)

    def _delete(self, name: str, group: Group) -> None:
        if group.members:
            raise PreconditionFailed(f"group {name!r} has {len(group.members)} members: stop them first")
        del self.groups[name]
        self._shard_count -= len(group.shards)


def _view(group: Group, member: str) -> group_pb2.GroupResult:
    result = group_pb2.GroupResult(generation=group.generation)
    for key, shard in group.assigned_to(member):
        start = shard.facts.start_offset if shard.facts is not None else 0
        result.assigned.add(
            shard=group_pb2.GroupShard(topic_id=key.topic_id, shard_id=key.shard_id),
            since=shard.since,
            offset=max(start, shard.offset or 0),
            release=shard.release,
        )
    return result


def _frozen(groups: dict[str, Group]) -> Iterator[tuple[str, Group]]:
    """Copies that later commands do not change."""
    for name, group in groups.items():
        shards = {key: copy.copy(shard) for key, shard in group.shards.items()}
        yield name, Group(group.generation, dict(group.members), dict(group.topics), shards)


def _pieces(groups: dict[str, Group]) -> Iterator[bytes]:
    for name, group in groups.items():
        state = group_pb2.GroupState(group=name, generation=group.generation)
        for member, one in group.members.items():
            state.members.add(member=member, joined=one.joined, session_ms=one.session_ms)
        for topic_id, map_version in group.topics.items():
            state.topics.add(topic_id=topic_id, map_version=map_version)
        size = 0
        for key, shard in group.shards.items():
            each = state.shards.add(
                shard=group_pb2.GroupShard(topic_id=key.topic_id, shard_id=key.shard_id),
                facts=shard.facts,
                known=shard.facts is not None,
                has_position=shard.offset is not None,
                offset=shard.offset or 0,
                metadata=shard.metadata,
                member=shard.member,
                since=shard.since,
                release=shard.release,
                weight=shard.weight,
            )
            size += each.ByteSize()
            if size > _PIECE_BYTES:
                yield _checked(state)
                state, size = group_pb2.GroupState(group=name, generation=group.generation), 0
        yield _checked(state)


def _checked(state: group_pb2.GroupState) -> bytes:
    data = state.SerializeToString()
    assert len(data) < PIECE_BYTES_MAX, "members, topics and shards are bounded"
    return data
