"""The administration of consumer groups: what they read, how far they are, and where they begin anew."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from rangelog._arguments import checked_arguments
from rangelog._consume.group_calls import CALL_TIMEOUT_S, GroupCalls
from rangelog._consume.group_core import GroupShard
from rangelog._consume.group_list import groups_by_name
from rangelog._consume.group_records import ShardOfTopic
from rangelog._consume.group_shards import LOOKUPS_AT_ONCE, CutLike, GroupShards, GroupStart
from rangelog_core.errors import (
    InvalidArgument,
    OffsetTrimmed,
    PreconditionFailed,
    RequestTimeout,
    StreamNotFound,
    TopicNotFound,
)
from rangelog_core.ids import check_name
from rangelog_core.record import moment_of
from rangelog_proto.v1 import group_pb2

_POLL_S = 0.05

GroupReset = str | datetime | CutLike | Sequence[CutLike]


class GroupSummary(NamedTuple):
    """A group in a list."""

    name: str
    generation: int
    member_count: int


@dataclass(frozen=True, slots=True)
class GroupMemberInfo:
    """A member of a group.

    Attributes:
        member_id: The member's id.
        joined: The generation in which it joined.
        session_s: Seconds of silence after which it is taken out.
        silent_s: Seconds since the group has heard of it.
        shards: The shards that it has.
    """

    member_id: str
    joined: int
    session_s: float
    silent_s: float
    shards: Sequence[ShardOfTopic]


@dataclass(frozen=True, slots=True)
class GroupShardInfo:
    """A shard that a group reads.

    Attributes:
        topic: The topic's name.
        shard_id: The shard.
        offset: The committed position: the next record to be processed; None: nothing was committed.
        metadata: What was committed beside the position.
        member_id: The member that has it; empty: none has.
        since: The generation in which it was handed out.
        is_ended: Whether it has ended.
        end_offset: One past its last record, if it has ended.
        is_finished: Whether all of it is committed.
    """

    topic: str
    shard_id: int
    offset: int | None
    metadata: bytes
    member_id: str
    since: int
    is_ended: bool
    end_offset: int | None
    is_finished: bool


@dataclass(frozen=True, slots=True)
class GroupInfo:
    """A group.

    Attributes:
        name: The group's name.
        generation: Raised whenever shards are handed out.
        topics: The names of the topics that it reads.
        members: Its members, by id.
        shards: The shards of its topics, by topic and id.
        checkpoints: The names of complete checkpoints, the oldest first.
        pending_checkpoint: The name of a checkpoint that some members have not met; empty: there is none.
        retains: Whether topics that are trimmed by consumption keep what the group has not consumed.
    """

    name: str
    generation: int
    topics: Sequence[str]
    members: Sequence[GroupMemberInfo]
    shards: Sequence[GroupShardInfo]
    checkpoints: Sequence[str]
    pending_checkpoint: str
    retains: bool = False


@dataclass(frozen=True, slots=True)
class ShardLag:
    """How far a group is behind the end of a shard.

    Attributes:
        topic: The topic's name; its id where the topic was deleted, and the client never knew its name.
        shard_id: The shard.
        offset: The committed position.
        end_offset: One past the last acked record; the committed position where the topic was deleted.
        records: Records that are not committed, without those that were trimmed.
        seconds: The age of the oldest record that is not committed, in seconds; 0 without one.
        is_deleted: Whether the topic was deleted: nothing of it can be read. The group forgets it when a member joins.
    """

    topic: str
    shard_id: int
    offset: int
    end_offset: int
    records: int
    seconds: float
    is_deleted: bool = False


@checked_arguments
class Groups:
    """The administration of groups; `client.groups`. Every method may raise GroupNotFound, Unavailable and RequestTimeout."""

    def __init__(self, calls: GroupCalls, shards: GroupShards) -> None:
        self._calls = calls
        self._shards = shards

    async def describe(self, group: str) -> GroupInfo:
        """Return members, shards and positions of a group.

        Example:
            ```python
            for shard in (await client.groups.describe("billing")).shards:
                print(shard.topic, shard.shard_id, shard.offset, shard.member_id)
            ```
        """
        response = await self._calls.describe(check_name("group", group), CALL_TIMEOUT_S)
        state = response.state
        names = await self._names_of(each.topic_id for each in state.topics)
        has: dict[str, list[ShardOfTopic]] = {each.member: [] for each in state.members}
        for each in state.shards:
            if each.member in has:
                has[each.member].append(ShardOfTopic(names[each.shard.topic_id], each.shard.shard_id))
        return GroupInfo(
            name=group,
            generation=state.generation,
            topics=tuple(sorted(names.values())),
            members=tuple(
                GroupMemberInfo(
                    each.member,
                    each.joined,
                    each.session_ms / 1000,
                    max(0, response.now_ms - each.heard_ms) / 1000,
                    tuple(has[each.member]),
                )
                for each in sorted(state.members, key=lambda one: one.member)
            ),
            shards=tuple(_shard_info(names[each.shard.topic_id], each) for each in state.shards),
            checkpoints=tuple(each.name for each in state.checkpoints if not each.waiting),
            pending_checkpoint=next((each.name for each in state.checkpoints if each.waiting), ""),
            retains=state.retains,
        )

    async def lag(self, group: str) -> Sequence[ShardLag]:
        """Return how far a group is behind, for each shard that it has not finished. Reads one record per shard.

        Shards of a topic that was deleted are marked, and have no lag. Raises RightMissing where the caller may not describe
        one of the group's topics.
        """
        response = await self._calls.describe(check_name("group", group), CALL_TIMEOUT_S)
        names = await self._names_of(each.shard.topic_id for each in response.state.shards)
        limit = asyncio.Semaphore(LOOKUPS_AT_ONCE)

        async def measure(state: group_pb2.GroupShardState) -> ShardLag:
            async with limit:
                topic = names[state.shard.topic_id]
                try:
                    return await self._lag(state, topic)
                except StreamNotFound:
                    if await self._shards.is_any_there([state.shard.topic_id]):
                        raise
                    return _lag_of_deleted(state, topic)

        wanted = [each for each in response.state.shards if not _is_finished(each)]
        return await asyncio.gather(*map(measure, wanted))

    async def reset(
        self, group: str, to: GroupReset, *, topics: Sequence[str] | None = None, timeout_s: float = CALL_TIMEOUT_S
    ) -> None:
        """Move the positions of a group; its members begin anew from there, whatever they have not committed.

        Args:
            group: The group.
            to: "earliest": the first record of each shard that is not trimmed at the time of the call; "latest"; a datetime: in
                each shard the first record at or after that time; a Cut, or several, one for each topic; or the name of a
                complete checkpoint as "checkpoint:NAME".
            topics: The topics to move in; None: all topics of the group that are still there, or those of the cuts.
            timeout_s: Limit of the change in seconds.

        Raises:
            InvalidArgument, ShardNotFound: The place is not one of the topics.
            OffsetOutOfRange: A cut lies beyond the end of a shard, which is the error's `offset`.
            TopicNotFound: The group does not read one of the topics, or all that it reads were deleted.
            PreconditionFailed: There is no such checkpoint, or it is not complete.

        Example:
            ```python
            await client.groups.reset("billing", datetime(2026, 1, 1, tzinfo=UTC))
            ```
        """
        check_name("group", group)
        if isinstance(to, str) and to.startswith("checkpoint:"):
            if topics is not None:
                raise InvalidArgument("a checkpoint has the positions of all topics: name none")
            reset = group_pb2.GroupReset(checkpoint=check_name("checkpoint", to.removeprefix("checkpoint:")))
            await self._calls.reset(group, reset, timeout_s)
            return
        state = (await self._calls.describe(group, CALL_TIMEOUT_S)).state
        places = await self._places(to, topics, [each.topic_id for each in state.topics])
        reset = group_pb2.GroupReset()
        for topic_id, place in places.items():
            for shard, offset in (await self._shards.positions(topic_id, place)).items():
                reset.positions.add(shard={"topic_id": shard.topic_id, "shard_id": shard.shard_id}, offset=offset)
        await self._calls.reset(group, reset, timeout_s)

    async def delete(self, group: str, *, timeout_s: float = CALL_TIMEOUT_S) -> None:
        """Delete a group with its positions. Raises PreconditionFailed while it has members."""
        await self._calls.delete(check_name("group", group), timeout_s)

    async def unsubscribe(self, group: str, topics: Sequence[str], *, timeout_s: float = CALL_TIMEOUT_S) -> None:
        """Let a group read topics no more; its positions in them are dropped. A member that joins with them reads them anew."""
        ids = list(await self._shards.resolve(topics))
        await self._calls.unsubscribe(check_name("group", group), ids, timeout_s)

    async def retain(self, group: str, *, retains: bool = True, timeout_s: float = CALL_TIMEOUT_S) -> None:
        """Turn retention of what the group has not consumed on or off, at topics with `Retention(consumed=True)`.

        Such a topic is trimmed up to where all groups that retain have committed. A group that is deleted retains no more.

        Args:
            group: The group; it has had members.
            retains: False: the group counts no more.
            timeout_s: Limit in seconds.

        Raises:
            InvalidArgument: More than 100 groups would retain one of the topics.

        Example:
            ```python
            await client.groups.retain("billing")
            ```
        """
        await self._calls.retain(check_name("group", group), retains, timeout_s)

    async def checkpoint(self, group: str, name: str, *, timeout_s: float = 30.0) -> Mapping[ShardOfTopic, int]:
        """Note where every member is, under a new name; return the positions once all members have met the checkpoint.

        Raises:
            PreconditionFailed: The group has a checkpoint of this name, or another checkpoint is not complete.
            RequestTimeout: Some member has not met it in time. It stays pending: `checkpoint_positions` returns its positions
                once it is complete, `delete_checkpoint` ends it.
        """
        deadline = time.monotonic() + timeout_s
        check_name("checkpoint", name)
        state = (await self._calls.describe(check_name("group", group), timeout_s)).state
        await self._names_of(each.topic_id for each in state.topics)  # who may not have the positions begins nothing
        _check_unknown(state, name)  # before the command, whose repeats find the checkpoint that it began
        await self._calls.request_checkpoint(group, name, 0, timeout_s)
        while True:
            left_s = max(0.001, deadline - time.monotonic())
            found = await self._calls.checkpoint(group, name, left_s)
            if not found.waiting:
                return await self._positions(found)
            if time.monotonic() + _POLL_S > deadline:
                raise RequestTimeout(f"checkpoint {name!r} waits for shards ({len(found.waiting)}): are members busy?")
            await asyncio.sleep(_POLL_S)

    async def checkpoint_positions(self, group: str, name: str) -> Mapping[ShardOfTopic, int]:
        """Return the positions of a complete checkpoint. Raises PreconditionFailed."""
        found = await self._calls.checkpoint(check_name("group", group), check_name("checkpoint", name), CALL_TIMEOUT_S)
        if found.waiting:
            raise PreconditionFailed(f"checkpoint {name!r} waits for shards ({len(found.waiting)})")
        return await self._positions(found)

    async def delete_checkpoint(self, group: str, name: str, *, timeout_s: float = CALL_TIMEOUT_S) -> None:
        """Delete a checkpoint, complete or not. Without such a checkpoint nothing changes."""
        await self._calls.delete_checkpoint(check_name("group", group), check_name("checkpoint", name), timeout_s)

    async def list(self, prefix: str = "", *, after: str = "") -> AsyncIterator[GroupSummary]:
        """Yield the groups whose names start with `prefix` and come after the name `after`, in order of names."""
        async for each in groups_by_name(self._calls, prefix, after):
            yield GroupSummary(each.group, each.generation, each.member_count)

    # ---- inside

    async def _names_of(self, topic_ids: Iterable[int]) -> dict[int, str]:
        """Return the names of topics, as the caller may know them. Raises RightMissing."""
        return {each: await self._name_of(each) for each in dict.fromkeys(topic_ids)}

    async def _name_of(self, topic_id: int) -> str:
        try:
            return await self._shards.name_of(topic_id)
        except TopicNotFound:
            return str(topic_id)  # deleted; the group forgets it when a member joins

    async def _positions(self, checkpoint: group_pb2.GroupCheckpointState) -> Mapping[ShardOfTopic, int]:
        names = await self._names_of(each.shard.topic_id for each in checkpoint.positions)
        return {
            ShardOfTopic(names[each.shard.topic_id], each.shard.shard_id): each.offset for each in checkpoint.positions
        }

    async def _places(
        self, to: GroupReset, topics: Sequence[str] | None, known: Sequence[int]
    ) -> dict[int, GroupStart]:
        wanted = list(await self._shards.resolve(topics)) if topics is not None else None
        places: dict[int, GroupStart]
        if isinstance(to, datetime) or (isinstance(to, str) and to in ("earliest", "latest")):
            places = dict.fromkeys(wanted if wanted is not None else await self._still_there(known), to)
        else:
            places = {each.topic_id: each for each in _cuts(to)}
            if wanted is not None and set(wanted) != set(places):
                raise InvalidArgument("the cuts are of other topics than those that are named")
        for topic_id in places:
            if topic_id not in known:
                raise TopicNotFound(f"the group does not read topic {await self._name_of(topic_id)}")
        return places

    async def _still_there(self, topic_ids: Sequence[int]) -> Sequence[int]:
        """Return the topics that were not deleted. Raises TopicNotFound where all of them were."""
        found = [each for each in topic_ids if await self._shards.is_any_there([each])]
        if topic_ids and not found:
            raise TopicNotFound("every topic that the group reads was deleted: there is no position to move")
        return found

    async def _lag(self, state: group_pb2.GroupShardState, topic: str) -> ShardLag:
        shard = GroupShard(state.shard.topic_id, state.shard.shard_id)
        offset = state.offset if state.has_position else 0
        end_offset = state.facts.end_offset if state.facts.ended else await self._shards.tail(shard)
        first = offset
        seconds = 0.0
        while first < end_offset:
            reader = self._shards.reader(shard, start=first, end=first + 1, follow=False)
            try:
                async for records in reader.chunks():
                    seconds = max(0.0, time.time() - records[0].timestamp_ms / 1000)
                break
            except OffsetTrimmed as error:
                if error.offset is None or error.offset <= first:
                    raise
                first = error.offset
        return ShardLag(topic, shard.shard_id, offset, end_offset, max(0, end_offset - first), seconds)


def _lag_of_deleted(state: group_pb2.GroupShardState, topic: str) -> ShardLag:
    offset = state.offset if state.has_position else 0
    return ShardLag(topic, state.shard.shard_id, offset, offset, 0, 0.0, is_deleted=True)


def _check_unknown(state: group_pb2.GroupState, name: str) -> None:
    """Raise PreconditionFailed if a group has a checkpoint of a name: its positions are those of an earlier time."""
    for each in state.checkpoints:
        if each.name != name:
            continue
        begun = moment_of(each.started_ms).isoformat(timespec="seconds")
        if each.waiting:
            raise PreconditionFailed(
                f"checkpoint {name!r} began at {begun} and waits for shards ({len(each.waiting)}): "
                "ask for its positions once it is complete, or delete it"
            )
        raise PreconditionFailed(
            f"the group has a checkpoint {name!r}, of {begun}: choose another name, or delete it first"
        )


def _cuts(to: GroupReset) -> list[CutLike]:
    if isinstance(to, str | datetime):
        raise InvalidArgument(f"bad place {to!r}: 'earliest', 'latest', 'checkpoint:NAME', a datetime or a Cut")
    cuts: list[CutLike] = [*to] if isinstance(to, Sequence) else [to]
    if not all(hasattr(each, "offsets") and hasattr(each, "topic_id") for each in cuts):
        raise InvalidArgument(f"bad place {to!r}: a Cut, or several")
    return cuts


def _is_finished(state: group_pb2.GroupShardState) -> bool:
    facts = state.facts
    position = state.offset if state.has_position else facts.start_offset
    return facts.ended and position >= facts.end_offset


def _shard_info(topic: str, state: group_pb2.GroupShardState) -> GroupShardInfo:
    return GroupShardInfo(
        topic=topic,
        shard_id=state.shard.shard_id,
        offset=state.offset if state.has_position else None,
        metadata=state.metadata,
        member_id=state.member,
        since=state.since,
        is_ended=state.facts.ended,
        end_offset=state.facts.end_offset if state.facts.ended else None,
        is_finished=_is_finished(state),
    )
