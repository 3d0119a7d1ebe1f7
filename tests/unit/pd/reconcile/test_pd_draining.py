"""Cordoned and draining servers: who gets replicas, and how sealed ranges leave a server."""

from __future__ import annotations

from typing import Any

import pytest

from rangelog_core.errors import NoPlacement
from rangelog_pd.placement import Candidate, Placer, ServerHealth, place
from rangelog_pd.reconcile.moves import MOVES_MAX
from rangelog_pd.reconcile.upkeep import REPLACE_AFTER_MS
from rangelog_proto.v1 import common_pb2, operations_pb2

ABC = ("rs1", "rs2", "rs3")


def set_mode(pd: Any, name: str, mode: str) -> None:
    """Set a mode in the state."""
    request = operations_pb2.SetServerModeRequest(server=name, mode=f"SERVER_MODE_{mode}")
    pd.do(operations_pb2.SetServerModeResponse, set_server_mode=request)


def members(pd: Any, stream: int, index: int = 0) -> list[str]:
    """The servers of a range."""
    return [each.server for each in pd.state.ranges.of(stream)[index].replicas]


def silence(pd: Any, name: str, ms: float) -> None:
    """Time passes; only one server is silent."""
    passed = 0
    while passed < ms:
        pd.pass_ms(1_000)
        passed += 1_000
        for each in pd.state.servers:
            if each != name:
                pd.beat(each, complete=False)


# ---- who gets replicas


@pytest.mark.parametrize("mode", ["CORDONED", "DRAINING"])
def test_a_barred_server_gets_no_new_range(pd: Any, mode: str) -> None:
    """It is left out wherever replicas are placed, also when too few others are there."""
    set_mode(pd, "rs2", mode)
    candidates = pd.view.fleet.candidates(pd.state, pd.now_ms)
    for chosen in (
        place(candidates, replicas=4, acks=2),
        Placer(candidates).place(replicas=4, acks=2),
        place(candidates, replicas=3, acks=3, exclude=["rs1"]),
    ):
        assert sorted(each.server for each in chosen) == ["rs1", "rs3", "rs4"]
    for attempt in (place, Placer(candidates).place):
        with pytest.raises(NoPlacement):
            attempt(*([candidates] if attempt is place else []), replicas=4, acks=4)
    set_mode(pd, "rs2", "ACTIVE")
    assert len(place(pd.view.fleet.candidates(pd.state, pd.now_ms), replicas=4, acks=4)) == 4


def test_an_avoided_server_is_the_last_choice_and_counts_as_alive() -> None:
    """It is chosen after all others that are alive, before the dead, whatever zones and load say."""
    alive, dead = ServerHealth.ALIVE, ServerHealth.DEAD
    candidates = [
        Candidate("a", 1, "z1", alive, (0,), avoided=True),
        Candidate("b", 1, "z2", alive, (9,)),
        Candidate("c", 1, "z2", alive, (9,)),
        Candidate("d", 1, "z3", dead, (0,)),
    ]
    for choose in (lambda count: place(candidates, replicas=count, acks=2), lambda count: _placer(candidates, count)):
        assert [each.server for each in choose(2)] == ["b", "c"]
        assert [each.server for each in choose(3)] == ["b", "c", "a"]
    assert len(place(candidates, replicas=3, acks=3)) == 3, "it counts as alive"


def _placer(candidates: list[Candidate], count: int) -> list[Candidate]:
    return Placer(candidates).place(replicas=count, acks=2)


@pytest.mark.parametrize("mode", ["CORDONED", "DRAINING"])
def test_a_barred_server_is_no_replacement_for_a_lost_one(pd: Any, whole: int, mode: str) -> None:
    """Repairs look at modes as placement does; without another candidate they wait."""
    set_mode(pd, "rs4", mode)
    silence(pd, "rs3", REPLACE_AFTER_MS + 6_000)
    assert "replace_replica" not in pd.reconcile()
    assert (whole, 0) in pd.view.upkeep.repairs.blocked
    set_mode(pd, "rs4", "ACTIVE")
    assert "replace_replica" in pd.reconcile(), "an uncordoned server takes what was blocked"
    assert members(pd, whole) == ["rs1", "rs2", "rs4"]


# ---- draining


def test_a_cordoned_server_keeps_what_it_has(pd: Any, whole: int) -> None:
    """Nothing is moved for a cordon."""
    set_mode(pd, "rs1", "CORDONED")
    assert pd.reconcile() == [] and members(pd, whole) == list(ABC)


