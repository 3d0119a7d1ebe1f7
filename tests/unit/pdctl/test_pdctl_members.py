"""`pdctl pd …` against the real handlers, consensus of one in memory; the group itself is tested with real processes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rangelog_proto.v1 import members_pb2 as pb
from tests.unit.pdctl.in_process_pd import InProcessPd, PdctlOverGrpc


def test_the_members_are_listed(run: PdctlOverGrpc, member: InProcessPd) -> None:
    """A group of one; the keys are the documented ones."""
    view = run.json("pd", "list")
    assert set(view) == {
        "members", "voters", "has_majority", "passing", "term", "configuration_index", "last_index", "group", "answered_by",
    }  # fmt: skip
    assert [(each["name"], each["state"], each["api_address"]) for each in view["members"]] == [
        ("pd1", "leader", member.address)
    ]
    assert not view["passing"]


def test_leadership_of_one(run: PdctlOverGrpc) -> None:
    """It stays where it is; nobody else can have it."""
    assert run.json("pd", "transfer-leader") == {"leader": "pd1"}
    assert "pd9 is no member" in run.fails(5, "pd", "transfer-leader", "pd9")


def test_changes_are_refused_with_what_to_do(
    run: PdctlOverGrpc, member: InProcessPd, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bad address, an unknown member, no consent; a cluster that does not know changes yet."""
    monkeypatch.setattr("pdctl.members.pd.CALL_TIMEOUT_S", 1.0)  # it is asked again, should it come to know them
    assert "is not NAME=" in run.fails(2, "pd", "add", "pd2")
    assert "pdctl pd list" in run.fails(3, "pd", "remove", "pd9", "--yes")
    assert "--yes" in run.fails(2, "pd", "remove", "pd1")
    assert "needs cluster version 6" in run.fails(4, "pd", "add", "pd2=127.0.0.1:1@127.0.0.1:2")
    member.reconcile()
    assert "in memory" in run.fails(5, "pd", "add", "pd2=127.0.0.1:1@127.0.0.1:2")


def test_a_state_is_saved_and_inspected(run: PdctlOverGrpc, member: InProcessPd, tmp_path: Path) -> None:
    """The file appears whole; what there is stays unless it is to be replaced; damage is seen."""
    for number in range(3):
        member.stream(f"s{number}")
    file = tmp_path / "saved"
    saved = run.json("pd", "snapshot", "save", str(file))
    assert (saved["stream_count"], saved["saved_by"]) == (3, "pd1")
    assert run.json("pd", "snapshot", "inspect", str(file)) == saved
    assert sorted(tmp_path.iterdir()) == [file]
    assert "exists" in run.fails(5, "pd", "snapshot", "save", str(file))
    run.json("pd", "snapshot", "save", str(file), "--force")
    file.write_bytes(file.read_bytes()[:-1])
    assert "ends too early" in run.fails(1, "pd", "snapshot", "inspect", str(file))


def test_what_is_said_of_a_group(pdctl: Any, pd: Any) -> None:
    """A learner, a passing size, no majority: each has a sentence."""

    def told(**more: Any) -> str:
        members = more.pop("members", [pb.GroupMember(name="pd1", voter=True, leader=True, reachable=True)])
        answer = pb.ListMembersResponse(members=members, has_majority=more.pop("has_majority", True), **more)

        async def call(*_: object, **__: object) -> pb.ListMembersResponse:
            return answer

        pd.call = call
        return str(pdctl("pd", "list").stdout)

    assert "passing" not in told()
    learner = [
        pb.GroupMember(name="pd1", voter=True, leader=True, reachable=True),
        pb.GroupMember(name="pd2", raft_address="b:1"),
    ]
    assert "pd2 catches up" in told(members=learner, passing=True)
    two = [pb.GroupMember(name=name, voter=True, reachable=True) for name in ("pd1", "pd2")]
    assert "2 voters are a passing state" in told(members=two, passing=True)
    assert "no majority" in told(has_majority=False)
