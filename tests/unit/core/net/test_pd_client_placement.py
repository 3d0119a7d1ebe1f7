"""Waiting for range servers to come up: NoPlacement is waited out, and named when it stays."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from rangelog_core.errors import NoPlacement, NotLeader
from rangelog_core.net.pd_client import PdClient
from rangelog_proto.v1 import pd_pb2
from rangelog_proto.v1.pd_pb2_grpc import PlacementDriverServicer, add_PlacementDriverServicer_to_server
from rangelog_server_common.grpc_server import GrpcServer
from tests.support.call_clock import CallClock


class Member(PlacementDriverServicer):
    """A placement driver that answers CreateRange as it is told to."""

    def __init__(self) -> None:
        self.steps: list[Exception | Callable[[], Awaitable[Any]]] = []
        self.calls = 0

    async def CreateRange(self, request: Any, context: Any) -> pd_pb2.CreateRangeResponse:
        """Raise or await the steps one after the other, the last one for ever."""
        self.calls += 1
        step = self.steps.pop(0) if len(self.steps) > 1 else self.steps[0]
        if isinstance(step, Exception):
            raise step
        return await step()


@pytest.fixture
async def members() -> AsyncIterator[list[tuple[Member, str, GrpcServer]]]:
    """Three members on loopback; the second leads."""
    started = []
    for _ in range(3):
        member, server = Member(), GrpcServer()
        add_PlacementDriverServicer_to_server(member, server.server)  # type: ignore[no-untyped-call]
        port = await server.start("127.0.0.1:0", ("rangelog.v1.PlacementDriver",))
        started.append((member, f"127.0.0.1:{port}", server))
    for number in (0, 2):
        started[number][0].steps = [NotLeader("not me", address=started[1][1])]
    yield started
    for _, _, server in started:
        await server.stop(0)


@pytest.mark.parametrize("tries", [2, 3, 4])
async def test_no_placement_is_the_answer_when_it_stays(
    members: list[tuple[Member, str, GrpcServer]], clock: CallClock, tries: int
) -> None:
    """Whenever the time ends, the caller hears what the leader said, not that nobody leads."""
    leader, refusal = members[1][0], NoPlacement("1 range server is alive, 2 are needed")
    leader.steps = [refusal] * (tries - 1) + [clock.ends_after(refusal)]
    pd = PdClient([address for _, address, _ in members])
    with pytest.raises(NoPlacement, match="1 range server is alive") as caught:
        await pd.create_range(pd_pb2.CreateRangeRequest(request_id="r"), timeout_s=60)
    assert not caught.value.outcome_unknown
    assert leader.calls == tries
    assert members[0][0].calls <= 2
    await pd.close()
