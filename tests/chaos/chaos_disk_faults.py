"""Faults of disks: flushes that fail or are slow (strace injects them into the running process), full, lost, rolled back."""

from __future__ import annotations

import shutil

from rangelog_proto.v1 import pd_pb2
from tests.chaos.chaos_cluster import PDS, RANGE_SERVERS
from tests.chaos.chaos_faults import BURST, FLUSHES_WITHIN_S, OPENS_WITHIN_S, Fault, Restarted
from tests.chaos.chaos_trace import Tracer
from tests.support.waiting import eventually

SLOW_FLUSH_US = 200_000
EIO_CALLS_MAX = 12
DIES_WITHIN_S = 20.0


class FlushFails(Restarted):
    """fdatasync answers EIO at a drawn call. The process must end, never try again, and be whole after a restart."""

    name = "flush-fails"
    needs = frozenset({"strace"})
    hold_s = (0.2, 1.0)
    _tracer: Tracer | None = None

    def inject(self) -> str:
        """See Fault. Returns once the process has ended by itself."""
        victim, call = self.choose(), self.dice.randint(1, EIO_CALLS_MAX)
        process = self.system.cluster.members[victim]
        self._down = (victim,)
        inject = f"fdatasync:error=EIO:when={call}"
        self._tracer = Tracer(process.pid, inject, self.system.directory / f"strace-{victim}.log")
        eventually(
            lambda: not process.running,
            f"{victim} runs on after a flush that failed (injected: {self._tracer.injected})",
            DIES_WITHIN_S,
        )
        assert self._tracer.injected, f"{victim} ended without a failed flush: {process.last_words()}"
        return f"{victim}, call {call}"

    def heal(self) -> None:
        """Start it again."""
        if self._tracer is not None:
            self._tracer.close()
            self._tracer = None
        super().heal()

    def choose(self) -> str:
        """Whose flush fails."""
        return self.a_range_server()


class PdFlushFails(FlushFails):
    """The same at the leading placement driver."""

    name = "pd-flush-fails"
    side = "pd"

    def choose(self) -> str:
        """See FlushFails."""
        return self.system.leader()


class FlushSlow(Fault):
    """Every fdatasync of a range server takes 200 ms longer."""

    name = "flush-slow"
    needs = frozenset({"strace"})
    hold_s = (3.0, 6.0)
    _tracer: Tracer | None = None

    def inject(self) -> str:
        """See Fault."""
        victim = self.a_range_server()
        inject = f"fdatasync:delay_enter={SLOW_FLUSH_US}"
        self._tracer = Tracer(
            self.system.cluster.members[victim].pid, inject, self.system.directory / f"strace-{victim}.log"
        )
        return victim

    def heal(self) -> None:
        """See Fault."""
        if self._tracer is not None:
            self._tracer.close()
            self._tracer = None


class DiskFull(Fault):
    """Another file takes all room on a range server's disk, while much is written.

    It must go on running, refuse what it cannot keep, and append again when there is room.
    """

    name = "disk-full"
    needs = frozenset({"disk"})
    hold_s = (6.0, 8.0)
    _victims: tuple[str, ...] = ()

    def choose(self) -> tuple[str, ...]:
        """Whose disks are full."""
        return (self.a_range_server(BURST),)

    def inject(self) -> str:
        """See Fault. The burst needs a new segment of the log sooner or later, and finds no room for it."""
        load = self.system.load
        load.begin(BURST)
        eventually(lambda: load.current[BURST].pulse.records > 0, "the burst gets no acks", OPENS_WITHIN_S)
        self._victims = self.choose()
        taken = sum(self.system.disks.fill(victim) for victim in self._victims)
        return f"{', '.join(self._victims)}, {taken >> 20} MiB taken"

    def heal(self) -> None:
        """See Fault."""
        victims, self._victims = self._victims, ()
        for victim in victims:
            self.system.disks.relieve(victim)
        if BURST in self.system.load.current:
            self.system.load.end(BURST, FLUSHES_WITHIN_S)
        ended = {each: self.system.cluster.members[each] for each in victims}
        said = {name: process.last_words() for name, process in ended.items() if not process.running}
        for name in said:
            self.system.cluster.start_member(name, wait=False)
        assert not said, f"ended because the disk was full: {said}"


