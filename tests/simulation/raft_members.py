"""An operator of a simulated group, who adds, removes and replaces members and moves leadership while all else goes on."""

from __future__ import annotations

from collections.abc import Callable

from rangelog_core.errors import OutcomeUnknown, PreconditionFailed, RangelogError
from rangelog_pd.consensus.rules.changes import GROUP_SIZES, VOTERS_MAX
from tests.simulation.raft_group import RaftGroup
from tests.simulation.raft_process import Answer
from tests.simulation.raft_world import PlainWorld

STEP_WITHIN_S = 20.0


class Operator:
    """Draws changes until `stop`."""

    def __init__(self, world: PlainWorld, group: RaftGroup) -> None:
        self._world = world
        self._group = group
        self._number = 0
        self._stopped = False
        self._pause_s = world.random.choice([0.3, 1.0, 2.0])
        self._kinds: list[Callable[[], None]] = [
            self._add,
            self._add,
            self._remove,
            self._remove_the_leader,
            self._replace,
            self._replace_a_dead_one,
            self._transfer,
            self._rush,
            self._bring_back,
        ]
        self._next()

    def stop(self) -> None:
        """No more changes; those that were begun are finished by the group."""
        self._stopped = True

    def _next(self) -> None:
        self._world.call_later(self._world.random.expovariate(1 / self._pause_s), self._strike)

    def _strike(self) -> None:
        if not self._stopped:
            self._world.random.choice(self._kinds)()
            self._next()

    # ---- who

    def _running(self) -> list[str]:
        return [name for name, process in self._group.processes.items() if process.running and process.raft is not None]

    def _asked(self) -> str | None:
        """Whom to ask: the leader, or one that believes so, most of the time."""
        random = self._world.random
        believing = [name for name in self._running() if self._group.processes[name].consensus.is_leader()]
        if believing and random.random() < 0.9:
            return random.choice(believing)
        return random.choice(self._running() or [""]) or None

    def _one_of(self, names: frozenset[str]) -> str | None:
        return self._world.random.choice(sorted(names)) if names else None

    def _newcomer(self, name: str | None = None) -> str | None:
        """A process that waits to be added."""
        members = [each for each in self._running() if each in self._group.configuration().by_name]
        if not members:
            return None
        if name is None:
            self._number += 1
            # Names before and after those of the others: the greater name dials.
            name = f"{self._world.random.choice(['a', 'z'])}{self._number}"
        self._group.join(name, self._world.random.choice(members))
        return name

    def _heard(self, what: str, newcomer: str = "") -> Callable[[Answer], None]:
        def heard(answer: Answer) -> None:
            refused = isinstance(answer, RangelogError) and not isinstance(answer, OutcomeUnknown)
            if refused and newcomer and newcomer not in self._group.configuration().by_name:
                self._group.crash(newcomer, power_loss=False)
            if not isinstance(answer, RangelogError):
                self._group.counters[f"members: {what}"] += 1
            elif isinstance(answer, OutcomeUnknown):
                self._group.counters["members: unknown"] += 1
            elif isinstance(answer, PreconditionFailed):
                self._group.counters["members: not allowed"] += 1
            else:
                self._group.counters["members: refused"] += 1

        return heard

    # ---- what

    def _add(self) -> None:
        at, voters = self._asked(), self._group.configuration().voters
        if at is None or len(voters) >= VOTERS_MAX:
            return
        name = self._newcomer()
        if name is not None:
            self._group.add(name, at, self._heard("added", name))

    def _remove(self) -> None:
        at, configuration = self._asked(), self._group.configuration()
        name = self._one_of(frozenset(configuration.by_name))
        if at is not None and name is not None and len(configuration.members) > 1:
            self._group.remove(name, at, self._heard("removed"))

    def _remove_the_leader(self) -> None:
        leader = self._group.leader()
        if leader is not None and len(self._group.configuration().voters) > 1:
            self._group.remove(leader, leader, self._heard("leader removed"))

    def _replace(self) -> None:
        self._replace_one(dead=False)

    def _replace_a_dead_one(self) -> None:
        self._replace_one(dead=True)

    def _replace_one(self, *, dead: bool) -> None:
        at, victim = self._asked(), self._one_of(self._group.configuration().voters)
        if at is None or victim is None:
            return
        name = self._newcomer()
        if name is None:
            return
        if dead and victim != at:
            self._group.crash(victim, power_loss=True)
        self._group.add(name, at, self._heard("replaced", name), replaces=victim)

    def _transfer(self) -> None:
        at = self._asked()
        target = self._one_of(self._group.configuration().voters) if self._world.random.random() < 0.7 else None
        if at is not None:
            self._group.transfer(target, at, self._heard("transferred"))

    def _rush(self) -> None:
        """Several changes at once, at all who believe that they lead."""
        for at in self._running():
            if self._group.processes[at].consensus.is_leader():
                for _ in range(2):
                    name = self._one_of(self._group.configuration().voters)
                    if name is not None:
                        self._group.remove(name, at, self._heard("removed in a rush"))

    def _bring_back(self) -> None:
        """A removed one is added again, on an empty disk."""
        gone = sorted(set(self._group.processes) - set(self._group.configuration().by_name))
        at = self._asked()
        if gone and at is not None:
            name = self._newcomer(self._world.random.choice(gone))
            if name is not None:
                self._group.add(name, at, self._heard("brought back", name))

    # ---- in calm

    def resize(self, size: int) -> str:
        """Grow or shrink to so many voters, in calm; what went wrong, or ""."""
        end_s = self._world.now + STEP_WITHIN_S * 6
        while self._world.now < end_s:
            configuration = self._group.configuration()
            if len(configuration.voters) == size and len(configuration.members) == size:
                return ""
            self._step(size)
            self._world.run_until(self._world.now + 1.0)
        return f"not {size} members: {sorted(self._group.configuration().by_name)}"

    def _step(self, size: int) -> None:
        leader, configuration = self._group.leader(), self._group.configuration()
        learning = configuration.by_name.keys() - configuration.voters
        if leader is None or (learning and len(configuration.voters) < size):
            return
        if learning or len(configuration.voters) > size:
            self._group.remove(max(learning or configuration.voters), leader, self._heard("removed"))
        else:
            name = self._newcomer()
            if name is not None:
                self._group.add(name, leader, self._heard("added", name))


__all__ = ["GROUP_SIZES", "Operator"]
