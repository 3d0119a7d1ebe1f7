"""A group of placement drivers' consensus on virtual time: pysyncobj and all that we put around it, as in production.

RaftJournal, vote file, snapshots, the Raft rules, transport, connections, proposals and barriers are the production classes.
Replaced are: the disk (`raft_disk`), the sockets and the dialling (`raft_network`), the clock, the lots and the threads
(`raft_seams`) and the event loop (`raft_loop`). One thread, no real time: the same world gives the same run.
"""

from __future__ import annotations

import hashlib
import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Protocol

from rangelog_core.errors import Corruption
from rangelog_pd.consensus.files.configuration import Configuration
from rangelog_pd.consensus.interface import MemberRemoved
from rangelog_pd.consensus.pysyncobj_consensus import initial_configuration
from rangelog_pd.consensus.rules.raft import Raft
from rangelog_pd.driver import BARRIER_TIMEOUT_S, PROPOSE_TIMEOUT_S
from tests.simulation.raft_network import WINDOW_BYTES, VirtualSocket
from tests.simulation.raft_process import Answer, RaftProcess
from tests.simulation.raft_seams import limits_of
from tests.simulation.raft_watch import Promises, Recorder, Watch
from tests.simulation.raft_world import World


class MachineLike(Protocol):
    """The replicated state: `StateMachine` of the production interface."""

    def apply(self, index: int, command: bytes) -> bytes:
        """Apply one committed command."""

    def freeze(self) -> list[bytes]:
        """Return the whole state."""

    def restore(self, data: bytes) -> None:
        """Replace the whole state."""


_LogSeen = tuple[tuple[int, int], int, Configuration]
"""Term and index of the last entry, the entry that names the members, the members."""


def _log_of(raft: Raft) -> _LogSeen:
    last = raft.last_index
    return (raft._log.journal.term_at(last) or 0, last), raft.configuration_index, raft.configuration


