"""Placement: living servers first, zones apart, load even, the excluded avoided; never a guess."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rangelog_core.errors import NoPlacement
from rangelog_pd.placement import Candidate, ServerHealth, place


def server(name: str, zone: str = "", health: ServerHealth = ServerHealth.ALIVE, load: int = 0) -> Candidate:
    """A candidate."""
    return Candidate(name, 1, zone, health, (load,))


def names(chosen: list[Candidate]) -> list[str]:
    """In the order of choice."""
    return [each.server for each in chosen]


def test_zones_are_spread_before_load_is_looked_at() -> None:
    """Two idle servers in one zone do not both get a replica while another zone has a loaded one."""
    found = place(
        [server("a", "z1"), server("b", "z1"), server("c", "z2", load=9), server("d", "z3", load=5)],
        replicas=3,
        acks=2,
    )
    assert sorted(names(found)) == ["a", "c", "d"]


def test_without_zones_load_decides() -> None:
    """Servers that name no zone are not taken for one zone."""
    found = place([server("a", load=3), server("b", load=1), server("c", load=2)], replicas=2, acks=2)
    assert names(found) == ["b", "c"]


def test_the_dead_fill_up_but_never_count() -> None:
    """With two alive of three the third place goes to the suspect before the dead; with one alive there is no place."""
    dead, suspect = server("d", health=ServerHealth.DEAD), server("s", health=ServerHealth.SUSPECT)
    assert sorted(names(place([server("a"), server("b"), dead, suspect], replicas=3, acks=2))) == ["a", "b", "s"]
    with pytest.raises(NoPlacement, match="1 range servers are alive"):
        place([server("a"), dead, suspect], replicas=3, acks=2)


def test_fewer_servers_than_replicas_make_a_smaller_set() -> None:
    """Two servers make two replicas of three; one does not, with two acks."""
    assert len(place([server("a"), server("b")], replicas=3, acks=2)) == 2
    with pytest.raises(NoPlacement):
        place([server("a")], replicas=3, acks=2)


def test_the_excluded_are_avoided_or_refused() -> None:
    """Loosely they are taken when there is no choice; strictly there is then no place."""
    three = [server("a"), server("b"), server("c")]
    assert "a" not in names(place([*three, server("d", load=9)], replicas=3, acks=2, exclude=["a"]))
    assert len(place(three, replicas=3, acks=2, exclude=["a"])) == 3
    with pytest.raises(NoPlacement, match="beside the excluded"):
        place(three, replicas=3, acks=2, exclude=["a"], strictly=True)


CANDIDATES = st.lists(
    st.builds(
        server,
        st.sampled_from([f"s{number}" for number in range(9)]),
        st.sampled_from(["", "z1", "z2", "z3"]),
        st.sampled_from(list(ServerHealth)),
        st.integers(0, 5),
    ),
    unique_by=lambda each: each.server,
)


@given(CANDIDATES, st.integers(1, 5), st.integers(1, 5), st.sets(st.sampled_from(["s0", "s1"])), st.booleans())
def test_whatever_is_chosen_can_be_used(
    candidates: list[Candidate], replicas: int, acks: int, exclude: set[str], strictly: bool
) -> None:
    """Distinct servers, enough of them alive, none excluded strictly, as many as asked for or as there are; repeatable."""
    acks = min(acks, replicas)
    try:
        found = place(candidates, replicas=replicas, acks=acks, exclude=sorted(exclude), strictly=strictly)
    except NoPlacement:
        allowed = [each for each in candidates if not (strictly and each.server in exclude)]
        alive = [each for each in allowed if each.health is ServerHealth.ALIVE]
        assert len(alive) < acks or len(allowed) < min(replicas, len(candidates))
        return
    assert len(set(names(found))) == len(found) == min(replicas, len(candidates))
    assert sum(each.health is ServerHealth.ALIVE for each in found) >= acks
    assert not (strictly and exclude & set(names(found)))
    again = place(candidates[::-1], replicas=replicas, acks=acks, exclude=sorted(exclude), strictly=strictly)
    assert names(again) == names(found)
