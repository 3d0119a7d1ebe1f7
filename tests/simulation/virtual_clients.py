"""The clients of a simulated cluster: their processes, the connections that the roles in one process share, their streams.

A role is one task: a writer, a reader, somebody who asks for ends. What each was told is kept as the history of a stream's
life, and checked at the end against one read of everything.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Coroutine
from typing import Any

import rangelog
from rangelog.errors import OffsetTrimmed
from tests.simulation.virtual_cluster import VirtualCluster
from tests.simulation.virtual_life import Life
from tests.simulation.virtual_time import Process, here
from tests.simulation.virtual_writing import write

STREAM = "s"


class Clients:
    """See the module."""

    def __init__(self, cluster: VirtualCluster) -> None:
        self.cluster = cluster
        self.loop = cluster.loop
        self.chance = cluster.chance
        self.processes: dict[str, Process] = {}
        self.stopping = False
        self.holders: dict[str, None] = {}
        """Processes whose writer has had the main stream."""
        self.value_bytes = self.chance.choice([100, 900, 4_000])
        self.followers: set[str] = set()
        """Roles that never end."""
        self._verified: set[tuple[int, int]] = set()
        self._tasks: dict[str, tuple[Process, asyncio.Task[Any]]] = {}
        self._connected: dict[Process, rangelog.Client] = {}
        self._roles: Counter[Process] = Counter()

    # ---- processes

    def start(self, name: str, work: Coroutine[Any, Any, None], on: str = "") -> asyncio.Task[Any] | None:
        """Run a role, in a process of its own or in one that is there; None if that is dead."""
        process = self.processes.get(on) if on else None
        if process is None:
            process = self.processes[on or name] = Process(on or name)
        if not process.alive:
            work.close()
            return None
        self._roles[process] += 1
        task = self.loop.spawn(process, self._role(process, work))
        self._tasks[name] = process, task
        return task

    async def _role(self, process: Process, work: Coroutine[Any, Any, None]) -> None:
        await work
        self._roles[process] -= 1
        if not self._roles[process] and process in self._connected:
            await self._connected.pop(process).close()

    async def client(self) -> rangelog.Client:
        """The one of this process, which all its roles share."""
        process = here()
        if process not in self._connected:
            self._connected[process] = await rangelog.connect(self.cluster.pd_addresses)
        return self._connected[process]

    def kill(self, name: str) -> None:
        """A process is gone in the middle of whatever it did."""
        process = self.processes[name]
        if process.alive:
            process.alive = False
            self.cluster.network.died(process, silently=self.chance.random() < 0.3)
            self.cluster.note("client killed")

    def dismiss(self, name: str) -> None:
        """A role is over."""
        self.followers.discard(name)
        self._tasks[name][1].cancel()

    def lives_on(self, name: str) -> bool:
        """Whether a role still has its process and has not ended."""
        process, task = self._tasks[name]
        return process.alive and not task.done()

    async def writers_end(self, timeout_s: float) -> None:
        """No writer opens a stream any more; those of the main stream that have it end by themselves, and soon."""
        self.stopping = True
        await self._end([name for name in self._tasks if name.startswith("w")], timeout_s)

    async def others_end(self, timeout_s: float) -> None:
        """All roles but those that follow for ever end by themselves, and soon."""
        await self._end([name for name in self._tasks if name not in self.followers], timeout_s)

    async def _end(self, names: list[str], timeout_s: float) -> None:
        deadline = self.loop.now + timeout_s
        for name in names:
            while self.lives_on(name):
                if self.loop.problems:
                    self.cluster.fail(self.loop.problems[0])
                if self.loop.now > deadline:
                    self.cluster.fail(f"{name} does not end within {timeout_s:g} s of calm")
                await asyncio.sleep(0.2)

    # ---- streams

    @property
    def main(self) -> Life:
        """The stream that all faults are about."""
        return self.cluster.lives[1]

    def write(self, name: str, count: int, pause_s: float) -> Coroutine[Any, Any, None]:
        """A writer of the main stream, which takes it from whoever has it."""
        return write(self, self.main, name, count, pause_s)

    def check_durable(self, life: Life, offset: int, what: str) -> None:
        """Once per offset; see VirtualCluster.check_durable."""
        key = (life.stream_id, offset)
        if key not in self._verified and not life.deleting:
            self._verified.add(key)
            self.cluster.check_durable(offset, what, life.stream_id)

    async def read_all(self, life: Life, preference: str = "hot_first") -> list[tuple[int, bytes]]:
        """One read of everything, at the end; anew where the last trim was late and overtook the reader."""
        client = await rangelog.connect(self.cluster.pd_addresses)
        while True:
            reader = client.reader(life.name, start="earliest", read_preference=preference, timeout_s=60.0)
            try:
                found = [(record.offset, record.value.partition(b"|")[0]) async for record in reader]
                break
            except OffsetTrimmed:
                self.cluster.note("a trim overtook the last reader")
        await client.close()
        return found