class MostDisksFull(DiskFull):
    """The disks of all range servers but one are full: soon nothing is acked, and the cluster says why, until there is room."""

    name = "disks-full"
    side = "all"
    hold_s = (8.0, 12.0)
    SAID_WITHIN_S = 30.0

    def choose(self) -> tuple[str, ...]:
        """See DiskFull."""
        return tuple(self.dice.sample(RANGE_SERVERS, len(RANGE_SERVERS) - 1))

    def inject(self) -> str:
        """See Fault. Returns once a server has said that its log has no room."""
        hit = super().inject()
        eventually(self._is_said, "no range server says that its log has no room", self.SAID_WITHIN_S)
        return hit

    def _is_said(self) -> bool:
        answer = self.system.ask("ListServers", pd_pb2.ListServersRequest())
        assert isinstance(answer, pd_pb2.ListServersResponse)
        return any("its log cannot grow" in each.health_reason for each in answer.servers)


class DiskLost(Restarted):
    """A range server is killed and comes back with an empty disk."""

    name = "disk-lost"
    loses_data = True
    hold_s = (0.2, 2.0)

    def inject(self) -> str:
        """See Fault."""
        victim = self.a_range_server()
        self.kill(victim)
        self.system.disks.wipe(victim)
        return victim


class PdDiskLost(Restarted):
    """A placement driver is killed and comes back with an empty disk: it must not help to elect before it has caught up."""

    name = "pd-disk-lost"
    side = "pd"
    loses_data = True
    hold_s = (0.2, 2.0)
    CATCHES_UP_S = 1.0

    def inject(self) -> str:
        """See Fault."""
        victim = self.dice.choice(PDS)
        self.kill(victim)
        for entry in (self.system.cluster.directory / victim).iterdir():
            if entry.is_dir():
                shutil.rmtree(entry)
            else:
                entry.unlink()
        return victim

    def heal(self) -> None:
        """See Fault. Nothing outside tells when it has caught up, which is when the next disk may be lost."""
        super().heal()
        for name in self._down:
            self.system.cluster.members[name].wait_ready()
            self.interrupts.wait(self.CATCHES_UP_S)


class DiskRolledBack(Restarted):
    """A range server comes back with an older copy of its disk: it must not answer for what it has forgotten."""

    name = "disk-rolled-back"
    loses_data = True
    hold_s = (0.2, 1.0)
    LATER_S = 4.0
    _incarnation: object = None

    def inject(self) -> str:
        """Copy the disk in one moment (the server stands still), let it run on, kill it and put the copy back."""
        victim = self.a_range_server()
        cluster = self.system.cluster
        self._incarnation = cluster.members[victim].endpoint()["incarnation"]
        cluster.pause(victim)
        try:
            aside = self.system.disks.copy_aside(victim)
        finally:
            cluster.resume(victim)
        try:
            self.interrupts.wait(self.LATER_S)
            self.kill(victim)
            self.system.disks.roll_back(victim, aside)
        finally:
            shutil.rmtree(aside, ignore_errors=True)
        return victim

    def heal(self) -> None:
        """Start it; what comes up must be another incarnation."""
        super().heal()
        if self._incarnation is not None:
            before, self._incarnation = self._incarnation, None
            process = self.system.cluster.members[self._down[0]]
            process.wait_ready()
            now = process.endpoint()["incarnation"]
            assert now != before, f"{process.name} came back with an old disk and was taken for what it was"
            self.system.disks.drop_set_aside(process.name)
