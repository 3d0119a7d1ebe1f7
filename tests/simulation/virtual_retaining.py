"""A real group that retains, over a topic that is trimmed by consumption: what it has not processed is never trimmed.

A member counts a record as processed before it sends the commit that covers it. At the end each acked record before the group's
committed positions must have been processed; what was trimmed lies before them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING

from rangelog.errors import GroupNotFound, RangelogError

if TYPE_CHECKING:
    from tests.simulation.virtual_clients import Clients

GROUP = "retainers"
MEMBERS = 2
SESSION_S = 1.5
COMMIT_EVERY = 3
POSITIONS_S = 60.0
CORNER_CASES = ("a topic kept what a group had not consumed", "a member of a group that retains was killed")


class Retaining:
    """The group of one topic."""

    def __init__(self, clients: Clients, topic: str) -> None:
        """`topic`: "namespace/name"."""
        self.clients = clients
        self.topic = topic
        self.processed: dict[tuple[int, int], None] = {}
        self.committed: dict[int, int] = {}
        """At the end, by shard."""
        self.may_begin = False
        self.heard_s: float | None = None
        """When the group heard that it retains."""
        self._roles: list[str] = []
        self._has_joined = False
        """A member was told that its positions are committed."""

    async def supervise(self) -> None:
        """Keep members running and kill some, until the faults are over."""
        clients, chance = self.clients, self.clients.chance
        clients.start(f"g-{GROUP}-retain", self._retain())
        while not clients.stopping:
            living = [role for role in self._roles if clients.lives_on(role)]
            while len(living) < MEMBERS:
                living.append(f"g-{GROUP}-{len(self._roles)}")
                self._roles.append(living[-1])
                clients.start(living[-1], self._consume(living[-1]))
            await asyncio.sleep(chance.uniform(0.3, 1.5))
            if chance.random() < 0.15:
                clients.kill(chance.choice(living))
                clients.cluster.note("a member of a group that retains was killed")

    async def _retain(self) -> None:
        client = await self.clients.client()
        while True:
            if self.may_begin:
                with suppress(RangelogError):
                    await client.groups.retain(GROUP, timeout_s=10.0)
                    self.heard_s = self.clients.loop.now
                    return
            await asyncio.sleep(0.1)

    async def _consume(self, member_id: str) -> None:
        client, chance = await self.clients.client(), self.clients.chance
        while not self.clients.stopping:
            member = client.group(GROUP, self.topic, member_id=member_id, session_s=SESSION_S, auto_commit_s=None)
            with suppress(RangelogError):
                async with member:
                    mine: list[tuple[int, int]] = []
                    async for record in member:
                        mine.append((record.shard_id, record.offset))
                        if len(mine) >= COMMIT_EVERY:
                            await asyncio.sleep(chance.expovariate(1 / 0.02))
                            self.processed.update(dict.fromkeys(mine))
                            mine = []
                            await member.commit()
                            self._has_joined = True
            await asyncio.sleep(0.1)

    # ---- the end

    async def settle(self) -> None:
        """Dismiss the members, and read the positions."""
        for role in (*self._roles, f"g-{GROUP}-retain"):
            if self.clients.lives_on(role):
                self.clients.kill(role)
        client = await self.clients.client()
        deadline = self.clients.loop.now + POSITIONS_S
        while self.clients.loop.now < deadline:
            try:
                found = await client.groups.describe(GROUP)
                self.committed = {each.shard_id: each.offset or 0 for each in found.shards}
                if found.retains:
                    self.clients.cluster.note("a topic kept what a group had not consumed")
                return
            except GroupNotFound:
                if not self._has_joined:
                    return  # the faults left no member the time
            except RangelogError:
                pass
            await asyncio.sleep(0.5)
        self.clients.cluster.fail("nobody says what a group has consumed")

    def allows(self, shard_id: int, offset: int, gone_s: float) -> bool:
        """Whether a record may have been trimmed at a time."""
        return self.heard_s is None or gone_s <= self.heard_s or offset < self.committed.get(shard_id, 0)

    def judge(self, acked: Iterable[tuple[int, int]], gone_s: Callable[[int, int], float | None]) -> None:
        """Nothing that was acked was passed over, but for what was trimmed before the group heard that it retains.

        `gone_s`: returns when a record was trimmed; None: it is there.
        """
        for shard_id, offset in acked:
            gone = gone_s(shard_id, offset)
            if gone is not None and (self.heard_s is None or gone <= self.heard_s):
                continue
            if offset < self.committed.get(shard_id, 0) and (shard_id, offset) not in self.processed:
                at = self.committed[shard_id]
                self.clients.cluster.fail(f"the group has committed {at} of shard {shard_id}, and never saw {offset}")
