"""`pdctl pd transfer-leader --away-from`: what a placement driver's pod does before it stops."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from pdctl.members.handing_over import lead_away, successor
from rangelog_core.errors import MemberNotFound, PreconditionFailed, Unavailable
from rangelog_proto.v1 import members_pb2 as pb
from tests.support.pd_calls import CallsByName
from tests.unit.pdctl.in_process_pd import InProcessPd, PdctlOverGrpc


def member(name: str, index: int = 10, *, voter: bool = True, reachable: bool = True) -> pb.GroupMember:
    return pb.GroupMember(name=name, voter=voter, reachable=reachable, acknowledged_index=index)


class Group(CallsByName):
    """A group that elects whom it is told; `fails`: so many transfers do, and who leads then. Only sleeping moves its clock."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, leader: str | None, *members: pb.GroupMember) -> None:
        self.leader, self.members = leader, members
        self.asked: list[str] = []
        self.fails = 0
        self.leads_then: str | None = leader
        self.now_s = 100.0
        monkeypatch.setattr(time, "monotonic", lambda: self.now_s)
        monkeypatch.setattr(asyncio, "sleep", self._sleep)

    async def list_members(self, _request: Any, *, timeout_s: float) -> pb.ListMembersResponse:
        assert timeout_s > 0
        for each in self.members:
            each.leader = each.name == self.leader
        return pb.ListMembersResponse(members=self.members)

    async def transfer_leadership(self, request: Any, *, timeout_s: float) -> pb.TransferLeadershipResponse:
        assert timeout_s > 0
        self.asked.append(request.name)
        if self.fails:
            self.fails -= 1
            self.leader = self.leads_then
            raise Unavailable("it did not take over")
        self.leader = request.name
        return pb.TransferLeadershipResponse(leader=request.name)

    async def _sleep(self, delay_s: float) -> None:
        self.now_s += max(delay_s, 0.01)

    def lead_away(self, leaving: str, wait_s: float = 10) -> str:
        steps = lead_away(self, leaving, wait_s)  # type: ignore[arg-type]
        try:
            steps.send(None)
        except StopIteration as done:
            return str(done.value)
        raise AssertionError("it waits for something else than the clock")


def test_a_leader_hands_over_to_the_one_with_most_of_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """And the member that leads then is told."""
    group = Group(monkeypatch, "pd-0", member("pd-0", 12), member("pd-1", 10), member("pd-2", 11))
    assert group.lead_away("pd-0") == "pd-2" and group.asked == ["pd-2"]


def test_whom_it_never_hands_over_to() -> None:
    """The one that leaves, a learner, one that does not answer."""
    leaving, learner, away = member("pd-0", 99), member("pd-3", 99, voter=False), member("pd-1", 99, reachable=False)
    assert successor([leaving, learner, away, member("pd-2", 5)], "pd-0") == "pd-2"
    assert successor([leaving, learner, away], "pd-0") is None


def test_a_follower_leaves_the_leader_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rolling restart asks for every member."""
    group = Group(monkeypatch, "pd-1", member("pd-0"), member("pd-1"))
    assert group.lead_away("pd-0") == "pd-1" and not group.asked


def test_it_tries_again_and_stops_where_another_one_leads(monkeypatch: pytest.MonkeyPatch) -> None:
    """A transfer that failed may have ended in an election that another one won."""
    group = Group(monkeypatch, "pd-0", member("pd-0"), member("pd-1"), member("pd-2"))
    group.fails = 2
    assert group.lead_away("pd-0") in ("pd-1", "pd-2") and len(group.asked) == 3
    group.leader, group.fails, group.leads_then, group.asked = "pd-0", 1, "pd-2", []
    assert group.lead_away("pd-0") == "pd-2" and len(group.asked) == 1


def test_it_ends_with_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the last error; a group without a leader, or of one, is waited for just as long."""
    group = Group(monkeypatch, "pd-0", member("pd-0"), member("pd-1"))
    group.fails = 1_000
    with pytest.raises(Unavailable, match="did not take over"):
        group.lead_away("pd-0", 5)
    assert group.now_s == pytest.approx(105)
    for leader, members in ((None, ("pd-0", "pd-1")), ("pd-0", ("pd-0",))):
        alone = Group(monkeypatch, leader, *map(member, members))
        with pytest.raises((Unavailable, PreconditionFailed)):
            alone.lead_away("pd-0", 5)
        assert alone.now_s == pytest.approx(105)
    with pytest.raises(MemberNotFound, match="pdctl pd list"):
        group.lead_away("pd-9")


def test_by_the_command(run: PdctlOverGrpc, member: InProcessPd) -> None:
    """Against the real handlers: a group of one."""
    assert "is no member" in run.fails(3, "pd", "transfer-leader", "--away-from", "pd9")
    assert "could lead in place of pd1" in run.fails(5, "pd", "transfer-leader", "--away-from", "pd1", "--wait-s", "0")
    assert "exclude each other" in run.fails(2, "pd", "transfer-leader", "pd1", "--away-from", "pd1")
