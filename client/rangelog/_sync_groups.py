"""The blocking forms of a group's member and of `client.groups`, for `rangelog.sync`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from rangelog._consume import group, groups
from rangelog._consume.group_calls import CALL_TIMEOUT_S
from rangelog._consume.group_records import GroupChunk, GroupRecord, ShardOfTopic
from rangelog._loop_thread import LoopThread
from rangelog._topics.time_windows import TimeWindow


class GroupMember:
    """The blocking member; make it with `client.group(...)` and use it with `with`. A listener runs on the client's thread."""

    def __init__(
        self,
        loop: LoopThread,
        member: group.GroupMember,
        deserialize: Callable[[GroupRecord], GroupRecord] | None = None,
    ) -> None:
        self._loop = loop
        self._member = member
        self._deserialize = deserialize  # on the calling thread

    def __enter__(self) -> GroupMember:
        self._loop.run(self._member.open())
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._loop.forked and kind is not None:
            return  # a forked child that ends by an exception: the member belongs to its parent
        self._loop.run(self._member.close(commit=kind is None))

    def __iter__(self) -> Iterator[GroupRecord]:
        records = self._loop.iterate(aiter(self._member))
        return records if self._deserialize is None else map(self._deserialize, records)

    def chunks(self) -> Iterator[GroupChunk]:
        """Yield chunks of consecutive records of one shard, at a much lower cost per record. Errors as the iterator's."""
        return self._loop.iterate(self._member.chunks())

    def commit(self, *, metadata: bytes = b"") -> None:
        """Commit all records that were handed out. Raises ShardLost, MemberNotFound, MemberFenced, RequestTimeout."""
        self._loop.run(self._member.commit(metadata=metadata))

    def rewind(self) -> None:
        """Read again from the committed positions on, after a transaction with this member's positions was aborted."""

        async def rewind() -> None:
            self._member.rewind()

        self._loop.run(rewind())

    @property
    def asynchronous(self) -> group.GroupMember:
        """The member on the client's loop."""
        return self._member

    def position(self) -> dict[ShardOfTopic, int]:
        """Return the offset behind the last record that was handed out, of each shard that this member has."""
        return self._member.position()

    def time_window(self, topic: str | None = None) -> TimeWindow:
        """Return the window of event times of a topic's shards that this member has. As the asynchronous one."""
        return self._loop.run(self._member.time_window(topic), reads=True)

    @property
    def shards(self) -> list[ShardOfTopic]:
        """The shards that this member reads now."""
        return self._member.shards

    @property
    def member_id(self) -> str:
        """The member's id."""
        return self._member.member_id

    def close(self) -> None:
        """Leave the group. Idempotent."""
        self._loop.run(self._member.close())


class Groups:
    """The administration of groups: `client.groups`. Arguments, results and errors are those of `rangelog.Groups`."""

    def __init__(self, loop: LoopThread, asynchronous: groups.Groups) -> None:
        self._loop = loop
        self._groups = asynchronous

    def describe(self, group: str) -> groups.GroupInfo:
        """Return members, shards and positions of a group."""
        return self._loop.run(self._groups.describe(group), reads=True)

    def lag(self, group: str) -> Sequence[groups.ShardLag]:
        """Return how far a group is behind, for each shard that it has not finished."""
        return self._loop.run(self._groups.lag(group), reads=True)

    def reset(
        self,
        group: str,
        to: groups.GroupReset,
        *,
        topics: Sequence[str] | None = None,
        timeout_s: float = CALL_TIMEOUT_S,
    ) -> None:
        """Move the positions of a group. Raises InvalidArgument, ShardNotFound, TopicNotFound, PreconditionFailed."""
        self._loop.run(self._groups.reset(group, to, topics=topics, timeout_s=timeout_s))

    def delete(self, group: str) -> None:
        """Delete a group with its positions. Raises PreconditionFailed while it has members."""
        self._loop.run(self._groups.delete(group))

    def retain(self, group: str, *, retains: bool = True) -> None:
        """As Groups.retain."""
        self._loop.run(self._groups.retain(group, retains=retains))

    def unsubscribe(self, group: str, topics: Sequence[str]) -> None:
        """Let a group read topics no more; its positions in them are dropped."""
        self._loop.run(self._groups.unsubscribe(group, topics))

    def checkpoint(self, group: str, name: str, *, timeout_s: float = 30.0) -> Mapping[ShardOfTopic, int]:
        """Note where every member is; return the positions once all have met the checkpoint. Raises PreconditionFailed."""
        return self._loop.run(self._groups.checkpoint(group, name, timeout_s=timeout_s))

    def checkpoint_positions(self, group: str, name: str) -> Mapping[ShardOfTopic, int]:
        """Return the positions of a complete checkpoint. Raises PreconditionFailed."""
        return self._loop.run(self._groups.checkpoint_positions(group, name), reads=True)

    def delete_checkpoint(self, group: str, name: str) -> None:
        """Delete a checkpoint, complete or not."""
        self._loop.run(self._groups.delete_checkpoint(group, name))

    def list(self, prefix: str = "", *, after: str = "") -> Iterator[groups.GroupSummary]:
        """Yield the groups whose names start with `prefix` and come after the name `after`, in order of names."""
        return self._loop.iterate(self._groups.list(prefix, after=after))
