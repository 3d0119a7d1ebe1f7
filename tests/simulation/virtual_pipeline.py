"""Programs that consume a topic and produce another one in transactions with their positions: each record once (T5, T6).

A program is a member of a group; what it read and what it sent are one transaction. Programs die, stand still and come back
under the same transactional id. In the end the second topic has each record of the first one once, in the order of its key.
"""

from __future__ import annotations

import asyncio
import uuid
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rangelog.errors import RangelogError, TopicExists
from rangelog_core.net.pd_client import PdClient
from rangelog_proto.v1 import topic_pb2
from tests.simulation.virtual_time import here
from tests.simulation.virtual_transactions import until_merged

if TYPE_CHECKING:
    from rangelog import GroupChunk, GroupMember, Transactional
    from tests.simulation.virtual_clients import Clients

PROGRAMS = 2
GROUP = "pipeline"
SESSION_S = 1.5
TIMEOUT_S = 4.0
ARRIVES_S = 180.0
EVERY, OF = 2, 4
"""Which topics that keep everything have a pipeline."""


@dataclass
class VirtualPipeline:
    """The programs between one topic and another."""

    clients: Clients
    source: str
    """"namespace/name"."""
    roles: dict[int, str] = field(default_factory=dict)
    _lives: int = 0

    @property
    def target(self) -> str:
        """The topic that is produced."""
        return f"{self.source}-out"

    # ---- programs

    async def supervise(self) -> None:
        """Make the second topic; keep programs running and kill them, until the faults are over."""
        clients, chance = self.clients, self.clients.chance
        calls = (await clients.client()).metadata.pd
        while not await self._create(calls):
            await asyncio.sleep(0.3)
        while not clients.stopping:
            self._start_missing()
            await asyncio.sleep(chance.uniform(0.2, 2.0))
            if chance.random() < 0.4:
                clients.kill(self.roles[chance.randrange(PROGRAMS)])
                clients.cluster.note("a program of a pipeline was killed")

    async def _create(self, calls: PdClient) -> bool:
        namespace, name = self.target.split("/")
        request = topic_pb2.CreateTopicRequest(
            request_id=uuid.uuid4().hex, namespace=namespace, name=name, shard_count=2
        )
        try:
            await calls.call(request, topic_pb2.CreateTopicResponse, timeout_s=5.0)
        except TopicExists:
            return True
        except RangelogError:
            return False
        return True

    def _start_missing(self) -> None:
        for number in range(PROGRAMS):
            if number not in self.roles or not self.clients.lives_on(self.roles[number]):
                self._lives += 1
                self.roles[number] = f"l-{self.source}-{self._lives}"
                self.clients.start(self.roles[number], self._run(number))

    async def _run(self, number: int) -> None:
        """The life of a program."""
        client = await self.clients.client()
        while True:
            try:
                async with (
                    client.transactional(f"pipeline-{number}", timeout_s=TIMEOUT_S) as program,
                    client.group(GROUP, self.source, auto_commit_s=None, session_s=SESSION_S) as member,
                ):
                    async for chunk in member.chunks():
                        await self._pass_on(program, member, chunk)
            except RangelogError as error:
                self.clients.cluster.note(f"pipeline: {type(error).__name__}")
                await asyncio.sleep(0.2)

    async def _pass_on(self, program: Transactional, member: GroupMember, chunk: GroupChunk) -> None:
        """One transaction. Raises what leaves it in doubt: the next instance of the program finds out."""
        note = self.clients.cluster.note
        transaction = program.transaction()
        try:
            async with transaction:
                for record in chunk.records:
                    await transaction.submit(self.target, record.value, key=record.key)
                if self.clients.chance.random() < 0.1:
                    await asyncio.sleep(self.clients.chance.choice([0.05, 1.0, 2 * SESSION_S]))
                await transaction.commit_positions(member)
                ambushes = self.clients.cluster.topic_ambushes
                if ambushes is not None and ambushes.positions_staged(here()):
                    await asyncio.sleep(0)  # goes on when it does not stand still any more
            note("a step of a pipeline was committed")
        except RangelogError:
            if transaction.number and await transaction.outcome() is False:
                note("a step of a pipeline was aborted, and made again")
                if program.closed:
                    await program.open()
                member.rewind()
                return
            raise

    # ---- the end

    async def judge(self, found: dict[int, list[tuple[int, bytes]]]) -> None:
        """Wait until all is passed on; compare."""
        clients = self.clients
        client, fail = await clients.client(), clients.cluster.fail
        ends = {shard_id: len(records) for shard_id, records in found.items() if records}
        deadline = clients.loop.now + ARRIVES_S
        known: dict[int, int] = {}
        while known != ends:
            if clients.loop.now > deadline:
                fail(f"the pipeline does not come to the end {ends}: it is at {known}")
            self._start_missing()
            await asyncio.sleep(0.5)
            with suppress(RangelogError):
                shards = (await client.groups.describe(GROUP)).shards
                known = {each.shard_id: each.offset for each in shards if each.offset}
        for role in self.roles.values():
            clients.dismiss(role)
        for number in range(PROGRAMS):
            await until_merged(client, f"pipeline-{number}", lambda: clients.loop.now > deadline)
        passed_on = [record.value async for record in client.topic_reader(self.target)]
        wanted = {value for records in found.values() for _, value in records}
        if len(passed_on) != len(set(passed_on)):
            twice = next(value for value in passed_on if passed_on.count(value) > 1)
            fail(f"{twice!r} was passed on twice")
        if set(passed_on) != wanted:
            missing, strange = sorted(wanted - set(passed_on))[:3], sorted(set(passed_on) - wanted)[:3]
            fail(f"{missing} were not passed on; {strange} were never sent")
        last: dict[bytes, int] = {}
        for value in passed_on:
            who, number = value.rsplit(b" ", 1)
            if int(number) <= last.get(who, -1):
                fail(f"{value!r} was passed on after number {last[who]} of its key")
            last[who] = int(number)
        clients.cluster.trace(f"pipeline {self.source} {len(passed_on)}")


def has_pipeline(seed: int, kind_every: int) -> bool:
    """Whether the topic of a seed has a pipeline: it costs time, so not each has."""
    return seed // kind_every % OF == EVERY
