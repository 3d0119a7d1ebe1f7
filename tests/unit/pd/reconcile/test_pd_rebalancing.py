"""Rebalances: what is planned converges, keeps replicas apart and policies kept; carried out, there are never fewer copies."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from rangelog_pd.reconcile import rebalance as rebalance_module
from rangelog_pd.reconcile.directives import Planner
from rangelog_pd.reconcile.rebalance import Rebalance
from rangelog_pd.reconcile.rebalancing import REPLICA_BYTES, TOLERANCE, RebalancePlan, plan_rebalance
from rangelog_pd.state.machine import response_of
from rangelog_pd.state.tables import copy_of
from rangelog_proto.v1 import pd_pb2
from tests.unit.pd.conftest import Pd, report

MIB = 1 << 20


def sealed_stream(pd: Any, name: str, size: int, *members: str, **config: Any) -> int:
    """A stream whose range 0 is sealed and whole on these; its id."""
    config = {"replicas": len(members), "acks": min(2, len(members)), "tiered": False} | config
    stream_id: int = pd.create_stream(name, **config).stream_id
    pd.open_writer(name)
    pd.create_range(stream_id, 1, 0, *members)
    pd.seal(stream_id, 0, 1, 10)
    for each in members:
        pd.beat(each, report(stream_id, 0, "SEALED", end=10, size=size), complete=False)
    return stream_id


def plan(pd: Any, **more: Any) -> RebalancePlan:
    """What would be moved now."""
    return plan_rebalance(pd.state, pd.view, pd.now_ms, **more)


def members_of(pd: Any, stream_id: int) -> list[str]:
    """The members of range 0."""
    return sorted(each.server for each in pd.state.range(stream_id, 0).replicas)


def copy_and_drop(pd: Any, *, drops: bool = True) -> None:
    """All servers carry out their directives: copies first, then drops."""
    for name in list(pd.state.servers):
        for kind, directive in told(pd, name):
            key = (directive.stream_id, directive.range_index)
            if kind == "copy_replica":
                source = directive.copy_replica.sources[0]
                size = pd.view.servers[source.server].reports[key].size_bytes
                pd.beat(name, report(*key, "SEALED", end=10, size=size), complete=False)
            elif kind == "drop_replica" and drops:
                pd.beat(name, report(*key, "UNSPECIFIED"), complete=False)


def told(pd: Any, name: str) -> list[tuple[str, pd_pb2.Directive]]:
    """The directives of a server."""
    planner = Planner(pd.state, pd.view, False, pd.now_ms, pd.wall_ms, pd.delete_grace_ms)
    found = planner.directives(name, pd.state.servers[name].server.incarnation)
    return [(each.WhichOneof("action") or "", each) for each in found]


def carry_out(pd: Any, found: RebalancePlan, *, drops: bool = True) -> Rebalance:
    """Until it is done; after each step every range has as many whole copies as it had."""
    running = Rebalance("r", found)
    copies = {key: whole_copies(pd, key) for key in pd.state.ranges}
    for _ in range(500):
        for command in running.commands(pd.state, pd.view, pd.now_ms):
            response_of(pd.apply(command))
            for key, count in copies.items():
                assert whole_copies(pd, key) >= count, "fewer copies"
        copy_and_drop(pd, drops=drops)
        for key, count in copies.items():
            assert whole_copies(pd, key) >= count, "fewer copies"
        if running.done:
            return running
    raise AssertionError(f"a rebalance without an end: {running.describe()}")


def whole_copies(pd: Any, key: tuple[int, int]) -> int:
    """The servers that hold all of a range, members or not, and are not told to drop it."""
    return sum(
        key in view.reports and view.reports[key].state == pd_pb2.REPLICA_STATE_SEALED and key not in view.dropping
        for view in pd.view.servers.values()
    )


def test_an_empty_server_gets_its_share(pd: Any) -> None:
    """Ranges of three full servers move to the fourth until all are near the mean; planned again, nothing is left to do."""
    for number in range(20):
        sealed_stream(pd, f"s{number}", MIB, "rs1", "rs2", "rs3")
    found = plan(pd)
    assert found.before["rs4"] == 0
    mean = sum(found.before.values()) / 4
    assert all(abs(size - mean) <= mean * TOLERANCE + MIB + REPLICA_BYTES for size in found.after.values()), found.after
    assert {move.target.server for move in found.moves} == {"rs4"}
    assert len({move.key for move in found.moves}) == len(found.moves), "no range is moved twice"
    assert found.size_bytes == len(found.moves) * MIB
    done = carry_out(pd, found).describe()
    assert (done.moved, done.moved_bytes, done.skipped) == (len(found.moves), found.size_bytes, 0)
    assert plan(pd).moves == []
    assert plan(pd).before == found.after


def test_what_would_only_change_places_stays(pd: Any) -> None:
    """One range on two servers is on one of them whatever is moved: a move that turns the difference round is none."""
    sealed_stream(pd, "s", 9 * MIB, "rs1")
    assert plan(pd).moves == []


def test_the_bound_on_bytes_holds(pd: Any) -> None:
    """What does not fit is left out, smaller ranges are not."""
    for number in range(10):
        sealed_stream(pd, f"s{number}", 3 * MIB, "rs1", "rs2", "rs3")
    assert plan(pd, bytes_max=10 * MIB).size_bytes == 9 * MIB
    assert plan(pd, bytes_max=MIB).moves == []


def test_zones_are_not_given_up(pd: Any) -> None:
    """An empty server in a zone that holds a replica of each range gets none of the other zones' replicas."""
    pd.register("rs5", zone="z1")
    pd.beat("rs5")
    for number in range(8):
        sealed_stream(pd, f"s{number}", MIB, "rs1", "rs2", "rs3")
    pd.view.servers["rs4"].complete = True
    found = plan(pd)
    for move in found.moves:
        assert move.target.server != "rs5" or move.source.server == "rs1"
    assert {move.target.server for move in found.moves} == {"rs4", "rs5"}


