"""The interface of a measured system. rangelog and each peer are subclasses; the workload is the same for all.

Standard library only: the peers' processes import this as well.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

Stop = Callable[[], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class OpenLoopSamples:
    """Times in seconds."""

    latencies_s: list[float]
    """From when each append was due to its ack; fewer than were due when acks are missing."""
    late_s: list[float]
    """From when each append was due to when it was sent."""


@dataclass(frozen=True, slots=True)
class TailSamples:
    """Times in seconds."""

    latencies_s: list[float]
    """From when each append was due until the reader had the record."""
    seen_before_acked: int


class Sampler(ABC):
    """Runs the loops of the workload on the log in use and returns what each append took.

    One is in Python (`sampling`) and serves every system with a client for Python; a system without one brings its own,
    which does the same in a process of another language. Times of one clock: `time.perf_counter`.
    """

    @abstractmethod
    async def one_in_flight(self, size: int, seconds: float) -> list[float]:
        """Append one record at a time for so long, but one at least; return the seconds that each took."""

    @abstractmethod
    async def open_loop(self, size: int, rate_per_s: int, count: int, limit_s: float) -> OpenLoopSamples:
        """Append `count` records at a fixed rate; wait for missing acks for up to `limit_s` after the last is due."""

    @abstractmethod
    async def start_reader(self, size: int, limit_s: float) -> None:
        """Start a reader of new records, and return once it has one, or after `limit_s`."""

    @abstractmethod
    async def tail(self, size: int, rate_per_s: int, count: int, limit_s: float) -> TailSamples:
        """The same as `open_loop`, seen by the reader."""

    @abstractmethod
    async def stop_reader(self) -> None:
        """End the reader. Idempotent, also when none was started."""

    @abstractmethod
    async def start_appending(self, size: int) -> None:
        """Append one record at a time in the background, a failed one again, until `stop_appending`."""

    @abstractmethod
    async def last_ack_s(self) -> float:
        """When the last ack came; 0 before the first."""

    @abstractmethod
    async def stop_appending(self, limit_s: float) -> tuple[list[float], int]:
        """End that, waiting up to `limit_s` for the append under way; (when each ack came, failed appends)."""


class System(ABC):
    """One system in one setting: three copies, one ordered log, one client process.

    `abilities` are the names of the measurements it takes part in (see `workload`).
    """

    name: str
    setting: str
    abilities: frozenset[str]
    append_timeout_s: float = 1.0
    """How long a failover measurement waits for one append before it sends it again."""
    compiles_while_running: bool = False
    """Its servers or its client are compiled while they run: they get a longer warm-up, of each kind of work."""
    sampler: Sampler | None = None
    """What runs the loops where the system has no client for Python; None: `append`, `send` and `tail` are called."""

    @abstractmethod
    async def start(self) -> None:
        """Start the servers and connect."""

    @abstractmethod
    async def stop(self) -> None:
        """End everything that `start` started and remove its files. Idempotent, also after a failed start."""

    @abstractmethod
    def pids(self) -> Mapping[str, int]:
        """Name → pid of the servers that run."""

    @abstractmethod
    async def fresh_log(self) -> None:
        """Go on with a new, empty log; the old one may go."""

    @abstractmethod
    async def pump(self, payload: bytes, seconds: float) -> int:
        """Append the payload as often as possible for so long; return how many were acked, once all sent are."""

    @abstractmethod
    async def append(self, payload: bytes) -> None:
        """Append one record and return once it is acked."""

    def send(self, payload: bytes, on_acked: Callable[[], None]) -> None:
        """Append without waiting; `on_acked` is called once it is. By default a task for each record."""
        task = asyncio.ensure_future(self.append(payload))
        task.add_done_callback(lambda done: None if done.cancelled() or done.exception() else on_acked())

    async def produce_together(self, payload: bytes, seconds: float, keys: int) -> tuple[int, float]:
        """Let many producers of a new topic append flat out, under so many keys in turn; (acked records, seconds).

        Raises RuntimeError where the system has no topics: "producers" is not among its abilities then.
        """
        raise RuntimeError(f"{self.name} has no topics")

    @abstractmethod
    async def read_all(self, count: int) -> int:
        """Read the log from its start until `count` records came; return how many came."""

    @abstractmethod
    async def tail(self, on_record: Callable[[bytes], None]) -> Stop:
        """Deliver every record that is appended from now on; returns what ends it."""

    # ---- failover

    async def prepare_failover(self) -> None:  # noqa: B027 - most have nothing to do
        """Called once before the first kill."""

    @abstractmethod
    async def in_charge(self) -> str:
        """Name of a server whose death hurts the log most."""

    @abstractmethod
    def kill(self, name: str) -> None:
        """`kill -9` it."""

    @abstractmethod
    async def restore(self, name: str) -> None:
        """Start it again and return once the log has all its copies."""

    async def after_failed_append(self) -> None:  # noqa: B027 - ours connects elsewhere by itself
        """Prepare the client for a retry, for instance by another connection."""
