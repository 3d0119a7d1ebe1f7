"""The findings of `pdctl doctor cluster`: each defect is a finding of its own check; what nobody told is unknown, never ok."""

from __future__ import annotations

from typing import Any

import pytest

from pdctl.doctor.findings import NOTE, OK, PROBLEM, UNKNOWN, Clock, Gathered, findings
from rangelog_proto.v1 import common_pb2, inspection_pb2, pd_pb2, range_server_pb2


def _told(**changes: Any) -> Gathered:
    """Everything as it should be."""
    described = pd_pb2.DescribeClusterResponse(
        health="healthy",
        cluster_version=6,
        members=[pd_pb2.PdMember(name="pd1", leader=True, reachable=True)],
        servers=[common_pb2.Server(name=name, health="SERVER_HEALTH_ALIVE") for name in ("rs1", "rs2")],
        tier_url="file:///tier",
    )
    member = inspection_pb2.InspectMemberResponse(
        name="pd1", version="1.0", feature_level=6, disk_free_bytes=50, disk_total_bytes=100
    )
    server = range_server_pb2.GetStatusResponse(version="1.0", disk_free_bytes=50, disk_total_bytes=100)
    usual: dict[str, Any] = {
        "described": described,
        "members": {"pd1": member},
        "servers": {"rs1": server, "rs2": server},
        "clocks": {name: Clock(1_000, 1_000.0, 2.0) for name in ("pd1", "rs1", "rs2")},
        "orphans": [],
        "tls": True,
    }
    return Gathered(**(usual | changes))


def _states(told: Gathered) -> dict[str, str]:
    return {each.check: each.state for each in findings(told) if each.state != OK}


def test_a_sound_cluster_has_no_finding() -> None:
    """Every check says ok, and none is left out."""
    assert _states(_told()) == {}
    assert [each.check for each in findings(_told())] == [
        "leader", "members", "servers", "versions", "clocks", "disks", "copies", "open ranges", "tasks", "tier",
        "certificates",
    ]  # fmt: skip


def test_what_nobody_told_is_unknown() -> None:
    """A server that does not answer leaves its disk, clock and version out; the rest still counts."""
    told = _told(servers={"rs1": "cannot be reached", "rs2": "cannot be reached"}, clocks={}, orphans=None)
    assert _states(told) == {"servers": UNKNOWN, "clocks": UNKNOWN, "open ranges": UNKNOWN}


@pytest.mark.parametrize(
    ("described", "check", "state"),
    [
        ({"health": "unavailable", "reasons": ["no placement driver leads"]}, "leader", PROBLEM),
        ({"under_replicated_range_count": 2, "reasons": ["under-replicated: 2 of 9 ranges"]}, "copies", PROBLEM),
        ({"lost_range_count": 1}, "copies", PROBLEM),
        ({"failing_task_count": 1, "reasons": ["failing: 1 task"]}, "tasks", PROBLEM),
        ({"tier_url": ""}, "tier", NOTE),
        ({"cluster_version": 5}, "versions", NOTE),
    ],
)
def test_what_the_placement_driver_says(described: dict[str, Any], check: str, state: str) -> None:
    """Its reasons become findings with advice."""
    told = _told()
    told.described.MergeFrom(pd_pb2.DescribeClusterResponse(**described))
    for name, value in described.items():
        if not value:
            told.described.ClearField(name)
    assert _states(told) == {check: state}
    (found,) = [each for each in findings(told) if each.check == check]
    assert found.advice and (not described.get("reasons") or described["reasons"][0] in found.detail)


def test_each_process_is_judged_by_its_own_answer() -> None:
    """A dead server, a member that is silent, a clock that is off, a disk that is full, another version."""
    told = _told()
    told.described.servers[0].health = common_pb2.SERVER_HEALTH_DEAD
    assert _states(told) == {"servers": PROBLEM}
    assert _states(_told(members={"pd1": "cannot be reached"})) == {"members": PROBLEM}
    clocks = {"pd1": Clock(1_000, 1_000.0, 2.0), "rs1": Clock(1_000, 1_000.0, 2.0), "rs2": Clock(9_000, 1_000.0, 2.0)}
    assert _states(_told(clocks=clocks)) == {"clocks": PROBLEM}
    (found,) = [each for each in findings(_told(clocks=clocks)) if each.state == PROBLEM]
    assert found.subject == "rs2" and "8.0 s ahead" in found.detail
    full = range_server_pb2.GetStatusResponse(version="1.0", disk_free_bytes=5, disk_total_bytes=100)
    assert _states(_told(servers={"rs1": full})) == {"disks": PROBLEM}
    bounded = range_server_pb2.GetStatusResponse(
        version="1.0", disk_free_bytes=50, disk_total_bytes=100, used_bytes=99, capacity_bytes=100
    )
    assert _states(_told(servers={"rs1": bounded})) == {"disks": PROBLEM}
    newer = range_server_pb2.GetStatusResponse(version="2.0", disk_free_bytes=50, disk_total_bytes=100)
    assert _states(_told(servers={"rs1": newer})) == {"versions": NOTE}
    stuck = range_server_pb2.GetStatusResponse(
        version="1.0", disk_free_bytes=50, disk_total_bytes=100, log_problem="no room"
    )
    assert _states(_told(servers={"rs1": stuck})) == {"servers": PROBLEM}


def test_a_slow_answer_is_no_wrong_clock() -> None:
    """Half a round trip is not known of a clock: a busy process is not accused."""
    clocks = {
        "pd1": Clock(1_000, 1_000.0, 2.0),
        "rs1": Clock(2_500, 1_000.0, 4_000.0),
        "rs2": Clock(1_000, 1_000.0, 2.0),
    }
    assert _states(_told(clocks=clocks)) == {}


def test_open_ranges_without_a_writer_are_named() -> None:
    """They are neither repaired nor tiered: a note, with what to do."""
    (found,) = [each for each in findings(_told(orphans=["a/0", "b/3"])) if each.check == "open ranges"]
    assert found.state == NOTE and "a/0, b/3" in found.detail and "range seal" in found.advice
