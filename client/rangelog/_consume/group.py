"""A member of a consumer group: reads the shards that the group hands to it, and commits how far it has come.

What holds:

- Records of a shard come in order, from where the group's last commit was; those of a key come in order over splits and merges.
- A commit counts only while the group has this member's shards handed to it: one that stood still for longer than its session's
  time finds that out by its next commit, or heartbeat, before it gets another record.
- A shard that the group wants back is given back when what was handed out of it is processed and committed.
- The application's calls (listener, records) take turns: nothing is handed out while a listener runs.
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Sequence
from contextlib import aclosing, contextmanager, suppress

from rangelog._consume.group_calls import CALL_TIMEOUT_S, GroupCalls, position_message
from rangelog._consume.group_core import GroupPosition, GroupShard, MemberCore
from rangelog._consume.group_records import GroupChunk, GroupListener, GroupRecord, ReachedCheckpoint, ShardOfTopic
from rangelog._consume.group_shards import GroupShards, GroupStart
from rangelog._consume.membership import Membership
from rangelog._consume.shard_feed import ReadyChunk, ShardFeeds
from rangelog._topics.time_windows import TimeWindow, TimeWindows
from rangelog_core.errors import InvalidArgument, MemberFenced, MemberNotFound, RangelogError, ShardLost, WriterClosed
from rangelog_core.ids import check_name
from rangelog_proto.v1 import group_pb2

POSITIONS_MAX = 1_000
"""In one commit."""
METADATA_BYTES_MAX = 64
_TURNS_OF_A_CLOSE = 2
"""Of the event loop, until an iterator that was left is closed: in one a task is made that closes it, in the next it runs."""

_log = logging.getLogger("rangelog.group")


class GroupMember:
    """A member of a group: an asynchronous iterator of records. Make it with `client.group(...)`, use it with `async with`.

    Example:
        ```python
        async with client.group("billing", "flights") as member:
            async for record in member:
                bill(record.value)
                await member.commit()
        ```
    """

    def __init__(
        self,
        calls: GroupCalls,
        shards: GroupShards,
        group: str,
        topics: Sequence[str],
        *,
        member_id: str | None,
        start: GroupStart,
        session_s: float,
        auto_commit_s: float | None,
        checkpoint_every_s: float | None,
        skip_trimmed: bool,
        listener: GroupListener | None,
        deserialize: Callable[[GroupRecord], GroupRecord] | None = None,
        time_windows: Callable[[int], TimeWindows] | None = None,
    ) -> None:
        self.group = check_name("group", group)
        self.member_id = check_name("member", member_id if member_id is not None else uuid.uuid4().hex)
        for name, value in (
            ("session_s", session_s),
            ("auto_commit_s", auto_commit_s),
            ("checkpoint_every_s", checkpoint_every_s),
        ):
            if value is not None and not (isinstance(value, int | float) and 0.001 <= value <= 86_400):
                raise InvalidArgument(f"{name} must be a number of seconds from 0.001 to 86,400, not {value!r}")
        if isinstance(topics, str) or not topics:
            raise InvalidArgument("a group reads one topic or more: give their names")
        self._calls = calls
        self._topics = list(topics)
        self._session_s = session_s
        self._auto_commit_s = auto_commit_s
        self._checkpoint_every_s = checkpoint_every_s
        self._listener = listener or GroupListener()
        self.deserialize = deserialize
        self._time_windows = time_windows
        self._windows: dict[int, TimeWindows] = {}
        self._core = MemberCore()
        self._woken = asyncio.Event()
        self._feeds = ShardFeeds(
            shards.reader, woken=self._woken, found_end=self._found_end, skipped=self._skipped,
            skips_trimmed=skip_trimmed, named=lambda shard: self._membership.of_topic(shard),
        )  # fmt: skip
        self._membership = Membership(
            calls,
            shards,
            self._core,
            self.group,
            self.member_id,
            start=start,
            session_s=session_s,
            changed=self._changed,
        )
        self._tasks: list[asyncio.Task[None]] = []
        self._is_open = self._is_closed = False
        self._iterates = self._has_news = False
        self._rest: ReadyChunk | None = None  # of the chunk in whose midst the last loop was left
        self._giving_back_since: float | None = None
        self._met = 0  # the number of the last checkpoint
        self._report: group_pb2.GroupReach | None = None

    async def __aenter__(self) -> GroupMember:
        await self.open()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        await self.close(commit=kind is None)

    def __aiter__(self) -> AsyncIterator[GroupRecord]:
        return self._records()

    async def open(self) -> None:
        """Join the group. Raises TopicNotFound, TopicKindForbids (one is a table), Overloaded, RequestTimeout."""
        if self._is_open or self._is_closed:
            raise InvalidArgument("a member is opened once: make another one")
        self._is_open = True
        await self._membership.resolve(self._topics)
        await self._membership.join()
        work = [self._membership.run()]
        if self._auto_commit_s is not None:
            work.append(self._commit_at_times(self._auto_commit_s))
        if self._checkpoint_every_s is not None:
            work.append(self._ask_for_checkpoints(self._checkpoint_every_s))
        self._tasks = [asyncio.create_task(each) for each in work]

    async def close(self, *, commit: bool = True) -> None:
        """Leave the group; its other members get the shards at once. Idempotent.

        Args:
            commit: With automatic commits, commit what is processed before.
        """
        if self._is_closed or not self._is_open:
            self._is_closed = True
            return
        self._is_closed = True
        self._woken.set()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        await self._feeds.close()
        if self._membership.failed is not None:
            return
        if commit and self._auto_commit_s is not None:
            with suppress(RangelogError):
                await self._commit(self._core.uncommitted_processed())
        with suppress(RangelogError):
            await self._calls.leave(self.group, self.member_id, self._membership.joined)

    # ---- the application's side

    async def chunks(self) -> AsyncGenerator[GroupChunk, None]:
        """Yield chunks of consecutive records of one shard. A chunk is processed when the next one is asked for.

        Raises:
            OffsetTrimmed: Records behind the committed position of a shard were trimmed: see `skip_trimmed`, `Groups.reset`.
            GroupNotFound: The group was deleted.
            TopicNotFound: Every topic that the member reads was deleted.
            MemberFenced: Another instance joined under this member's id.
            Corruption, Unavailable: As a reader's.
        """
        async with aclosing(self._parts()) as parts:
            async for chunk in parts:
                end_offset = chunk.records[-1].offset + 1
                self._core.took(chunk.shard, chunk.since, end_offset)
                yield GroupChunk(*self._membership.of_topic(chunk.shard), chunk.records)

    async def commit(self, *, metadata: bytes = b"") -> None:
        """Commit all records that were handed out, the last one included.

        Args:
            metadata: Up to 64 bytes that are kept beside the positions.

        Raises:
            ShardLost: Others have some of the shards: what was handed out of these is read again. All else is committed.
            MemberNotFound: The session has expired: nothing is committed. The iterator goes on as a new member.
            MemberFenced: Another instance joined under this member's id: nothing is committed, and the iterator ends with it.
            RequestTimeout: No coordinator answered in time; the commit may have been taken.
        """
        self._check_open()
        if len(metadata) > METADATA_BYTES_MAX:
            raise InvalidArgument(f"metadata of {len(metadata)} bytes; the limit is {METADATA_BYTES_MAX}")
        lost = self._core.take_spoiled()
        lost += await self._commit(self._core.uncommitted(), metadata)
        if self._giving_back_since is not None:
            self._note_news()
        if lost:
            listed = ", ".join(f"{topic}/{shard}" for topic, shard in map(self._membership.of_topic, lost[:5]))
            raise ShardLost(f"shards were handed to others ({len(lost)}) before this commit: {listed}")

    def rewind(self) -> None:
        """Read again from the committed positions on, after a transaction with this member's positions was aborted.

        The member joins the group anew, so what it has is handed out again, to it or to others.

        Raises:
            MemberFenced: Another instance joined under this member's id, and reads them.
        """
        self._check_open()
        self._membership.expel()
        self._core.take_spoiled()

    async def stage_positions(self, transactional_id: str, producer_id: int, number: int) -> Sequence[GroupPosition]:
        """Make positions behind all that was handed out part of a transaction: see `Transaction.commit_positions`.

        For the package's own use. Returns them, for `positions_committed`. Raises as `commit`, and InvalidArgument.
        """
        self._check_open()
        if self._auto_commit_s is not None:
            raise InvalidArgument(
                "this member commits positions by itself: make it with auto_commit_s=None to commit them with transactions"
            )
        lost = self._core.take_spoiled()
        positions = self._core.uncommitted()
        for at in range(0, len(positions), POSITIONS_MAX):
            with self._speaking() as joined:
                commit = group_pb2.GroupCommit(
                    member=self.member_id,
                    joined=joined,
                    positions=map(position_message, positions[at : at + POSITIONS_MAX]),
                )
                stage = group_pb2.GroupStage(
                    transactional_id=transactional_id, producer_id=producer_id, number=number, commit=commit
                )
                response = await self._calls.stage(self.group, stage, CALL_TIMEOUT_S)
            lost += [GroupShard(each.shard.topic_id, each.shard.shard_id) for each in response.refused]
        if lost:
            listed = ", ".join(f"{topic}/{shard}" for topic, shard in map(self._membership.of_topic, lost[:5]))
            raise ShardLost(f"shards were handed to others ({len(lost)}) before their positions were staged: {listed}")
        return positions

    def positions_committed(self, positions: Sequence[GroupPosition]) -> None:
        """The transaction of these positions is committed. For the package's own use."""
        self._core.committed(positions)
        self._perform()
        self._note_news()

    def position(self) -> dict[ShardOfTopic, int]:
        """Return the offset behind the last record that was handed out, of each shard that this member has."""
        return {self._membership.of_topic(shard): offset for shard, offset in self._core.position().items()}

    async def time_window(self, topic: str | None = None) -> TimeWindow:
        """Return the window of event times of the shards of a topic that this member has, at its position in them.

        It may go back when shards are handed out. Later watermarks are asked of a broker once a second at most.

        Args:
            topic: One of the group's topics; None: the only one.

        Raises:
            InvalidArgument: The member was made with several topics, and none is named.
            TopicNotFound: The topic is not there.
            Unavailable: No broker answers.
        """
        if topic is None and len(self._topics) > 1:
            raise InvalidArgument("the group reads several topics: name the one whose window is asked for")
        topic_id = self._membership.topic_id_of(topic if topic is not None else self._topics[0])
        windows = self._windows.get(topic_id)
        if windows is None:
            if self._time_windows is None:
                raise InvalidArgument("this member cannot ask for watermarks")
            windows = self._windows[topic_id] = self._time_windows(topic_id)
        here = {each.shard_id: offset for each, offset in self._core.position().items() if each.topic_id == topic_id}
        return await windows.at(here, is_cut=False)

    @property
    def shards(self) -> list[ShardOfTopic]:
        """The shards that this member reads now."""
        return [self._membership.of_topic(shard) for shard in self._core.shards]

    # ---- handing out

    async def _records(self) -> AsyncIterator[GroupRecord]:
        core = self._core
        async with aclosing(self._parts()) as parts:
            async for chunk in parts:
                shard, since = chunk.shard, chunk.since
                topic = self._membership.of_topic(shard).topic
                taken = 0
                try:
                    for record in chunk.records:
                        core.took(shard, since, record.offset + 1)
                        taken += 1
                        made = GroupRecord(topic, shard.shard_id, *record)
                        yield made if self.deserialize is None else self.deserialize(made)
                        core.settle()
                        if self._turn_is_due:
                            await self._turn()
                        if self._is_closed or not core.may_hand_out(shard, since):
                            break
                finally:
                    if taken < len(chunk.records):  # the loop was left
                        self._rest = chunk._replace(records=chunk.records[taken:])

    async def _parts(self) -> AsyncGenerator[ReadyChunk, None]:
        """Yield chunks; who asks for the next one has processed all that it took."""
        self._check_open()
        for _ in range(_TURNS_OF_A_CLOSE):
            if self._iterates:
                await asyncio.sleep(0)
        if self._iterates:
            raise InvalidArgument("a member is iterated by one task at a time")
        self._iterates = True
        try:
            while not self._is_closed:
                self._core.settle()
                self._woken.clear()
                await self._turn()
                if self._is_closed:
                    return
                chunk = self._next_chunk() if self._membership.is_heard else None
                if chunk is None:
                    await self._wait()
                elif self._core.may_hand_out(chunk.shard, chunk.since):
                    yield chunk
        finally:
            self._iterates = False

    def _next_chunk(self) -> ReadyChunk | None:
        rest, self._rest = self._rest, None
        return rest if rest is not None else self._feeds.next_chunk()

    async def _wait(self) -> None:
        """Until something is to be done; not longer than until a shard is given back anyhow."""
        left_s = None
        if self._giving_back_since is not None:
            left_s = max(0.01, self._giving_back_since + self._session_s - time.monotonic())
        with suppress(TimeoutError):
            async with asyncio.timeout(left_s):
                await self._woken.wait()

    @property
    def _turn_is_due(self) -> bool:
        return self._has_news or not self._membership.is_heard

    async def _turn(self) -> None:
        """Between two records: tell the listener, give shards back, report a checkpoint."""
        core, listener = self._core, self._listener
        self._has_news = False
        error = self._membership.failed or self._feeds.failed
        if error is not None:
            raise error
        if not self._membership.is_heard:
            self._membership.hurry()
        while not self._membership.is_heard and not self._is_closed:
            self._woken.clear()
            await self._wait()
            if self._membership.failed is not None:
                raise self._membership.failed
        if lost := core.take_lost():
            await listener.lost(list(map(self._membership.of_topic, lost)))
        if gained := core.take_gained():
            await listener.gained(list(map(self._membership.of_topic, gained)))
        if wanted := core.take_wanted_back():
            self._giving_back_since = time.monotonic()
            await listener.releasing(list(map(self._membership.of_topic, wanted)))
        try:
            await self._give_back()
            await self._meet_checkpoint()
        except MemberNotFound:
            pass  # it joins again
        except RangelogError as problem:
            if not problem.retriable:
                raise
            _log.info("group %s: %s", self.group, problem)
            self._note_news()

    async def _give_back(self) -> None:
        core = self._core
        if owed := core.owed():
            await self._commit(owed)
        if self._giving_back_since is None:
            return
        if self._auto_commit_s is not None:
            wanted = {each.shard for each in core.wanted_back()}
            await self._commit([each for each in core.uncommitted_processed() if each.shard in wanted])
        waited_s = time.monotonic() - self._giving_back_since
        released = core.to_release() if waited_s < self._session_s else core.wanted_back()
        if released:
            with self._membership.speaking() as joined:
                release = group_pb2.GroupRelease(
                    member=self.member_id, joined=joined, positions=map(position_message, released)
                )
                await self._calls.release(self.group, release, CALL_TIMEOUT_S)
            core.released(released)
        if not core.wanted_back():
            self._giving_back_since = None

    async def _meet_checkpoint(self) -> None:
        """Report each checkpoint once; a report that may have been lost is repeated as it was."""
        core = self._core
        if core.checkpoint > self._met:
            self._met = core.checkpoint
            positions = core.processed()
            where = {self._membership.of_topic(each.shard): each.offset for each in positions}
            self._report = group_pb2.GroupReach(
                member=self.member_id,
                number=self._met,
                positions=map(position_message, positions),
            )
            await self._listener.checkpoint(ReachedCheckpoint(core.checkpoint_name, where))
        if self._report is not None:
            with self._membership.speaking() as self._report.joined:
                await self._calls.reach(self.group, self._report, CALL_TIMEOUT_S)
            self._report = None

    async def _commit(self, positions: Sequence[GroupPosition], metadata: bytes = b"") -> list[GroupShard]:
        """Commit positions; return the shards that others have by now. Raises MemberNotFound."""
        lost: list[GroupShard] = []
        for at in range(0, len(positions), POSITIONS_MAX):
            part = positions[at : at + POSITIONS_MAX]
            with self._speaking() as joined:
                commit = group_pb2.GroupCommit(
                    member=self.member_id,
                    joined=joined,
                    positions=[position_message(each, metadata) for each in part],
                )
                response = await self._calls.commit(self.group, commit, CALL_TIMEOUT_S)
            refused = {GroupShard(each.shard.topic_id, each.shard.shard_id) for each in response.refused}
            self._core.committed(each for each in part if each.shard not in refused)
            self._core.refused(each for each in part if each.shard in refused)
            lost += refused
            self._perform()
        return lost

    @contextmanager
    def _speaking(self) -> Iterator[int]:
        """As Membership.speaking, where the caller is told what is lost."""
        try:
            with self._membership.speaking() as joined:
                yield joined
        except (MemberNotFound, MemberFenced):
            self._core.take_spoiled()
            raise

    # ---- beside the application

    def _changed(self) -> None:
        """The core has taken over something of the group."""
        self._perform()
        self._note_news()

    def _perform(self) -> None:
        for effect in self._core.effects():
            self._feeds.perform(effect)

    def _note_news(self) -> None:
        self._has_news = True
        self._woken.set()

    def _skipped(self, shard: GroupShard, since: int, offset: int) -> None:
        self._core.skipped(shard, since, offset)
        self._note_news()

    def _found_end(self, shard: GroupShard, since: int) -> None:
        self._core.found_end(shard, since)
        self._membership.hurry()

    async def _commit_at_times(self, every_s: float) -> None:
        while True:
            await asyncio.sleep(every_s)
            try:
                await self._commit(self._core.uncommitted_processed())
            except RangelogError as error:
                _log.info("group %s: positions are not committed: %s", self.group, error)

    async def _ask_for_checkpoints(self, every_s: float) -> None:
        every_ms = max(1, round(every_s * 1000))
        while True:
            await asyncio.sleep(every_s)
            try:
                await self._calls.request_checkpoint(self.group, f"auto-{uuid.uuid4().hex}", every_ms, CALL_TIMEOUT_S)
            except RangelogError as error:
                _log.info("group %s: no checkpoint: %s", self.group, error)

    # ---- inside

    def _check_open(self) -> None:
        if not self._is_open or self._is_closed:
            raise WriterClosed("the member is not open: use it with `async with`")
        if isinstance(self._membership.failed, MemberFenced):
            raise self._membership.failed
