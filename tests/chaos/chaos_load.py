"""The load: per stream a writer process, a tail reader and a reader of random stretches, each on a host of its own.

One more process begins readers of all of them, again and again. A light load has no readers but those at the tails.
Faults may add clients of their own (`side_writer`, `side_reader`), which end when the fault does; what they noted is
judged with the rest.

A second writer takes a stream over when a fault says so; which one is current is known here and nowhere else.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import rangelog
from rangelog_cli.local.processes import Process, stop_all
from tests.chaos import chaos_history
from tests.chaos.chaos_network import Network
from tests.support.history import Event
from tests.support.waiting import eventually

READY_TIMEOUT_S = 60.0
READER_HOST = "reader"
STARTS_PAUSE_S = 0.8
"""Between two starts on one stream: some per fault and stream, at a small part of a core."""
HERE = Path(__file__).parent


@dataclass(frozen=True)
class StreamPlan:
    """A stream of the run. Records per second, bytes, seconds."""

    name: str
    rate: int
    record_bytes: int
    range_bytes: int
    hot_retention_s: float
    steady: bool = True
    """Whether it is written to all the time, or only in bursts."""
    retention_s: float = 0.0
    """0: it is kept for ever."""


@dataclass
class Client:
    """A client process and the files it writes."""

    name: str
    stream: str
    host: str
    process: Process
    history: Path
    pulse_file: Path
    paused: bool = False

    @property
    def pulse(self) -> chaos_history.Pulse:
        """What it said last."""
        return chaos_history.read_pulse(self.pulse_file)


@dataclass
class Load:
    """All client processes of a run."""

    directory: Path
    network: Network
    connect_string: str
    streams: tuple[StreamPlan, ...]
    writers: list[Client] = field(default_factory=list)
    readers: list[Client] = field(default_factory=list)
    side_writers: list[Client] = field(default_factory=list)
    side_readers: list[Client] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    """What faults did to streams, for the checker."""
    current: dict[str, Client] = field(default_factory=dict)
    takeovers: int = 0
    light: bool = False
    """Whether there are tail readers only."""
    _numbers: itertools.count[int] = field(default_factory=lambda: itertools.count(1))
    _free_hosts: dict[str, list[str]] = field(default_factory=dict)

    def start(self) -> None:
        """Start one writer and two readers for every stream."""
        self.directory.mkdir(parents=True, exist_ok=True)
        for number, plan in enumerate(self.streams):
            self._free_hosts[plan.name] = [f"w{number}{side}" for side in "abc"]
            if not plan.steady:
                continue
            self.begin(plan.name)
            for mode in ("tail",) if self.light else ("tail", "windows"):
                reader = self._client(
                    f"{plan.name}-{mode}", plan.name, "chaos_reader.py", READER_HOST, {"mode": mode, "seed": number}
                )
                reader.process.start()
                self.readers.append(reader)
        if not self.light:
            self._begin_starts()

    def _begin_starts(self) -> None:
        steady = ",".join(plan.name for plan in self.streams if plan.steady)
        starts = self._client(
            "starts", steady, "chaos_reader.py", READER_HOST, {"mode": "starts", "pause": STARTS_PAUSE_S}
        )
        starts.process.start()
        self.readers.append(starts)

    def begin(self, stream: str, host: str = "") -> Client:
        """Start a stream's writer, on the next free host or on a given one."""
        client = self.current[stream] = self._writer(self.plan(stream), host=host)
        client.process.start()
        return client

    def abandon(self, stream: str) -> Client:
        """Nobody writes to the stream any more; returns who did, running or not."""
        return self.current.pop(stream)

    def side_writer(self, plan: StreamPlan, host: str, *, noted_as: str = "") -> Client:
        """Start a writer for one fault; it does not open the stream a second time."""
        client = self._write(plan, host, noted_as=noted_as or plan.name, flags=("once",))
        client.process.start()
        self.side_writers.append(client)
        return client

    def side_reader(self, plan: StreamPlan, host: str, mode: str, *, noted_as: str = "", **options: object) -> Client:
        """Start a reader for one fault."""
        name = f"{noted_as or plan.name}-{mode}-{next(self._numbers)}"
        given = options | {"mode": mode, "noted-as": noted_as or plan.name}
        client = self._client(name, plan.name, "chaos_reader.py", host, given)
        client.process.start()
        self.side_readers.append(client)
        return client

    def end(self, stream: str, timeout_s: float) -> None:
        """Let a stream's writer flush and end, and seal the stream: nobody repairs an open range that rests.

        Raises AssertionError when it cannot, and what sealing raises.
        """
        client = self.current.pop(stream)
        stop_all([client.process], timeout_s)
        state = chaos_history.STATES[client.pulse.state]
        self.retire(client)
        assert state == "done", f"{client.name} could not flush within {timeout_s:g} s ({state})"
        asyncio.run(self._seal(stream, timeout_s))

    async def _seal(self, stream: str, timeout_s: float) -> None:
        async with await rangelog.connect(self.connect_string) as client:
            await client.seal_stream(stream, timeout_s=timeout_s)

    def plan(self, stream: str) -> StreamPlan:
        """A stream by name."""
        return next(each for each in self.streams if each.name == stream)

    def standby(self, stream: str) -> Client:
        """A further writer process that waits to be told to take over (`take_over`)."""
        client = self._writer(self.plan(stream), standby=True)
        client.process.start()
        eventually(
            lambda: client.process.ready() and client.pulse.state == chaos_history.READY,
            f"{client.name} is not ready: see {client.process.log_path}",
            READY_TIMEOUT_S,
        )
        return client

    def take_over(self, client: Client) -> Client:
        """Let a standby open the stream; returns the writer that it replaces."""
        assert client.process.stdin is not None
        client.process.stdin.write(b"go\n")
        client.process.stdin.flush()
        old, self.current[client.stream] = self.current[client.stream], client
        self.takeovers += 1
        return old

    def retire(self, client: Client) -> None:
        """A replaced writer has ended: its host is free for the next."""
        client.process.kill()
        self._free_hosts[client.stream].append(client.host)

    def stop_writers(self, timeout_s: float) -> None:
        """Let the current writers flush and end."""
        stop_all([client.process for client in self.current.values()], timeout_s)

    def close(self) -> None:
        """Kill every client. Idempotent."""
        for client in self.clients:
            client.process.kill()

    @property
    def clients(self) -> list[Client]:
        """All that ever ran."""
        return [*self.writers, *self.readers, *self.side_writers, *self.side_readers]

    def _writer(self, plan: StreamPlan, *, standby: bool = False, host: str = "") -> Client:
        flags = ("standby",) if standby else ()
        client = self._write(plan, host or self._free_hosts[plan.name].pop(0), flags=flags)
        self.writers.append(client)
        return client

    def _write(self, plan: StreamPlan, host: str, *, noted_as: str = "", flags: Sequence[str] = ()) -> Client:
        name = f"{plan.name}-w{next(self._numbers)}"
        options = {"rate": plan.rate, "size": plan.record_bytes, "noted-as": noted_as}
        return self._client(name, plan.name, "chaos_writer.py", host, options, flags)

    def _client(
        self,
        name: str,
        stream: str,
        script: str,
        host: str,
        options: Mapping[str, object],
        flags: Sequence[str] = (),
    ) -> Client:
        files = {"history": self.directory / f"{name}.jsonl", "pulse": self.directory / f"{name}.pulse"}
        given = {"pds": self.connect_string, "stream": stream, "name": name, **files, **options}
        arguments = [str(HERE / script), *(word for key, value in given.items() for word in (f"--{key}", str(value)))]
        arguments += [f"--{flag}" for flag in flags]
        process = Process(name, arguments, log_path=self.directory / f"{name}.log", prefix=self.network.prefix(host))
        return Client(name, stream, host, process, files["history"], files["pulse"])
