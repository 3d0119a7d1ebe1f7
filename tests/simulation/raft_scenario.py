"""One seed, one run: clients and faults for a while, then calm, then every promise is checked.

What is promised: an acked command is in the final state once, with the result that was told; what was refused is in no
state; no read misses what was seen before; members are equal once the faults are over; and they are soon.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from rangelog_core.errors import RangelogError
from rangelog_pd.state.machine import Machine, response_of
from tests.simulation.raft_clients import PATIENCE_S, Clients
from tests.simulation.raft_faults import Faults
from tests.simulation.raft_group import RaftGroup
from tests.simulation.raft_world import PlainWorld

NAMES = ("pd1", "pd2", "pd3", "pd4", "pd5")
SIZES = (3, 3, 3, 3, 3, 3, 3, 3, 1, 5)
FAULTS_S = 20.0
LEADER_WITHIN_S = 10.0
"""Twice the longest silence that a connection is given, and two elections."""
EQUAL_WITHIN_S = 15.0


@dataclass
class Outcome:
    """What one run came to."""

    seed: int
    violations: list[str] = field(default_factory=list)
    counters: Counter[str] = field(default_factory=Counter)
    digest: str = ""
    virtual_s: float = 0.0
    leader_again_s: float = 0.0


class Scenario:
    """See the module."""

    sizes = SIZES

    def __init__(self, seed: int) -> None:
        self.outcome = Outcome(seed)
        self.world = PlainWorld(seed)
        random = self.world.random
        snapshot_entries = random.choice([4, 8, 8, 30])
        self.group = RaftGroup(
            self.world,
            NAMES[: random.choice(self.sizes)],
            snapshot_entries=snapshot_entries,
            make_machine=Machine,
            message_bytes_max=random.choice([None, 300, 1000]),
        )
        self.clients = Clients(self.world, self.group, self.group.violate, pause_s=random.choice([0.03, 0.1, 0.2]))

    def run(self) -> Outcome:
        """Everything."""
        self._play()
        self._check_liveness()
        self._check_history()
        self._check_outcomes()
        self.group.close()
        outcome = self.outcome
        outcome.violations = [f"seed {outcome.seed}: {each}" for each in self.group.violations]
        outcome.counters = self.group.counters + self._disk_counts()
        outcome.digest = self.group.digest()
        outcome.virtual_s = self.world.now
        return outcome

    def _play(self) -> None:
        faults = Faults(self.world, self.group, self.clients)
        self.world.run_until(FAULTS_S)
        faults.stop()

    def _names(self) -> list[str]:
        """Those that must be equal in the end."""
        return list(self.group.processes)

    def _disk_counts(self) -> Counter[str]:
        return sum((process.disk.counts for process in self.group.processes.values()), Counter())

    def _check_liveness(self) -> None:
        started_s, before = self.world.now, self.clients.ok_count
        if not self.world.run_until(started_s + LEADER_WITHIN_S, lambda: self.clients.ok_count > before):
            self.group.violate(f"no command succeeded within {LEADER_WITHIN_S} s after the faults; {self._picture()}")
        self.outcome.leader_again_s = self.world.now - started_s
        self.clients.asking = False
        self.world.run_until(self.world.now + PATIENCE_S + 0.5)
        if not self.world.run_until(self.world.now + EQUAL_WITHIN_S, self._members_equal):
            self.group.violate(f"members differ {EQUAL_WITHIN_S} s after the faults: {self._picture()}")

    def _members_equal(self) -> bool:
        last = max(self.group.watch.history, default=0)
        return all(
            self.group.processes[name].running and self.group.applied_index(name) >= last for name in self._names()
        )

    def _picture(self) -> str:
        return ", ".join(
            f"{name} {'up' if process.running else 'down'} {process.consensus.status().term} "
            f"{self.group.applied_index(name)} {process.failure or ''}"
            for name, process in self.group.processes.items()
        )

    def _check_history(self) -> None:
        """The members are what one machine becomes that applies everything in order."""
        one = Machine()
        results: dict[bytes, bytes] = {}
        for index, (command, result) in sorted(self.group.watch.history.items()):
            if one.apply(index, command) != result:
                self.group.violate(f"entry {index} had another result than a single machine gives")
            if _is_final(result) and results.setdefault(command, result) != result:
                self.group.violate(f"the command of entry {index} had two results")
        wanted = one.snapshot()
        for name in self._names():
            if self.group.machine(name).snapshot() != wanted:
                self.group.violate(f"the state of {name} is not what the log makes it")
        self.results = results

    def _check_outcomes(self) -> None:
        first_index = self.group.watch.first_index
        counters = self.group.counters
        for operation in self.clients.operations:
            index = first_index.get(operation.command)
            counters[f"commands {operation.outcome}"] += 1
            if operation.outcome == "OK" and index is None:
                self.group.violate(f"{operation.request_id} was acked and is lost")
            if operation.outcome == "FAILED" and index is not None and operation.over:
                self.group.violate(f"{operation.request_id} was refused everywhere and applied at {index}")
            if operation.outcome == "UNKNOWN":
                counters["unknown, found applied" if index else "unknown, not applied"] += 1
            if index is not None and index <= operation.seen_index:
                self.group.violate(f"{operation.request_id} is at {index}, before {operation.seen_index} was seen")
            final = {answer for answer in operation.answers if _is_final(answer)}
            if len(final) > 1 or (final and final != {self.results.get(operation.command)}):
                self.group.violate(f"{operation.request_id} was answered in different ways")


def _is_final(result: bytes) -> bool:
    """Not an error that says "try again"."""
    try:
        response_of(result)
    except RangelogError as error:
        return not error.retriable
    return True


def run_scenario(seed: int) -> Outcome:
    """Run one seed."""
    return Scenario(seed).run()


def run_seed(seed: int) -> list[str]:
    """The violations of one seed."""
    return run_scenario(seed).violations
