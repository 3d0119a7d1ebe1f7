"""The plan of a local cluster: kept, grown, moved, refused when damaged."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from rangelog_cli.local import plan as plans
from rangelog_cli.local import ports
from rangelog_cli.local.processes import Cluster
from rangelog_core.errors import ConfigInvalid, InvalidArgument, Unavailable


def make(**changes: int) -> plans.ClusterPlan:
    """A plan with three of each, unless told otherwise."""
    values = {"pds": 3, "range_servers": 3, "base_port": 0} | changes
    return plans.make_plan(tier_url="file:///t", **values)


def test_plan_survives_writing(tmp_path: Path) -> None:
    """What is read back equals what was written, and only its owner may read it."""
    plan = make()
    plans.write_plan(tmp_path, plan)
    assert plans.read_plan(tmp_path) == plan
    assert (tmp_path / plans.PLAN_FILE).stat().st_mode & 0o077 == 0


def test_all_ports_differ_and_stay_when_servers_are_added() -> None:
    """A base port gives fixed ports, the API of the first placement driver on it, and growth moves nobody."""
    plan = make(base_port=7100)
    grown = plans.with_range_servers(plan, 6)
    assert plan.pd_addresses == ["127.0.0.1:7100", "127.0.0.1:7101", "127.0.0.1:7102"]
    assert grown.range_servers[:3] == plan.range_servers
    assert len(set(grown.ports().values())) == len(grown.ports()) == 2 * 3 + 2 * 6


def test_free_ports_stay_when_servers_are_added() -> None:
    """Growth of a cluster on chosen ports leaves the old ones alone."""
    plan = make()
    grown = plans.with_range_servers(plan, 4)
    assert grown.range_servers[:3] == plan.range_servers
    assert len(set(grown.ports().values())) == 2 * 3 + 2 * 4


@pytest.mark.parametrize(
    "changes",
    [
        {"pds": 2},
        {"pds": 0},
        {"range_servers": 0},
        {"range_servers": 99},
        {"base_port": 65500},
        {"brokers": -1},
        {"brokers": 16},
    ],
)
def test_impossible_plans_are_refused(changes: dict[str, int]) -> None:
    """Counts and ports that cannot work are refused before anything is made."""
    with pytest.raises(InvalidArgument):
        make(**changes)


def test_fewer_range_servers_than_there_are_is_refused() -> None:
    """A restart cannot drop servers that hold data."""
    with pytest.raises(InvalidArgument, match="holds 3 range servers"):
        plans.with_range_servers(make(), 2)


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"format": 9}', '{"format": 1, "pds": [{}]}'])
def test_damaged_plan_is_a_typed_error(tmp_path: Path, text: str) -> None:
    """A plan that cannot be read is named, never replaced by a new one."""
    (tmp_path / plans.PLAN_FILE).write_text(text)
    with pytest.raises(ConfigInvalid, match=r"cluster\.json"):
        plans.read_plan(tmp_path)


def test_busy_port_is_named() -> None:
    """The message says which port, and what it is for."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        assert not ports.is_free(port)
        with pytest.raises(Unavailable, match=rf"port {port} \(pd1, API\) is in use"):
            ports.refuse_busy({"pd1, API": port})


def test_members_on_other_addresses_are_reached_there(tmp_path: Path) -> None:
    """A host by name changes that member's addresses and no other's, and is kept."""
    plan = plans.with_hosts(make(base_port=7100), {"pd2": "127.0.0.2", "rs3": "127.0.0.3"})
    plans.write_plan(tmp_path, plan)
    assert plan.pd_addresses == ["127.0.0.1:7100", "127.0.0.2:7101", "127.0.0.1:7102"]
    assert plan.pds[1].raft_address == "127.0.0.2:7141"
    assert [each.host for each in plan.range_servers] == ["127.0.0.1", "127.0.0.1", "127.0.0.3"]
    assert plans.read_plan(tmp_path) == plan


def test_brokers_have_ports_of_their_own_at_any_count() -> None:
    """With the most of each, no two ports are the same."""
    plan = make(base_port=7100, range_servers=32, brokers=15)
    assert len(set(plan.ports().values())) == len(plan.ports()) == 2 * 3 + 2 * 32 + 3 * 15
    assert plan.ports()["broker1, producers"] == 7110


