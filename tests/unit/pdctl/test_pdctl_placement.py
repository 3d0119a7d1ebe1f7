"""`pdctl range show` and `range explain`: why replicas are where they are, over gRPC to a placement driver in this process."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.pdctl.in_process_pd import InProcessPd, PdctlOverGrpc


@pytest.fixture
def member(tmp_path: Any) -> Any:
    """A member whose cluster has four servers in three zones; two have the label."""
    made = InProcessPd(tmp_path)
    made.reconcile()
    for number, zone in enumerate(("z1", "z1", "z2", "z3"), 1):
        labels = ["disk=ssd"] if number in (1, 3) else []
        made.register(f"rs{number}", zone=zone, rack=f"r{number}", labels=labels)
    yield made
    made.close()


@pytest.fixture
def run(member: InProcessPd) -> PdctlOverGrpc:
    """pdctl, connected to it."""
    return PdctlOverGrpc(member.address)


def test_why_these_servers_and_not_others(run: PdctlOverGrpc, member: InProcessPd) -> None:
    """One row per server: the chosen with the reason, the other with what kept it out."""
    member.stream("s")
    found = run.json("range", "explain", "s")
    assert [(each["server"], each["chosen"], each["reason"]) for each in found["servers"]] == [
        ("rs1", True, "least loaded"), ("rs3", True, "new zone"), ("rs4", True, "new zone"), ("rs2", False, ""),
    ]  # fmt: skip
    assert found["servers"][3]["why_not"] == "rs1 has a replica in its zone z1"
    assert found["refusal"] == "" and (found["replicas"], found["acks"], found["zones_min"]) == (3, 2, 0)
    table = run("range", "explain", "s").stdout
    assert "chosen: new zone" in table and "not: rs1 has a replica in its zone z1" in table
    run.fails(3, "range", "explain", "nosuch")


def test_a_refusal_is_explained(run: PdctlOverGrpc, member: InProcessPd) -> None:
    """A policy that cannot be kept is named, with what each server lacks; the exit code is 1."""
    member.stream("s", server_labels=["disk=ssd"], zones_min=3)
    result = run("range", "explain", "s")
    assert result.exit_code == 1
    assert "no placement: the stream wants replicas in 3 zones" in result.stdout
    assert "not: it lacks the label disk=ssd" in result.stdout
    assert "not: it may have a replica, but there is no placement" in result.stdout


def test_a_range_says_why_its_replicas_are_there(run: PdctlOverGrpc, member: InProcessPd) -> None:
    """Zone, rack, health and reason of each."""
    member.stream("s")
    member.ranges("s", 1)
    replicas = run.json("range", "show", "s", "0")["replicas"]
    assert [(each["server"], each["zone"], each["rack"], each["reason"]) for each in replicas] == [
        ("rs1", "z1", "r1", "least loaded"), ("rs3", "z2", "r3", "new zone"), ("rs4", "z3", "r4", "new zone"),
    ]  # fmt: skip
    table = run("range", "show", "s", "0").stdout
    assert "WHY THERE" in table and "new zone" in table


def test_a_policy_is_changed_by_options(run: PdctlOverGrpc, member: InProcessPd) -> None:
    """`--server-label ""` asks for no label any more; a label that is none is refused with how to write it."""
    run.json("stream", "create", "s", "--server-label", "disk=ssd", "--zones-min", "2")
    changed = run.json("stream", "update", "s", "--server-label", "")["config"]
    assert (changed["server_labels"], changed["zones_min"]) == ([], 2)
    assert "key=value" in run.fails(2, "stream", "create", "t", "--server-label", "ssd")
    assert "at least 2" in run("stream", "show", "s").stdout
    shown = run("server", "show", "rs1").stdout
    assert "disk=ssd" in shown and "r1" in shown
