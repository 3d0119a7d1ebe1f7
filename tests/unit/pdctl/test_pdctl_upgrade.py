"""`pdctl upgrade check` and `finalize`: the order of an upgrade, what is shown, what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from pdctl.upgrade.plan import ProcessKind, ProcessProgram, ProgramVersion, candidates, is_older, newest, other_broker
from rangelog_core.errors import UnsupportedVersion
from rangelog_core.versions import FEATURE_LEVEL
from rangelog_proto.v1 import broker_pb2
from tests.unit.pdctl.in_process_pd import InProcessPd, PdctlOverGrpc

OLD, NEW = ProgramVersion(6, "0.1.0"), ProgramVersion(7, "0.1.0")
EARLIER = FEATURE_LEVEL - 1


def _process(name: str, program: ProgramVersion, **more: bool) -> ProcessProgram:
    kinds = {"p": ProcessKind.PLACEMENT_DRIVER, "r": ProcessKind.RANGE_SERVER, "b": ProcessKind.BROKER}
    return ProcessProgram(name, kinds[name[0]], program, **more)


def test_the_order_is_placement_drivers_then_range_servers_then_brokers() -> None:
    """The leader is the last of its kind; who is done is not named again."""
    running = {
        "pd1": _process("pd1", OLD, leader=True), "pd2": _process("pd2", OLD), "pd3": _process("pd3", OLD),
        "rs1": _process("rs1", ProgramVersion(0, "0.1.0")), "rs2": _process("rs2", OLD), "b1": _process("b1", OLD),
    }  # fmt: skip
    order = []
    while found := candidates(list(running.values()), NEW):
        order.append(found[0].name)
        running[order[-1]] = _process(order[-1], NEW)
    assert order == ["pd2", "pd3", "pd1", "rs1", "rs2", "b1"]


@pytest.mark.parametrize(
    ("program", "older"),
    [
        ((6, "9.9"), True), ((0, "0.2.0"), True), ((7, "0.1.9"), True), ((7, "0.10.0"), False),
        ((7, "0.2.0"), False), ((7, ""), False), ((8, "0.0"), False), ((0, ""), True),
    ],
)  # fmt: skip
def test_a_level_counts_before_a_version(program: tuple[int, str], older: bool) -> None:
    """A level that was not told is an earlier one; a version that was not told says nothing."""
    assert is_older(_process("rs1", ProgramVersion(*program)), ProgramVersion(7, "0.2.0")) is older


def test_the_newest_program_may_be_that_of_this_command() -> None:
    """So that an upgrade in which nothing was replaced yet has somebody who is next."""
    assert newest([_process("pd1", OLD)], NEW) == NEW
    assert newest([_process("pd1", NEW)], OLD) == NEW
    assert newest([], ProgramVersion(7, "not a number " * 1_000)).feature_level == 7


def test_a_broker_goes_when_another_one_takes_over() -> None:
    """One that is lost takes nothing over."""
    assert other_broker([_process("b1", OLD), _process("b2", OLD)], "b1")
    assert not other_broker([_process("b1", OLD), _process("b2", OLD, alive=False), _process("rs1", OLD)], "b1")


def _earlier(pd: InProcessPd) -> None:
    """A cluster at the earlier version whose leader waits for `finalize`."""
    pd.reconcile()
    pd.driver.settings.auto_finalize = False
    pd.driver.machine.state.cluster_version = EARLIER


def test_check_names_who_is_older_and_what_finalize_would_change(run: PdctlOverGrpc, topics: InProcessPd) -> None:
    """Range servers that tell no level are older; their absence would leave ranges short, so nobody is next."""
    _earlier(topics)
    shown = run("upgrade", "check", "-o", "table")
    assert shown.exit_code == 1, shown
    assert f"cluster version  {EARLIER}" in shown.output and "range server rs1 tells no level" in shown.output
    assert f"level {FEATURE_LEVEL} " in shown.output and "earlier" in shown.output


def test_finalize_is_refused_asked_for_and_repeated(run: PdctlOverGrpc, topics: InProcessPd) -> None:
    """Exit code 5 with the reason; 2 where nobody confirms; then it is done, once."""
    _earlier(topics)
    refused = run("upgrade", "finalize", "--yes")
    assert refused.exit_code == 5 and "tells no level" in refused.stderr, refused
    for name in ("rs1", "rs2", "rs3"):
        topics.heartbeat(name, feature_level=FEATURE_LEVEL)
    unconfirmed = run("upgrade", "finalize")
    assert unconfirmed.exit_code == 2 and f"from {EARLIER} to {FEATURE_LEVEL}" in unconfirmed.stderr, unconfirmed
    assert topics.driver.machine.state.cluster_version == EARLIER
    assert run.json("upgrade", "finalize", "--yes") == {
        "cluster_version_before": EARLIER,
        "cluster_version": FEATURE_LEVEL,
    }
    assert "already" in run("upgrade", "finalize").output


def test_a_leader_of_an_earlier_release_knows_no_finalize(pdctl: Any, pd: Any) -> None:
    """The refusal says so, instead of naming a method."""
    pd.answers["finalize_upgrade"] = UnsupportedVersion("unknown method FinalizeUpgrade")
    assert "earlier release" in pdctl.fails(5, "upgrade", "finalize", "--yes")


def test_check_is_content_once_all_is_done(run: PdctlOverGrpc, topics: InProcessPd) -> None:
    """Servers and brokers are shown with the level that they report."""
    topics.reconcile()
    for name in ("rs1", "rs2", "rs3"):
        topics.heartbeat(name, feature_level=FEATURE_LEVEL)
    register = broker_pb2.RegisterBrokerRequest(name="b1", incarnation=7, address="b1:1", version="0.1.0")
    topics.do("RegisterBroker", register, broker_pb2.RegisterBrokerResponse)
    heartbeat = broker_pb2.BrokerHeartbeatRequest(name="b1", incarnation=7, feature_level=FEATURE_LEVEL)
    topics.do("BrokerHeartbeat", heartbeat, broker_pb2.BrokerHeartbeatResponse)
    told = run.json("upgrade", "check")
    levels = {each["name"]: each["feature_level"] for each in told["processes"]}
    assert set(levels.values()) == {FEATURE_LEVEL} and set(levels) >= {"pd1", "rs1", "rs2", "rs3", "b1"}
    assert told["next"] == "" and told["finalize"]["hindrances"] == [] and told["finalize"]["changes"] == {}
    assert "the upgrade is done" in run("upgrade", "check").output
