"""The owner's side of the groups of one journal: what is proposed without a member's request, and who waits for what.

What holds:
- A silent member is found by a timer on the earliest deadline; the machine decides whether it is taken out. After a takeover
  each member has its whole session's time to find the new owner.
- A member that waits for a change of its view is answered with the change, whatever caused it. Views are made once per change.
- The facts of a topic are read from the placement driver when a member joins, when a member has found a shard at its end, and
  by the next owner where they were never known. One reading serves all who ask for the topic meanwhile; one that fails is tried
  again until the journal ends.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any, NamedTuple

from rangelog_broker.groups.checkpoints import ShardKey
from rangelog_broker.groups.consumed_reports import ConsumedReports
from rangelog_broker.groups.deadlines import MemberDeadlines
from rangelog_broker.groups.group import Group
from rangelog_broker.groups.machine import GroupCoordinator
from rangelog_broker.groups.staged_inquiries import Coordinators, Staged, StagedInquiries
from rangelog_broker.journal.journal import Journal
from rangelog_broker.journal.owners import moved
from rangelog_broker.shards.shard_facts import read_facts
from rangelog_core.errors import (
    GroupNotFound,
    RangelogError,
    ShardNotFound,
    TopicNotFound,
    Unavailable,
    WriterClosed,
    WriterFenced,
)
from rangelog_core.net.routes import PdCalls
from rangelog_proto.v1 import group_pb2, group_service_pb2

LEFT_WAIT_S = 3.0
_LEFT_POLL_S = 0.02
FACTS_TIMEOUT_S = 5.0
FACTS_WAIT_S = 2.0
"""How long a call waits for facts; below the limit of one try of a caller."""
RETRY_S = 0.5
TIMER_S_MAX = 60.0

_log = logging.getLogger("rangelog.groups")


class View(NamedTuple):
    """What a member has, and a number that is another one for another view."""

    view: group_pb2.GroupView
    token: int


class GroupOwner:
    """The groups of one journal, as long as this broker owns it. For one event loop."""

    def __init__(self, journal: Journal[GroupCoordinator], topics: PdCalls, calls: Coordinators) -> None:
        self.journal = journal
        self._topics = topics
        self._loop = asyncio.get_running_loop()
        self._deadlines = MemberDeadlines()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0
        self._opened_ms = journal.now_ms
        self._views: dict[str, dict[str, View]] = {}
        self._parked: dict[str, set[asyncio.Future[None]]] = {}
        self._readings: dict[int, _Reading] = {}  # that have not begun
        self._busy: set[int] = set()  # topics that are being read
        self._tasks: set[asyncio.Task[None]] = set()
        self._inquiries = StagedInquiries(calls, self._staged, self.own)
        self._inquiring: asyncio.Task[None] | None = None
        self._staging: dict[str, None] = {}  # groups that may have something staged
        machine = journal.machine
        self.reports = ConsumedReports(topics, machine.groups, self.own, journal.epoch)
        self._reporting: asyncio.Task[None] | None = None
        machine.on_retained = self._retained
        machine.on_changed, machine.on_joined, machine.on_staged = self._changed, self._joined, self._inquire
        for name, group in machine.groups.items():
            for member in group.members:
                self._joined(name, member)
            if len(group.staged):
                self._inquire(name)
            if group.retains or group.leaving:
                self._retained(name)
            for topic_id, map_version in group.topics.items():
                if not map_version:  # the owner before was lost before it knew the topic's shards
                    self._reading(topic_id, name)

    def close(self) -> None:
        """End timers and tasks; answer who waits. Idempotent."""
        if self._timer is not None:
            self._timer.cancel()
        for task in self._tasks:
            task.cancel()
        for name in list(self._parked):
            self._wake(name)

    # ---- commands and reads

    async def propose(
        self, proposal: group_service_pb2.GroupProposal, command: group_pb2.GroupCommand
    ) -> group_pb2.GroupResult:
        """Propose a command of a session. Raises NotOwner, OutcomeUnknown, and what the machine and the journal refuse."""
        try:
            result = await self.journal.propose(
                proposal.session, proposal.sequence, command.SerializeToString(), settled=proposal.settled
            )
        except (WriterFenced, WriterClosed) as error:
            raise moved(error) from error
        return group_pb2.GroupResult.FromString(result)

    async def own(self, command: group_pb2.GroupCommand) -> None:
        """Propose a command that is harmless if it is repeated. Raises as `propose`."""
        try:
            await self.journal.propose_own(command.SerializeToString())
        except (WriterFenced, WriterClosed) as error:
            raise moved(error) from error

    def view(self, name: str, member: str, joined: int = 0) -> View:
        """Return what a member has that joined in that generation; 0: in any.

        Raises GroupNotFound, MemberNotFound (it is to join again), MemberFenced.
        """
        views = self._views.get(name)
        if views is None:
            made = self.journal.machine.views(name)
            views = self._views[name] = {each: View(view, _token(view)) for each, view in made.items()}
        self.journal.machine.group(name).member(member, joined)
        return views[member]

    async def changed_view(self, name: str, member: str, joined: int, token: int, wait_s: float) -> View:
        """Return what a member has once it is another view than that of the token, or after the time. Raises as `view`."""
        deadline = self._loop.time() + wait_s
        while True:
            found = self.view(name, member, joined)
            left_s = deadline - self._loop.time()
            if found.token != token or left_s <= 0 or self.journal.closed is not None:
                return found
            future: asyncio.Future[None] = self._loop.create_future()
            parked = self._parked.setdefault(name, set())
            parked.add(future)
            timer = self._loop.call_later(left_s, _release, future)
            try:
                await future
            finally:
                timer.cancel()
                parked.discard(future)
                if not parked and self._parked.get(name) is parked:
                    del self._parked[name]

    def _changed(self, name: str) -> None:
        self._views.pop(name, None)
        self._wake(name)

    def _wake(self, name: str) -> None:
        for future in self._parked.pop(name, ()):
            _release(future)

    # ---- what transactions have staged

    def _staged(self) -> Staged:
        found: Staged = {}
        for name in list(self._staging):
            group = self.journal.machine.groups.get(name)
            if group is None or not len(group.staged):
                del self._staging[name]
                continue
            found.update({(name, key): each.transactional_id for key, each in group.staged})
        return found

    def _inquire(self, name: str) -> None:
        """See to it that nothing stays staged for ever."""
        self._staging[name] = None
        if self._inquiring is None or self._inquiring.done():
            self._inquiring = self._spawn(self._inquiries.run())

    # ---- what groups have consumed

    def _retained(self, name: str) -> None:
        self.reports.note(name)
        if self._reporting is None or self._reporting.done():
            self._reporting = self._spawn(self.reports.run())

    @asynccontextmanager
    async def moving_back(self, name: str, reset: group_pb2.GroupReset) -> AsyncIterator[None]:
        """See ConsumedReports.lowered; where the group is afterwards is reported anew."""
        try:
            async with self.reports.lowered(name, reset):
                yield
        finally:
            if self.journal.closed is None:
                self._retained(name)

    async def until_heard(self, name: str) -> None:
        """Wait until the placement driver has heard whether a group retains. Raises GroupNotFound; Unavailable: ask again.

        InvalidArgument: Too many groups retain one of the topics.
        """
        deadline = self._loop.time() + LEFT_WAIT_S
        while True:
            group = self.journal.machine.group(name)
            if self.reports.is_reported(name) if group.retains else not group.leaving:
                return
            if self._loop.time() > deadline or self.journal.closed is not None:
                raise Unavailable(f"the placement driver has not heard yet what group {name!r} retains")
            await asyncio.sleep(_LEFT_POLL_S)

    # ---- silent members

    def _joined(self, name: str, member: str) -> None:
        group = self.journal.machine.groups[name]
        one = group.members[member]
        self._deadlines.add(name, member, max(one.heard_ms, self._opened_ms) + one.session_ms, self.journal.now_ms)
        self._set_timer()

    def _set_timer(self) -> None:
        next_ms = self._deadlines.next_ms
        if self._timer is not None:
            if next_ms is not None and self._timer_ms <= next_ms:
                return
            self._timer.cancel()
            self._timer = None
        if next_ms is not None:
            self._timer_ms = next_ms
            wait_s = min(TIMER_S_MAX, max(0, next_ms - self.journal.now_ms) / 1000)
            self._timer = self._loop.call_later(wait_s, self.look_for_silent_members)

    def look_for_silent_members(self) -> None:
        """Propose to take out who is silent for its session's time."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self.journal.closed is not None:
            return
        now_ms = self.journal.now_ms
        for name, member in self._deadlines.due(now_ms):
            group = self.journal.machine.groups.get(name)
            one = group.members.get(member) if group is not None else None
            if one is None:
                continue
            due_ms = max(one.heard_ms, self._opened_ms) + one.session_ms
            if due_ms <= now_ms:
                _log.info("member %s of group %s is silent for %d ms", member, name, now_ms - one.heard_ms)
                expire = group_pb2.GroupExpire(member=member, joined=one.joined)
                self._spawn(self._take_out(group_pb2.GroupCommand(group=name, expire=expire)))
                due_ms = now_ms + one.session_ms
            self._deadlines.add(name, member, due_ms, now_ms)
        self._set_timer()

    async def _take_out(self, command: group_pb2.GroupCommand) -> None:
        try:
            await self.own(command)
        except GroupNotFound:
            pass  # deleted meanwhile
        except RangelogError as error:
            _log.info("a silent member is not taken out yet: %s", error)

    # ---- facts of topics

    async def check_starts(self, name: str, join: group_pb2.GroupJoin) -> None:
        """Check that a member begins in shards that exist, of topics that are new to the group.

        Raises ShardNotFound, Unavailable, RequestTimeout.
        """
        group = self.journal.machine.groups.get(name)
        new = set(join.topic_ids).difference(group.topics if group is not None else ())
        wanted: dict[int, set[int]] = {}
        for each in join.starts:
            if each.shard.topic_id in new:
                wanted.setdefault(each.shard.topic_id, set()).add(each.shard.shard_id)
        for topic_id, shard_ids in wanted.items():
            with suppress(TopicNotFound):  # deleted since: the group forgets it as it reads its facts
                facts = await read_facts(self._topics, topic_id, timeout_s=FACTS_TIMEOUT_S)
                unknown = shard_ids.difference(each.shard_id for each in facts.shards)
                if unknown:
                    raise ShardNotFound(f"topic {topic_id} has no shard {min(unknown)}, which the start names")

    async def read_topics(self, name: str) -> None:
        """Read the facts of all topics of a group again. Returns after FACTS_WAIT_S; what lacks then follows."""
        group = self.journal.machine.group(name)
        await self._wait_for([self._reading(topic_id, name) for topic_id in group.topics])

    async def note_ended(self, name: str, keys: list[ShardKey]) -> None:
        """Read the topics of shards whose end is not known yet. Returns as `read_topics`."""
        group = self.journal.machine.group(name)
        wanted = {key.topic_id: None for key in keys if _lacks_end(group, key)}
        await self._wait_for([self._reading(topic_id, name) for topic_id in wanted])

    async def note_unknown(self, name: str, keys: list[ShardKey]) -> None:
        """Read the topics of shards that the group does not know yet. Returns as `read_topics`."""
        group = self.journal.machine.group(name)
        wanted = {key.topic_id: None for key in keys if key.topic_id in group.topics and key not in group.shards}
        await self._wait_for([self._reading(topic_id, name) for topic_id in wanted])

    def _reading(self, topic_id: int, name: str) -> asyncio.Future[None]:
        """Return the future of a reading that begins later than now, with one that has not begun yet."""
        reading = self._readings.get(topic_id)
        if reading is None:
            reading = self._readings[topic_id] = _Reading(self._loop.create_future())
        reading.groups[name] = None
        if topic_id not in self._busy:
            self._busy.add(topic_id)
            self._spawn(self._read(topic_id))
        return reading.done

    async def _wait_for(self, readings: list[asyncio.Future[None]]) -> None:
        if readings:
            await asyncio.wait(readings, timeout=FACTS_WAIT_S)

    async def _read(self, topic_id: int) -> None:
        """Read the facts, and propose them to all groups that wait, until none waits."""
        try:
            await asyncio.sleep(0)  # who asks in the same turn shares the reading
            while self.journal.closed is None and (reading := self._readings.pop(topic_id, None)) is not None:
                try:
                    await self._learn(topic_id, reading)
                    reading.release()
                except RangelogError as error:
                    _log.info("the shards of topic %d are not known yet: %s", topic_id, error)
                    reading.add(self._readings.pop(topic_id, None))
                    self._readings[topic_id] = reading
                    await asyncio.sleep(RETRY_S)
        finally:
            self._busy.discard(topic_id)
            left = self._readings.pop(topic_id, None)
            if left is not None:
                left.release()

    async def _learn(self, topic_id: int, reading: _Reading) -> None:
        command = group_pb2.GroupCommand()
        try:
            facts = await read_facts(self._topics, topic_id, timeout_s=FACTS_TIMEOUT_S)
        except TopicNotFound:
            command.forget.topic_ids.append(topic_id)
        else:
            command.shards.topic_id, command.shards.map_version = topic_id, facts.map_version
            command.shards.shards.extend(facts.shards)
        for name in list(reading.groups):
            command.group = name
            try:
                await self.own(command)
            except GroupNotFound:
                pass  # deleted meanwhile
            del reading.groups[name]

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


class _Reading:
    """A reading of a topic's facts that has not begun, for so many groups."""

    def __init__(self, done: asyncio.Future[None]) -> None:
        self.done = done
        self.groups: dict[str, None] = {}
        self._later: list[asyncio.Future[None]] = []

    def add(self, other: _Reading | None) -> None:
        """Take over what another one is for."""
        if other is not None:
            self.groups.update(other.groups)
            self._later += [other.done, *other._later]

    def release(self) -> None:
        """Wake the waiting callers."""
        for future in (self.done, *self._later):
            _release(future)


def _lacks_end(group: Group, key: ShardKey) -> bool:
    shard = group.shards.get(key)
    return key.topic_id in group.topics and (shard is None or shard.facts is None or not shard.facts.ended)


def _release(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _token(view: group_pb2.GroupView) -> int:
    """Of what a member has to react to. Never 0."""
    parts = [(each.shard.topic_id, each.shard.shard_id, each.since, each.release) for each in view.assigned]
    digest = hashlib.blake2b(repr((parts, view.checkpoint)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") | 1
