"""Random walks of whole members over real journals, against an independent checker (T6, T4).

Members come, leave, die and stand still; their heartbeats are held back while they go on committing; answers are lost and calls
arrive again later; brokers take the journal from each other; shards split and merge. In the calm everything is read.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from rangelog._consume.group import GroupMember
from rangelog._consume.group_calls import GroupCalls
from rangelog._consume.group_shards import GroupShards
from rangelog._consume.groups import Groups
from rangelog_core.errors import MemberNotFound, NotOwner, RangelogError, ShardLost
from rangelog_core.net.owner_calls import OwnedKey, journal_of
from tests.support.group_checker import (
    CommitRefused,
    CommitSent,
    CommitTaken,
    Event,
    Given,
    Handed,
    Looking,
    Seen,
    TopicShard,
    check_group,
)
from tests.support.group_cluster import Calls, GroupCluster

pytestmark = pytest.mark.virtual

GROUP, TOPIC = "billing", "default/flights"
JOURNAL = journal_of(GROUP)[1]
KEYS = 6
SESSION_S = 0.15
STEPS = 40


class NotedCalls(Calls):
    """Notes commits and what members are given; holds back or repeats calls as the walk says."""

    def __init__(self, walk: Walk) -> None:
        super().__init__(lambda: walk.cluster.brokers)
        self._walk = walk
        self._late: set[asyncio.Task[Any]] = set()

    async def call(
        self,
        key: OwnedKey,
        stub_type: type[Any],
        method: Callable[[Any], Callable[..., Awaitable[Any]]],
        request: Any,
        *,
        timeout_s: float,
        repeatable: bool,
    ) -> Any:
        """As Calls."""
        walk, name = self._walk, type(request).__name__.removesuffix("Request")
        if name == "HeartbeatGroup" and request.member in walk.held_back:
            await walk.held_back[request.member].wait()
        commits = walk.note_commits(request.commit) if name == "CommitPositions" else {}
        if commits and walk.draw.random() < 0.3:
            for _ in range(walk.draw.randint(1, 150)):
                await asyncio.sleep(0.001)
        if walk.draw.random() < 0.1:
            copy = type(request).FromString(request.SerializeToString())
            self._late.add(asyncio.create_task(self._again(method, copy)))
        response = await super().call(key, stub_type, method, request, timeout_s=timeout_s, repeatable=repeatable)
        if commits:
            refused = {each.shard.shard_id for each in response.refused}
            for shard, number in commits.items():
                walk.history.append(CommitRefused(number) if shard in refused else CommitTaken(number))
        return response

    async def _again(self, method: Callable[[Any], Callable[..., Awaitable[Any]]], request: Any) -> None:
        """The request arrives once more, later, at some broker."""
        for _ in range(self._walk.draw.randint(1, 200)):
            await asyncio.sleep(0.001)
        try:
            await method(self.stub(self._walk.draw.choice(self._walk.cluster.brokers)))(request)
        except RangelogError:
            self._walk.seen["a late repeat was refused"] += 1
        else:
            self._walk.seen["a late repeat was answered"] += 1

    async def drain(self) -> None:
        """Let all repeats arrive."""
        await asyncio.gather(*self._late)


class Walk:
    """One walk."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.history: list[Event] = []
        self.cluster = GroupCluster()
        self.calls = NotedCalls(self)
        client: Any = self.cluster.client
        self.shards = GroupShards(self.cluster.topics, client.metadata, client.connections, client._group_reader)
        self.members: dict[str, tuple[GroupMember, asyncio.Task[None]]] = {}
        self.held_back: dict[str, asyncio.Event] = {}
        self.seen: Counter[str] = Counter()
        self.keys: Counter[str] = Counter()
        self.records: dict[int, list[tuple[str, int]]] = {0: [], 1: []}
        self.homes = {f"k{number}": number % 2 for number in range(KEYS)}
        self._number = 0

    def note_commits(self, commit: Any) -> dict[int, int]:
        """Note what a commit names; return the numbers by shard."""
        found = {}
        for each in commit.positions:
            self._number += 1
            found[each.shard.shard_id] = self._number
            self.history.append(CommitSent(self._number, commit.member, each.shard.shard_id, each.since, each.offset))
        return found

    # ---- members

    async def start(self) -> None:
        """A member joins."""
        if len(self.members) >= 4:
            return
        name = f"m{self.seen['joined']}"
        self.seen["joined"] += 1
        member = GroupMember(
            GroupCalls(self.calls),
            self.shards,
            GROUP,
            [TOPIC],
            member_id=name,
            start="earliest",
            session_s=SESSION_S,
            auto_commit_s=self.draw.choice([None, None, 0.02]),
            checkpoint_every_s=None,
            skip_trimmed=False,
            listener=None,
        )
        self._note_given(member)
        await member.open()
        self.members[name] = member, asyncio.create_task(self._read(member))

    def _note_given(self, member: GroupMember) -> None:
        core: Any = member._core
        viewed = core.viewed

        def noted(view: Any) -> None:
            for each in view.assigned:
                shard = each.shard.shard_id
                if not core.holds((each.shard.topic_id, shard), each.since):
                    self.history.append(Given(member.member_id, shard, each.since, each.offset))
            viewed(view)

        core.viewed = noted

    async def _read(self, member: GroupMember) -> None:
        core: Any = member._core
        async for record in member:
            since = core._held[self.topic.topic_id, record.shard_id].since
            self.history.append(Handed(member.member_id, record.shard_id, since, record.offset))
            if self.draw.random() < 0.3:
                await self._commit(member)
            elif self.draw.random() < 0.2:
                await asyncio.sleep(0.002)

    async def _commit(self, member: GroupMember) -> None:
        try:
            await member.commit()
        except (MemberNotFound, ShardLost) as error:
            self.seen[type(error).__name__] += 1

    async def stop(self) -> None:
        """A member leaves, or dies."""
        if len(self.members) < 2:
            return
        name = self.draw.choice(list(self.members))
        member, task = self.members.pop(name)
        if self.draw.random() < 0.5:
            self.seen["died"] += 1
            member._membership.failed = NotOwner("dead")  # no word to the group
        else:
            self.seen["left"] += 1
        self._release(name)
        closing = asyncio.create_task(member.close())
        await asyncio.wait([closing, task])
        task.exception()

    async def hold_back(self) -> None:
        """A member's heartbeats do not arrive for a while; it goes on reading and committing."""
        name = self.draw.choice(list(self.members))
        if name not in self.held_back:
            self.held_back[name] = asyncio.Event()
            self.seen["held back"] += 1
        else:
            self._release(name)

    def _release(self, name: str) -> None:
        gate = self.held_back.pop(name, None)
        if gate is not None:
            gate.set()

    # ---- the rest

    async def write(self) -> None:
        """Append records."""
        for _ in range(self.draw.randint(1, 5)):
            key = f"k{self.draw.randrange(KEYS)}"
            shard = self.homes[key]
            self.records[shard].append((key, self.keys[key]))
            self.keys[key] += 1
            await self.cluster.append(self.topic, shard, b"", keys=[key.encode()])

    async def scale(self) -> None:
        """Split a shard, or merge two."""
        current = sorted({shard.shard_id for shard in self.topic.shards if not shard.ended_version})
        if len(self.topic.shards) > 10:
            return
        merged = len(current) > 1 and self.draw.random() < 0.5
        parents = self.draw.sample(current, 2) if merged else [self.draw.choice(current)]
        children = await self.cluster.scale(self.topic, parents, 1 if merged else 2)
        self.records.update({each: [] for each in children})
        for key, home in self.homes.items():
            if home in parents:
                self.homes[key] = self.draw.choice(children)
        self.seen["scaled"] += 1

    async def take_over(self) -> None:
        """Another broker takes the journal."""
        await self.cluster.broker(JOURNAL)
        self.seen["taken over"] += 1

    async def look(self) -> None:
        """Read the committed positions."""
        self._number += 1
        number = self._number
        self.history.append(Looking(number))
        for shard in (await Groups(GroupCalls(self.calls), self.shards).describe(GROUP)).shards:
            self.history.append(Seen(number, shard.shard_id, shard.offset or 0))

    async def pause(self) -> None:
        """Let members work."""
        for _ in range(self.draw.randint(1, 100)):
            await asyncio.sleep(0.002)

    async def run(self) -> list[str]:
        """Walk; return what is wrong."""
        async with self.cluster, asyncio.timeout(100):
            await self.cluster.broker(JOURNAL)
            self.topic = await self.cluster.create_topic(TOPIC, 2)
            await self.start()
            await self.start()  # two at least: what is drawn later depends on how far the members are by then
            weights = {
                self.write: 6, self.pause: 6, self.start: 2, self.stop: 1, self.hold_back: 1.5, self.scale: 1,
                self.take_over: 0.4, self.look: 1,
            }  # fmt: skip
            for _ in range(STEPS):
                await self.draw.choices(list(weights), list(weights.values()))[0]()
            await self._calm()
        topic = {
            each.shard_id: TopicShard(list(each.predecessors), self.records[each.shard_id])
            for each in self.topic.shards
        }
        return check_group(self.history, topic)

    async def _calm(self) -> None:
        for name in list(self.held_back):
            self._release(name)
        await self.calls.drain()
        self.records.setdefault(0, [])
        finished = False
        while not finished:
            for member, task in self.members.values():
                if task.done():
                    task.result()
                await self._commit(member)
            info = await Groups(GroupCalls(self.calls), self.shards).describe(GROUP)
            known = {shard.shard_id: shard.offset or 0 for shard in info.shards}
            finished = known == {at: len(records) for at, records in self.records.items()}
            await asyncio.sleep(0.01)
        await self.look()
        for member, task in self.members.values():
            await member.close()
            await task


@pytest.mark.parametrize("seed", range(6))
async def test_walks(seed: int) -> None:
    """One reader per shard and generation, no stale commit, positions that only rise, everything read in the end."""
    walk = Walk(seed)
    wrong = await walk.run()
    assert not wrong, wrong
    assert walk.seen["joined"] > 1
