"""A group over a topic whose operator takes checkpoints and moves all positions back, while members die and go on (T6).

What must hold: a checkpoint has no position beyond what members were handed; after a reset, everything behind the position
that it names is handed out again, whatever the members had and commit late.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rangelog.errors import PreconditionFailed, RangelogError

if TYPE_CHECKING:
    from rangelog import Client, GroupMember
    from tests.simulation.virtual_clients import Clients

GROUP = "rewinders"
MEMBERS = 2
SESSION_S = 1.5
CHECKPOINT_S = 4.0
ARRIVES_S = 120.0
EVERY, OF = 0, 4
"""Which topics that keep everything have this group."""


@dataclass
class Reset:
    """One that was asked for: when, to what positions (shards that are not named: 0), and whether it was carried out."""

    asked_s: float
    positions: Mapping[int, int]
    is_done: bool = False


@dataclass
class VirtualResets:
    """The group, and what its members and its operator saw."""

    clients: Clients
    topic: str
    """"namespace/name"."""
    resets: list[Reset] = field(default_factory=list)
    handed_s: dict[int, dict[int, float]] = field(default_factory=lambda: defaultdict(dict))
    """By shard and offset: when the record was handed out last."""
    roles: list[str] = field(default_factory=list)
    _checkpoints: dict[str, Mapping[int, int]] = field(default_factory=dict)
    _lives: int = 0

    async def supervise(self) -> None:
        """Keep members running, and kill some."""
        clients, chance = self.clients, self.clients.chance
        while not clients.stopping:
            self._start_missing()
            await asyncio.sleep(chance.uniform(0.3, 2.0))
            if chance.random() < 0.3:
                clients.kill(chance.choice(self.roles))

    def _start_missing(self) -> None:
        self.roles = [role for role in self.roles if self.clients.lives_on(role)]
        while len(self.roles) < MEMBERS:
            self._lives += 1
            role = f"u-{GROUP}-{self._lives}"
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
            except RangelogError as error:
                self.clients.cluster.note(f"member of {GROUP}: {type(error).__name__}")
                await asyncio.sleep(0.3)

    async def _read(self, member: GroupMember) -> None:
        chance = self.clients.chance
        async for record in member:
            self.handed_s[record.shard_id][record.offset] = self.clients.loop.now
            if chance.random() < 0.02:
                await asyncio.sleep(chance.expovariate(1 / 0.1))

    async def _commit_in_the_calm(self, member: GroupMember) -> None:
        """When no more records come, none of them brings the last commit."""
        while True:
            await asyncio.sleep(0.5)
            with suppress(RangelogError):
                await member.commit()

    # ---- the operator

    async def operate(self) -> None:
        """Take checkpoints, and move the group back to one or to the beginning."""
        clients, chance = self.clients, self.clients.chance
        client = await clients.client()
        while not clients.stopping:
            await asyncio.sleep(chance.expovariate(1 / 0.4))
            with suppress(RangelogError):
                if chance.random() < 0.3:
                    await self._take_checkpoint(client)
                else:
                    await self._move_back(client)

    async def _take_checkpoint(self, client: Client) -> None:
        name = f"c{len(self._checkpoints)}-{self.clients.loop.now:.6f}"
        try:
            found = await client.groups.checkpoint(GROUP, name, timeout_s=CHECKPOINT_S)
        except PreconditionFailed:
            raise  # an earlier one is pending
        except RangelogError:
            await client.groups.delete_checkpoint(GROUP, name)
            raise
        self.clients.cluster.note("a checkpoint of a group was complete")
        positions = {shard.shard_id: offset for shard, offset in found.items()}
        for shard_id, offset in positions.items():
            reached = max(self.handed_s[shard_id], default=-1) + 1
            if offset > reached:
                self.clients.cluster.fail(
                    f"checkpoint {name} has shard {shard_id} at {offset}, and {reached} were handed out"
                )
        self._checkpoints[name] = positions

    async def _move_back(self, client: Client) -> None:
        name = self.clients.chance.choice(["", *self._checkpoints])
        reset = Reset(self.clients.loop.now, self._checkpoints.get(name, {}))
        self.resets.append(reset)
        await client.groups.reset(GROUP, f"checkpoint:{name}" if name else "earliest")
        reset.is_done = True
        self.clients.cluster.note("a group was moved back")

    # ---- the end

    async def judge(self, found: Mapping[int, list[tuple[int, bytes]]]) -> None:
        """Wait until all is committed, and see that everything behind each reset was handed out after it."""
        clients = self.clients
        client, fail = await clients.client(), clients.cluster.fail
        ends = {shard_id: len(records) for shard_id, records in found.items() if records}
        deadline = clients.loop.now + ARRIVES_S
        known: dict[int, int] = {}
        while known != ends:
            if clients.loop.now > deadline:
                fail(f"the group {GROUP} does not come to the end {ends}: it is at {known}")
            self._start_missing()
            await asyncio.sleep(0.5)
            with suppress(RangelogError):
                shards = (await client.groups.describe(GROUP)).shards
                known = {each.shard_id: each.offset for each in shards if each.offset}
        for role in self.roles:
            clients.dismiss(role)
        for place, reset in enumerate(self.resets):
            if not reset.is_done:
                continue
            for shard_id, end in ends.items():
                start = max(each.positions.get(shard_id, 0) for each in self.resets[place:])
                for offset in range(start, end):
                    if self.handed_s[shard_id].get(offset, 0.0) < reset.asked_s:
                        fail(f"record {offset} of shard {shard_id} was not handed out again after a reset to {start}")


def has_resets(seed: int, kind_every: int) -> bool:
    """Whether the topic of a seed has this group: it costs time, so not each has."""
    return seed // kind_every % OF == EVERY
