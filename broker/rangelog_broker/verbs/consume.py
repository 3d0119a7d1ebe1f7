"""Consumers: members of groups that live in this broker, for clients that can only ask and be answered.

What holds:

* A consumer belongs to the principal that joined. The rights to read the group and its topics are checked at each request. An
  id cannot be guessed, and is of no use to another principal.
* It is a member of its group for as long as its client asks in time. When it ends (by its client, by silence, at the stop of
  the broker) others get its shards at once; when the broker dies, after MEMBER_SESSION_S. Records that were handed out and not
  committed are handed out again: each record is handed out at least once.
* A batch is answered again until it is committed, and a commit names its batch: see `consumer.py`.
* Consumers, and the records that they keep until the commit, are bounded.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from contextlib import aclosing, contextmanager, suppress
from typing import NamedTuple, cast

from rangelog import Client, GroupMember, GroupRecord, ShardOfTopic
from rangelog.errors import (
    InvalidArgument,
    MemberNotFound,
    Overloaded,
    RangelogError,
    RightMissing,
    ShardLost,
    Unavailable,
)
from rangelog_broker.verbs.caller import Caller
from rangelog_broker.verbs.consumer import ConsumerCore, named
from rangelog_broker.verbs.counts import ConsumeCounts
from rangelog_broker.verbs.read import READ_TIMEOUT_S, TOPIC, WAIT_S_MAX, ReadStart
from rangelog_core.ids import check_name
from rangelog_core.limits import MIB
from rangelog_core.quotas import Measure, charge
from rangelog_core.rights import Verb
from rangelog_core.topic_names import parse_topic_name
from rangelog_proto.v1.rights_pb2 import RESOURCE_KIND_GROUP
from rangelog_server_common.quotas.guard import QuotaGuard, client_of

RECORDS_MAX = 10_000
BYTES_MAX = 8 * MIB
"""Of one batch; it has at least one record where there is one."""
KEPT_BYTES_MAX = 256 * MIB
"""Of the batches of all consumers; above it a batch has one record."""
CONSUMERS_MAX = 1_000
CONSUMERS_OF_ONE_MAX = 200
"""Of one principal; without TLS the caller is unknown, and CONSUMERS_MAX counts alone."""
TOPICS_MAX = 100
SESSION_S = 60.0
SESSION_S_MIN, SESSION_S_MAX = 1.0, 3_600.0
MEMBER_SESSION_S = 10.0
"""Of the member behind a consumer: silence of this broker after which the group gives its shards to others."""
WAIT_S_MIN = 0.1
"""How long a dequeue waits at least where no record is at hand: what the group wants back is given back meanwhile."""
CLOSE_TIMEOUT_S = 5.0

GROUP = int(RESOURCE_KIND_GROUP)


class Dequeued(NamedTuple):
    """A batch. Without records its number is 0, and there is nothing to commit.

    `lost`: shards of the batch before whose records are not committed: others have them, and are handed these records.
    """

    batch: int
    records: Sequence[GroupRecord]
    lost: Sequence[ShardOfTopic]


class Consumes:
    """The verb of consumers, of one broker. For its event loop; `leave` and `close` it."""

    def __init__(self, client: Client, quotas: QuotaGuard, broker: str = "") -> None:
        """`client`: one whose budgets are for doors alone. `broker`: this broker's name, which ids begin with."""
        self.counts = ConsumeCounts()
        self._client = client
        self._quotas = quotas
        self._broker = broker
        self._consumers: dict[str, _Consumer] = {}
        self._joining: dict[str, int] = {}  # by principal
        self._closing: set[asyncio.Task[None]] = set()
        self._leaves = False

    async def join(
        self,
        caller: Caller,
        group: str,
        topics: Sequence[str],
        *,
        start: ReadStart = "earliest",
        session_s: float = SESSION_S,
        skip_trimmed: bool = False,
    ) -> str:
        """Join a group; return the id of the new consumer.

        Args:
            caller: Who asks; it needs the right to read the group and each topic.
            group: The group's name. It is made with its first member.
            topics: The topics that the group reads from now on, 1 to TOPICS_MAX.
            start: Where to begin in topics that the group has not read before.
            session_s: The consumer ends after so many seconds without a request.
            skip_trimmed: Go on where a shard begins now, if records behind the committed position were trimmed.

        Raises:
            InvalidArgument, TopicNotFound, TopicKindForbids, RightMissing: As their names say.
            Overloaded: Too many consumers; Unavailable, RequestTimeout: no coordinator answers, or the broker stops.

        Example:
            ```python
            one = await consumes.join(caller, "billing", ["shop/orders"])
            found = await consumes.dequeue(caller, "billing", one, wait_s=5.0)
            await consumes.commit(caller, "billing", one, found.batch)
            ```
        """
        check_name("group", group)
        names = list(dict.fromkeys(str(parse_topic_name(each)) for each in topics))
        if not 1 <= len(names) <= TOPICS_MAX:
            raise InvalidArgument(f"{len(names)} topics: a consumer reads 1 to {TOPICS_MAX}")
        if not SESSION_S_MIN <= session_s <= SESSION_S_MAX:
            raise InvalidArgument(f"a session of {session_s:g} s: {SESSION_S_MIN:g} to {SESSION_S_MAX:g} are allowed")
        await self._check(caller, group, names)
        owner = owner_of(caller)
        with self._place(owner):
            member = self._client.group(
                group, *names, start=start, session_s=MEMBER_SESSION_S, skip_trimmed=skip_trimmed
            )
            made = _Consumer(owner, group, names, member, session_s)
            try:
                await member.open()
                if self._leaves:
                    raise Unavailable("this broker stops: join at another one")
            except BaseException:
                self._close(made)
                raise
            found = f"{self._broker}.{secrets.token_hex(16)}"
            self._consumers[found] = made
        made.expires(lambda: self._expire(found))
        return found

    async def dequeue(
        self,
        caller: Caller,
        group: str,
        consumer: str,
        *,
        records_max: int = 1_000,
        wait_s: float = 0.0,
        commit: int = 0,
        wanted: Callable[[GroupRecord], bool] | None = None,
    ) -> Dequeued:
        """Return the batch that is not committed, or else the next records as a new one.

        Args:
            caller: As for `join`; the one who joined.
            group: The consumer's group.
            consumer: Its id.
            records_max: Of a new batch, 1 to RECORDS_MAX.
            wait_s: Wait for so long for the first record.
            commit: Commit the batch of this number before; 0: none.
            wanted: Says which records of a new batch to hand out; the others are committed with them.

        Raises:
            MemberNotFound: The principal has no such consumer at this broker: join again, the positions are in the group.
            PreconditionFailed: As `commit`; nothing is handed out. Shards that a commit had lost are in the answer.
            RightMissing: On the group or a topic of it; a topic that others have added ends the consumer.
            OffsetTrimmed, TopicNotFound, …: The consumer has ended with it: see `GroupMember.chunks`.
            Overloaded: Another request of this consumer is under way.
        """
        if not 1 <= records_max <= RECORDS_MAX or not 0 <= wait_s <= WAIT_S_MAX:
            raise InvalidArgument(f"a dequeue has 1 to {RECORDS_MAX} records and waits for 0 to {WAIT_S_MAX:g} s")
        found = await self._find(caller, group, consumer)
        with self._uses(found, consumer):
            lost = list(await self._commit(found, commit)) if commit else []
            if found.turn.locked():
                raise Overloaded("another request of this consumer is being answered: wait for it")
            async with found.turn:
                lost += [each for each in found.core.drop_lost(found.member.position()) if each not in lost]
                if found.core.is_open and not found.core.records:
                    await self._commit_open(found)
                if not found.core.records:
                    await self._fill(found, consumer, records_max, wait_s, wanted)
                await self._check_topics(caller, found, consumer)
                records = tuple(found.core.records)
                self.counts.dequeued_records += len(records)
                self.counts.dequeued_bytes += found.core.size_bytes
                return Dequeued(found.core.number if records else 0, records, lost)

    async def commit(self, caller: Caller, group: str, consumer: str, batch: int) -> None:
        """Commit a batch: the last one that was handed out. A repeat changes nothing.

        Raises:
            MemberNotFound, RightMissing: As `dequeue`; nothing is committed here.
            PreconditionFailed: It is another batch; nothing is committed.
            ShardLost: Others had some of its shards: their records are handed out again. All else is committed.
            RequestTimeout, Unavailable: No coordinator answered; the commit may have been taken. Commit again.
        """
        found = await self._find(caller, group, consumer)
        with self._uses(found, consumer):
            lost = await self._commit(found, batch)
        if lost:
            raise ShardLost(
                f"others had some of the shards before this commit: {named(lost)}: their records are handed out again; "
                "all else of the batch is committed"
            )

    async def is_at_end(self, caller: Caller, group: str, consumer: str) -> bool:
        """Whether the group has committed all that is acked now. Raises as `commit`."""
        found = await self._find(caller, group, consumer)
        with self._uses(found, consumer):
            return not any(each.records for each in await self._client.groups.lag(group))

    async def end(self, caller: Caller, group: str, consumer: str) -> None:
        """End a consumer; the others of the group get its shards at once. Raises MemberNotFound, RightMissing."""
        found = await self._find(caller, group, consumer)
        await asyncio.shield(self._drop(consumer, found))

    def leave(self) -> None:
        """End all consumers, and take no new one: the broker stops. Idempotent."""
        self._leaves = True
        for name, each in list(self._consumers.items()):
            self._drop(name, each)

    async def close(self) -> None:
        """Leave, and wait until the groups know it, for a while at most. Idempotent."""
        self.leave()
        if self._closing:
            _, late = await asyncio.wait(self._closing, timeout=CLOSE_TIMEOUT_S)
            for task in late:
                task.cancel()

    @property
    def consumer_count(self) -> int:
        """Consumers that have not ended."""
        return len(self._consumers)

    # ---- inside

    async def _find(self, caller: Caller, group: str, consumer: str) -> _Consumer:
        """Return a consumer of the caller. Raises MemberNotFound, in the same words whatever is wrong; RightMissing."""
        await caller.require_named(Verb.READ, GROUP, group)
        found = self._consumers.get(consumer)
        if found is None or found.group != group or found.owner != owner_of(caller):
            raise self._missing()
        await self._check(caller, group, found.topics)
        return found

    def _missing(self) -> MemberNotFound:
        return MemberNotFound(
            f"no such consumer at broker {self._broker!r}: it has ended, or joined at another broker, whose name its id begins "
            "with: ask that one, or join here: the positions are in the group"
        )

    @contextmanager
    def _place(self, owner: str) -> Generator[None, None, None]:
        """Keep the place of a consumer that joins. Raises Overloaded, Unavailable."""
        if self._leaves:
            raise Unavailable("this broker stops: join at another one")
        if len(self._consumers) + sum(self._joining.values()) >= CONSUMERS_MAX:
            raise Overloaded(f"this broker has {CONSUMERS_MAX} consumers, its limit: join at another one")
        own = sum(each.owner == owner for each in self._consumers.values()) + self._joining.get(owner, 0)
        if owner and own >= CONSUMERS_OF_ONE_MAX:
            raise Overloaded(f"{owner} has {own} consumers at this broker, the limit of one principal: end some")
        self._joining[owner] = self._joining.get(owner, 0) + 1
        try:
            yield
        finally:
            self._joining[owner] -= 1
            if not self._joining[owner]:
                del self._joining[owner]

    @contextmanager
    def _uses(self, found: _Consumer, name: str) -> Generator[None, None, None]:
        """Keep a consumer from expiring while a request of it runs."""
        found.users += 1
        try:
            yield
        finally:
            found.users -= 1
            found.expires(lambda: self._expire(name))

    async def _check(self, caller: Caller, group: str, topics: Sequence[str]) -> None:
        """Check the rights that a native member needs. Raises RightMissing, Unavailable."""
        await caller.require_named(Verb.READ, GROUP, group)
        for each in topics:
            await caller.require_named(Verb.READ, TOPIC, each)

    async def _check_topics(self, caller: Caller, found: _Consumer, name: str) -> None:
        """Check the right to read what others have subscribed the group to, hold the caller, and count what it is handed.

        One that may not read it would keep its shards from those who may: it ends. Raises RightMissing, Overloaded.
        """
        sizes = found.core.sizes()
        try:
            for topic in sizes:
                await caller.require_named(Verb.READ, TOPIC, topic)
        except RightMissing:
            self._drop(name, found)
            raise
        who = client_of(caller.principal)
        if who is not None and self._quotas.book.any:
            for topic, size_bytes in sizes.items():
                await self._quotas.hold(who, Measure.READ, 0, READ_TIMEOUT_S, topic)
                charge(self._quotas.book.buckets(who, topic, Measure.READ), self._quotas.now_us(), size_bytes)

    async def _commit(self, found: _Consumer, batch: int) -> Sequence[ShardOfTopic]:
        """Commit a batch unless it is committed; return the shards of it that others had before."""
        lost = found.core.settled(batch)
        if lost is not None:
            return lost
        async with found.turn:
            lost = found.core.settled(batch)
            if lost is None:
                lost = await self._commit_open(found)
                self.counts.commits += 1
            return lost

    async def _commit_open(self, found: _Consumer) -> Sequence[ShardOfTopic]:
        """Commit what is open; return the shards of it that others had before. Raises MemberNotFound: it has ended."""
        if found.has_ended:
            raise self._missing()
        with suppress(ShardLost, MemberNotFound):  # the positions tell of which shards
            await found.member.commit()
        return found.core.committed(found.member.position())

    async def _fill(
        self,
        found: _Consumer,
        name: str,
        records_max: int,
        wait_s: float,
        wanted: Callable[[GroupRecord], bool] | None,
    ) -> None:
        """Take what is at hand as a new batch; wait for the first record of it. Raises what ended the consumer."""
        core = found.core
        if found.has_ended:
            raise self._missing()
        limit = asyncio.timeout(max(wait_s, WAIT_S_MIN))
        kept_bytes = sum(each.core.size_bytes for each in self._consumers.values())
        try:
            async with limit, aclosing(_records_of(found.member)) as records:
                found.waiting = limit
                async for record in records:
                    core.took(record, wanted=wanted is None or wanted(record))
                    if len(core.records) >= records_max or core.size_bytes >= BYTES_MAX:
                        break
                    if core.records and kept_bytes + core.size_bytes >= KEPT_BYTES_MAX:
                        break
                    if core.records and found.waiting is not None:
                        found.stop_waiting()  # what comes without a wait is taken
        except TimeoutError:
            if not limit.expired():
                raise
        except RangelogError:
            self._drop(name, found)
            raise
        finally:
            found.waiting = None

    def _expire(self, name: str) -> None:
        """End a consumer that was silent for too long."""
        found = self._consumers.get(name)
        if found is not None and not found.users:
            self.counts.expired += 1
            self._drop(name, found)

    def _drop(self, name: str, found: _Consumer) -> asyncio.Task[None]:
        if self._consumers.get(name) is found:
            del self._consumers[name]
        return self._close(found)

    def _close(self, found: _Consumer) -> asyncio.Task[None]:
        task = found.close()
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)
        return task