def test_the_drained_copy_is_a_source_until_all_members_are_whole(pd: Any, whole: int, make_report: Any) -> None:
    """Its place is given to another server; it is dropped only when that one and the others hold everything."""
    set_mode(pd, "rs1", "DRAINING")
    assert pd.reconcile() == ["replace_replica"]
    assert members(pd, whole) == ["rs4", "rs2", "rs3"]
    sealed = make_report(whole, 0, "SEALED", end=10)
    pd.beat("rs1", sealed)
    assert "drop_replica" not in pd.directives("rs1"), "rs2 and rs3 are two whole copies; there were three"
    assert {each.server for each in pd.directives("rs4")["copy_replica"].copy_replica.sources} == set(ABC)
    pd.beat("rs4", make_report(whole, 0, "INCOMPLETE", end=3))
    assert "drop_replica" not in pd.directives("rs1")
    pd.beat("rs4", sealed)
    assert "drop_replica" in pd.directives("rs1")
    pd.beat("rs1")
    assert pd.directives("rs1") == {} and pd.reconcile() == []


def test_the_only_copy_is_copied_before_it_goes(pd: Any, make_report: Any) -> None:
    """With one replica per range the drained server is the only source, however little its members are."""
    made = pd.create_stream("one", replicas=1, acks=1)
    pd.open_writer("one")
    pd.create_range(made.stream_id, 1, 0, "rs1")
    pd.seal(made.stream_id, 0, 1, 10)
    sealed = make_report(made.stream_id, 0, "SEALED", end=10)
    pd.beat("rs1", sealed)
    set_mode(pd, "rs1", "DRAINING")
    assert pd.reconcile() == ["replace_replica"]
    (target,) = members(pd, made.stream_id)
    pd.beat("rs1", complete=False)
    assert "drop_replica" not in pd.directives("rs1")
    pd.beat(target)
    assert [each.server for each in pd.directives(target)["copy_replica"].copy_replica.sources] == ["rs1"]
    pd.beat(target, sealed)
    assert "drop_replica" in pd.directives("rs1")


def test_a_range_that_is_sealed_on_a_draining_server_leaves_it(pd: Any, stream: int, make_report: Any) -> None:
    """Open ranges stay until their writer leaves them; from then on they are moved as well."""
    set_mode(pd, "rs1", "DRAINING")
    assert pd.reconcile() == []
    pd.seal(stream, 0, 1, 10)
    pd.beat("rs2", make_report(stream, 0, "SEALED", end=10))
    assert pd.reconcile() == ["replace_replica"] and members(pd, stream) == ["rs4", "rs2", "rs3"]


def test_without_a_whole_copy_nobody_gives_up_a_place(pd: Any, stream: int, make_report: Any) -> None:
    """Who once had the range is not forgotten while nobody at hand has it; a report of a whole copy lets it go on."""
    set_mode(pd, "rs1", "DRAINING")
    pd.seal(stream, 0, 1, 10)
    for name in ABC:
        pd.beat(name, make_report(stream, 0, "INCOMPLETE", end=3))
    assert pd.reconcile() == [] and members(pd, stream) == list(ABC)
    assert "no server at hand" in pd.view.upkeep.moves.blocked[stream, 0]
    pd.beat("rs3", make_report(stream, 0, "SEALED", end=10))
    assert pd.reconcile() == ["replace_replica"] and members(pd, stream) == ["rs4", "rs2", "rs3"]


def test_without_a_candidate_a_range_stays_and_the_reason_is_known(pd: Any, whole: int) -> None:
    """Three members, one of them drained, and the fourth server cordoned: nothing moves, and it is shown why."""
    set_mode(pd, "rs4", "CORDONED")
    set_mode(pd, "rs1", "DRAINING")
    assert pd.reconcile() == [] and members(pd, whole) == list(ABC)
    incarnation = pd.state.servers["rs1"].server.incarnation
    ((key, why),) = pd.view.upkeep.moves.blocked_on(pd.state, "rs1", incarnation)
    assert key == (whole, 0) and "rs4 is cordoned" in why
    set_mode(pd, "rs4", "ACTIVE")
    assert pd.reconcile() == ["replace_replica"]
    assert not pd.view.upkeep.moves.blocked


def test_no_range_leaves_for_another_draining_server(pd: Any, whole: int, make_report: Any) -> None:
    """Two servers drained at once do not exchange their ranges; each place goes to the one that stays, one at a time."""
    pd.register("rs5", zone="z5")
    pd.beat("rs5")
    set_mode(pd, "rs1", "DRAINING")
    set_mode(pd, "rs2", "DRAINING")
    assert pd.reconcile() == ["replace_replica"]
    assert pd.reconcile() == [], "the second place is given away when the first new member is whole"
    first = next(name for name in members(pd, whole) if name not in ABC)
    pd.beat(first, make_report(whole, 0, "SEALED", end=10))
    assert pd.reconcile() == ["replace_replica"]
    assert sorted(members(pd, whole)) == ["rs3", "rs4", "rs5"]