class RaftGroup:
    """All members run once it is made. `violations` must stay empty; `digest` is the same for the same run."""

    def __init__(
        self,
        world: World,
        names: Sequence[str],
        *,
        snapshot_entries: int,
        make_machine: Callable[[], MachineLike],
        message_bytes_max: int | None = None,
    ) -> None:
        """`message_bytes_max`: of entries or snapshot in one message, and what is on its way at a time; None: as in
        production."""
        self.world = world
        self.limits = limits_of(message_bytes_max)
        self.window_bytes = 4 * message_bytes_max if message_bytes_max else WINDOW_BYTES
        self.snapshot_entries = snapshot_entries
        self.addresses = {name: f"{name}:1" for name in names}
        self._changed = False
        self._down: dict[str, _LogSeen] = {}
        """Of members that are down: what their disks have."""
        self._last_configuration = initial_configuration(self.addresses, {})
        self.asked = 0
        self.watch = Watch()
        self.counters: Counter[str] = Counter()
        self.on_exit: Callable[[str], None] = lambda member: None
        """Called when a process ended by itself: its disk failed, or it was stopped."""
        self._make_machine = make_machine
        self._trace = hashlib.blake2b(digest_size=16)
        self._cut: dict[str, tuple[bool, str]] = {}
        self.watch.promises = {name: Promises() for name in names}
        self.processes = {name: RaftProcess(self, name) for name in names}
        for process in self.processes.values():
            process.boot()

    # ---- members

    def join(self, member: str, through: str) -> None:
        """A process on an empty disk that knows the group as `through` does, and waits to be added."""
        raft = self.processes[through].raft
        assert raft is not None
        self.note(f"{member} joins")
        old = self.processes.get(member)
        if old is not None:
            old.crash(power_loss=True)
        joined = raft.configuration.with_members(each for each in raft.configuration.members if each.name != member)
        self.watch.promises[member] = Promises()
        self.processes[member] = RaftProcess(self, member, joined)
        self.processes[member].boot()

    def add(self, member: str, at: str, done: Callable[[Answer], None], *, replaces: str = "") -> None:
        """`Consensus.add_member` at one member."""
        consensus = self.processes[at].consensus
        self.processes[at].ask(
            lambda: consensus.add_member(member, f"{member}:1", "", replaces=replaces, timeout_s=PROPOSE_TIMEOUT_S),
            done,
        )

    def remove(self, member: str, at: str, done: Callable[[Answer], None]) -> None:
        """`Consensus.remove_member` at one member."""
        consensus = self.processes[at].consensus
        self.processes[at].ask(lambda: consensus.remove_member(member, timeout_s=PROPOSE_TIMEOUT_S), done)

    def transfer(self, to: str | None, at: str, done: Callable[[Answer], None]) -> None:
        """`Consensus.transfer_leadership` at one member."""
        consensus = self.processes[at].consensus
        self.processes[at].ask(lambda: consensus.transfer_leadership(to, timeout_s=PROPOSE_TIMEOUT_S), done)

    def configuration(self) -> Configuration:
        """That of the most recent log, running or down: an entry of an earlier term that names members may be cut."""
        found = [
            _log_of(process.raft) if process.running and process.raft is not None else self._down.get(name)
            for name, process in self.processes.items()
        ]
        latest = max((each for each in found if each is not None), key=lambda each: each[0], default=None)
        if latest is not None:
            self._changed = self._changed or latest[1] > 0
            self._last_configuration = latest[2]
        return self._last_configuration

    # ---- the seam that a placement driver uses

    def propose(self, member: str, command: bytes, done: Callable[[Answer], None]) -> None:
        """`Consensus.propose` at one member: `done` gets the result's bytes, or the error that it raised."""
        consensus = self.processes[member].consensus
        self.processes[member].ask(lambda: consensus.propose(command, timeout_s=PROPOSE_TIMEOUT_S), done)

    def read(self, member: str, done: Callable[[Answer], None]) -> None:
        """`Consensus.barrier` at one member: `done` gets the applied index, or the error; it may read `machine` then."""
        consensus = self.processes[member].consensus
        self.processes[member].ask(lambda: consensus.barrier(timeout_s=BARRIER_TIMEOUT_S), done)

    def leader(self) -> str | None:
        """Who leads in the highest term, of those that run."""
        leading = [
            (process.raft.raftCurrentTerm, name)
            for name, process in self.processes.items()
            if process.running and process.raft is not None and process.raft._isLeader()
        ]
        return max(leading)[1] if leading else None

    def machine(self, member: str) -> MachineLike:
        """Its state, or that of its last process."""
        return self.processes[member].recorder.machine

    def applied_index(self, member: str) -> int:
        """How far its state is."""
        return self.processes[member].consensus.applied_index

    def last_index(self, member: str) -> int:
        """Where its log ends; 0 while it is not open."""
        raft = self.processes[member].raft
        return raft._log.journal.last_index if raft is not None else 0

    # ---- what is done to it

    def crash(self, member: str, *, power_loss: bool) -> None:
        """The process is gone; with `power_loss` what was not flushed is too, as drawn."""
        process = self.processes[member]
        self.note(f"{member} dies {power_loss}")
        process.crash(power_loss=power_loss)

    def crash_at_call(self, member: str, calls: int, *, power_loss: bool, after: str = "") -> None:
        """The same, in the middle of one of the next system calls that change the disk, or of those that follow `after`
        ("rename snapshot")."""
        process = self.processes[member]
        if process.running:
            self._cut[member] = (power_loss, after)
            if after:
                process.disk.cut_once_after = (after, calls)
            else:
                process.disk.cut_after = calls

    def restart(self, member: str) -> None:
        """A new process on the same disk; nothing happens if one is running."""
        process = self.processes[member]
        if not process.running:
            self.note(f"{member} starts")
            process.boot()

    def pause(self, member: str) -> None:
        """The process stands still: SIGSTOP."""
        self.note(f"{member} stands still")
        self.processes[member].pause()

    def resume(self, member: str) -> None:
        """It goes on."""
        self.note(f"{member} goes on")
        self.processes[member].resume()

    def stop(self, member: str) -> None:
        """Ask it to leave cleanly; a leader hands over first."""
        self.note(f"{member} is asked to stop")
        self.processes[member].stop()

    def wipe(self, member: str) -> None:
        """Its disk is replaced by an empty one. The process must be gone.

        Once members were changed it comes back as one that joins: the members of the start mean nothing any more.
        """
        assert not self.processes[member].running
        self.note(f"{member} has a new disk")
        configuration = self.configuration()
        if self._changed or self.processes[member].joined is not None:
            self.processes[member].joined = configuration.with_members(
                each for each in configuration.members if each.name != member
            )
        self._down.pop(member, None)
        self.processes[member].disk.wipe()
        self.watch.promises[member] = Promises()

    def close(self) -> None:
        """End all processes; the run is over."""
        self.on_exit = lambda member: None
        for process in self.processes.values():
            process.crash(power_loss=False)

    # ---- what came of it

    @property
    def violations(self) -> list[str]:
        """What must not have happened, and did."""
        return self.watch.violations

    def digest(self) -> str:
        """Of everything that happened, in order."""
        return self._trace.hexdigest()

    def note(self, what: str) -> None:
        """Add to the trace."""
        self._trace.update(f"{self.world.now:.6f} {what}\n".encode())

    # ---- what processes report

    def violate(self, what: str) -> None:
        """Something is broken."""
        self.watch.violations.append(what)

    def new_recorder(self, process: RaftProcess) -> Recorder:
        """The state of a new process."""
        return Recorder(process, self._make_machine(), self.watch)

    def leaves(self, process: RaftProcess, socket: VirtualSocket, data: bytes) -> None:
        """Bytes on their way."""
        self.note(f"{process.name}>{socket.peer} {len(data)} {zlib.crc32(data)}")
        self.watch.leaves(process, socket, data)

    def after_step(self, process: RaftProcess) -> None:
        """A process stands between two steps."""
        if not process.opened and process.raft is not None:
            process.opened = True
            self.watch.opened(process)
            self.counters["torn tails cut off"] += process.disk.counts.pop("cuts", 0)
        self.counters["conflicting tails cut"] += process.disk.counts.pop("cuts", 0)
        if self.watch.after_step(process):
            self.counters["elections won"] += 1
            self.note(f"{process.name} leads")

    def before_death(self, process: RaftProcess) -> None:
        """A process is about to be gone."""
        if process.raft is not None:
            self._down[process.name] = _log_of(process.raft)
        self.watch.before_death(process)

    def cut_at_call(self, process: RaftProcess, call: str) -> None:
        """The disk stopped in the middle of this call."""
        self.note(f"{process.name} dies in {call}")
        self.counters[f"crashed in {call}"] += 1
        power_loss, after = self._cut.pop(process.name)
        if after:
            self.counters[f"crashed soon after {after}"] += 1
        process.crash(power_loss=power_loss)
        self.on_exit(process.name)

    def exited(self, process: RaftProcess) -> None:
        """A process ended by itself."""
        failure = process.failure
        self.note(f"{process.name} ends: {failure}")
        if isinstance(failure, MemberRemoved):
            self.counters["removed members left"] += 1
            if self.watch.leading.get(process.name):
                self.counters["leader removed itself"] += 1
            if process.name in self.configuration().by_name and process.joined is None:
                self.violate(f"{process.name} left as removed, and is a member")
        else:
            self.counters["stopped itself" if failure else "left cleanly"] += 1
        if isinstance(failure, Corruption):
            self.violate(f"{process.name} found damage where there was none: {failure}")
        self.world.call_later(0.0, lambda: self.on_exit(process.name))
