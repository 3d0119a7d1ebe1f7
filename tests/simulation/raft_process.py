"""One simulated placement driver process after another on one machine: the production consensus, stepped by events.

A step is what the Raft thread does between two waits: handle what came in, tick, flush, answer. Everything in it happens
at one moment of the world; what the disk takes is added to the process's own clock, to the departure of what it sends and
to the time until its next step.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

from rangelog_core.errors import OutcomeUnknown, RangelogError, Unavailable
from rangelog_pd.consensus.files.configuration import Configuration
from rangelog_pd.consensus.pysyncobj_consensus import PySyncObjConsensus
from rangelog_pd.consensus.rules.raft import Raft
from rangelog_pd.consensus.rules.timings import Timings
from tests.fakes.disk import ProcessGone
from tests.simulation import raft_seams
from tests.simulation.raft_disk import VirtualDisk
from tests.simulation.raft_loop import VirtualLoop
from tests.simulation.raft_network import VirtualDialing, VirtualSocket
from tests.simulation.raft_seams import VirtualPoller
from tests.simulation.raft_world import World

if TYPE_CHECKING:
    from tests.simulation.raft_group import RaftGroup

STEP_S = 0.00003
NEXT_STEP_S = 0.00005
SNAPSHOT_WRITE_S_MAX = 0.3
DIRECTORY = Path("/pd")

Answer = bytes | int | str | RangelogError


class _StepAlive:
    """Stands for the Raft thread."""

    def __init__(self) -> None:
        self.alive = True

    def is_alive(self) -> bool:
        return self.alive

    def join(self, timeout: float | None = None) -> None:
        pass


class SimulatedConsensus(PySyncObjConsensus):
    """The production class without its threads."""

    process: RaftProcess

    def _start_thread(self, work: Iterator[None]) -> Any:
        self.process.work = work
        self.process.wake()
        return self.process.thread

    def _make_dialing(self, configuration: Configuration) -> Any:
        return VirtualDialing(self.process, retry_s=Timings.connect_retry_s)

    def _report(self, loop: Any, started: Any, error: RangelogError) -> None:
        self.process.failure = error
        super()._report(loop, started, error)


class RaftProcess:
    """See the module."""

    def __init__(self, group: RaftGroup, name: str, joined: Configuration | None = None) -> None:
        """`joined`: of a member that is to be added: the group as it knows it from the start, over all its boots."""
        self.group = group
        self.name = name
        self.joined = joined
        self.world: World = group.world
        self.random: Random = Random(group.world.random.getrandbits(64))
        self.disk: VirtualDisk = VirtualDisk(self.random)
        self.disk.on_latency = self._disk_took
        self.disk.on_gone = self._cut_at_call
        self.snapshot_path: Path = DIRECTORY / "raft" / "snapshot"
        self.running = False
        self.machine_up = True
        self.paused = False
        self.boots = 0
        self.elapsed_s = 0.0
        self.cut_loses_power = False
        self._clock_offset_s = self.random.uniform(0, 1e6)
        self._stepping = False
        self._token = 0
        self._planned_s: float | None = None
        self._busy_until_s = 0.0
        self._aside: list[Callable[[], None]] = []

    # ---- life

    def boot(self) -> None:
        """Start a process on what the disk holds."""
        assert not self.running
        self.boots += 1
        self.running = self.machine_up = True
        self.paused = False
        self.opened = False
        self.elapsed_s = 0.0
        self._busy_until_s = self.world.now
        self._planned_s = None
        self._aside = []
        self.descriptors: dict[int, Any] = {}
        self._next_descriptor = 100_000
        self.dialing: VirtualDialing | None = None
        self.failure: RangelogError | None = None
        self.work: Iterator[None] | None = None
        self.thread = _StepAlive()
        self.poller: VirtualPoller = VirtualPoller(self)
        self.disk.boot()
        self.loop = VirtualLoop(self)  # type: ignore[abstract]
        self._asking: dict[int, Callable[[Answer], None]] = {}
        self.recorder = self.group.new_recorder(self)
        self.consensus = SimulatedConsensus(
            self.name,
            self.group.addresses if self.joined is None else {},
            DIRECTORY,
            self.recorder,
            secret="of the simulation",
            listen=f"{self.name}:1",
            joined=self.joined,
            snapshot_entries=self.group.snapshot_entries,
            files=self.disk,
        )
        self.consensus.process = self
        self.loop.call_soon(lambda: self.loop.create_task(self._start()))

    async def _start(self) -> None:
        try:
            await self.consensus.start()
        except RangelogError:
            return  # `failure` holds it

    def crash(self, *, power_loss: bool) -> None:
        """Gone at this moment."""
        if self.running:
            self._die(power_loss=power_loss)
        elif power_loss and self.machine_up:
            self.disk.lose_power()
        self.machine_up = self.machine_up and not power_loss

    def pause(self) -> None:
        """As SIGSTOP."""
        self.paused = True

    def resume(self) -> None:
        """As SIGCONT."""
        if self.paused:
            self.paused = False
            if self.running:
                for work in self._aside:
                    self.world.call_later(0.0, work)
                self._aside = []
                self.world.call_later(0.0, self.loop.drain)
                self._planned_s = None
                self.wake()

    def stop(self) -> None:
        """Leave cleanly, as on SIGTERM."""
        if self.running:
            self.consensus._stopping.set()
            self.wake()

    def _die(self, *, power_loss: bool) -> None:
        self.running = False
        self.thread.alive = False
        self.loop.stop()
        self.dialing = None
        self.group.before_death(self)
        for descriptor in list(self.descriptors.values()):
            if isinstance(descriptor, VirtualSocket):
                descriptor.owner_died(silently=power_loss)
        self.disk.process_gone()
        if power_loss:
            self.disk.lose_power()
            self.machine_up = False
        asking, self._asking = self._asking, {}
        for done in asking.values():
            self._tell(done, OutcomeUnknown("the placement driver died"))
        if not self._stepping:
            self._bury()

    def _tell(self, done: Callable[[Answer], None], answer: Answer) -> None:
        self.world.call_later(0.0, lambda: done(answer))

    def _bury(self) -> None:
        work, self.work = self.work, None
        if work is not None:
            with self.inside():
                work.close()  # type: ignore[attr-defined]

    def _cut_at_call(self, call: str) -> None:
        """The disk stopped in the middle of the work."""
        self.group.cut_at_call(self, call)

    # ---- steps

    def inside(self) -> AbstractContextManager[None]:
        """Production code of this process runs in it."""
        return raft_seams.inside(self)

    def clock(self) -> float:
        """Its monotonic clock."""
        return self._clock_offset_s + self.world.now + self.elapsed_s

    def check_running(self) -> None:
        """Raise ProcessGone for a process that is not there any more."""
        if not self.running:
            raise ProcessGone

    def wake(self) -> None:
        """Something is there to be handled."""
        self._plan(self.world.now)

    def _plan(self, at_s: float) -> None:
        at_s = max(at_s, self._busy_until_s)
        if not self.running or (self._planned_s is not None and self._planned_s <= at_s):
            return
        self._planned_s = at_s
        self._token += 1
        token = self._token
        self.world.call_later(at_s - self.world.now, lambda: self._step(token))

    def _step(self, token: int) -> None:
        if token != self._token or not self.running or self.paused or self.work is None:
            return
        self._planned_s = None
        self.elapsed_s = STEP_S
        self._stepping = True
        ended = False
        try:
            with self.inside():
                ended = self._run_step()
        finally:
            self._stepping = False
        self._busy_until_s = self.world.now + self.elapsed_s
        if not self.running:
            self._bury()
        elif ended:
            self.work = None
            self.thread.alive = False
            self.world.call_later(self.elapsed_s + NEXT_STEP_S, lambda: self._exit(self.thread))
        else:
            self.group.after_step(self)
            wait_s = NEXT_STEP_S if self.poller.ready() else Timings.tick_s
            self._plan(self._busy_until_s + wait_s)
        self.elapsed_s = 0.0

    def _run_step(self) -> bool:
        assert self.work is not None
        try:
            if self.raft is not None:
                try:
                    self.poller.look()
                    self.raft._before_poll()
                except ProcessGone:
                    return False
                except BaseException as error:
                    self.work.throw(error)  # type: ignore[attr-defined]
            next(self.work)
        except StopIteration:
            return True
        return False

    def _exit(self, thread: _StepAlive) -> None:
        """The Raft thread ended: so does the process."""
        if self.running and self.thread is thread:
            self.group.exited(self)
            self._die(power_loss=False)

    def run_aside(self, work: Callable[[], None]) -> None:
        """On another thread, some time later."""
        boots = self.boots
        slow_s = SNAPSHOT_WRITE_S_MAX + self.disk.slow_s

        def run() -> None:
            if not self.running or self.boots != boots:
                return
            if self.paused:
                self._aside.append(run)
                return
            try:
                with self.inside():
                    work()
            except ProcessGone:
                pass
            self.elapsed_s = 0.0

        self.world.call_later(slow_s * self.random.random(), run)

    def _disk_took(self, seconds: float) -> None:
        self.elapsed_s += seconds

    # ---- descriptors

    def descriptor(self, thing: Any) -> int:
        """A new number."""
        self._next_descriptor += 1
        self.descriptors[self._next_descriptor] = thing
        return self._next_descriptor

    def forget_descriptor(self, descr: int) -> None:
        """It was closed."""
        self.descriptors.pop(descr, None)

    # ---- what the group sees and hears

    @property
    def raft(self) -> Raft | None:
        """The library's object, once it is open."""
        return self.consensus._raft

    def peer(self, name: str) -> RaftProcess:
        """Another one."""
        return self.group.processes[name]

    def count(self, what: str) -> None:
        """For the counters."""
        self.group.counters[what] += 1

    def broken(self, what: str) -> None:
        """Something that must not happen."""
        self.group.violate(f"{self.name}: {what}")

    def leaves(self, socket: VirtualSocket, data: bytes) -> None:
        """Bytes on their way to a peer."""
        self.group.leaves(self, socket, data)

    def ask(self, call: Callable[[], Any], done: Callable[[Answer], None]) -> None:
        """Await `call()` in this process; `done` gets the result, or the error. Unknown if the process dies."""
        if not self.running or not self.consensus._failure:
            self._tell(done, Unavailable("the placement driver is not running"))
            return
        self.group.asked += 1
        number = self.group.asked
        self._asking[number] = done

        async def run() -> None:
            try:
                answer: Answer = await call()
            except RangelogError as error:
                answer = error
            except asyncio.CancelledError:
                return
            told = self._asking.pop(number, None)
            if told is not None:
                told(answer)

        self.loop.call_soon(lambda: self.loop.create_task(run()))
