"""The plan of a local cluster: kept, grown, moved, refused when damaged."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from rangelog_cli.local import plan as plans
from rangelog_cli.local import ports
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
    "changes", [{"pds": 2}, {"pds": 0}, {"range_servers": 0}, {"range_servers": 99}, {"base_port": 65500}]
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
