"""The groups of one coordinator: a machine on a journal.

What holds: a command that is refused leaves its group as it was, and its result is within a journal's bound. What a member may
read is looked up in the machine; a stale view does no harm, since commits are checked against the newest state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sized

from google.protobuf.message import DecodeError

from rangelog_broker.groups.group import Group, key_of
from rangelog_broker.groups.snapshots import frozen, group_pieces, restore_piece
from rangelog_broker.shards.staging import TransactionKey
from rangelog_core.errors import (
    Corruption,
    GroupNotFound,
    InvalidArgument,
    Overloaded,
    PreconditionFailed,
    UnsupportedVersion,
)
from rangelog_core.ids import check_name
from rangelog_core.versions import LEVEL_BROKERS
from rangelog_proto.v1 import group_pb2

GROUPS_MAX = 100_000
POSITIONS_MAX = 1_000
"""In one commit: its result names each that is refused."""
ROWS_MAX = 2_000_000
"""Shards and positions of checkpoints, of all groups together: about 400 MB."""
_ROW_BYTES = 100
_ByMember = (
    group_pb2.GroupHeartbeat
    | group_pb2.GroupLeave
    | group_pb2.GroupCommit
    | group_pb2.GroupRelease
    | group_pb2.GroupReach
)
_MOVES = ("join", "shards", "forget", "commit", "settle", "reset", "retain")


class GroupCoordinator:
    """See the module."""

    def __init__(self) -> None:
        self._level = 0
        self.groups: dict[str, Group] = {}
        self.on_changed: Callable[[str], None] = lambda group: None
        """Called as a command is applied that changed what members have. Not part of the state."""
        self.on_staged: Callable[[str], None] = lambda group: None
        """Called as a transaction stages positions."""
        self.on_joined: Callable[[str, str], None] = lambda group, member: None
        """Called as a member joins."""
        self.on_retained: Callable[[str], None] = lambda group: None
        """Called as a command is applied that may move what a group that retains has consumed."""
        self._rows = 0

    # ---- JournalMachine

    @property
    def level(self) -> int:
        """See JournalMachine."""
        return self._level

    @level.setter
    def level(self, level: int) -> None:
        self._level = level
        if not self._passes_trimmed:
            for group in self.groups.values():
                group.end_passing()

    @property
    def _passes_trimmed(self) -> bool:
        return self._level < LEVEL_BROKERS

    @property
    def size_bytes(self) -> int:
        """About the size of a snapshot."""
        return self._rows * _ROW_BYTES

    def apply(self, command: bytes, now_ms: int) -> bytes:
        """Apply a GroupCommand; return a GroupResult.

        Raises UnsupportedVersion, InvalidArgument, GroupNotFound, Overloaded, and what Group raises.
        """
        try:
            message = group_pb2.GroupCommand.FromString(command)
        except DecodeError as error:
            raise InvalidArgument("a command of a group does not decode") from error
        action = message.WhichOneof("action")
        if action is None:
            raise UnsupportedVersion("a command of a group with an unknown action: upgrade this broker")
        if action in ("join", "shards", "checkpoint", "stage") and self._rows >= ROWS_MAX:
            raise Overloaded(f"this coordinator keeps {ROWS_MAX} shards and positions, its limit")
        group = self._joined(message.group, message.join) if action == "join" else self.groups.get(message.group)
        if group is None:
            raise GroupNotFound(f"there is no group {message.group!r}")
        changes, rows = group.changes, _rows(group)
        result = group_pb2.GroupResult()
        if action == "delete":
            self._delete(message.group, group)
            return result.SerializeToString()
        self._apply(group, action, message, now_ms, result)
        if action == "join":
            self.groups[message.group] = group
            self.on_joined(message.group, message.join.member)
        if action == "stage":
            self.on_staged(message.group)
        if action in _MOVES and (group.retains or group.leaving):
            self.on_retained(message.group)
        self._rows += _rows(group) - rows
        result.generation = group.generation
        if group.changes != changes:
            self.on_changed(message.group)
        return result.SerializeToString()

    def snapshot(self) -> Iterator[bytes]:
        """See JournalMachine."""
        return group_pieces([(name, frozen(group)) for name, group in self.groups.items()])

    def restore_begin(self) -> None:
        """See JournalMachine."""
        self.groups = {}

    def restore_piece(self, piece: bytes) -> None:
        """See JournalMachine."""
        try:
            state = group_pb2.GroupState.FromString(piece)
        except DecodeError as error:
            raise Corruption("a group's snapshot does not decode") from error
        restore_piece(self.groups.setdefault(state.group, Group(passes_trimmed=self._passes_trimmed)), state)

    def restore_end(self) -> None:
        """See JournalMachine."""
        self._rows = sum(map(_rows, self.groups.values()))

    # ---- reads

    def group(self, name: str) -> Group:
        """Return a group. Raises GroupNotFound."""
        found = self.groups.get(name)
        if found is None:
            raise GroupNotFound(f"there is no group {name!r}")
        return found

    def views(self, name: str) -> dict[str, group_pb2.GroupView]:
        """Return what each member of a group has. Raises GroupNotFound."""
        group = self.group(name)
        found = {member: group_pb2.GroupView(generation=group.generation) for member in group.members}
        pending = group.checkpoints.pending
        for key, shard in sorted(group.shards.items()):
            if not shard.member:
                continue
            view = found[shard.member]
            view.assigned.add(
                shard=group_pb2.GroupShard(topic_id=key.topic_id, shard_id=key.shard_id),
                since=shard.since,
                offset=group.position(shard),
                release=shard.release,
                has_position=shard.offset is not None,
            )
            if pending is not None and key in pending.waiting:
                view.checkpoint, view.checkpoint_name = pending.number, pending.name
        return found

    # ---- inside

    def _joined(self, name: str, join: group_pb2.GroupJoin) -> Group:
        """Return the group that a member joins, which is not kept yet if it is new."""
        check_name("group", name)
        check_name("member", join.member)
        group = self.groups.get(name)
        if group is None:
            if len(self.groups) >= GROUPS_MAX:
                raise Overloaded(f"this coordinator has {GROUPS_MAX} groups, its limit")
            group = Group(passes_trimmed=self._passes_trimmed)
        return group

    def _apply(
        self, group: Group, action: str, message: group_pb2.GroupCommand, now_ms: int, result: group_pb2.GroupResult
    ) -> None:
        match action:
            case "join":
                join = message.join
                starts = {key_of(each.shard): each.offset for each in join.starts}
                group.join(join.member, join.session_ms, join.topic_ids, starts, now_ms)
                if self.level >= LEVEL_BROKERS:
                    result.joined = group.members[join.member].joined
            case "heartbeat":
                self._hear(group, message.heartbeat, now_ms)
            case "leave":
                group.leave(message.leave.member, self._joined_of(message.leave))
            case "expire":
                group.expire(message.expire.member, message.expire.joined, now_ms)
            case "shards":
                group.learn(message.shards.topic_id, message.shards.map_version, message.shards.shards)
            case "forget":
                group.forget(message.forget.topic_ids)
            case "commit":
                _check_count("commit", message.commit.positions)
                self._hear(group, message.commit, now_ms)
                _commit(group, message.commit, result)
            case "stage":
                _check_count("stage", message.stage.commit.positions)
                self._hear(group, message.stage.commit, now_ms)
                _stage(group, message.stage, result)
            case "settle":
                place = TransactionKey(message.settle.producer_id, message.settle.number)
                group.settle(place, committed=message.settle.committed)
            case "release":
                self._hear(group, message.release, now_ms)
                for each in message.release.positions:
                    group.release(message.release.member, key_of(each.shard), each.since)
            case "weigh":
                group.weigh((key_of(each.shard), each.weight) for each in message.weigh.weights)
            case "reset":
                group.reset(group.reset_positions(message.reset))
            case "retain":
                group.retain(retains=message.retain.retains)
            case "retained":
                group.retained(message.retained.topic_ids)
            case "checkpoint":
                check_name("checkpoint", message.checkpoint.name)
                group.begin_checkpoint(message.checkpoint.name, message.checkpoint.every_ms, now_ms)
            case "reach":
                self._hear(group, message.reach, now_ms)
                group.reach(message.reach.member, message.reach.number, message.reach.positions)
            case _:
                group.checkpoints.drop(message.drop_checkpoint.name)

    def _hear(self, group: Group, by: _ByMember, now_ms: int) -> None:
        group.hear(by.member, now_ms, self._joined_of(by))

    def _joined_of(self, by: _ByMember) -> int:
        """Return which instance of the member a command is of; 0: any, by the rules of before."""
        return by.joined if self.level >= LEVEL_BROKERS else 0

    def _delete(self, name: str, group: Group) -> None:
        if group.members:
            raise PreconditionFailed(f"group {name!r} has members ({len(group.members)}): stop them first")
        if len(group.staged):
            raise PreconditionFailed(f"a transaction is about to commit positions of group {name!r}: try again")
        if group.retains or group.leaving:
            raise PreconditionFailed(f"topics keep what group {name!r} has not consumed: end that first")
        del self.groups[name]
        self._rows -= _rows(group)
        self.on_changed(name)


def _rows(group: Group) -> int:
    return len(group.shards) + group.checkpoints.rows + group.staged.rows


def _check_count(what: str, positions: Sized) -> None:
    if len(positions) > POSITIONS_MAX:
        raise InvalidArgument(f"a {what} of {len(positions)} positions; the limit is {POSITIONS_MAX}")


def _commit(group: Group, commit: group_pb2.GroupCommit, result: group_pb2.GroupResult) -> None:
    for each in commit.positions:
        why = group.commit(commit.member, each)
        if why:
            result.refused.add(shard=each.shard, why=why)


def _stage(group: Group, stage: group_pb2.GroupStage, result: group_pb2.GroupResult) -> None:
    check_name("transactional id", stage.transactional_id)
    for each in stage.commit.positions:
        why = group.refusal(stage.commit.member, each)
        if why:
            result.refused.add(shard=each.shard, why=why)
    if not result.refused:
        group.stage(TransactionKey(stage.producer_id, stage.number), stage.transactional_id, stage.commit)
