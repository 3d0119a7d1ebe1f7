"""Every order of the steps of three callers that share a flush: nothing is left, acked too early, or written twice."""

from __future__ import annotations

import pytest

from rangelog_files.group_commit import CommitStep
from tests.model.commit_model import CallerState, Commits, CommitState, EntryState
from tests.model.search import explore

CASES = {
    "three": Commits(),
    "three-in-groups-of-one": Commits(entries_max=1),
    "two-and-a-failed-write": Commits(calls=(1, 1), write_failures=1, flush_failures=1),
    "two-of-which-one-leaves": Commits(calls=(1, 1), give_ups=1, flush_failures=1),
    "two-that-call-twice": Commits(calls=(2, 2), flush_failures=1),
}
LARGE = {
    "three-and-a-failed-flush": Commits(flush_failures=1),
    "three-and-a-failed-write": Commits(write_failures=1),
    "three-of-which-one-leaves": Commits(give_ups=1),
    "three-in-groups-of-one-and-all-faults": Commits(entries_max=1, give_ups=1, flush_failures=1),
}


@pytest.mark.parametrize("case", [*CASES, *(pytest.param(name, marks=pytest.mark.long) for name in LARGE)])
def test_r10_r11_every_order_of_the_callers(case: str) -> None:
    """No order breaks the rules, and from each state all callers come to their outcome."""
    instance = {**CASES, **LARGE}[case]
    result = explore(instance.initial(), instance.successors, instance.invariant, instance.goal, name=case)
    assert not result.finding, (result.finding, result.trace)
    assert result.states > 300, "the search ended too early"


def test_r11_the_search_has_seen_the_narrow_place() -> None:
    """A winner has found the queue empty, and another enqueues before the flag is reset: such states are searched."""
    seen = 0

    def note(state: CommitState) -> str:
        nonlocal seen
        seen += any(each.step is CommitStep.RELEASE for each in state.callers) and bool(state.queue)
        return ""

    instance = Commits()
    explore(instance.initial(), instance.successors, note)
    assert seen > 100


@pytest.mark.parametrize(
    ("state", "finding"),
    [
        (CommitState((), (EntryState((0, 0), marked=True, acked=True),)), "ACKED-NOT-FLUSHED"),
        (CommitState((), written=((0, 0), (0, 0))), "WRITTEN-TWICE"),
        (CommitState((CallerState(),), written=((0, 1), (0, 0))), "OUT-OF-ORDER"),
        (CommitState((CallerState(step=CommitStep.DONE),), (EntryState((0, 0)),)), "LEFT-BEHIND"),
    ],
)
def test_each_rule_can_be_broken(state: CommitState, finding: str) -> None:
    """The invariant names a state that no caller must reach."""
    assert Commits(calls=(1,) * len(state.callers)).invariant(state) == finding
