"""pdctl repair, against the real handlers and state machine over real gRPC."""

from __future__ import annotations

import pytest

from rangelog_proto.v1 import pd_pb2
from tests.unit.pdctl.in_process_pd import InProcessPd, PdctlOverGrpc

NAMES = ("rs1", "rs2", "rs3")


def wipe(member: InProcessPd, *names: str) -> None:
    """Servers come back with empty disks, once their leases are over."""
    for name in names:
        member.driver.view.servers[name].heard_ms = float("-inf")
        member.register(name, incarnation=0xDEF)


@pytest.fixture
def holding(member: InProcessPd) -> InProcessPd:
    """Three servers with one sealed range of stream s, which all of them report whole."""
    member.reconcile()
    for name in NAMES:
        member.register(name)
    member.stream("s")
    stream_id = member.ranges("s", 1, open_end=False).stream_id
    report = pd_pb2.ReplicaReport(
        stream_id=stream_id, range_index=0, state=pd_pb2.REPLICA_STATE_SEALED, durable_offset=10, size_bytes=2_048
    )
    for name in NAMES:
        member.heartbeat(name, replicas=[report])
    return member


def test_nothing_to_repair(run: PdctlOverGrpc, holding: InProcessPd) -> None:
    """All is there: the list says so, and the status exits with 0."""
    assert "no range lacks a copy" in run("repair", "list").output
    found = run.json("repair", "status")
    assert (found["left"], found["done"], found["lost"]) == (0, 0, 0)


def test_a_repair_is_shown_and_counted(run: PdctlOverGrpc, holding: InProcessPd) -> None:
    """A wiped server takes its own place: the range is copied to it, and the status exits with 1 until it has all of it."""
    wipe(holding, "rs3")
    holding.reconcile()
    holding.heartbeat("rs3", incarnation=0xDEF)
    holding.reconcile()
    (row,) = run.json("repair", "list")
    assert (row["state"], row["stream"], row["copies"], row["wanted"]) == ("copying", "s", 2, 3)
    assert "rs3" in row["reason"]
    assert run("repair", "status").exit_code == 1
    assert "2 of 3" in run("repair", "list", "--state", "copying").output
    assert "no range lacks a copy" in run("repair", "list", "--state", "lost").output


def test_a_loss_is_shown_and_accepted(run: PdctlOverGrpc, holding: InProcessPd) -> None:
    """With every disk gone the range is lost; the acceptance is asked for, and the range says that it is lost."""
    wipe(holding, *NAMES)
    holding.reconcile()
    (row,) = run.json("repair", "list", "--state", "lost")
    assert (row["copies"], row["range_index"]) == (0, 0)
    assert "wiped" in row["reason"]
    assert "--yes" in run.fails(2, "repair", "accept-loss", "s", "0")
    done = run("repair", "accept-loss", "s", "0", "--yes")
    assert "10 records of s, offsets 0 to 10, are given up" in done.output
    assert run.json("range", "show", "s", "0")["lost"]
    assert "lost" in run("range", "list", "s").output
    holding.reconcile()
    assert run.json("repair", "status")["lost"] == 0


def test_a_loss_is_refused_while_a_copy_may_return(run: PdctlOverGrpc, holding: InProcessPd) -> None:
    """One server is only away: the sentence names it. A range that is not there is another exit code."""
    wipe(holding, "rs1", "rs2")
    said = run.fails(5, "repair", "accept-loss", "s", "0", "--yes")
    assert "rs3" in said and "bring it back" in said
    assert "no range 7" in run.fails(3, "repair", "accept-loss", "s", "7", "--yes")
    run.fails(3, "repair", "accept-loss", "other", "0", "--yes")
