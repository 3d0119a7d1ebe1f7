"""What a fault is, and those of processes: killed, paused, replaced.

A fault is injected, held, healed. `inject` says what was hit. Nothing it does outlives `heal`, which may be called after
an `inject` that failed half-way, and again.
"""

from __future__ import annotations

import random
import signal
import threading
from abc import ABC, abstractmethod
from typing import ClassVar

from rangelog_core.errors import RangelogError
from rangelog_proto.v1 import common_pb2, pd_pb2
from tests.chaos import chaos_history as history
from tests.chaos.chaos_cluster import MEMBERS, PDS, RANGE_SERVERS, System
from tests.chaos.chaos_load import Client
from tests.support.waiting import eventually

FENCED_WITHIN_S = 20.0
OPENS_WITHIN_S = 20.0
FLUSHES_WITHIN_S = 20.0
BURST = "bulk"
BURST_RECORDS = 100
REGISTRY: dict[str, type[Fault]] = {}


class Fault(ABC):
    """One fault of one kind."""

    name: ClassVar[str]
    needs: ClassVar[frozenset[str]] = frozenset()
    """Of "network", "strace", "disk", "spark": what the machine must allow."""
    by_default: ClassVar[bool] = True
    """Whether a run has it when no kinds are named."""
    heals_within_s: ClassVar[float] = 60.0
    """All is to be well so soon after it was undone."""
    hold_s: ClassVar[tuple[float, float]] = (1.0, 3.0)
    """How long it lasts: between these, drawn anew each time."""
    side: ClassVar[str] = "server"
    """What it hits: "server", "pd", "broker", "writer" or "all". Two that overlap must hit different sides."""
    often: ClassVar[int] = 1
    """How many times as often as others it is drawn."""
    loses_data: ClassVar[bool] = False
    """Whether a disk's content is lost: never two at a time (f = 1)."""

    def __init__(self, system: System, dice: random.Random) -> None:
        self.system = system
        self.dice = dice
        self.interrupts = threading.Event()
        self.avoid: tuple[str, ...] = ()
        """Servers that another fault hits at the same time."""
        self.picked: tuple[str, ...] = ()

    def __init_subclass__(cls) -> None:
        if "name" in cls.__dict__:
            REGISTRY[cls.name] = cls

    @abstractmethod
    def inject(self) -> str:
        """Make it happen; returns what was hit."""

    @abstractmethod
    def heal(self) -> None:
        """Undo it. Idempotent."""

    def afterwards(self) -> str:
        """What must hold when all faults are over, and may take time; returns what does not."""
        return ""

    def draw_hold_s(self) -> float:
        """How long it is to last."""
        return self.dice.uniform(*self.hold_s)

    def a_stream(self) -> str:
        """One of the streams that are written to all the time."""
        return self.dice.choice([plan.name for plan in self.system.streams if plan.steady])

    def a_range_server(self, stream: str = "") -> str:
        """A member of the open range of a stream, so that the fault is felt."""
        try:
            request = pd_pb2.ListRangesRequest(name=stream or self.a_stream(), from_offset=(1 << 63) - 1)
            answer = self.system.ask("ListRanges", request)
            assert isinstance(answer, pd_pb2.ListRangesResponse)
            open_ranges = [each for each in answer.ranges if each.state == common_pb2.RANGE_STATE_OPEN]
            members = [replica.server for replica in open_ranges[-1].replicas]
        except (RangelogError, IndexError):
            members = []
        left = [name for name in members or RANGE_SERVERS if name not in self.avoid]
        chosen = self.dice.choice(left or [name for name in RANGE_SERVERS if name not in self.avoid])
        self.picked = (*self.picked, chosen)
        return chosen


class Restarted(Fault):
    """Members that are killed, and started again when it heals."""

    _down: tuple[str, ...] = ()

    def kill(self, *names: str) -> None:
        """`kill -9`, all at once."""
        self._down = names
        for name in names:
            self.system.cluster.members[name].signal(signal.SIGKILL)
        for name in names:
            self.system.cluster.kill(name)

    def heal(self) -> None:
        """Start them again, all at once. Whether they come up is for the examination to tell."""
        for name in self._down:
            if not self.system.cluster.members[name].running:
                self.system.cluster.start_member(name, wait=False)


class RangeServerKilled(Restarted):
    """`kill -9` of a range server that is written to."""

    name = "range-server-killed"

    def inject(self) -> str:
        """See Fault."""
        victim = self.a_range_server()
        self.kill(victim)
        return victim


class PdLeaderKilled(Restarted):
    """`kill -9` of the leading placement driver."""

    name = "pd-leader-killed"
    side = "pd"

    def inject(self) -> str:
        """See Fault."""
        victim = self.system.leader()
        self.kill(victim)
        return victim


class PdFollowerKilled(Restarted):
    """`kill -9` of a placement driver that does not lead."""

    name = "pd-follower-killed"
    side = "pd"

    def inject(self) -> str:
        """See Fault."""
        leader = self.system.leader()
        victim = self.dice.choice([name for name in PDS if name != leader])
        self.kill(victim)
        return victim