def test_a_new_leader_goes_on_with_the_drain(pd: Any, whole: int, make_report: Any) -> None:
    """The queue follows from the state: a leader that remembers nothing moves what is left."""
    set_mode(pd, "rs1", "DRAINING")
    pd.view.start_leading(pd.now_ms)
    pd.reload()
    for name in ABC:
        pd.beat(name)
        pd.beat(name, make_report(whole, 0, "SEALED", end=10))
    pd.beat("rs4")
    assert pd.reconcile() == ["replace_replica"]


def test_few_ranges_are_on_their_way_at_a_time(pd: Any, make_report: Any) -> None:
    """More follow as the first become whole, until all are moved; the load is spread over those that stay."""
    count = 2 * MOVES_MAX + 5
    made = pd.create_stream("many", replicas=1, acks=1)
    pd.open_writer("many")
    pd.create_range(made.stream_id, 1, 0, "rs1")
    for index in range(count):
        pd.seal(made.stream_id, index, 1, 10 * (index + 1), "rs1")
    pd.seal(made.stream_id, count, 1, 10 * (count + 1))
    pd.beat("rs1", *(make_report(made.stream_id, each, "SEALED", end=10 * (each + 1)) for each in range(count + 1)))
    set_mode(pd, "rs1", "DRAINING")
    moved = len(pd.reconcile())
    assert moved == MOVES_MAX and pd.reconcile() == []
    while moved <= count:
        for name in ("rs2", "rs3", "rs4"):
            keys = pd.state.hosted.of(name, pd.state.servers[name].server.incarnation).sealed
            pd.beat(name, *(make_report(*key, "SEALED", end=10 * (key[1] + 1)) for key in keys))
        made_now = len(pd.reconcile())
        assert 0 < made_now <= MOVES_MAX
        moved += made_now
    hosted = {
        name: len(pd.state.hosted.of(name, pd.state.servers[name].server.incarnation)) for name in pd.state.servers
    }
    assert hosted["rs1"] == 0 and max(hosted.values()) - min(hosted[each] for each in ("rs2", "rs3", "rs4")) <= 2


def test_a_target_that_dies_on_the_way_is_replaced(pd: Any, whole: int, make_report: Any) -> None:
    """The drained server's copy stays; the range is repaired by a server that lives."""
    pd.register("rs5", zone="z5")
    pd.beat("rs5")
    set_mode(pd, "rs1", "DRAINING")
    pd.reconcile()
    target = next(name for name in members(pd, whole) if name not in ABC)
    other = "rs5" if target == "rs4" else "rs4"
    silence(pd, target, REPLACE_AFTER_MS + 6_000)
    assert "replace_replica" in pd.reconcile()
    assert sorted(members(pd, whole)) == sorted(["rs2", "rs3", other])
    pd.beat("rs1", make_report(whole, 0, "SEALED", end=10))
    assert "drop_replica" not in pd.directives("rs1")


def test_an_uncordoned_server_keeps_the_rest(pd: Any, whole: int) -> None:
    """A drain that is called off leaves what has not been moved."""
    set_mode(pd, "rs1", "DRAINING")
    set_mode(pd, "rs1", "ACTIVE")
    assert pd.reconcile() == [] and members(pd, whole) == list(ABC)


def test_a_range_in_the_tier_only_does_not_leave(pd: Any, whole: int) -> None:
    """Its hot copies were given up: there is no place to give away."""
    pd.tier(whole, 0, "rs1")
    pd.pass_ms(600_001)
    pd.beat_all()
    assert "drop_hot" in pd.reconcile()
    set_mode(pd, "rs1", "DRAINING")
    assert pd.reconcile() == []
    assert pd.state.ranges.of(whole)[0].state == common_pb2.RANGE_STATE_SEALED


def test_a_drain_that_is_called_off_half_way_drops_no_copy_early(pd: Any, whole: int, make_report: Any) -> None:
    """The place was given away, the new member copies: the old copy still waits for it."""
    sealed = make_report(whole, 0, "SEALED", end=10)
    set_mode(pd, "rs1", "DRAINING")
    assert pd.reconcile() == ["replace_replica"]
    set_mode(pd, "rs1", "ACTIVE")
    pd.beat("rs1", sealed)
    assert "drop_replica" not in pd.directives("rs1")
    pd.beat("rs4", sealed)
    assert "drop_replica" in pd.directives("rs1")
