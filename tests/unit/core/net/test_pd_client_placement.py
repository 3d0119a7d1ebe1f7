"""Waiting for range servers to come up: NoPlacement is waited out, and named when it stays."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from rangelog_core.errors import NoPlacement, NotLeader
from rangelog_core.net.pd_client import PdClient
from rangelog_proto.v1 import pd_pb2
from rangelog_proto.v1.pd_pb2_grpc import PlacementDriverServicer, add_PlacementDriverServicer_to_server
from rangelog_server_common.grpc_server import GrpcServer


class Member(PlacementDriverServicer):
    """A placement driver that answers CreateRange as it is told to."""

    def __init__(self) -> None:
        self.error: Exception | None = None
        self.calls = 0

    async def CreateRange(self, request: Any, context: Any) -> pd_pb2.CreateRangeResponse:
        """Fail or answer."""
        self.calls += 1
        if self.error is not None:
            raise self.error
        return pd_pb2.CreateRangeResponse()


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
        started[number][0].error = NotLeader("not me", address=started[1][1])
    yield started
    for _, _, server in started:
        await server.stop(0)


@pytest.mark.parametrize("timeout_s", [0.3, 0.6, 1.0])
async def test_no_placement_is_the_answer_when_it_stays(
    members: list[tuple[Member, str, GrpcServer]], timeout_s: float
) -> None:
    """Whatever the deadline, the caller hears what the leader said, not that nobody leads."""
    members[1][0].error = NoPlacement("1 range server is alive, 2 are needed")
    pd = PdClient([address for _, address, _ in members])
    with pytest.raises(NoPlacement):
        await pd.create_range(pd_pb2.CreateRangeRequest(request_id="r"), timeout_s=timeout_s)
    assert members[1][0].calls > 1
    assert members[0][0].calls <= 2
    await pd.close()
