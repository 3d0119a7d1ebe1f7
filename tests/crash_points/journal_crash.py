"""The Raft files of a placement driver, cut at every call of a workload, and cut again while they are opened."""

from __future__ import annotations

from random import Random

from rangelog_core.errors import RangelogError
from tests.crash_points.crash_tally import Tally
from tests.crash_points.journal_workload import Member, MemberPromises, MemberWorkload
from tests.fakes.crashes import crashed
from tests.fakes.directory import Directory
from tests.fakes.disk import Step
from tests.fakes.faces import RaftDisk


class MemberCrashes:
    """One workload. `draws`: disks drawn at each cut; every `again`-th opening is itself cut at every call (0: none)."""

    def __init__(self, seed: int, rounds: int, *, draws: int, again: int) -> None:
        self.tally = Tally()
        self._seed, self._rounds, self._draws, self._again = seed, rounds, draws, again
        self._chance = Random(seed)
        self._files = RaftDisk()
        self._promises = MemberPromises()

    def run(self) -> Tally:
        """Run the workload; at every call of it, crash."""
        self._files.before = self._cut
        MemberWorkload(self._files, self._promises, self._seed).run(self._rounds)
        self._cut(None)
        return self.tally

    def _cut(self, step: Step | None) -> None:
        if self.tally.full:
            return
        self.tally.cut(step)
        where = f"seed {self._seed}, call {self._files.calls} ({step.call} {step.name})" if step else "at the end"
        for kind, state in crashed(self._files.directory, step, self._chance, self._draws):
            self.tally.disks[kind] += 1
            self._try(state, f"{where}, {kind}", killed=kind == "killed")

    def _try(self, state: Directory, where: str, *, killed: bool) -> None:
        files = RaftDisk(state)
        if self._again and (killed or self.tally.recoveries % self._again == 0):
            files.before = lambda step: self._cut_again(files, step, where)
        member = self._open(files, self._promises, where)
        if member is not None and killed and self._again:
            files.before = None
            self._crash_later(files, MemberPromises.of_opened(member, self._promises), f"{where}, then at rest")

    def _open(self, files: RaftDisk, promises: MemberPromises, where: str) -> Member | None:
        self.tally.recoveries += 1
        try:
            member = Member(files)
        except (RangelogError, OSError, KeyError, ValueError) as error:
            self.tally.problems.append(f"{where}: it does not start: {type(error).__name__} {error}")
            return None
        self.tally.problems += [f"{where}: {problem}" for problem in promises.problems(member)]
        return member

    def _cut_again(self, files: RaftDisk, step: Step, where: str) -> None:
        self.tally.second_cuts += 1
        for kind, state in crashed(files.directory, step, self._chance, 1):
            self._open(RaftDisk(state), self._promises, f"{where}, again at {step.call} {step.name} ({kind})")

    def _crash_later(self, files: RaftDisk, promises: MemberPromises, where: str) -> None:
        self.tally.second_cuts += 1
        for kind, state in crashed(files.directory, None, self._chance, 1):
            self._open(RaftDisk(state), promises, f"{where} ({kind})")
