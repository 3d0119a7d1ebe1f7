"""The range server's store, cut at every call of a workload, and cut again while it recovers.

At each call the disks that a crash could leave are made, each is recovered by the production start-up code and judged. A
sample of them is cut a second time at every call of the recovery; and works on after it, to be cut at the end: what a
store serves after a start must survive the next crash like anything else.
"""

from __future__ import annotations

from random import Random

from rangelog_core.errors import RangelogError
from rangelog_server.ranges.store import Store
from tests.crash_points.crash_tally import Tally
from tests.crash_points.store_promises import Promises
from tests.crash_points.store_workload import Scenario, SteppedWal, Workload, open_store
from tests.fakes.crashes import crashed
from tests.fakes.directory import Directory
from tests.fakes.disk import Step
from tests.fakes.faces import LogDisk

KILLED_AGAIN = 5
"""A process that was killed finds bytes and names that were never flushed: one of so many is worked on with."""
LATER_KINDS = ("nothing unflushed", "names without bytes", "bytes without names")


class StoreCrashes:
    """One scenario. `draws`: disks drawn at each cut; every `again`-th recovery is itself cut at every call (0: none)."""

    def __init__(self, scenario: Scenario, *, draws: int, again: int) -> None:
        self.tally = Tally()
        self._scenario, self._draws, self._again = scenario, draws, again
        self._chance = Random(scenario.seed)
        self._io = LogDisk()
        self._promises = Promises()

    def run(self) -> Tally:
        """Run the workload; at every call of it, crash."""
        self._io.before = self._cut
        store = open_store(self._io, self._scenario.segment_bytes, started_before=False, keys=self._scenario.keys)
        Workload(store, self._promises, self._scenario).run()
        self._cut(None)
        return self.tally

    def _cut(self, step: Step | None) -> None:
        if self.tally.full:
            return
        self.tally.cut(step)
        where = f"seed {self._scenario.seed}, call {self._io.calls} ({step.call} {step.name})" if step else "at the end"
        seen: set[int] = set()
        for kind, state in crashed(self._io.directory, step, self._chance, self._draws):
            image = hash((kind == "killed", *state.content().items()))
            if image in seen:
                continue
            seen.add(image)
            self._try(state, kind, where)

    def _try(self, state: Directory, kind: str, where: str) -> None:
        tally = self.tally
        tally.disks[kind] += 1
        tally.recoveries += 1
        unsure = bool(self._io.directory.changes) or self._io.calls % KILLED_AGAIN == 0
        again = bool(self._again) and (tally.recoveries % self._again == 0 or (kind == "killed" and unsure))
        io = LogDisk(state)
        if again:
            io.before = lambda step: self._cut_again(io, step, f"{where}, {kind}")
        store = self._recover(io, self._promises, f"{where}, {kind}")
        if store is None:
            return
        tally.doubts += bool(store.problems)
        if kind == "killed" and store.problems and self._promises.lives:
            tally.problems.append(f"{where}: a kill between two calls puts replicas in doubt: {store.problems}")
        if again:
            self._work_on(io, store, f"{where}, {kind}")

    def _recover(self, io: LogDisk, promises: Promises, where: str) -> Store | None:
        try:
            store = open_store(io, self._scenario.segment_bytes, keys=self._scenario.keys)
        except (RangelogError, OSError, KeyError, ValueError) as error:
            self.tally.problems.append(f"{where}: it does not start: {type(error).__name__} {error}")
            return None
        self.tally.problems += [f"{where}: {problem}" for problem in promises.problems(store)]
        return store

    def _cut_again(self, io: LogDisk, step: Step, where: str) -> None:
        """Crash in the middle of a recovery: nothing was served yet, so the old promises count."""
        self.tally.second_cuts += 1
        for kind, state in crashed(io.directory, step, self._chance, 1):
            self.tally.recoveries += 1
            self._recover(LogDisk(state), self._promises, f"{where}, again at {step.call} {step.name} ({kind})")

    def _work_on(self, io: LogDisk, store: Store, where: str) -> None:
        """A store that recovered serves and takes more; then the power goes."""
        promises = Promises.of_recovered(store)
        io.before = lambda step: self._crash_later(io, step, promises, f"{where}, then at {step.call} {step.name}")
        self._crash_later(io, None, promises, f"{where}, then at rest")
        store.unknown_ranges_settled()
        assert isinstance(store.wal, SteppedWal)
        work = Workload(store, promises, Scenario(7, self._scenario.segment_bytes, self._scenario.value_bytes_max))
        for number in range(2):
            work.append((20, number), 2)
            work.settle()
        self._crash_later(io, None, promises, f"{where}, then after more work")

    def _crash_later(self, io: LogDisk, step: Step | None, promises: Promises, where: str) -> None:
        self.tally.second_cuts += 1
        for kind, state in crashed(io.directory, step, self._chance, 0):
            if kind in LATER_KINDS:
                self.tally.recoveries += 1
                self._recover(LogDisk(state), promises, f"{where} ({kind})")
