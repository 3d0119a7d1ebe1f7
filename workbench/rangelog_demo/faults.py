"""Appending all flights while a range server, the leading placement driver and the writer itself are killed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

from rangelog_cli.local.processes import Cluster
from rangelog_core.errors import RequestTimeout, Unavailable
from rangelog_demo.ack_log import count_acks
from rangelog_demo.children import DemoChild
from rangelog_demo.metadata import StreamMetadata, wait_for
from rangelog_demo.progress import Bar
from rangelog_demo.timeline import Kill

RANGE_SERVER_AT, PD_LEADER_AT, WRITER_AT = 0.25, 0.50, 0.75
"""Shares of the flights that are acked when each kill happens."""
DOWN_S = 1.5
"""How long a killed server stays away."""
_POLL_S = 0.01
_APPEND_TIMEOUT_S = 600.0
_TAKEOVER_TIMEOUT_S = 60.0


class WriterProcess(DemoChild):
    """One writer process of the demo, and its files."""

    def __init__(self, name: str, directory: Path, pds: str, stream: str, spool: Path) -> None:
        self.acks = directory / f"{name}.acks"
        arguments = ["--pds", pds, "--stream", stream, "--spool", str(spool), "--acks", str(self.acks)]
        super().__init__(name, directory, "rangelog_demo.appender", arguments)


@dataclass
class Appending:
    """The appends of the demo. After `run`: what was killed, and when."""

    cluster: Cluster
    metadata: StreamMetadata
    writers: list[WriterProcess]
    total: int
    bar: Bar
    kills: list[Kill] = field(default_factory=list)
    _restarts: list[asyncio.Task[None]] = field(default_factory=list)

    async def run(self) -> None:
        """Append all flights. Raises Unavailable when a writer fails, RequestTimeout when the appends do not end in time."""
        steps: list[tuple[float, Callable[[], Awaitable[None]]]] = [
            (RANGE_SERVER_AT, self._kill_range_server),
            (PD_LEADER_AT, self._kill_pd_leader),
            (WRITER_AT, self._kill_writer),
        ]
        for writer in self.writers:
            await asyncio.to_thread(writer.prepare)
        self.writers[0].go()
        deadline = time.monotonic() + _APPEND_TIMEOUT_S
        try:
            while not self._finished():
                done = sum(count_acks(writer.acks) for writer in self.writers)
                self.bar.update(done)
                if steps and done >= steps[0][0] * self.total:
                    await steps.pop(0)[1]()
                if time.monotonic() > deadline:
                    raise RequestTimeout(f"only {done} of {self.total} flights were acked in {_APPEND_TIMEOUT_S:g} s")
                await asyncio.sleep(_POLL_S)
            await asyncio.gather(*self._restarts)
        finally:
            for task in self._restarts:
                task.cancel()

    def _finished(self) -> bool:
        current = self._current().process
        if current.running:
            return False
        if current.returncode != 0:
            raise Unavailable(f"{current.name} ended with exit code {current.returncode}: {current.last_words()}")
        return True

    def _current(self) -> WriterProcess:
        return self.writers[1 if any(kill.what == "the writer" for kill in self.kills) else 0]

    async def _kill_range_server(self) -> None:
        open_range = await self.metadata.open_range()
        name = open_range.replicas[0].server
        self.bar.say(f"kill -9 {name}, a range server of the open range {open_range.index}")
        self._kill_member("a range server", name)

    async def _kill_pd_leader(self) -> None:
        name = await self.metadata.leader()
        self.bar.say(f"kill -9 {name}, the placement driver that leads")
        self._kill_member("the PD leader", name)

    def _kill_member(self, what: str, name: str) -> None:
        kill = Kill(what, name, time.monotonic_ns())
        self.cluster.kill(name)
        self.kills.append(kill)
        self._restarts.append(asyncio.create_task(self._bring_back(kill)))

    async def _bring_back(self, kill: Kill) -> None:
        await asyncio.sleep(DOWN_S)
        await asyncio.to_thread(self.cluster.start_member, kill.process)
        kill.restarted_ns = time.monotonic_ns()

    async def _kill_writer(self) -> None:
        first, second = self.writers
        self.bar.say(f"kill -9 {first.process.name}, the writer; {second.process.name} takes over")
        kill = Kill("the writer", first.process.name, time.monotonic_ns())
        first.process.kill()
        second.go()
        self.kills.append(kill)
        self._restarts.append(asyncio.create_task(self._note_takeover(kill, second)))

    async def _note_takeover(self, kill: Kill, second: WriterProcess) -> None:

        async def opened() -> bool:
            return "start" in second.status() or not second.process.running

        await wait_for(opened, _TAKEOVER_TIMEOUT_S, f"{second.process.name} did not take over")
        kill.replaced_by = f"{second.process.name} goes on at flight {second.status().get('start', 0):,}"