def test_policies_hold_for_moves(pd: Any) -> None:
    """A server without the labels of a stream gets none of its replicas."""
    for name in ("rs1", "rs2", "rs3"):
        pd.register(name, zone=f"z{name[-1]}", boot=2, labels=["disk=ssd"])
        pd.beat(name)
    for number in range(8):
        sealed_stream(pd, f"s{number}", MIB, "rs1", "rs2", "rs3", server_labels=["disk=ssd"])
    assert plan(pd).moves == []


def test_what_is_not_whole_or_on_its_way_out_stays(pd: Any) -> None:
    """Open ranges, ranges that lack a copy, and ranges that are being uploaded are not moved."""
    short = sealed_stream(pd, "short", MIB, "rs1", "rs2", replicas=3)
    uploading = sealed_stream(pd, "uploading", MIB, "rs1", "rs2", "rs3", tiered=True)
    pd.prepare(uploading, 0, 0, 10, "rs1")
    opened = pd.create_stream("open", tiered=False).stream_id
    pd.open_writer("open")
    pd.create_range(opened, 1, 0, "rs1", "rs2", "rs3")
    pd.beat("rs1", report(opened, 0, "OPEN", end=5, size=50 * MIB), complete=False)
    pd.view.upkeep.repairs.waiting.discard((short, 0))
    assert plan(pd).moves == []


def test_nothing_is_moved_while_repairs_go_on(pd: Any) -> None:
    """Neither planned nor begun; a plan goes on when they are over."""
    for number in range(8):
        sealed_stream(pd, f"s{number}", MIB, "rs1", "rs2", "rs3")
    found = plan(pd)
    pd.view.upkeep.repairs.put((1, 0))
    assert "wait for a repair" in plan(pd).refusal and not plan(pd).moves
    running = Rebalance("r", found)
    assert running.commands(pd.state, pd.view, pd.now_ms) == []
    assert "wait for a repair" in running.describe().waiting_for
    pd.view.upkeep.repairs.waiting.discard((1, 0))
    pd.view.upkeep.repairs.lacks((2, 0), "rs1")
    assert "being copied" in plan(pd).refusal
    pd.view.upkeep.repairs.has((2, 0), "rs1", 0)
    assert len(running.commands(pd.state, pd.view, pd.now_ms)) == len(found.moves)


