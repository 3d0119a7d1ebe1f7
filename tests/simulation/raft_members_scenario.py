"""One seed, one run of a group whose members change while faults strike; then calm, then every promise is checked.

To the promises of `raft_scenario` come: whatever was begun comes to its end, members that were not removed are equal, and the
group grows and shrinks to the size that is asked for.
"""

from __future__ import annotations

from tests.simulation.raft_faults import Faults
from tests.simulation.raft_members import GROUP_SIZES, Operator
from tests.simulation.raft_scenario import FAULTS_S, Outcome, Scenario

SETTLED_WITHIN_S = 30.0


class MembersScenario(Scenario):
    """See the module."""

    sizes = (1, 3, 3, 5)

    def _play(self) -> None:
        random = self.world.random
        operator = Operator(self.world, self.group)
        faults = Faults(self.world, self.group, self.clients) if random.random() < 0.8 else None
        self.world.run_until(FAULTS_S)
        operator.stop()
        if faults is not None:
            faults.stop()
        self._revive()
        if not self.world.run_until(self.world.now + SETTLED_WITHIN_S, self._is_settled):
            self.group.violate(f"members are not settled {SETTLED_WITHIN_S} s after the faults: {self._picture()}")
        failed = operator.resize(random.choice(GROUP_SIZES))
        if failed:
            self.group.violate(f"{failed}; {self._picture()}")

    def _revive(self) -> None:
        """Those that were to stay dead come back: without them there may be no majority."""
        for name in self.group.configuration().by_name:
            if name in self.group.processes:
                self.group.resume(name)
                self.group.restart(name)

    def _is_settled(self) -> bool:
        configuration = self.group.configuration()
        replacing = any(member.replaces for member in configuration.members)
        return (
            self.group.leader() is not None
            and not replacing
            and len(configuration.members) == len(configuration.voters)
        )

    def _names(self) -> list[str]:
        return list(self.group.configuration().by_name)


def run_members_scenario(seed: int) -> Outcome:
    """Run one seed."""
    return MembersScenario(seed).run()


def run_members_seed(seed: int) -> list[str]:
    """The violations of one seed."""
    return run_members_scenario(seed).violations