class EverythingKilled(Restarted):
    """`kill -9` of every server at once, as when the power goes."""

    name = "everything-killed"
    side = "all"
    hold_s = (0.1, 0.5)

    def inject(self) -> str:
        """See Fault."""
        self.kill(*MEMBERS)
        return f"all {len(MEMBERS)} servers"


class Paused(Fault):
    """SIGSTOP, then SIGCONT: it keeps its connections and its memories."""

    hold_s = (2.0, 6.0)
    _victim = ""

    def inject(self) -> str:
        """See Fault."""
        self._victim = self.choose()
        self.system.cluster.pause(self._victim)
        return self._victim

    def heal(self) -> None:
        """See Fault."""
        if self._victim:
            self.system.cluster.resume(self._victim)

    @abstractmethod
    def choose(self) -> str:
        """Whom to pause."""


class RangeServerPaused(Paused):
    """A range server that is written to."""

    name = "range-server-paused"

    def choose(self) -> str:
        """See Paused."""
        return self.a_range_server()


class PdLeaderPaused(Paused):
    """The leading placement driver."""

    name = "pd-leader-paused"
    side = "pd"

    def choose(self) -> str:
        """See Paused."""
        return self.system.leader()


class Replaced(Fault):
    """A second writer process takes the stream over while the first is out of action."""

    side = "writer"
    BURST_SHARE = 0.35
    """How often it hits a writer with much in flight: then the replicas' ends differ and a failover has to copy."""
    _standby: Client | None = None
    _old: Client | None = None
    _burst = ""

    def replace(self) -> str:
        """The standby opens the stream."""
        assert self._standby is not None
        self._old = self.system.load.take_over(self._standby)
        return f"{self._old.name}, {self._standby.name} takes over"

    def prepare(self) -> Client:
        """Start the standby; returns the writer to be hit."""
        load = self.system.load
        stream = self.a_stream()
        if BURST not in load.current and self.dice.random() < self.BURST_SHARE:
            self._burst = stream = BURST
            load.begin(BURST)
            acked = load.current[BURST]
            eventually(lambda: acked.pulse.records > BURST_RECORDS, "the burst gets no acks", OPENS_WITHIN_S)
        self._standby = self.system.load.standby(stream)
        return self.system.load.current[stream]

    def opened(self) -> bool:
        """Whether the second writer got that far."""
        return self._standby is not None and self._standby.pulse.state == history.OPEN

    def end_burst(self) -> None:
        """Let the stream of the burst rest again, once its new writer is open."""
        burst, self._burst = self._burst, ""
        if burst and burst in self.system.load.current:
            eventually(self.opened, "the second writer did not open the stream", FENCED_WITHIN_S)
            self.system.load.end(burst, FLUSHES_WITHIN_S)

    def expect_fenced(self) -> None:
        """The first writer, running again, must find out that it was replaced, and end."""
        if self._old is None:
            self.end_burst()
            return
        old, self._old = self._old, None
        try:
            eventually(self.opened, "the second writer did not open the stream", FENCED_WITHIN_S)
            eventually(
                lambda: not old.process.running, f"{old.name} does not notice that it was replaced", FENCED_WITHIN_S
            )
            state = old.pulse.state
            assert state == history.FENCED, (
                f"{old.name} is {history.STATES[state]}, not fenced: {old.process.last_words()}"
            )
        finally:
            self.system.load.retire(old)
            self.end_burst()


class WriterKilled(Replaced):
    """`kill -9` of a writer process."""

    name = "writer-killed"

    def inject(self) -> str:
        """See Fault."""
        victim = self.prepare()
        victim.process.kill()
        return self.replace()

    def heal(self) -> None:
        """Nothing is to be undone."""
        if self._old is not None:
            self.system.load.retire(self._old)
            self._old = None
        self.end_burst()


class WriterPaused(Replaced):
    """SIGSTOP of a writer process; it goes on when another owns the stream, and must be fenced."""

    name = "writer-paused"
    _victim: Client | None = None

    def inject(self) -> str:
        """See Fault."""
        self._victim = self.prepare()
        self._victim.process.signal(signal.SIGSTOP)
        return self.replace()

    def heal(self) -> None:
        """Once another owns the stream; see the class."""
        victim, self._victim = self._victim, None
        if victim is not None:
            try:
                eventually(self.opened, "the second writer did not open the stream", FENCED_WITHIN_S)
            finally:
                victim.process.signal(signal.SIGCONT)
            self.expect_fenced()


class ClockJumped(Fault):
    """The wall clock of a server jumps an hour, either way, and later back. Nothing may depend on it."""

    name = "clock-jumped"
    side = "all"
    hold_s = (2.0, 4.0)
    JUMP_S = 3600.0
    _victim = ""

    def inject(self) -> str:
        """See Fault."""
        self._victim = self.dice.choice([self.system.leader(), self.a_range_server(), self.dice.choice(PDS)])
        ahead_s = self.dice.choice([-self.JUMP_S, self.JUMP_S])
        self.system.set_clock(self._victim, ahead_s)
        return f"{self._victim} {ahead_s / 3600:+.0f} h"

    def heal(self) -> None:
        """See Fault."""
        if self._victim:
            self.system.set_clock(self._victim, 0.0)
