"""Wrong choices in changes of a group's members: the simulation of members must see each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from unittest.mock import patch

from rangelog_pd.consensus.files.configuration import Configuration
from rangelog_pd.consensus.rules.member_changes import STRANGERS_MAX, MemberChanges
from rangelog_pd.consensus.rules.raft_log import RaftLog
from tests.simulation.raft_member_plays import (
    alone_while_all_others_are_replaced,
    change_before_an_entry_of_the_own_term,
)
from tests.simulation.raft_members_scenario import run_members_seed as run_drawn_seed

__all__ = ["MEMBER_MUTANTS", "run_members_seed"]


def _settled_in_any_term(self: MemberChanges) -> bool:
    return self._log.membership.index <= self.raftCommitIndex


def _settled_once_the_term_is(self: MemberChanges) -> bool:
    return self._log.journal.term_at(self.raftCommitIndex) == self.raftCurrentTerm


def _count_itself_too(self: MemberChanges, configuration: Configuration) -> tuple[set[Any], set[Any]]:
    voting = {self._node(name) for name in configuration.voters if name != self._name}
    return voting, {self._node(name) for name in configuration.by_name if name != self._name} - voting


def _without_configuration(self: RaftLog, index: int) -> tuple[Configuration | None, int]:
    return None, 0


def _close_the_latest(self: MemberChanges) -> None:
    strangers = [name for name in self.peers.connected if name not in self._nodes]
    for name in strangers[STRANGERS_MAX:]:
        self.peers.drop(name, "there are too many strangers")


def _say_nothing(self: MemberChanges, peer: str) -> None:
    return


def run_members_seed(seed: int) -> list[str]:
    """The directed courses, then those that are drawn; returns what was violated.

    A course that does not come about is such a thing: with the product each does.
    """
    courses = (change_before_an_entry_of_the_own_term, alone_while_all_others_are_replaced) if seed == 0 else ()
    try:
        found = [problem for course in courses for problem in course()]
    except AssertionError as stuck:
        found = [str(stuck)]
    return found or run_drawn_seed(seed)


@contextmanager
def _replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    with patch.object(owner, name, value):
        yield


MEMBER_MUTANTS: dict[str, Callable[[], AbstractContextManager[None]]] = {
    "raft-change-before-own-term": lambda: _replaced(MemberChanges, "_is_settled", _settled_in_any_term),
    "raft-second-change-before-commit": lambda: _replaced(MemberChanges, "_is_settled", _settled_once_the_term_is),
    "raft-learner-votes": lambda: _replaced(Configuration, "voters", property(lambda self: frozenset(self.by_name))),
    "raft-removed-leader-counts": lambda: _replaced(MemberChanges, "_library_nodes", _count_itself_too),
    "raft-old-leader-not-told": lambda: _replaced(MemberChanges, "_answer_old_leader", _say_nothing),
    "raft-latest-stranger-is-closed": lambda: _replaced(MemberChanges, "_bear_strangers", _close_the_latest),
    "raft-configuration-not-in-snapshots": lambda: _replaced(
        RaftLog, "configuration_for_snapshot", _without_configuration
    ),
}
