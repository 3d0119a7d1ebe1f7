"""When the cluster version rises: by itself, by an operator's word, and what hinders it."""

from __future__ import annotations

import pytest

from rangelog_core.versions import FEATURE_LEVEL, LEVEL_CHANGES
from rangelog_pd.reconcile.finalizing import Announced, common_level, hindrances, rises_by_itself


@pytest.mark.parametrize(("levels", "common"), [((7, 7, 7), 7), ((7, 6, 7), 6), ((7, 7, 0), 0), ((), 0)])
def test_the_common_level_is_that_of_the_oldest_member(levels: tuple[int, ...], common: int) -> None:
    """One that was not heard of counts as the oldest."""
    assert common_level(levels) == common


@pytest.mark.parametrize(
    ("version", "common", "auto_finalize", "rises"),
    [
        (6, 7, True, True),
        (6, 7, False, False),
        (7, 7, True, False),
        (7, 6, True, False),
        (1, 7, False, True),
        (1, 0, False, False),
    ],
)
def test_it_rises_by_itself_unless_that_is_left_to_an_operator(
    version: int, common: int, auto_finalize: bool, rises: bool
) -> None:
    """It never falls; a new cluster has nothing to go back to."""
    assert rises_by_itself(version, common, auto_finalize=auto_finalize) is rises


def test_what_hinders_is_named() -> None:
    """Each process with what to do; nothing where all have the level, or range servers and brokers a later one."""
    members = [Announced("pd1", 7), Announced("pd2", 6), Announced("pd3", 0), Announced("pd4", 8)]
    found = hindrances(7, members, [Announced("rs1", 7), Announced("rs2", 0)], [Announced("b1", 6), Announced("b2", 8)])
    assert [each.split(": ")[0].split(" has ")[0].split(" was ")[0].split(" tells ")[0] for each in found] == [
        "placement driver pd2", "placement driver pd3", "placement driver pd4", "range server rs2", "broker b1",
    ]  # fmt: skip
    assert "upgrade it" in found[0] and "pdctl pd remove pd3" in found[1] and "upgrade the leader" in found[2]
    assert hindrances(7, [Announced("pd1", 7)], [Announced("rs1", 8)], []) == []


def test_each_level_says_what_it_brings() -> None:
    """So that an operator is told what `finalize` changes."""
    assert list(LEVEL_CHANGES) == list(range(2, FEATURE_LEVEL + 1)) and all(LEVEL_CHANGES.values())
