"""Spark in a run: one driver that copies a stream to a stream and a topic to a topic, its executors, and how far it is.

It begins with the first fault that wants it, and lives until the run's end: a killed driver is followed by another one, with
the same checkpoints. Executors of a killed driver are left to notice that by themselves.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import rangelog
import rangelog.sync
from rangelog.errors import StreamExists
from rangelog_cli.local.processes import Process
from tests.chaos.chaos_topic import TopicLoad, length_of
from tests.chaos.chaos_topic_notes import TOPIC, read_notes
from tests.support.waiting import eventually

SPARK_HOST = "spark"
STREAM = "calls"
COPY = "spark-copy"
"""The name of the stream, and of the topic."""
EXECUTORS = 2
RANGE_BYTES = 192 * 1024
HOT_RETENTION_S = 8.0
BEGINS_WITHIN_S = 240.0
GOES_ON_WITHIN_S = 60.0
CAUGHT_UP_WITHIN_S = 240.0
ASKED_WITHIN_S = 10.0
LOOK_S = 0.25
HERE = Path(__file__).parent
_MARK = "RANGELOG_CHAOS_SPARK"
"""The environment variable by which its processes are known, whoever started them."""


class CopyLengths(NamedTuple):
    """Records."""

    stream: int
    topic: int


def can_run_spark() -> bool:
    """Whether Spark is installed."""
    return find_spec("pyspark") is not None


@dataclass
class SparkCopies:
    """See the module."""

    directory: Path
    prefix: Sequence[str]
    """The command that starts a process on its host."""
    connect_string: str
    topic: TopicLoad
    driver: Process | None = None
    killed_executors: set[int] = field(default_factory=set)
    _client: rangelog.sync.Client | None = None
    _pause: threading.Event = field(default_factory=threading.Event)

    def begin(self) -> None:
        """Make the targets and start the driver, unless that was done; return once both copies have grown."""
        if self.driver is not None:
            return
        self.directory.mkdir(parents=True, exist_ok=True)
        asyncio.run(self.topic.ask(_create_copy, ASKED_WITHIN_S))
        asyncio.run(self.topic.create(COPY))
        arguments = [str(HERE / "chaos_spark_driver.py"), "--pds", self.connect_string]
        arguments += ["--checkpoints", str(self.directory / "checkpoints"), "--notes", str(self.notes)]
        env = {
            _MARK: str(self.directory),
            "SPARK_HOME": str(self._home()),
            "RANGELOG_TEST_BYTECODE": str(self.directory / "bytecode"),
            "SPARK_SUBMIT_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
            "PYTHONPATH": os.pathsep.join(filter(None, [str(HERE / "spark_site"), os.environ.get("PYTHONPATH", "")])),
        }
        self.driver = Process("driver", arguments, log_path=self.directory / "driver.log", env=env, prefix=self.prefix)
        self.driver.start()
        self._wait_beyond(CopyLengths(0, 0), BEGINS_WITHIN_S)

    @property
    def notes(self) -> Path:
        """What all drivers write down."""
        return self.directory / "driver.jsonl"

    @property
    def streams(self) -> list[str]:
        """The streams that are to be whole."""
        return [COPY] if self.driver is not None else []

    # ---- faults

    def kill_driver(self) -> str:
        """`kill -9` of the driver, its Python and its Java; its executors find out."""
        assert self.driver is not None
        name = f"driver {self.driver.starts}"
        java = self._java()
        for pid in (*java, self.driver.pid):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.driver.wait(ASKED_WITHIN_S)
        return name

    def restart_driver(self) -> None:
        """Another driver goes on, unless one runs."""
        if self.driver is not None and not self.driver.running:
            self.driver.start()

    def executors(self) -> list[int]:
        """The pids of the current driver's executors."""
        java = self._java()
        parents = {pid: _parent_of(pid) for pid, command in self._processes().items() if "CoarseGrained" in command}
        return sorted(pid for pid, parent in parents.items() if parent in java and pid not in self.killed_executors)

    def kill_executor(self, pid: int) -> None:
        """`kill -9` of an executor; its Python finds out."""
        self.killed_executors.add(pid)
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)

    # ---- health and the end

    def problem(self, marks: list[CopyLengths]) -> str:
        """What is not well: both queries are to have committed since the first mark was made."""
        if self.driver is None:
            return ""
        if not self.driver.running:
            return f"spark's driver has ended: {self.driver.last_words()}"
        if len(self.executors()) < EXECUTORS:
            return "an executor of spark is missing"
        found = self._ask(_copied)
        if not marks:
            marks.append(found)
        still = [name for name, now, before in zip(found._fields, found, marks[0], strict=True) if now <= before]
        return f"spark's copy of the {still[0]} does not grow" if still else ""

    def finish(self) -> None:
        """Wait until all is copied, nothing being added any more, and end. Raises WaitRanOut."""
        there = self._ask(_there)
        try:
            self._wait_beyond(CopyLengths(there.stream - 1, there.topic - 1), CAUGHT_UP_WITHIN_S)
        finally:
            self.close()

    def stops(self) -> list[str]:
        """Why queries ended by themselves."""
        return [f"{rest[0]}: {rest[1]}" for kind, *rest in read_notes(self.notes) if kind == "stopped"]

    def close(self) -> None:
        """Kill all of it. Idempotent."""
        if self._client is not None:
            self._client.close()
            self._client = None
        if self.driver is not None:
            self.driver.kill()
            while left := self._processes():  # some may be starting others
                for pid in left:
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)

    # ---- inside

    def _wait_beyond(self, least: CopyLengths, timeout_s: float) -> None:
        assert self.driver is not None

        def beyond() -> bool:
            self._pause.wait(LOOK_S)
            found = self._ask(_copied)
            return found.stream > least.stream and found.topic > least.topic

        eventually(beyond, f"spark does not copy: see {self.driver.log_path}", timeout_s)

    def _ask(self, call: Callable[[rangelog.Client], Coroutine[Any, Any, CopyLengths]]) -> CopyLengths:
        """Ask by a client that stays: to look is to cost little. Raises RangelogError."""
        if self._client is None:
            self._client = rangelog.sync.connect(self.connect_string)
        return self._client.run(call(self._client.asynchronous))

    def _home(self) -> Path:
        """A SPARK_HOME of links: local clusters write there."""
        spec = find_spec("pyspark")
        assert spec is not None and spec.origin is not None
        home = self.directory / "spark-home"
        home.mkdir()
        for path in Path(spec.origin).parent.iterdir():
            if path.name != "work":
                (home / path.name).symlink_to(path)
        return home

    def _java(self) -> list[int]:
        """The pid of the current driver's Java, if there is one."""
        assert self.driver is not None
        own = {pid for pid, command in self._processes().items() if "org.apache.spark.deploy.SparkSubmit" in command}
        return [pid for pid in own if _parent_of(pid) == self.driver.pid]

    def _processes(self) -> dict[int, str]:
        """All that this run's Spark has running: pid → command."""
        mark = f"{_MARK}={self.directory}\0".encode()
        found: dict[int, str] = {}
        for path in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if mark in (path / "environ").read_bytes():
                    found[int(path.name)] = (path / "cmdline").read_text(errors="replace")
        return found


def _parent_of(pid: int) -> int:
    """0: it has ended."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


async def _create_copy(client: rangelog.Client) -> None:
    config = rangelog.StreamConfig(range_size_bytes_max=RANGE_BYTES, hot_retention_seconds=HOT_RETENTION_S, tiered=True)
    with suppress(StreamExists):
        await client.create_stream(COPY, config)


async def _there(client: rangelog.Client) -> CopyLengths:
    return CopyLengths(await client.end_offset(STREAM), await length_of(client, TOPIC))


async def _copied(client: rangelog.Client) -> CopyLengths:
    return CopyLengths(await client.end_offset(COPY), await length_of(client, COPY))