def test_a_server_that_has_not_reported_is_waited_for(pd: Any) -> None:
    """Without all reports nobody knows what a server has to store."""
    sealed_stream(pd, "s", MIB, "rs1", "rs2", "rs3")
    pd.view.start_leading(pd.now_ms)
    assert "has not reported" in plan(pd).refusal


def test_a_bounded_number_is_under_way(pd: Any, monkeypatch: Any) -> None:
    """The next ones begin as the first ones are whole."""
    monkeypatch.setattr(rebalance_module, "UNDER_WAY_MAX", 2)
    for number in range(20):
        sealed_stream(pd, f"s{number}", MIB, "rs1", "rs2", "rs3")
    found = plan(pd)
    running = Rebalance("r", found)
    for command in running.commands(pd.state, pd.view, pd.now_ms):
        response_of(pd.apply(command))
    assert running.describe().under_way == 2
    assert running.commands(pd.state, pd.view, pd.now_ms) == []
    copy_and_drop(pd)
    copy_and_drop(pd)
    assert len(running.commands(pd.state, pd.view, pd.now_ms)) == 2
    assert running.describe().moved == 2


def test_a_move_that_became_impossible_is_skipped(pd: Any) -> None:
    """The stream is deleted, the target dies, another took the place: each is counted, and said; the rest goes on."""
    for number in range(20):
        sealed_stream(pd, f"s{number}", MIB, "rs1", "rs2", "rs3")
    found = plan(pd)
    deleted = found.moves[0].key[0]
    pd.delete_stream(pd.state.streams[deleted].name)
    done = carry_out(pd, found).describe()
    assert (done.moved, done.skipped) == (len(found.moves) - 1, 1)
    assert "gone" in done.last_skipped
    again = Rebalance("again", found)
    assert again.commands(pd.state, pd.view, pd.now_ms) == []
    assert again.describe().skipped == len(found.moves) and again.done


def test_the_old_copy_goes_when_the_new_one_is_whole(pd: Any) -> None:
    """Not when enough for acks are: a rebalance never leaves fewer copies, even for a moment."""
    for number in range(8):
        sealed_stream(pd, f"s{number}", MIB, "rs1", "rs2", "rs3")
    found = plan(pd, bytes_max=MIB)
    (command,) = Rebalance("r", found).commands(pd.state, pd.view, pd.now_ms)
    response_of(pd.apply(command))
    source, key = found.moves[0].source.server, found.moves[0].key
    assert [kind for kind, _ in told(pd, source)] == []
    assert [kind for kind, _ in told(pd, "rs4")] == ["copy_replica"]
    pd.beat("rs4", report(*key, "SEALED", end=10, size=MIB), complete=False)
    assert [kind for kind, _ in told(pd, source)] == ["drop_replica"]


def test_copies_that_are_not_dropped_yet_do_not_count(pd: Any) -> None:
    """Planned again between the last copy and the drops of the former ones, nothing is left to do; after them as well."""
    for number in range(20):
        sealed_stream(pd, f"s{number}", MIB, "rs1", "rs2", "rs3")
    found = plan(pd)
    carry_out(pd, found, drops=False)
    assert held_bytes(pd) == (3 * 20 + len(found.moves)) * MIB, "the former copies are all there"
    assert plan(pd).moves == [] and plan(pd).before == found.after
    copy_and_drop(pd)
    assert held_bytes(pd) == 3 * 20 * MIB
    assert plan(pd).moves == [] and plan(pd).before == found.after


def test_a_copy_that_stays_counts(pd: Any) -> None:
    """Of a range that was given up for lost, a copy beside its members is not dropped: its server has it to store."""
    key = (sealed_stream(pd, "s", MIB, "rs1"), 0)
    pd.beat("rs4", report(*key, "SEALED", end=10, size=2 * MIB), complete=False)
    assert [kind for kind, _ in told(pd, "rs4")] == ["drop_replica"] and plan(pd).before["rs4"] == 0
    lost = copy_of(pd.state.ranges[key])
    lost.lost = True
    pd.state.ranges.put(key, lost)
    assert told(pd, "rs4") == [] and plan(pd).before["rs4"] == 2 * MIB