class _Consumer:
    """A consumer, with the member behind it."""

    def __init__(self, owner: str, group: str, topics: Sequence[str], member: GroupMember, session_s: float) -> None:
        self.owner = owner
        self.group = group
        self.topics = topics
        self.member = member
        self.core = ConsumerCore()
        self.turn = asyncio.Lock()
        self.users = 0
        self.waiting: asyncio.Timeout | None = None
        self._session_s = session_s
        self._timer: asyncio.TimerHandle | None = None
        self._ends: asyncio.Task[None] | None = None

    def expires(self, expire: Callable[[], None]) -> None:
        """Call `expire` unless there is a further request in time."""
        if self._timer is not None:
            self._timer.cancel()
        if self._ends is None:
            self._timer = asyncio.get_running_loop().call_later(self._session_s, expire)

    @property
    def has_ended(self) -> bool:
        """Whether it has left its group, or is about to."""
        return self._ends is not None

    def stop_waiting(self) -> None:
        """Answer the dequeue that waits with what it has."""
        waiting, self.waiting = self.waiting, None
        if waiting is not None and not waiting.expired():
            waiting.reschedule(asyncio.get_running_loop().time())

    def close(self) -> asyncio.Task[None]:
        """Leave the group, and answer who waits. Idempotent."""
        if self._ends is None:
            if self._timer is not None:
                self._timer.cancel()
            self.stop_waiting()
            self._ends = asyncio.create_task(self._leave())
        return self._ends

    async def _leave(self) -> None:
        with suppress(RangelogError):
            await self.member.close(commit=False)


def owner_of(caller: Caller) -> str:
    """Return the owner of a caller's consumers; "": the caller is unknown, on a port without TLS."""
    return str(caller.principal) if caller.principal is not None else ""


def _records_of(member: GroupMember) -> AsyncGenerator[GroupRecord, None]:
    return cast(AsyncGenerator[GroupRecord, None], aiter(member))
