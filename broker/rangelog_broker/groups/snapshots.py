"""Groups in pieces of a snapshot, and back."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator

from rangelog_broker.groups.checkpoints import Checkpoint, ShardKey
from rangelog_broker.groups.group import Group, Member, Shard, key_of
from rangelog_broker.groups.staged_positions import StagedTransaction, positions_of
from rangelog_broker.journal.entry import PIECE_BYTES_MAX
from rangelog_broker.shards.staging import TransactionKey
from rangelog_core.limits import KIB
from rangelog_proto.v1 import group_pb2

_PIECE_BYTES = 256 * KIB


def frozen(group: Group) -> Group:
    """Return a copy that later commands do not change."""
    return Group(
        group.generation,
        {name: copy.copy(member) for name, member in group.members.items()},
        dict(group.topics),
        {key: copy.copy(shard) for key, shard in group.shards.items()},
        group.checkpoints.copy(),
        group.staged.copy(),
        group.retains,
        dict(group.leaving),
    )


def group_pieces(groups: Iterable[tuple[str, Group]]) -> Iterator[bytes]:
    """Yield the pieces of groups."""
    for name, group in groups:
        state = head_of(name, group)
        size = 0
        for key, shard in group.shards.items():
            each = shard_state(key, shard)
            state.shards.append(each)
            size += each.ByteSize()
            if size > _PIECE_BYTES:
                yield _checked(state)
                state, size = _next_piece(name, group), 0
        for checkpoint in (*group.checkpoints.complete.values(), group.checkpoints.pending):
            if checkpoint is None:
                continue
            row = checkpoint_state(checkpoint)
            state.checkpoints.append(row)
            size += row.ByteSize()
            if size > _PIECE_BYTES:
                yield _checked(state)
                state, size = _next_piece(name, group), 0
        for place, staged in group.staged:
            one = staged_state(place, staged)
            state.staged.append(one)
            size += one.ByteSize()
            if size > _PIECE_BYTES:
                yield _checked(state)
                state, size = _next_piece(name, group), 0
        yield _checked(state)


def restore_piece(group: Group, state: group_pb2.GroupState) -> None:
    """Add what a piece has of a group."""
    group.generation = state.generation
    group.checkpoints.count = state.checkpoint_count
    group.retains, group.leaving = state.retains, dict.fromkeys(state.leaving)
    group.members.update({each.member: Member(each.joined, each.session_ms, each.heard_ms) for each in state.members})
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
    for one in state.checkpoints:
        checkpoint = Checkpoint(
            one.number,
            one.name,
            one.started_ms,
            {key_of(each.shard): each.offset for each in one.positions},
            {key_of(each) for each in one.waiting},
        )
        if checkpoint.waiting:
            group.checkpoints.pending = checkpoint
        else:
            group.checkpoints.complete[checkpoint.name] = checkpoint
    for row in state.staged:
        positions = positions_of((key_of(each.shard), each.offset, each.metadata) for each in row.positions)
        group.staged.add(TransactionKey(row.producer_id, row.number), row.transactional_id, positions)


def head_of(name: str, group: Group) -> group_pb2.GroupState:
    """Return a group's state without shards and checkpoints."""
    state = _next_piece(name, group)
    for member, one in group.members.items():
        state.members.add(member=member, joined=one.joined, session_ms=one.session_ms, heard_ms=one.heard_ms)
    for topic_id, map_version in group.topics.items():
        state.topics.add(topic_id=topic_id, map_version=map_version)
    return state


def shard_state(key: ShardKey, shard: Shard) -> group_pb2.GroupShardState:
    """Return what a group knows of a shard."""
    return group_pb2.GroupShardState(
        shard=message_of(key),
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


def checkpoint_state(checkpoint: Checkpoint) -> group_pb2.GroupCheckpointState:
    """Return a checkpoint as a message."""
    state = group_pb2.GroupCheckpointState(
        number=checkpoint.number, name=checkpoint.name, started_ms=checkpoint.started_ms
    )
    for key, offset in sorted(checkpoint.positions.items()):
        state.positions.add(shard=message_of(key), offset=offset)
    state.waiting.extend(message_of(key) for key in sorted(checkpoint.waiting))
    return state


def staged_state(place: TransactionKey, staged: StagedTransaction) -> group_pb2.GroupStagedState:
    """Return what a transaction has staged as a message."""
    state = group_pb2.GroupStagedState(
        transactional_id=staged.transactional_id, producer_id=place.producer_id, number=place.number
    )
    for key, position in sorted(staged.positions.items()):
        state.positions.add(shard=message_of(key), offset=position.offset, metadata=position.metadata)
    return state


def message_of(key: ShardKey) -> group_pb2.GroupShard:
    """Return a shard's key as a message."""
    return group_pb2.GroupShard(topic_id=key.topic_id, shard_id=key.shard_id)


def _next_piece(name: str, group: Group) -> group_pb2.GroupState:
    return group_pb2.GroupState(
        group=name,
        generation=group.generation,
        checkpoint_count=group.checkpoints.count,
        retains=group.retains,
        leaving=group.leaving,
    )


def _checked(state: group_pb2.GroupState) -> bytes:
    data = state.SerializeToString()
    assert len(data) < PIECE_BYTES_MAX, "members, topics, shards and checkpoints are bounded"
    return data
