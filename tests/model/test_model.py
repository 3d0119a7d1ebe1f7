"""The quick form of the models: what is right breaks nothing in any state, and each wrong choice is found."""

from __future__ import annotations

import pytest

from tests.model.case import Case
from tests.model.model_cases import CASES
from tests.model.search import explore

QUICK = [case for case in CASES if not case.large]


@pytest.mark.parametrize("case", QUICK, ids=[f"{case.model}-{case.name}" for case in QUICK])
def test_case_ends_as_expected(case: Case) -> None:
    """Each search ends in exactly the finding that its case names, or in none."""
    result = case.search()
    assert result.finding == case.expect, "\n".join(result.trace)
    assert bool(result.trace) == bool(case.expect)


def test_search_finds_the_shortest_way_to_a_violation() -> None:
    """Breadth first: of two ways to a bad state the shorter one is the trace."""
    steps = {0: [("long", 1), ("short", 3)], 1: [("on", 2)], 2: [("bad", 9)], 3: [("bad", 9)]}
    result = explore(0, lambda state: steps.get(state, []), lambda state: "BAD" if state == 9 else "")
    assert (result.violation, result.trace, result.depth) == ("BAD", ["short", "bad"], 2)


def test_search_counts_the_states_without_a_way_to_the_goal() -> None:
    """A ring that reaches the goal is no dead end however long it is; a trap beside it is one, with the way into it."""
    steps = {0: [("round", 1), ("trap", 7)], 1: [("round", 2)], 2: [("round", 0), ("done", 5)], 7: [("stay", 8)]}
    result = explore(0, lambda state: steps.get(state, []), lambda state: "", lambda state: state == 5)
    assert (result.states, result.dead_ends, result.trace, result.finding) == (6, 2, ["trap"], "dead-end")
