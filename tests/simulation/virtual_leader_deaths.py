"""The leader dies at the steps of its reconcilers: when a command of one takes effect, and when a directive is given.

The command may be all that anybody has of a task in progress, or the directive's answer may be lost. The next leader has to go
on from there. In so many seeds; which of the steps is drawn from a source of its own, so that other seeds stay what they were.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from tests.simulation.virtual_time import WORLD

if TYPE_CHECKING:
    from tests.simulation.virtual_faults import Faults

EVERY = 3
SHARE = 0.07
FIRST_SHARE = 0.7
"""How often the first of a rare step in a seed is struck; later ones, and all others, at SHARE."""
DEATHS_MAX = 10
DEATHS_IN_CALM_MAX = 4
"""When all other faults are over, what they have left is mended: most steps of repair are made then."""
COMMANDS = (
    "replace_replica", "drop_hot", "prepare_object", "commit_object", "abandon_object", "collect_objects", "prepare_repack",
    "commit_repack", "retain_stream", "retain_topic", "take_cuts", "continue_topic", "start_own_scale", "mark_broker_lost",
    "assign_shards", "set_server_mode",
)  # fmt: skip
DIRECTIVES = (
    "seal_replica", "copy_replica", "drop_replica", "upload_range", "delete_objects", "recover_range", "leave_range",
    "repack_objects",
)  # fmt: skip
RARE = (
    "abandon_object", "collect_objects", "retain_stream", "commit_repack", "prepare_repack", "replace_replica", "retain_topic",
    "take_cuts", "continue_topic", "start_own_scale", "recover_range", "leave_range", "mark_broker_lost", "assign_shards",
    "set_server_mode", "delete_objects", "repack_objects",
)  # fmt: skip
"""Seldom enough for a run of a few hundred seeds without a death at one of them: each is struck at its first in a seed."""
SELDOM = ("retain_topic", "take_cuts", "continue_topic")
"""In so few seeds that a run of 2,000 may have no death at one of them: struck at their first in other seeds too."""


def death_at(step: str) -> str:
    """The name of the corner case."""
    return f"the leader died at {step.replace('_', ' ')}"


CORNER_CASES = tuple(death_at(step) for step in (*COMMANDS, *DIRECTIVES) if step not in RARE)
RARE_CASES = tuple(death_at(step) for step in RARE)


class LeaderDeaths:
    """Kills the leader of a run."""

    def __init__(self, faults: Faults) -> None:
        self._faults = faults
        self._cluster = faults.cluster
        self._chance = Random(f"deaths of the leader of seed {faults.cluster.seed}")
        # Drawn: roles come in seeds by their remainders, and some would never be in those of deaths.
        lives = self._chance.random() >= 1 / EVERY
        self._left = {True: 0 if lives else DEATHS_MAX, False: 0 if lives else DEATHS_IN_CALM_MAX}
        self._seen: set[str] = set()

    def step(self, step: str) -> None:
        """A reconciler has made a step: now and then it was the leader's last."""
        if step not in COMMANDS + DIRECTIVES:
            return
        first = step in RARE and step not in self._seen
        if self._left[self._faults.running] <= 0 and not (first and step in SELDOM):
            return
        self._seen.add(step)
        if self._chance.random() >= (FIRST_SHARE if first else SHARE):
            return
        cluster = self._cluster
        leader = cluster.group.leader
        if leader is None or not all(process.alive and not process.paused for process in cluster.pds.values()):
            return
        self._left[self._faults.running] -= 1
        cluster.note(death_at(step))
        cluster.kill_pd(leader)
        cluster.loop.call_in(WORLD, self._chance.uniform(0.1, 3.0), lambda: self._again(leader))

    def _again(self, name: str) -> None:
        if not self._cluster.pds[name].alive:
            self._cluster.start_pd(name)
