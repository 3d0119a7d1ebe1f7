"""A group that does not retain, over a topic that is trimmed behind it (C8, C9).

What must hold: no record is left out without a word. A member goes on at the next record of a shard, or it gets OffsetTrimmed;
from then, and from a reset to "earliest", it begins at the first record that is left, and gets to the end.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rangelog.errors import OffsetTrimmed, RangelogError
from tests.simulation.virtual_versions import has_earlier_brokers

if TYPE_CHECKING:
    from rangelog import Client, GroupMember, ShardLag
    from rangelog_proto.v1 import topic_pb2
    from tests.simulation.virtual_clients import Clients

GROUP = "late"
MEMBERS = 2
SESSION_S = 1.5
ARRIVES_S = 120.0
TRIMMED = "a member of a group was told of trimmed records"
RESET = "a group went to the first records that were left"
CORNER_CASES = RARE = (TRIMMED, RESET)


@dataclass
class TrimmedGroup:
    """The group, and what its members were handed."""

    clients: Clients
    topic: str
    """"namespace/name"."""
    roles: list[str] = field(default_factory=list)
    _next: dict[int, int] = field(default_factory=dict)
    """By shard: the record behind the last one that any member was handed."""
    _told: set[int] = field(default_factory=set)
    """Shards of which a member was told that records are gone, or that were reset, since the last record."""
    _lives: int = 0

    async def supervise(self) -> None:
        """Keep members running, and kill some: the next ones begin where others have committed."""
        clients, chance = self.clients, self.clients.chance
        while not clients.stopping:
            self._start_missing()
            await asyncio.sleep(chance.uniform(0.5, 2.5))
            if chance.random() < 0.3:
                clients.kill(chance.choice(self.roles))

    def _start_missing(self) -> None:
        self.roles = [role for role in self.roles if self.clients.lives_on(role)]
        while len(self.roles) < MEMBERS:
            self._lives += 1
            role = f"a-{GROUP}-{self._lives}"
            self.roles.append(role)
            self.clients.start(role, self._consume())

    async def _consume(self) -> None:
        client = await self.clients.client()
        while True:
            try:
                async with client.group(GROUP, self.topic, session_s=SESSION_S, auto_commit_s=0.1) as member:
                    committing = asyncio.create_task(self._commit_in_the_calm(member))
                    try:
                        await self._read(member)
                    finally:
                        committing.cancel()
            except OffsetTrimmed as error:
                await self._go_on(client, error)
            except RangelogError as error:
                self.clients.cluster.note(f"member of {GROUP}: {type(error).__name__}")
                await asyncio.sleep(0.3)

    async def _read(self, member: GroupMember) -> None:
        chance = self.clients.chance
        async for record in member:
            self._handed(record.shard_id, record.offset)
            if chance.random() < 0.15 and not self.clients.stopping:
                await asyncio.sleep(chance.expovariate(1 / 0.5))  # the topic is trimmed meanwhile

    def _handed(self, shard_id: int, offset: int) -> None:
        known = self._next.get(shard_id)
        if known is not None and offset > known and shard_id not in self._told:
            self.clients.cluster.fail(
                f"group {GROUP}: records {known} to {offset - 1} of shard {shard_id} were left out without a word"
            )
        self._told.discard(shard_id)
        self._next[shard_id] = max(offset + 1, known or 0)

    async def _commit_in_the_calm(self, member: GroupMember) -> None:
        """When no more records come, none of them brings the last commit."""
        while True:
            await asyncio.sleep(0.5)
            with suppress(RangelogError):
                await member.commit()

    async def _go_on(self, client: Client, error: OffsetTrimmed) -> None:
        """Do what the error's row of docs/groups.md says."""
        self.clients.cluster.note(TRIMMED)
        found = re.search(r"shard (\d+)", error.message)
        if found is None:
            self.clients.cluster.fail(f"a member is not told of which shard records are gone: {error.message}")
        self._told.add(int(found[1]))
        await asyncio.sleep(self.clients.chance.expovariate(1 / 0.2))
        with suppress(RangelogError):
            self._told.update(self._next)  # a reset moves every shard
            await client.groups.reset(GROUP, "earliest")
            self.clients.cluster.note(RESET)

    async def judge(self, shards: Sequence[topic_pb2.Shard]) -> None:
        """Wait until all is committed, also where much is trimmed; what is missing of a shard that has ended was told."""
        clients = self.clients
        client = await clients.client()
        deadline = clients.loop.now + ARRIVES_S
        behind: list[ShardLag] | None = None
        while behind is None or behind:
            if clients.loop.now > deadline:
                clients.cluster.fail(f"the group {GROUP} does not come to the end: {behind}")
            self._start_missing()
            await asyncio.sleep(0.5)
            with suppress(RangelogError):
                behind = [each for each in await client.groups.lag(GROUP) if each.records]
        for role in self.roles:
            clients.dismiss(role)
        if has_earlier_brokers(clients.cluster.seed):
            return  # by the rules of before, what is trimmed of a shard that has ended counts as read
        for shard in shards:
            known = self._next.get(shard.shard_id)
            if (
                shard.ended_version
                and known is not None
                and known < shard.end_offset
                and shard.shard_id not in self._told
            ):
                clients.cluster.fail(
                    f"group {GROUP}: shard {shard.shard_id} has ended at {shard.end_offset}, "
                    f"and what is behind {known} was left out without a word"
                )
