"""`pdctl server cordon | uncordon | drain | remove | check-impact` over the real handlers and state machine."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import yaml

from pdctl import server_waiting
from rangelog_core.errors import PreconditionFailed, RequestTimeout
from rangelog_proto.v1 import common_pb2, operations_pb2, pd_pb2
from tests.unit.pdctl.in_process_pd import InProcessPd, PdctlOverGrpc

NAMES = ("rs1", "rs2", "rs3", "rs4")


def sealed(index: int = 0, end: int = 10) -> pd_pb2.ReplicaReport:
    """A whole replica of a range of the first stream."""
    return pd_pb2.ReplicaReport(stream_id=1, range_index=index, state=pd_pb2.REPLICA_STATE_SEALED, durable_offset=end)


def members(member: InProcessPd, index: int = 0) -> list[str]:
    """The servers of a range of the first stream."""
    with member.driver.state() as state:
        return [each.server for each in state.ranges[1, index].replicas]


@pytest.fixture
def cluster(member: InProcessPd) -> InProcessPd:
    """Four servers, and a stream with one sealed range of three whole replicas."""
    member.reconcile()
    for name in NAMES:
        member.register(name)
    member.stream("s", tiered=False)
    member.ranges("s", 1, open_end=False)
    report(member)
    return member


def report(member: InProcessPd, *names: str) -> None:
    """Servers report what they are members of; all of them unless some are named."""
    for name in names or NAMES:
        member.heartbeat(name, replicas=[sealed()] if name in members(member) else [])


def test_the_timeout_of_a_drain_may_be_a_number_of_seconds(run: PdctlOverGrpc, cluster: InProcessPd) -> None:
    """As --timeout is everywhere else."""
    assert run("server", "drain", "rs2", "--timeout", "20").exit_code == 0
    assert "'x' is not a duration" in run.fails(2, "server", "drain", "rs2", "--timeout", "x")


def test_cordon_and_uncordon(run: PdctlOverGrpc, cluster: InProcessPd) -> None:
    """The mode is in the listing, in JSON and YAML; both verbs may be repeated."""
    assert run.json("server", "cordon", "rs2")["mode"] == "cordoned"
    assert run("server", "cordon", "rs2").stdout == "rs2 is cordoned: it gets no new replica\n"
    assert {each["name"]: each["mode"] for each in run.json("server", "list")} == {
        "rs1": "active",
        "rs2": "cordoned",
        "rs3": "active",
        "rs4": "active",
    }
    assert "cordoned" in run("server", "list").stdout and "cordoned" in run("cluster", "status").stdout
    assert yaml.safe_load(run("server", "uncordon", "rs2", "-o", "yaml").stdout)["mode"] == "active"
    assert "no range server 'rs9'" in run.fails(3, "server", "cordon", "rs9")


def test_a_drain_shows_how_far_it_is_and_ends(run: PdctlOverGrpc, cluster: InProcessPd) -> None:
    """Waiting, being copied, drained: one line each on stderr; the last one names the next command."""
    leaving = members(cluster)[0]
    polls = 0

    def go_on(name: str) -> None:
        """What the cluster does between two looks at the drain."""
        nonlocal polls
        if name != "DescribeDrain":
            return
        polls += 1
        if polls == 2:
            cluster.reconcile()
            cluster.heartbeat(leaving, replicas=[sealed()])
        elif polls == 3:
            report(cluster, *(each for each in NAMES if each != leaving))
            cluster.heartbeat(leaving, replicas=[sealed()])
            cluster.heartbeat(leaving)

    cluster.before = go_on
    done = run("server", "drain", leaving, "--wait", "--timeout", "30s")
    assert done.exit_code == 0, done.output
    assert done.stderr.splitlines() == [
        f"draining {leaving}: 1 of 1 range left (1 waiting)",
        f"draining {leaving}: 1 of 1 range left (1 being copied)",
    ]
    assert done.stdout == f"{leaving} is drained: `pdctl server remove {leaving}` removes it for good\n"
    assert run.json("server", "drain", leaving) == {
        "server": leaving,
        "drained": True,
        "ranges_left": 0,
        "open_ranges": 0,
        "sealed_ranges": 0,
        "copying_ranges": 0,
        "blocked_ranges": 0,
        "blocked": [],
    }


def test_a_drain_without_waiting_says_what_is_left(run: PdctlOverGrpc, cluster: InProcessPd) -> None:
    """It is started; the command that waits is named, and what blocks it."""
    leaving = members(cluster)[0]
    shown = run("server", "drain", leaving).stdout
    assert shown.startswith(f"{leaving} is being drained, 1 range left") and "--wait" in shown


def test_a_blocked_drain_says_why_and_ends_with_its_time(run: PdctlOverGrpc, cluster: InProcessPd) -> None:
    """The message has the range, the reason, that it goes on, and how to wait again."""
    leaving = members(cluster)[0]
    (spare,) = set(NAMES) - set(members(cluster))
    assert run("server", "drain", leaving).exit_code == 0
    assert run("server", "cordon", spare).exit_code == 0
    cluster.reconcile()
    result = run("server", "drain", leaving, "--wait", "--timeout", "1s")
    assert result.exit_code == 4
    last = result.stderr.splitlines()[-1]
    assert f"1 blocked, such as range 0 of s: no other server may take it: {spare} is cordoned" in last
    assert "it goes on" in last and f"pdctl server drain {leaving} --wait" in last
    (blocked,) = run.json("server", "drain", leaving)["blocked"]
    assert (blocked["stream"], blocked["range_index"]) == ("s", 0)
    assert "WHY" in run("server", "drain", leaving).stdout


def test_a_drain_that_could_not_end_is_refused_with_the_reason(run: PdctlOverGrpc, cluster: InProcessPd) -> None:
    """Three replicas and two servers that would remain."""
    leaving = members(cluster)[0]
    (spare,) = set(NAMES) - set(members(cluster))
    assert run("server", "cordon", spare).exit_code == 0
    told = run.fails(5, "server", "drain", leaving, "--wait")
    assert "range 0 of stream 's' has 3 replicas, and 2 servers would remain" in told


def test_interrupting_the_wait_leaves_the_drain(
    run: PdctlOverGrpc, cluster: InProcessPd, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C ends the command with 130, says that the drain goes on, and it does."""
    leaving = members(cluster)[0]

    async def interrupted(*_: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(server_waiting, "wait_until_drained", interrupted)
    result = run("server", "drain", leaving, "--wait")
    assert result.exit_code == 130
    assert f"the drain of {leaving} goes on" in result.stderr
    assert {each["name"]: each["mode"] for each in run.json("server", "list")}[leaving] == "draining"


def test_a_wait_ends_when_the_drain_is_stopped(run: PdctlOverGrpc, cluster: InProcessPd) -> None:
    """Somebody uncordoned the server meanwhile."""
    leaving = members(cluster)[0]

    def stop(name: str) -> None:
        if name == "DescribeDrain":
            request = operations_pb2.SetServerModeRequest(server=leaving, mode=common_pb2.SERVER_MODE_ACTIVE)
            cluster.do("SetServerMode", request, operations_pb2.SetServerModeResponse)

    cluster.before = stop
    assert "was stopped" in run.fails(5, "server", "drain", leaving, "--wait")


def test_only_a_drained_server_is_removed(run: PdctlOverGrpc, cluster: InProcessPd) -> None:
    """An active one and one in the middle of a drain are refused; without a terminal --yes is needed; it stays away."""
    leaving = members(cluster)[0]
    assert "alive and not drained" in run.fails(5, "server", "remove", leaving, "--yes")
    assert "--yes" in run.fails(2, "server", "remove", leaving)
    assert run("server", "drain", leaving).exit_code == 0
    assert "1 ranges are left" in run.fails(5, "server", "remove", leaving, "--yes")
    cluster.reconcile()
    report(cluster)
    cluster.heartbeat(leaving, replicas=[sealed()])
    cluster.heartbeat(leaving)
    removed = run.json("server", "remove", leaving, "--yes")
    assert removed == {"server": leaving, "incarnation": f"{0xABC:016x}", "removed": True}
    assert leaving not in [each["name"] for each in run.json("server", "list")]
    with pytest.raises(PreconditionFailed, match="removed"):
        cluster.register(leaving)
    cluster.register(leaving, incarnation=0xDEF)


def test_an_impact_is_answered_by_the_exit_code(run: PdctlOverGrpc, cluster: InProcessPd) -> None:
    """0 and yes, 1 and no; the ranges that would be short or lost are listed, in all forms."""
    first, second, third = members(cluster)
    fine = run("server", "check-impact", first)
    assert fine.exit_code == 0 and fine.stdout.startswith(f"yes: {first} may go down now\n")
    bad = run("server", "check-impact", first, second, "-o", "json")
    assert bad.exit_code == 1 and not bad.stderr
    found = yaml.safe_load(bad.stdout)
    assert (found["safe"], found["short_count"], found["lost_count"]) == (False, 1, 0)
    assert found["short"] == [
        {"stream": "s", "stream_id": 1, "range_index": 0, "reason": "fewer copies than acks", "copies_left": 1}
    ]
    table = run("server", "check-impact", first, second, third)
    assert table.exit_code == 1
    assert table.stdout.startswith(f"no: {first}, {second}, {third} may not go down now\n")
    assert "1 range would have no copy within reach:" in table.stdout
    alone = run("server", "check-impact", "pd1")
    assert alone.exit_code == 1 and "0 would be left, 1 are needed: no majority" in alone.stdout
    assert "'rs9'" in run.fails(3, "server", "check-impact", "rs9")
    assert run("server", "check-impact").exit_code == 2


@pytest.mark.parametrize("verb", ["cordon", "uncordon", "drain", "remove", "check-impact"])
def test_every_verb_has_examples(run: PdctlOverGrpc, verb: str) -> None:
    """--help shows how it is used."""
    shown = run("server", verb, "--help").stdout
    assert f"pdctl server {verb} rs" in shown and "--output" in shown


def test_a_server_that_has_not_reported_is_waited_for() -> None:
    """A new leader does not know what the server holds: nothing reported is not nothing left."""
    found = operations_pb2.DescribeDrainResponse()
    assert not server_waiting.is_over(found)
    assert "report" in server_waiting.progress_line(found, 0)

    class Silent:
        async def call(self, *_: Any, **__: Any) -> Any:
            answer = operations_pb2.DescribeDrainResponse()
            answer.server.mode = common_pb2.SERVER_MODE_DRAINING
            return answer

    lines: list[str] = []
    with pytest.raises(RequestTimeout, match="it goes on"):
        asyncio.run(server_waiting.wait_until_drained(Silent(), "rs1", 1.0, 0.3, lines.append))  # type: ignore[arg-type]
    assert lines == ["draining rs1: waiting for the server's report of what it holds"]
