"""Producing all flights while the topic is scaled, its brokers are killed, and members of the group are killed and replaced."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rangelog_cli.local.processes import Cluster
from rangelog_core.errors import RequestTimeout, Unavailable
from rangelog_demo.ack_log import count_acks
from rangelog_demo.faults import DOWN_S
from rangelog_demo.metadata import wait_for
from rangelog_demo.progress import Bar
from rangelog_demo.timeline import Kill
from rangelog_demo.topic.member import MemberProcess
from rangelog_demo.topic.outcome import ScaleMark
from rangelog_demo.topic.placement import BrokerPlacement
from rangelog_demo.topic.producer import ProducerProcess
from rangelog_demo.topic.scaling import watch_scales

if TYPE_CHECKING:
    from rangelog import Client

BROKERS_AT = (0.40, 0.70)
MEMBERS_AT = (0.20, 0.50, 0.85)
"""Shares of the flights that are acked when each kill happens."""
_POLL_S = 0.01
_PRODUCE_TIMEOUT_S = 600.0
_BROKER_TIMEOUT_S = 30.0

Step = tuple[float, Callable[[], Awaitable[None]]]


@dataclass
class Producing:
    """The appends of the second scene. After `run`: what was killed and scaled, and when."""

    cluster: Cluster
    client: Client
    placement: BrokerPlacement
    topic: str
    group: str
    producers: Sequence[ProducerProcess]
    members: list[MemberProcess]
    make_member: Callable[[], MemberProcess]
    total: int
    bar: Bar
    broker_kills: list[Kill] = field(default_factory=list)
    member_kills: list[Kill] = field(default_factory=list)
    scale_marks: list[ScaleMark] = field(default_factory=list)
    _restarts: list[asyncio.Task[None]] = field(default_factory=list)
    _replacements: list[MemberProcess] = field(default_factory=list)

    async def run(self) -> None:
        """Send all flights. Raises Unavailable when a process fails, RequestTimeout when it does not end in time."""
        steps = self._steps()
        for producer in self.producers:
            producer.go()
        deadline = time.monotonic() + _PRODUCE_TIMEOUT_S
        watching = asyncio.create_task(watch_scales(self.client, self.topic, self.scale_marks))
        scales = 0
        try:
            while not self._finished():
                done = sum(count_acks(producer.acks) for producer in self.producers)
                self.bar.update(done)
                for mark in self.scale_marks[scales:]:
                    self.bar.say(f"the load makes it {mark.shards} shards")
                scales = len(self.scale_marks)
                if steps and done >= steps[0][0] * self.total:
                    await steps.pop(0)[1]()
                if time.monotonic() > deadline:
                    raise RequestTimeout(f"only {done} of {self.total} flights were acked in {_PRODUCE_TIMEOUT_S:g} s")
                await asyncio.sleep(_POLL_S)
            for (
                _,
                step,
            ) in steps:  # the flights were faster than the brokers' restarts: the group still has to read them
                await step()
            await asyncio.gather(*self._restarts)
        finally:
            for task in (watching, *self._restarts):
                task.cancel()

    def _steps(self) -> list[Step]:
        steps: list[Step] = [(share, self._kill_broker) for share in BROKERS_AT]
        steps += [(share, self._kill_member) for share in MEMBERS_AT]
        return sorted(steps, key=lambda step: step[0])

    def _finished(self) -> bool:
        running = False
        for child in (*self.producers, *self.members):
            if child.process.running:
                running = running or child in self.producers
            elif child in self.members or child.process.returncode != 0:
                last_words = child.process.last_words()
                raise Unavailable(f"{child.name} ended with exit code {child.process.returncode}: {last_words}")
        return not running

    async def _kill_broker(self) -> None:
        await asyncio.gather(*self._restarts)
        await wait_for(self._all_brokers_alive, _BROKER_TIMEOUT_S, "brokers have not registered")
        topic = await self.client.topics.describe(self.topic)
        shards = [shard.shard_id for shard in await self.client.topics.shards(self.topic)]
        name = await self.placement.owner_of_most(topic.topic_id, shards)
        self.bar.say(f"kill -9 {name}, the broker that owns most shards")
        kill = Kill("a broker", name, time.monotonic_ns())
        self.cluster.kill(name)
        self.broker_kills.append(kill)
        self._restarts.append(asyncio.create_task(self._bring_back(kill)))

    async def _bring_back(self, kill: Kill) -> None:
        await asyncio.sleep(DOWN_S)
        await asyncio.to_thread(self.cluster.start_member, kill.process)
        kill.restarted_ns = time.monotonic_ns()

    async def _all_brokers_alive(self) -> bool:
        return await self.placement.alive() >= set(self.cluster.brokers)

    async def _kill_member(self) -> None:
        shards = {each.member_id: len(each.shards) for each in (await self.client.groups.describe(self.group)).members}
        first = [member for member in self.members if member not in self._replacements]
        member = max(first, key=lambda each: shards.get(each.name, 0))
        replacement = self.make_member()
        self.bar.say(
            f"kill -9 {member.name}, a member with {shards.get(member.name, 0)} shards; {replacement.name} takes its place"
        )
        kill = Kill("a member of the group", member.name, time.monotonic_ns(), replaced_by=replacement.name)
        member.process.kill()
        replacement.start()
        self.members.remove(member)
        self.members.append(replacement)
        self._replacements.append(replacement)
        self.member_kills.append(kill)
