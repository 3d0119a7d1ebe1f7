"""What happens to a simulated group: a mix of faults drawn per seed, one after the other and on top of each other."""

from __future__ import annotations

from collections.abc import Callable

from rangelog_pd.consensus.interface import MemberRemoved
from tests.simulation.raft_clients import Clients
from tests.simulation.raft_group import RaftGroup
from tests.simulation.raft_world import PlainWorld

RESTART_S_MAX = 2.0
_COMPACTION_CALLS = [
    ("create snapshot.new", 7),
    ("rename snapshot", 9),
    ("create journal.new", 5),
    ("rename journal", 1),
]


UNHEARD_S = (0.6, 1.0)
"""Longer than a leader counts on a member that does not answer."""


class Faults:
    """Breaks things until `stop`; then everything is mended, and stays so."""

    def __init__(self, world: PlainWorld, group: RaftGroup, clients: Clients) -> None:
        self._world = world
        self._clients = clients
        self._group = group
        self._stopped = False
        self._wiped: str | None = None
        self._kinds: list[Callable[[], None]] = [
            self._kill,
            self._lose_power,
            self._cut_at_a_call,
            self._cut_in_a_compaction,
            self._cut_in_a_compaction,
            self._pause,
            self._isolate,
            self._strand_the_leader,
            self._cut_one_way,
            self._cut_a_pair,
            self._slow_disk,
            self._full_disk,
            self._failing_disk,
            self._all_at_once,
            self._leave,
            self._new_disk,
            self._new_disk_while_one_is_away,
            self._lossy,
            self._slow_network,
        ]
        random = world.random
        self._kinds = random.sample(self._kinds, random.randint(3, len(self._kinds)))
        self._pause_s = random.choice([0.4, 1.0, 2.5])
        self._vote_crash_share = random.choice([0.0, 0.0, 0.1, 0.4])
        group.on_exit = self._restart_soon
        group.watch.on_vote = self._voted
        self._next()

    def stop(self) -> None:
        """Mend everything."""
        self._stopped = True
        self._world.blocked.clear()
        self._world.loss = self._world.slow_share = 0.0
        for name, process in self._group.processes.items():
            process.disk.full = process.disk.failing_flushes = process.disk.failing_append = False
            process.disk.slow_s = 0.0
            process.disk.cut_after = process.disk.cut_once_after = None
            self._group.resume(name)
            self._group.restart(name)

    @property
    def _names(self) -> list[str]:
        """Those that count, or are being added."""
        return [name for name in self._group.configuration().by_name if name in self._group.processes]

    # ---- drawing

    def _next(self) -> None:
        self._world.call_later(self._world.random.expovariate(1 / self._pause_s), self._strike)

    def _strike(self) -> None:
        if not self._stopped:
            kind = self._world.random.choice(self._kinds)
            self._group.counters[f"fault: {kind.__name__.strip('_').replace('_', ' ')}"] += 1
            kind()
            self._next()

    def _member(self) -> str:
        leader = self._group.leader()
        random = self._world.random
        return leader if leader is not None and random.random() < 0.5 else random.choice(self._names)

    def _later(self, least_s: float, most_s: float, call: Callable[[], None]) -> None:
        def unless_stopped() -> None:
            if not self._stopped:
                call()

        self._world.call_later(self._world.random.uniform(least_s, most_s), unless_stopped)

    def _restart_soon(self, name: str) -> None:
        if isinstance(self._group.processes[name].failure, MemberRemoved):
            if not self._stopped and self._world.random.random() < 0.3:
                self._later(0.5, 3.0, lambda: self._group.restart(name))  # it is told again
            return
        if self._stopped:
            self._world.call_later(0.2, lambda: self._group.restart(name))
        else:
            most_s = self._world.random.choice([0.02, 0.2, RESTART_S_MAX])
            self._later(0.005, most_s, lambda: self._group.restart(name))

    # ---- processes

    def _crash(self, name: str, *, power_loss: bool) -> None:
        self._group.crash(name, power_loss=power_loss)
        self._restart_soon(name)

    def _kill(self) -> None:
        self._crash(self._member(), power_loss=False)

    def _lose_power(self) -> None:
        self._crash(self._member(), power_loss=True)

    def _cut_at_a_call(self) -> None:
        random = self._world.random
        self._group.crash_at_call(self._member(), random.randrange(25), power_loss=random.random() < 0.6)

    def _cut_in_a_compaction(self) -> None:
        """Snapshot renamed, journal not yet trimmed; journal renamed, directory not flushed; and the calls around."""
        random = self._world.random
        for name in self._names if random.random() < 0.3 else [self._member()]:
            after, calls = random.choice(_COMPACTION_CALLS)
            power_loss = random.random() < 0.7
            self._group.crash_at_call(name, random.randrange(calls), power_loss=power_loss, after=after)

    def _pause(self) -> None:
        name = self._member()
        self._group.pause(name)

        def resume() -> None:
            self._group.resume(name)
            self._clients.read_at(name)

        self._later(0.05, 3.0, resume)

    def _all_at_once(self) -> None:
        power_loss = self._world.random.random() < 0.7
        for name in self._names:
            self._crash(name, power_loss=power_loss)

    def _leave(self) -> None:
        self._group.stop(self._member())

    def _voted(self, name: str) -> None:
        """Power goes right after a vote, and the member is back before the election is over."""
        if self._stopped or self._world.random.random() >= self._vote_crash_share:
            return

        def crash() -> None:
            if self._group.processes[name].running:
                self._group.counters["votes given, then crashed"] += 1
                self._group.crash(name, power_loss=True)
                self._later(0.001, 0.05, lambda: self._group.restart(name))

        self._later(0.0001, 0.002, crash)

    def _new_disk(self) -> None:
        name = self._member()
        if not self._may_replace(name):
            return
        if not self._group.has_changed:
            self._replace(name)
            return
        # A leader that takes it for alive may begin a change that needs it: two losses at once, which nobody promises to bear.
        self._group.crash(name, power_loss=True)

        def wipe() -> None:
            if self._group.processes[name].running or self._stopped:
                return
            if self._may_replace(name):
                self._replace(name)
            else:
                self._restart_soon(name)

        self._later(*UNHEARD_S, wipe)

    def _may_replace(self, name: str) -> bool:
        """One at a time: the next one only after the last one holds everything again."""
        holding = [each for each in self._group.processes.values() if each.running and each.raft is not None]
        voters = {each.name for each in holding if each.raft is not None and each.raft._log.voter}
        counting = self._group.configuration().voters
        others = {each for each in self._names if each != name}
        # Without its voice there must be a majority left: a disk that is lost is a loss, as a member that is away is.
        bears_it = name not in counting or 2 * len(counting - {name}) > len(counting)
        return bool(others) and bears_it and others <= voters and self._wiped in (None, *voters, *self._gone())

    def _gone(self) -> set[str]:
        return set(self._group.processes) - set(self._names)

    def _replace(self, name: str) -> None:
        self._wiped = name
        self._group.counters["disks replaced"] += 1
        self._group.crash(name, power_loss=True)
        self._group.wipe(name)
        self._restart_soon(name)

    def _new_disk_while_one_is_away(self) -> None:
        """What was acked meanwhile is on two members. One gets a new disk, and the other dies while it is copied."""
        leader = self._group.leader()
        others = [name for name in self._names if name != leader]
        if leader is None or len(others) != 2:
            return
        away, empty = self._world.random.sample(others, 2)
        self._world.blocked.update(self._around(away))

        def replace() -> None:
            if self._may_replace(empty):
                self._replace(empty)
                self._soon_as(lambda: 1 < self._group.last_index(empty) < self._group.last_index(leader), crash)

        def crash() -> None:
            self._world.blocked.difference_update(self._around(away))
            self._group.counters["died while a new disk was filled"] += 1
            self._group.crash(leader, power_loss=True)
            self._later(3.0, 6.0, lambda: self._group.restart(leader))

        self._later(0.5, 2.0, replace)
        self._later(4.0, 4.0, lambda: self._world.blocked.difference_update(self._around(away)))

    def _soon_as(self, holds: Callable[[], bool], call: Callable[[], None], tries: int = 3000) -> None:
        if holds():
            call()
        elif tries:
            self._later(0.0005, 0.0005, lambda: self._soon_as(holds, call, tries - 1))

    # ---- the network

    def _around(self, name: str) -> list[tuple[str, str]]:
        return [pair for other in self._group.processes if other != name for pair in ((name, other), (other, name))]

    def _block(self, pairs: list[tuple[str, str]]) -> None:
        self._world.blocked.update(pairs)
        self._later(0.1, 4.0, lambda: self._world.blocked.difference_update(pairs))

    def _isolate(self) -> None:
        self._block(self._around(self._member()))

    def _strand_the_leader(self) -> None:
        """Nobody hears it any more, and it is asked again and again while the others elect another."""
        name = self._group.leader()
        if name is None:
            return
        self._block(self._around(name))

        def look() -> None:
            self._clients.read_at(name)
            leader = self._group.leader()
            if leader not in (None, name):
                self._clients.write_at(leader)

        for number in range(40):
            self._later(number * 0.05, number * 0.05, look)

    def _cut_one_way(self) -> None:
        name = self._member()
        others = [other for other in self._names if other != name]
        outwards = self._world.random.random() < 0.5
        self._block([(name, other) if outwards else (other, name) for other in others])

    def _cut_a_pair(self) -> None:
        one, other = self._member(), self._world.random.choice(self._names)
        self._block([(one, other), (other, one)])

    def _lossy(self) -> None:
        self._world.loss = self._world.random.choice([0.02, 0.1, 0.3])
        self._later(0.5, 3.0, lambda: setattr(self._world, "loss", 0.0))

    def _slow_network(self) -> None:
        self._world.slow_share = self._world.random.choice([0.05, 0.5])
        self._world.slow_s = self._world.random.choice([0.02, 0.3, 1.0])
        self._later(0.5, 3.0, lambda: setattr(self._world, "slow_share", 0.0))

    # ---- disks

    def _slow_disk(self) -> None:
        disk = self._group.processes[self._member()].disk
        disk.slow_s = self._world.random.choice([0.02, 0.3, 1.5])
        self._later(0.5, 3.0, lambda: setattr(disk, "slow_s", 0.0))

    def _full_disk(self) -> None:
        disk = self._group.processes[self._member()].disk
        disk.full = True
        self._later(0.1, 2.0, lambda: setattr(disk, "full", False))

    def _failing_disk(self) -> None:
        """Flushes fail; soon after, the power goes as well, as often as not."""
        name = self._member()
        disk = self._group.processes[name].disk
        if self._world.random.random() < 0.7:
            disk.failing_append = True
        else:
            disk.failing_flushes = True
            self._later(0.02, 0.5, lambda: setattr(disk, "failing_flushes", False))
        if self._world.random.random() < 0.5:
            self._later(0.1, 3.0, lambda: self._crash(name, power_loss=True))
