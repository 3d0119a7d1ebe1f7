"""Placement: living servers first, zones and racks apart, load even, the excluded avoided, policies kept; never a guess."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rangelog_core.errors import NoPlacement
from rangelog_pd.placement import ANY, Candidate, Place, Placer, Policy, ServerHealth, place
from rangelog_proto.v1.common_pb2 import ReplicaReason


def server(
    name: str, zone: str = "", health: ServerHealth = ServerHealth.ALIVE, load: int = 0, labels: str = "", **more: Any
) -> Candidate:
    """A candidate; labels with blanks between them."""
    return Candidate(name, 1, zone, health, (load,), labels=frozenset(labels.split()), **more)


def names(chosen: list[Candidate]) -> list[str]:
    """In the order of choice."""
    return [each.server for each in chosen]


def placed(candidates: list[Candidate], **asked: Any) -> list[Candidate]:
    """What `place` chooses, and a Placer as well; or what both refuse."""
    try:
        found = place(candidates, **asked)
    except NoPlacement:
        with pytest.raises(NoPlacement):
            Placer(candidates).place(**asked)
        raise
    assert Placer(candidates).place(**asked) == found
    return found


def test_zones_are_spread_before_load_is_looked_at() -> None:
    """Two idle servers in one zone do not both get a replica while another zone has a loaded one."""
    found = placed(
        [server("a", "z1"), server("b", "z1"), server("c", "z2", load=9), server("d", "z3", load=5)],
        replicas=3,
        acks=2,
    )
    assert sorted(names(found)) == ["a", "c", "d"]


def test_without_zones_load_decides() -> None:
    """Servers that name no zone are not taken for one zone."""
    found = placed([server("a", load=3), server("b", load=1), server("c", load=2)], replicas=2, acks=2)
    assert names(found) == ["b", "c"]


def test_the_dead_fill_up_but_never_count() -> None:
    """With two alive of three the third place goes to the suspect before the dead; with one alive there is no place."""
    dead, suspect = server("d", health=ServerHealth.DEAD), server("s", health=ServerHealth.SUSPECT)
    assert sorted(names(placed([server("a"), server("b"), dead, suspect], replicas=3, acks=2))) == ["a", "b", "s"]
    with pytest.raises(NoPlacement, match="1 range server is alive"):
        placed([server("a"), dead, suspect], replicas=3, acks=2)


def test_fewer_servers_than_replicas_make_a_smaller_set() -> None:
    """Two servers make two replicas of three; one does not, with two acks."""
    assert len(placed([server("a"), server("b")], replicas=3, acks=2)) == 2
    with pytest.raises(NoPlacement):
        placed([server("a")], replicas=3, acks=2)


def test_the_excluded_are_avoided_or_refused() -> None:
    """Loosely they are taken when there is no choice; strictly there is then no place."""
    three = [server("a"), server("b"), server("c")]
    assert "a" not in names(placed([*three, server("d", load=9)], replicas=3, acks=2, exclude=["a"]))
    assert len(placed(three, replicas=3, acks=2, exclude=["a"])) == 3
    with pytest.raises(NoPlacement, match="beside the excluded"):
        placed(three, replicas=3, acks=2, exclude=["a"], strictly=True)


def test_racks_are_spread_within_a_zone() -> None:
    """Where two replicas must share a zone, they do not share a rack; racks of one name in two zones are two racks."""
    found = placed(
        [
            server("a", "z1", rack="r1"),
            server("b", "z1", rack="r1"),
            server("c", "z1", rack="r2", load=9),
            server("d", "z2", rack="r1", load=5),
        ],
        replicas=3,
        acks=2,
    )
    assert sorted(names(found)) == ["a", "c", "d"]


def test_the_servers_of_a_host_count_as_one() -> None:
    """Two idle servers of one host never have the same range: with too few hosts there are fewer replicas, or no placement."""
    pair = [server("a", host="h1"), server("b", host="h1")]
    assert names(placed([*pair, server("c", host="h2", load=9), server("d", load=9)], replicas=3, acks=2)) == [
        "a",
        "c",
        "d",
    ]
    assert names(placed([*pair, server("c", host="h2", full=True)], replicas=3, acks=2)) == ["a", "c"]
    dead = server("d", host="h1", health=ServerHealth.DEAD)
    assert names(placed([dead, *pair, server("c")], replicas=2, acks=2)) == ["a", "c"]
    with pytest.raises(NoPlacement, match="3 range servers are alive on 1 host, 2 are needed"):
        placed([*pair, server("c", host="h1"), server("d", host="h2", health=ServerHealth.DEAD)], replicas=3, acks=2)
    taken = [Place("", "", "h1")]
    assert names(placed([*pair, server("c", load=9)], replicas=1, acks=1, taken=taken)) == ["c"]
    with pytest.raises(NoPlacement):
        placed(pair, replicas=1, acks=1, taken=taken)


def test_a_full_server_is_avoided_where_there_is_a_choice() -> None:
    """A nearly full disk counts before zones and load; it is taken when the policy, or the number, leaves no other."""
    full = server("f", "z3", full=True)
    two = [server("a", "z1"), server("b", "z1", load=9)]
    assert names(placed([*two, full], replicas=2, acks=2)) == ["a", "b"]
    assert sorted(names(placed([*two, full], replicas=3, acks=2))) == ["a", "b", "f"]
    assert "f" in names(placed([*two, full], replicas=2, acks=2, policy=Policy(zones_min=2)))


def test_labels_are_strict() -> None:
    """Only servers with all labels are chosen; the refusal names the labels and how many servers have them."""
    ssd, both = server("a", labels="disk=ssd", load=9), server("b", labels="disk=ssd team=x", load=9)
    found = [server("c"), server("d", labels="disk=hdd"), ssd, both]
    assert names(placed(found, replicas=3, acks=2, policy=Policy(labels=frozenset({"disk=ssd"})))) == ["a", "b"]
    with pytest.raises(
        NoPlacement, match=r"1 range server with disk=ssd, team=x is alive, 2 are needed.*1 of 4 servers"
    ):
        placed(found, replicas=2, acks=2, policy=Policy(labels=frozenset({"disk=ssd", "team=x"})))


def test_zones_min_is_strict() -> None:
    """Dead zones and servers without a zone do not count; the refusal names the zones that there are."""
    found = [server("a", "z1"), server("b", "z1"), server("c", "z2"), server("n")]
    dead = server("d", "z3", health=ServerHealth.DEAD)
    assert len(placed([*found, dead], replicas=3, acks=2, policy=Policy(zones_min=2))) == 3
    with pytest.raises(NoPlacement, match=r"wants replicas in 3 zones.*alive in 2 \(only z1, z2\)"):
        placed([*found, dead], replicas=3, acks=2, policy=Policy(zones_min=3))


def test_why_a_server_was_chosen() -> None:
    """The first by load, the next for their zones and racks; where there is nothing to choose, that is said."""
    found = [
        server("a", "z1", rack="r"),
        server("b", "z1", rack="s", load=1),
        server("c", "z2", load=2),
        server("d", "z2", load=3),
    ]
    reasons = [ReplicaReason.Name(each.reason) for each in placed(found, replicas=3, acks=2)]
    assert reasons == ["REPLICA_REASON_LEAST_LOADED", "REPLICA_REASON_NEW_ZONE", "REPLICA_REASON_NEW_RACK"]
    reasons = [ReplicaReason.Name(each.reason) for each in placed(found[:3], replicas=3, acks=2)]
    assert set(reasons) == {"REPLICA_REASON_ONLY_CHOICE"}


CANDIDATES = st.lists(
    st.builds(
        server,
        st.sampled_from([f"s{number}" for number in range(9)]),
        st.sampled_from(["", "z1", "z2", "z3"]),
        st.sampled_from(list(ServerHealth)),
        st.integers(0, 5),
        st.sampled_from(["", "d=1", "d=1 e=1"]),
        rack=st.sampled_from(["", "r1", "r2"]),
        host=st.sampled_from(["", "h1", "h2"]),
        full=st.booleans(),
        barred=st.sampled_from([False, False, False, True]),
        avoided=st.booleans(),
    ),
    unique_by=lambda each: each.server,
)
POLICIES = st.builds(
    Policy, st.integers(0, 3), st.sampled_from(["", "", "d=1", "d=1 e=1"]).map(lambda text: frozenset(text.split()))
)
TAKEN = st.lists(
    st.builds(Place, st.sampled_from(["", "z1", "z2"]), st.sampled_from(["", "r1"]), st.sampled_from(["", "h1"])),
    max_size=2,
)
EXCLUDED = st.sets(st.sampled_from(["s0", "s1"])).map(sorted)


def is_placement(found: Sequence[Candidate], replicas: int, acks: int, policy: Policy) -> bool:
    """Whether a set of servers keeps the policy, no two on one host, with enough of them alive."""
    alive = [each for each in found if each.health is ServerHealth.ALIVE]
    zones = {each.zone for each in alive if each.zone}
    apart = len({each.machine for each in found}) == len(found)
    return (
        apart and len(alive) >= acks and len(zones) >= policy.zones_min and all(policy.admits(each) for each in found)
    )


@given(CANDIDATES, st.integers(1, 4), st.integers(1, 4), EXCLUDED, st.booleans(), POLICIES)
def test_there_is_a_placement_whenever_some_set_of_servers_is_one(
    candidates: list[Candidate], replicas: int, acks: int, exclude: list[str], strictly: bool, policy: Policy
) -> None:
    """Against brute force: what is chosen keeps the policy, and a refusal means that no set of servers does; repeatable."""
    acks, policy = min(acks, replicas), Policy(min(policy.zones_min, replicas), policy.labels)
    allowed = [each for each in candidates if not (strictly and each.server in exclude)]
    size = min(replicas, len({each.machine for each in candidates if policy.admits(each)}))
    exists = any(is_placement(found, replicas, acks, policy) for found in combinations(allowed, size))
    try:
        found = place(candidates, replicas=replicas, acks=acks, exclude=exclude, strictly=strictly, policy=policy)
    except NoPlacement:
        assert not exists
        return
    assert exists
    assert len(set(names(found))) == len(found) == size
    assert is_placement(found, replicas, acks, policy)
    assert not (strictly and {*exclude} & set(names(found)))
    again = place(candidates[::-1], replicas=replicas, acks=acks, exclude=exclude, strictly=strictly, policy=policy)
    assert names(again) == names(found)


@given(CANDIDATES, st.integers(1, 4), st.integers(1, 3), EXCLUDED, st.booleans(), POLICIES, TAKEN, st.integers(0, 2))
def test_many_placements_are_those_of_one_after_the_other(
    found: list[Candidate],
    replicas: int,
    acks: int,
    exclude: list[str],
    strictly: bool,
    policy: Policy,
    taken: list[Place],
    later: int,
) -> None:
    """Each is what `place` chooses with the load that the ones before left, for the same reasons; and refuses as it refuses."""
    placer = Placer(found)
    asked: dict[str, Any] = {
        "replicas": replicas,
        "acks": min(acks, replicas),
        "exclude": exclude,
        "strictly": strictly,
        "policy": policy,
        "taken": taken,
        "later": later,
    }
    for _ in range(4):
        try:
            expected = place(found, **asked)
        except NoPlacement as refusal:
            with pytest.raises(NoPlacement) as raised:
                placer.place(**asked)
            assert raised.value.message == refusal.message
            return
        chosen = placer.place(**asked)
        assert [(each.server, each.reason) for each in chosen] == [(each.server, each.reason) for each in expected]
        loaded = {each.server for each in chosen}
        found = [each.loaded() if each.server in loaded else each for each in found]
        assert {each.server: each.load for each in placer.candidates()} == {each.server: each.load for each in found}


@given(
    st.lists(
        st.tuples(st.integers(0, 30), st.sampled_from(["z1", "z2", "z3"]), st.integers(0, 9)), min_size=3, max_size=30
    )
    .map(
        lambda rows: [
            server(f"s{name}", zone, load=load) for name, zone, load in {row[0]: row for row in rows}.values()
        ]
    )
    .filter(lambda found: len({each.zone for each in found}) == 3)
)
def test_the_loss_of_one_zone_of_three_leaves_acks_in_the_others(candidates: list[Candidate]) -> None:
    """However loaded the zones are, whichever is lost: two of three replicas are elsewhere."""
    for policy in (ANY, Policy(zones_min=3)):
        found = place(candidates, replicas=3, acks=2, policy=policy)
        for lost in ("z1", "z2", "z3"):
            assert sum(each.zone != lost for each in found) >= 2


def test_a_placer_follows_its_candidates() -> None:
    """A server that is put again counts as it is now, and one that is removed is not chosen."""
    placer = Placer([server("a"), server("b", load=1), server("c", load=2)])
    placer.put(server("a", load=5))
    assert names(placer.place(replicas=2, acks=1)) == ["b", "c"]
    placer.remove("b")
    placer.remove("b")
    assert names(placer.place(replicas=3, acks=1)) == ["c", "a"]
    placer.put(server("a", barred=True))
    assert names(placer.place(replicas=3, acks=1)) == ["c"]
