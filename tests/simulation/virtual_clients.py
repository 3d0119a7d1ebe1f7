"""The load: writers that take the stream from each other, readers that follow its end, an admin that trims.

Every record's value begins with its identity (writer, number). What each client was told is kept as a history, and checked
at the end against one read of everything.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, field
from typing import Any, Literal

from virtual_cluster import VirtualCluster
from virtual_time import Process

import rangelog
from rangelog.errors import (
    AppendTimeout,
    Corruption,
    OffsetTrimmed,
    RangelogError,
    WriterClosed,
    WriterFenced,
)

STREAM = "s"


@dataclass
class Append:
    """One record, and what became of it."""

    identity: bytes
    writer: str
    sequence: int
    epoch: int
    invoked: float
    returned: float = 0.0
    offset: int = -1
    outcome: Literal["ok", "failed", "unknown"] = "unknown"


@dataclass
class Histories:
    """What clients were told."""

    appends: list[Append] = field(default_factory=list)
    reads: dict[str, list[tuple[int, bytes, float]]] = field(default_factory=dict)
    """One pass of a reader → offset, identity, when; behind a trim a new pass begins."""
    acked: dict[int, bytes] = field(default_factory=dict)
    trims: list[tuple[int, float]] = field(default_factory=list)

    @property
    def trimmed(self) -> int:
        """The highest offset that anybody asked to trim at."""
        return max((offset for offset, _ in self.trims), default=0)


class Clients:
    """See the module."""

    def __init__(self, cluster: VirtualCluster) -> None:
        self.cluster = cluster
        self.loop = cluster.loop
        self.chance = cluster.chance
        self.histories = Histories()
        self.processes: dict[str, Process] = {}
        self.stopping = False
        self.holders: dict[str, None] = {}
        """Writers that have had the stream."""
        self.value_bytes = self.chance.choice([100, 900, 4_000])
        self._verified: dict[int, None] = {}
        self._tasks: dict[str, asyncio.Task[Any]] = {}

    def start(self, name: str, work: Any) -> asyncio.Task[Any]:
        """Run a client in a process of its own."""
        process = self.processes[name] = Process(name)
        task = self._tasks[name] = self.loop.spawn(process, work)
        return task

    async def writers_end(self, timeout_s: float) -> None:
        """No writer opens the stream any more; those that have it end by themselves, and soon."""
        self.stopping = True
        deadline = self.loop.now + timeout_s
        for name, task in self._tasks.items():
            while name.startswith("w") and self.processes[name].alive and not task.done():
                if self.loop.now > deadline:
                    self.cluster.fail(f"writer {name} does not end within {timeout_s:g} s of calm")
                await asyncio.sleep(0.2)

    def kill(self, name: str) -> None:
        """It is gone in the middle of whatever it did."""
        process = self.processes[name]
        if process.alive:
            process.alive = False
            self.cluster.network.died(process, silently=self.chance.random() < 0.3)
            self.cluster.note("client killed")

    # ---- writers

    async def write(self, name: str, count: int, pause_s: float) -> None:
        """Open the stream (as long as it takes), append, until done or fenced."""
        client = await rangelog.connect(self.cluster.pd_addresses)
        sequence = 0
        while sequence < count and not (self.stopping and name != "last"):
            writer = client.writer(STREAM, open_timeout_s=8.0, append_timeout_s=8.0, inflight_bytes_max=32 * 1024)
            try:
                await writer.open()
            except RangelogError as error:
                self.cluster.note(f"open: {type(error).__name__}")
                if isinstance(error, WriterFenced) and name != "last":
                    break
                await asyncio.sleep(self.chance.uniform(0.1, 1.0))
                continue
            self.cluster.note("writer opened")
            self.holders[name] = None
            while sequence < count and not (self.stopping and name != "last"):
                try:
                    await writer.ready(timeout_s=60.0)
                    sequence += 1
                    self._append(writer, name, sequence)
                except WriterFenced:
                    self.cluster.note("writer fenced")
                    await writer.close(flush=False)
                    return
                except RangelogError as error:
                    self.cluster.note(f"append: {type(error).__name__}")
                    break
                if self.chance.random() < 0.3:
                    await asyncio.sleep(self.chance.expovariate(1 / pause_s))
            try:
                await writer.flush(timeout_s=60.0)
            except (WriterFenced, WriterClosed, AppendTimeout) as error:
                self.cluster.note(f"flush: {type(error).__name__}")
                if name == "last":
                    raise
                with contextlib.suppress(RangelogError):
                    await writer.close(flush=False)
                return
            await writer.close()
        await client.close()

    def _append(self, writer: Any, name: str, sequence: int) -> None:
        identity = f"{name}-{sequence}".encode()
        value = identity + b"|" + bytes(min(8_000, int(self.chance.expovariate(1 / self.value_bytes))))
        noted = Append(identity, name, sequence, writer.epoch, self.loop.now)
        try:
            future = writer.submit(value)
        except RangelogError:
            noted.outcome = "failed"
            raise
        finally:
            self.histories.appends.append(noted)
        future.add_done_callback(lambda done: self._acked(noted, done))

    def _acked(self, noted: Append, done: asyncio.Future[Any]) -> None:
        noted.returned = self.loop.now
        if done.cancelled() or done.exception() is not None:
            return
        noted.outcome, noted.offset = "ok", done.result().offset
        before = self.histories.acked.setdefault(noted.offset, noted.identity)
        if before != noted.identity:
            self.cluster.fail(f"offset {noted.offset} was acked for {before!r} and for {noted.identity!r}")
        self._check_durable(noted.offset, f"{noted.identity.decode()} was acked")

    def _check_durable(self, offset: int, what: str) -> None:
        if offset not in self._verified:
            self._verified[offset] = None
            self.cluster.check_durable(offset, what)

    # ---- readers

    async def read(self, name: str, preference: str) -> None:
        """Follow the stream for ever, going on where it was after every error."""
        client = await rangelog.connect(self.cluster.pd_addresses)
        seen = self.histories.reads.setdefault(f"{name}/0", [])
        passes = 0
        position: Any = "earliest"
        while True:
            reader = client.reader(STREAM, start=position, follow=True, read_preference=preference, timeout_s=5.0)
            try:
                async for chunk in reader.chunks():
                    for record in chunk:
                        seen.append((record.offset, record.value.partition(b"|")[0], self.loop.now))
                    self._check_durable(chunk[-1].offset, f"{name} was served")
                    position = chunk[-1].offset + 1
            except OffsetTrimmed as error:
                self.cluster.note("reader: trimmed")
                position = max(error.offset or 0, position if isinstance(position, int) else 0)
                self._check_trimmed(name, position)
                passes += 1
                seen = self.histories.reads[f"{name}/{passes}"] = []
            except Corruption:
                self.cluster.note("reader: corruption seen")
            except RangelogError as error:
                self.cluster.note(f"reader: {type(error).__name__}")
            await asyncio.sleep(self.chance.uniform(0.1, 0.5))

    def _check_trimmed(self, name: str, position: int) -> None:
        if position > self.histories.trimmed:
            self.cluster.fail(f"{name} was told that all below {position} was trimmed")

    async def trim(self) -> None:
        """Trim now and then, to somewhere that was acked."""
        client = await rangelog.connect(self.cluster.pd_addresses)
        while True:
            await asyncio.sleep(self.chance.uniform(1.0, 6.0))
            acked = max(self.histories.acked, default=0)
            target = self.chance.randrange(0, acked + 1)
            if target > self.histories.trimmed and self.chance.random() < 0.5:
                self.histories.trims.append((target, self.loop.now))
                with contextlib.suppress(RangelogError):  # it may be trimmed, or not
                    await client.trim_stream(STREAM, target)
                    self.cluster.note("stream trimmed")

    async def read_all(self, preference: str = "hot_first") -> list[tuple[int, bytes]]:
        """One read of everything, at the end."""
        client = await rangelog.connect(self.cluster.pd_addresses)
        found: list[tuple[int, bytes]] = []
        async for record in client.reader(STREAM, start="earliest", read_preference=preference, timeout_s=60.0):
            found.append((record.offset, record.value.partition(b"|")[0]))
        await client.close()
        return found