def test_copies_of_a_deleted_stream_do_not_count(pd: Any) -> None:
    """They are dropped in the next rounds, so nothing is moved to make room for them."""
    sealed_stream(pd, "s", 9 * MIB, "rs1", "rs2", "rs3")
    sealed_stream(pd, "t", MIB, "rs1", "rs2", "rs3")
    pd.delete_stream("s")
    assert [kind for kind, _ in told(pd, "rs1")] == ["drop_replica"]
    assert held_bytes(pd) == 3 * 10 * MIB and plan(pd).before["rs1"] == MIB + REPLICA_BYTES


def held_bytes(pd: Any) -> int:
    """What all servers report."""
    return sum(view.held_bytes for view in pd.view.servers.values())


CLUSTERS = st.tuples(
    st.lists(st.sampled_from(["", "z1", "z2", "z3"]), min_size=2, max_size=7),
    st.lists(
        st.tuples(st.integers(1, 3), st.integers(0, 6), st.integers(0, 4 * MIB), st.integers(0, 3)),
        min_size=1,
        max_size=25,
    ),
    st.sampled_from([0, 0, 100 * MIB]),
)


def test_no_move_puts_two_copies_on_a_host() -> None:
    """The empty server shares a host with a member of each range, so only that member's own copies go there."""
    pd = Pd()
    for name, host in (("rs0", "h0"), ("rs1", "h1"), ("rs2", "h2"), ("rs3", "h2")):
        pd.register(name, host=host)
        pd.beat(name)
    for number in range(6):
        sealed_stream(pd, f"s{number}", 1_000_000, "rs0", "rs1", "rs2")
    pd.view.upkeep.follow(pd.state)
    found = plan(pd).moves
    assert found and {(each.source.server, each.target.server) for each in found} == {("rs2", "rs3")}


@settings(max_examples=60, deadline=None)
@given(CLUSTERS)
def test_plans_that_are_carried_out_converge(cluster: tuple[list[str], list[tuple[int, int, int, int]], int]) -> None:
    """Whatever lies where: plans end, the fullest server never gets fuller, no range is in fewer zones, no copy is missed."""
    zones, ranges, capacity = cluster
    pd = Pd()
    names = [f"rs{number}" for number in range(len(zones))]
    for number, (name, zone) in enumerate(zip(names, zones, strict=True)):
        pd.register(name, zone=zone, rack=f"r{number % 2}")
        pd.beat(name)
        pd.view.servers[name].capacity_bytes = capacity * (1 + number % 2)
    for number, (replicas, first, size, zones_min) in enumerate(ranges):
        members = [names[(first + step) % len(names)] for step in range(min(replicas, len(names)))]
        sealed_stream(pd, f"s{number}", size, *members, zones_min=min(zones_min, len(members)))
    for name in names:
        pd.view.servers[name].capacity_bytes = capacity * (1 + int(name[2:]) % 2)
    pd.view.upkeep.follow(pd.state)

    def spread(stream_id: int) -> tuple[int, int]:
        found = [pd.state.servers[each].server.zone for each in members_of(pd, stream_id)]
        named = [zone for zone in found if zone]
        return len(set(named)), -max(map(named.count, named), default=0)

    for _ in range(12):
        found = plan(pd)
        assert not found.refusal
        if not found.moves:
            return
        weight = found.capacity or dict.fromkeys(found.before, 1)

        def unevenness(sizes: dict[str, int], weight: dict[str, int] = weight) -> float:
            return sum(size * size / weight[name] for name, size in sizes.items())

        assert unevenness(found.after) < unevenness(found.before)
        assert max(found.after[name] / weight[name] for name in weight) <= max(
            found.before[name] / weight[name] for name in weight
        )
        assert len({move.key for move in found.moves}) == len(found.moves)
        before = {stream_id: spread(stream_id) for stream_id in pd.state.streams}
        done = carry_out(pd, found).describe()
        assert done.skipped == 0
        for name in names:
            pd.view.servers[name].capacity_bytes = capacity * (1 + int(name[2:]) % 2)
        assert plan(pd).before == found.after
        for stream_id, was in before.items():
            assert spread(stream_id) >= was
    raise AssertionError("rebalances without an end")