@pytest.mark.parametrize("base_port", [0, 7100])
def test_the_number_of_brokers_may_change_both_ways(base_port: int) -> None:
    """They keep no data: those that stay keep their ports, and everybody else's ports stay, too."""
    plan = make(base_port=base_port, brokers=2)
    grown = plans.with_brokers(plan, 4)
    assert [each.name for each in grown.brokers] == ["broker1", "broker2", "broker3", "broker4"]
    assert grown.brokers[:2] == plan.brokers
    assert len(set(grown.ports().values())) == len(grown.ports())
    assert (grown.pds, grown.range_servers) == (plan.pds, plan.range_servers)
    fewer = plans.with_brokers(grown, 1)
    assert fewer.brokers == plan.brokers[:1]
    assert plans.with_brokers(fewer, 0).brokers == ()
    again = plans.with_brokers(fewer, 2)
    assert len(set(again.ports().values())) == len(again.ports())
    with pytest.raises(InvalidArgument, match="--brokers"):
        plans.with_brokers(plan, 16)


def test_range_servers_are_added_beside_brokers() -> None:
    """Their new ports are nobody's."""
    for base_port in (0, 7100):
        grown = plans.with_range_servers(make(base_port=base_port, brokers=3), 6)
        assert len(set(grown.ports().values())) == len(grown.ports()) == 2 * 3 + 2 * 6 + 3 * 3


def test_a_plan_from_before_there_were_brokers_has_none(tmp_path: Path) -> None:
    """It is read as it is, and brokers may be added to it."""
    plans.write_plan(tmp_path, make(base_port=7100))
    path = tmp_path / plans.PLAN_FILE
    fields = json.loads(path.read_text())
    del fields["brokers"]
    path.write_text(json.dumps(fields))
    old = plans.read_plan(tmp_path)
    assert old is not None and old.brokers == ()
    assert len(plans.with_brokers(old, 2).brokers) == 2


@pytest.mark.parametrize(
    "damage",
    ["x", 3, [1], [{}], [{"name": "b", "port": "7", "control_port": 1, "zone": ""}], [{"name": "b", "bogus": 1}]],
)
def test_damaged_brokers_of_a_plan_are_a_typed_error(tmp_path: Path, damage: object) -> None:
    """As any other damage of the file."""
    plans.write_plan(tmp_path, make(brokers=1))
    path = tmp_path / plans.PLAN_FILE
    path.write_text(json.dumps(json.loads(path.read_text()) | {"brokers": damage}))
    with pytest.raises(ConfigInvalid, match=r"cluster\.json"):
        plans.read_plan(tmp_path)


def test_a_broker_on_another_address_is_reached_there() -> None:
    """A host by name."""
    plan = plans.with_hosts(make(brokers=2), {"broker2": "127.0.0.9"})
    assert [each.host for each in plan.brokers] == ["127.0.0.1", "127.0.0.9"]


def test_a_cluster_is_opened_with_another_number_of_brokers(tmp_path: Path) -> None:
    """At a later start; without a number it is as it was, also none."""
    for asked, there in ((None, 0), (2, 2), (None, 2), (3, 3), (0, 0), (None, 0), (1, 1)):
        cluster = Cluster.open(tmp_path, brokers=asked)
        try:
            assert sorted(cluster.brokers) == [f"broker{number}" for number in range(1, there + 1)]
            assert len(cluster.members) == 6 + there
        finally:
            cluster.stop()


def test_ports_of_members_that_do_not_run_are_not_given_to_new_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stopped cluster's ports are free on the machine, and taken all the same."""
    plan = make(base_port=0, brokers=2)
    drawn: Iterator[int] = iter([*plan.ports().values()] * 2 + [*range(20_000, 20_400)])

    class Chooser:
        def randint(self, lowest: int, highest: int) -> int:
            return next(drawn)

    monkeypatch.setattr("random.SystemRandom", Chooser)
    for grown in (plans.with_brokers(plan, 4), plans.with_range_servers(plan, 7)):
        assert len(set(grown.ports().values())) == len(grown.ports())
