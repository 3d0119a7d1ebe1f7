"""A group over a topic under faults: members that die, stand still, are cut off and leave, over the brokers' services (T6).

Members run the client's code in processes of their own. What they were handed, what they committed and what the group showed
of its positions is one history, which is judged at the end by a checker that knows nothing of how groups work.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rangelog._consume.group import GroupMember
from rangelog._consume.group_calls import GroupCalls
from rangelog.errors import MemberFenced, MemberNotFound, RangelogError, ShardLost
from rangelog_proto.v1 import group_pb2, topic_pb2
from rangelog_proto.v1 import group_service_pb2 as pb
from tests.simulation.virtual_time import Process
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

if TYPE_CHECKING:
    from tests.simulation.virtual_clients import Clients

MEMBERS = 3
SESSION_S = 1.5
GROUP = "consumers"
ARRIVES_S = 120.0
TROUBLES = ("kill", "kill", "pause", "pause", "cut", "leave", "twin", "nothing")


class NotedCalls:
    """The calls of one instance of a member; its commits are noted."""

    def __init__(self, inner: GroupCalls, group: VirtualGroup, instance: str) -> None:
        self._inner, self._group, self._instance = inner, group, instance

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def commit(self, name: str, commit: group_pb2.GroupCommit, timeout_s: float) -> pb.CommitPositionsResponse:
        """As GroupCalls."""
        numbers = self._group.note_sent(self._instance, commit)
        chance = self._group.clients.chance
        if chance.random() < 0.1:  # a later one, of another task of the member, overtakes it
            await asyncio.sleep(chance.expovariate(1 / 0.3))
        response = await self._inner.commit(name, commit, timeout_s)
        refused = {each.shard.shard_id for each in response.refused}
        for shard, number in numbers.items():
            self._group.history.append(CommitRefused(number) if shard in refused else CommitTaken(number))
        return response


@dataclass
class VirtualGroup:
    """One group of one topic."""

    clients: Clients
    topic: str
    """"namespace/name"."""
    history: list[Event] = field(default_factory=list)
    members: dict[str, str] = field(default_factory=dict)
    """Role → member id, of those that are to run."""
    _numbers: int = 0
    _is_over: bool = False

    # ---- members

    async def supervise(self) -> None:
        """Keep members running and disturb them, until the faults are over."""
        clients, chance = self.clients, self.clients.chance
        while not clients.stopping:
            self._start_missing()
            await asyncio.sleep(chance.uniform(0.1, 0.8))
            self._trouble()

    async def watch(self) -> None:
        """Look at the committed positions, all the while."""
        while not self.clients.stopping:
            await asyncio.sleep(self.clients.chance.uniform(0.1, 1.0))
            await self._look()

    def _start_missing(self) -> None:
        """Start members up to the number; one that died comes back under its id, or another one comes."""
        clients, chance = self.clients, self.clients.chance
        gone = [role for role in self.members if not clients.lives_on(role)]
        free = [self.members.pop(role) for role in gone]
        while len(self.members) < MEMBERS:
            self._start(free.pop() if free and chance.random() < 0.5 else "")

    def _start(self, member_id: str) -> None:
        """Start a member under an id; "": a new one."""
        self._numbers += 1
        role = f"g-{GROUP}-{self._numbers}"
        self.members[role] = member_id or f"m{self._numbers}"
        self.clients.start(role, self._consume(self.members[role]))

    def _trouble(self) -> None:
        """Something happens to a member."""
        clients, chance, loop = self.clients, self.clients.chance, self.clients.loop
        role = chance.choice(list(self.members))
        process = clients.processes[role]
        if not process.alive:
            return
        kind = chance.choice(TROUBLES)
        if kind == "kill":
            clients.kill(role)
            clients.cluster.note("a member of a group was killed")
        elif kind == "pause" and not process.paused:
            loop.pause(process)
            loop.call_later(chance.uniform(0.1, 3.0 * SESSION_S), self._resume, process)
            clients.cluster.note("a member of a group stood still")
        elif kind == "cut":
            others = [f"b{number}" for number in range(1, 4)] + list(clients.cluster.pds)
            pairs = [(role, chance.choice(others))] if chance.random() < 0.5 else [(role, each) for each in others]
            clients.cluster.network.cuts.update(dict.fromkeys(pairs))
            loop.call_later(chance.uniform(0.1, 2.0 * SESSION_S), self._heal, pairs)
            clients.cluster.note("a member of a group was cut off")
        elif kind == "leave":
            clients.dismiss(role)
        elif kind == "twin" and clients.cluster.follows_level(GROUP):  # before, both of them are the member
            self._start(self.members[role])  # by a supervisor that takes it for dead

    def _resume(self, process: Process) -> None:
        if process.paused:
            self.clients.loop.resume(process)

    def _heal(self, pairs: list[tuple[str, str]]) -> None:
        for pair in pairs:
            self.clients.cluster.network.cuts.pop(pair, None)
        for link in list(self.clients.cluster.network.links):
            link.pump()

    async def _consume(self, member_id: str) -> None:
        """The life of a member's process."""
        client, chance = await self.clients.client(), self.clients.chance
        auto_commit_s = chance.choice([None, 0.05, 0.3])
        while not self._is_over:
            member = client.group(
                GROUP, self.topic, member_id=member_id, session_s=SESSION_S, auto_commit_s=auto_commit_s
            )
            instance = self._note_member(member)
            try:
                async with member:
                    committing = asyncio.create_task(self._commit_in_the_calm(member))
                    try:
                        await self._read(member, instance)
                    finally:
                        committing.cancel()
            except MemberFenced:
                self.clients.cluster.note("an earlier instance of a member was taken out")
                return
            except RangelogError as error:
                self.clients.cluster.note(f"member: {type(error).__name__}")
                await asyncio.sleep(0.3)

    def _note_member(self, member: GroupMember) -> str:
        """Have what a member gets and commits noted; return the name of this instance."""
        core: Any = member._core
        viewed = core.viewed
        self._numbers += 1
        instance = f"{member.member_id}#{self._numbers}"
        member._calls = NotedCalls(member._calls, self, instance)  # type: ignore[assignment]

        def noted(view: group_pb2.GroupView) -> None:
            for each in view.assigned:
                shard = each.shard.shard_id
                if not core.holds((each.shard.topic_id, shard), each.since):
                    self.history.append(Given(instance, shard, each.since, each.offset))
            viewed(view)

        core.viewed = noted
        return instance

    async def _read(self, member: GroupMember, instance: str) -> None:
        """Process records, slower than they come at times; commit now and then."""
        core: Any = member._core
        chance, pause_s = self.clients.chance, self.clients.chance.choice([0.0, 0.0, 0.02])
        async for record in member:
            since = next(held.since for shard, held in core._held.items() if shard.shard_id == record.shard_id)
            self.history.append(Handed(instance, record.shard_id, since, record.offset))
            draw = chance.random()
            if draw < 0.02:
                await asyncio.sleep(chance.expovariate(1 / 0.1))
            elif pause_s and draw < 0.2:
                await asyncio.sleep(pause_s)
            if draw > 0.97:
                with suppress(MemberFenced, MemberNotFound, ShardLost):
                    await member.commit()

    async def _commit_in_the_calm(self, member: GroupMember) -> None:
        """When no more records come, none of them brings the last commit."""
        while True:
            await asyncio.sleep(0.5)
            if self.clients.stopping:
                with suppress(RangelogError):
                    await member.commit()

    # ---- what is noted

    def note_sent(self, instance: str, commit: group_pb2.GroupCommit) -> dict[int, int]:
        """Note what a commit of an instance names; return the numbers by shard."""
        found = {}
        for each in commit.positions:
            self._numbers += 1
            shard = each.shard.shard_id
            found[shard] = self._numbers
            self.history.append(CommitSent(self._numbers, instance, shard, each.since, each.offset))
        return found

    async def _look(self) -> dict[int, int]:
        """Read the committed positions; nothing where the group does not answer."""
        client = await self.clients.client()
        self._numbers += 1
        number = self._numbers
        self.history.append(Looking(number))
        with suppress(RangelogError):
            found = {each.shard_id: each.offset or 0 for each in (await client.groups.describe(GROUP)).shards}
            self.history += [Seen(number, shard, offset) for shard, offset in found.items()]
            return found
        return {}

    # ---- the end

    async def judge(self, shards: list[topic_pb2.Shard], found: dict[int, list[tuple[int, bytes]]]) -> None:
        """Wait until all is committed, and check the history."""
        clients = self.clients
        ends = {shard_id: len(records) for shard_id, records in found.items()}
        deadline = clients.loop.now + ARRIVES_S
        while (known := await self._look()) != ends:
            if clients.loop.now > deadline:
                clients.cluster.fail(f"the group does not come to the end {ends}: it is at {known}")
            self._start_missing()
            await asyncio.sleep(0.5)
        self._is_over = True
        for role in self.members:
            clients.dismiss(role)
        topic = {
            shard.shard_id: TopicShard(
                list(shard.predecessors), [_key_and_number(value) for _, value in found[shard.shard_id]]
            )
            for shard in shards
        }
        wrong = check_group(self.history, topic)
        if wrong:
            clients.cluster.fail(f"a group: {wrong[0]} ({len(wrong)} in all)")
        clients.cluster.trace(f"group {self.topic} {len(self.history)}")


def _key_and_number(value: bytes) -> tuple[str, int]:
    """Of a producer's record: its producer with its key, and its number among these."""
    producer, key, number = value.decode().split()
    return f"{producer} {key}", int(number)
