"""`pdctl cluster rebalance`, over gRPC to a placement driver in this process whose servers do what they are told."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rangelog_proto.v1 import pd_pb2
from tests.unit.pdctl.in_process_pd import InProcessPd, PdctlOverGrpc

NAMES = ("rs1", "rs2", "rs3", "rs4")
MIB = 1 << 20


class Servers:
    """Four servers with the reports of what they hold; each round they carry out their directives."""

    def __init__(self, member: InProcessPd, ranges: int) -> None:
        self.member = member
        member.reconcile()
        for name in NAMES[:3]:
            member.register(name)
        member.stream("s", tiered=False)
        member.ranges("s", ranges)
        self.held: dict[str, dict[int, pd_pb2.ReplicaReport]] = {name: {} for name in NAMES}
        for name in NAMES[:3]:
            for index in range(ranges):
                self.held[name][index] = self.report(index)
        member.register("rs4")
        self.round()

    @staticmethod
    def report(index: int) -> pd_pb2.ReplicaReport:
        return pd_pb2.ReplicaReport(
            stream_id=1, range_index=index, state=pd_pb2.REPLICA_STATE_SEALED, durable_offset=10, size_bytes=MIB
        )

    def round(self) -> None:
        for name in NAMES:
            answer = self.member.heartbeat(name, replicas=list(self.held[name].values()))
            for directive in answer.directives:
                if directive.HasField("copy_replica"):
                    self.held[name][directive.range_index] = self.report(directive.range_index)
                elif directive.HasField("drop_replica"):
                    del self.held[name][directive.range_index]
        self.member.reconcile()


@pytest.fixture
def servers(member: InProcessPd) -> Servers:
    """Three servers with 24 ranges, and an empty one."""
    return Servers(member, 24)


@pytest.fixture
def busy(servers: Servers) -> Iterator[Servers]:
    """The same, at work while the test waits."""
    over = threading.Event()

    def work() -> None:
        while not over.wait(0.05):
            servers.round()

    thread = threading.Thread(target=work)
    thread.start()
    yield servers
    over.set()
    thread.join(20)


def test_a_dry_run_changes_nothing(run: PdctlOverGrpc, servers: Servers) -> None:
    """It shows what each server has now and then, and what is moved; the same again, since nothing is."""
    found = run.json("cluster", "rebalance", "--dry-run")
    assert {each["target"] for each in found["moves"]} == {"rs4"}
    assert found["bytes"] == len(found["moves"]) * MIB > 0 and found["refusal"] == ""
    assert [each["server"] for each in found["servers"]] == [*NAMES]
    assert run.json("cluster", "rebalance", "--dry-run") == found
    table = run("cluster", "rebalance", "--dry-run").stdout
    assert "AFTER" in table and "moves" in table and "to copy" in table


def test_apply_moves_until_nothing_is_left(run: PdctlOverGrpc, busy: Servers) -> None:
    """With --wait it ends when the servers are even, and says what was moved; again, there is nothing to do."""
    planned = run.json("cluster", "rebalance", "--dry-run")
    done = run.json("cluster", "rebalance", "--apply", "--wait", "--wait-timeout", "60s")
    assert (done["moved"], done["skipped"], done["done"]) == (len(planned["moves"]), 0, True)
    assert done["moved_bytes"] == planned["bytes"]
    again = run.json("cluster", "rebalance", "--apply", "--wait")
    assert (again["moved"], again["done"]) == (0, True)
    moved = next(each for each in planned["moves"])
    replicas = run.json("range", "show", "s", str(moved["range_index"]))["replicas"]
    assert {each["server"]: each["reason"] for each in replicas}["rs4"] == "rebalanced"


def test_another_leader_is_asked_again(run: PdctlOverGrpc, busy: Servers) -> None:
    """A rebalance that its leader took to the grave is planned anew by the one who waits for it."""
    busy.member.before = lambda name: forget_once(busy.member, name)
    done = run.json("cluster", "rebalance", "--apply", "--wait", "--wait-timeout", "60s")
    assert done["done"] and run.json("cluster", "rebalance", "--dry-run")["moves"] == []


def forget_once(member: InProcessPd, name: str) -> None:
    """At the first question how far it is, the leader does not know."""
    if name == "DescribeRebalance":
        member.driver.rebalance = None
        member.before = lambda name: None


def test_without_wait_it_goes_on_behind(run: PdctlOverGrpc, servers: Servers) -> None:
    """The command ends at once; another one meanwhile is refused, and so is one while replicas are copied."""
    started = run("cluster", "rebalance", "--apply", "--max-bytes", "3MiB")
    assert started.exit_code == 0 and "0 of 3 moves done" in started.stdout
    assert "another rebalance" in run.fails(5, "cluster", "rebalance", "--apply")
    servers.member.reconcile()
    servers.round()
    refused = run("cluster", "rebalance", "--dry-run")
    assert refused.exit_code == 1 and "nothing may be moved now" in refused.stdout
    for _ in range(4):
        servers.round()
    assert all(len(held) == count for held, count in zip(servers.held.values(), (23, 23, 23, 3), strict=True))


@pytest.mark.parametrize("options", [(), ("--dry-run", "--apply"), ("--dry-run", "--wait")])
def test_options_that_do_not_go_together(run: PdctlOverGrpc, options: tuple[str, ...]) -> None:
    """One of --dry-run and --apply; --wait with --apply only."""
    run.fails(2, "cluster", "rebalance", *options)


def test_an_apply_needs_members_that_keep_why(run: PdctlOverGrpc, member: InProcessPd, tmp_path: Path) -> None:
    """The reason of a move keeps its source until it is whole, so all members must know reasons."""
    assert "cluster version" in run.fails(4, "--timeout", "3", "cluster", "rebalance", "--apply")


def test_a_wait_that_takes_too_long_says_that_it_goes_on(run: PdctlOverGrpc, servers: Servers) -> None:
    """Exit code 4, with how far it is."""
    said: Any = run("cluster", "rebalance", "--apply", "--wait", "--wait-timeout", "0s")
    assert said.exit_code == 4
    assert "under way" in said.stderr
