"""Calls on topics and brokers go to the leader, over the connections that calls on streams use."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from rangelog_core.errors import KeyRangeGap, NotLeader, StreamSealed
from rangelog_core.net.pd_client import PdClient
from rangelog_proto.v1 import broker_pb2, pd_pb2, topic_pb2
from rangelog_proto.v1.broker_pb2_grpc import BrokersServicer, add_BrokersServicer_to_server
from rangelog_proto.v1.pd_pb2_grpc import PlacementDriverServicer, add_PlacementDriverServicer_to_server
from rangelog_proto.v1.topic_pb2_grpc import TopicsServicer, add_TopicsServicer_to_server
from rangelog_server_common.grpc_server import GrpcServer

TOPIC_METHODS = topic_pb2.DESCRIPTOR.services_by_name["Topics"].methods
BROKER_METHODS = broker_pb2.DESCRIPTOR.services_by_name["Brokers"].methods


class Streams(PlacementDriverServicer):
    """Refuses to open a writer."""

    async def OpenWriter(self, request: Any, context: Any) -> Any:
        """The stream's shard has ended."""
        raise StreamSealed("it has ended", offset=7)


class Member(TopicsServicer, BrokersServicer):
    """Notes each call and returns an empty response, or raises `error`."""

    def __init__(self) -> None:
        self.error: Exception | None = None
        self.calls: list[str] = []
        for pb, methods in ((topic_pb2, TOPIC_METHODS), (broker_pb2, BROKER_METHODS)):
            for method in methods:
                setattr(self, method.name, self._bind(method.name, getattr(pb, method.output_type.name)))

    def _bind(self, name: str, response: Any) -> Any:
        async def call(request: Any, context: Any) -> Any:
            self.calls.append(name)
            if self.error is not None:
                raise self.error
            return response()

        return call


@pytest.fixture
async def members() -> AsyncIterator[list[tuple[Member, str]]]:
    """Two members on loopback; the second leads."""
    started = []
    for _ in range(2):
        member, server = Member(), GrpcServer()
        add_TopicsServicer_to_server(member, server.server)  # type: ignore[no-untyped-call]
        add_BrokersServicer_to_server(member, server.server)  # type: ignore[no-untyped-call]
        add_PlacementDriverServicer_to_server(Streams(), server.server)  # type: ignore[no-untyped-call]
        port = await server.start("127.0.0.1:0", ("rangelog.v1.Topics",))
        started.append((member, f"127.0.0.1:{port}", server))
    started[0][0].error = NotLeader("not me", address=started[1][1])
    yield [(member, address) for member, address, _ in started]
    for _, _, server in started:
        await server.stop(0)


async def test_each_call_reaches_the_leader(members: list[tuple[Member, str]]) -> None:
    """Under its own name, over one connection to each member."""
    pd = PdClient([members[0][1]])
    for pb, methods in ((topic_pb2, TOPIC_METHODS), (broker_pb2, BROKER_METHODS)):
        for method in methods:
            request, response = getattr(pb, method.input_type.name)(), getattr(pb, method.output_type.name)
            await pd.call(request, response, timeout_s=5)
    assert members[1][0].calls == [each.name for each in (*TOPIC_METHODS, *BROKER_METHODS)]
    assert len(members[0][0].calls) == 1, "the leader is remembered"
    with pytest.raises(StreamSealed) as sealed:
        await pd.call(pd_pb2.OpenWriterRequest(request_id="o"), pd_pb2.OpenWriterResponse, timeout_s=5)
    assert sealed.value.offset == 7
    assert len(pd._channels) == 2
    await pd.close()


async def test_an_error_comes_as_its_own_class(members: list[tuple[Member, str]]) -> None:
    """A refusal is not retried."""
    members[1][0].error = KeyRangeGap("no key range covers the keys from 0 on")
    pd = PdClient([members[1][1]])
    with pytest.raises(KeyRangeGap, match="from 0 on"):
        await pd.call(topic_pb2.StartScaleRequest(request_id="s"), topic_pb2.StartScaleResponse, timeout_s=5)
    assert members[1][0].calls == ["StartScale"]
    await pd.close()
