"""Calls on the owner of a shard or journal: found again where it moved, repeated where that is harmless, else ended."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from rangelog_core.errors import (
    ClientClosed,
    NotOwner,
    OutcomeUnknown,
    RangelogError,
    SessionExpired,
    ShardEnded,
    StorageFull,
)
from rangelog_core.net.owner_calls import JOURNALS, OwnerCalls, journal_of
from rangelog_core.net.pd_client import PdClient
from rangelog_proto.v1 import broker_pb2, group_service_pb2
from rangelog_proto.v1.broker_pb2_grpc import BrokersServicer, add_BrokersServicer_to_server
from rangelog_proto.v1.group_service_pb2_grpc import GroupsServicer, GroupsStub, add_GroupsServicer_to_server
from rangelog_server_common.grpc_server import GrpcServer

KEY = 0, 3


class Cluster(BrokersServicer, GroupsServicer):
    """One port for everything: it names itself as the owner, and answers with the errors that a test lists."""

    def __init__(self) -> None:
        self.address = ""
        self.errors: list[RangelogError] = []
        self.calls: list[str] = []
        self.ended = False
        self.reached = asyncio.Event()
        self.answers = asyncio.Event()
        self.answers.set()

    async def FindOwners(self, request: Any, context: Any) -> Any:
        """This one."""
        self.calls.append("find")
        if self.ended:
            return broker_pb2.FindOwnersResponse(ended=request.shards)
        return broker_pb2.FindOwnersResponse(brokers=[broker_pb2.Broker(name="b", control_address=self.address)])

    async def ReportBrokerLost(self, request: Any, context: Any) -> Any:
        """It is not."""
        return broker_pb2.ReportBrokerLostResponse()

    async def OpenGroupSession(self, request: Any, context: Any) -> Any:
        """An error as long as there are some."""
        self.calls.append("open")
        self.reached.set()
        await self.answers.wait()
        if self.errors:
            raise self.errors.pop(0)
        return group_service_pb2.OpenGroupSessionResponse(session=5)


@pytest.fixture
async def cluster() -> AsyncIterator[tuple[Cluster, OwnerCalls]]:
    """A cluster on loopback, and calls on it."""
    cluster, server = Cluster(), GrpcServer()
    add_BrokersServicer_to_server(cluster, server.server)  # type: ignore[no-untyped-call]
    add_GroupsServicer_to_server(cluster, server.server)  # type: ignore[no-untyped-call]
    cluster.address = f"127.0.0.1:{await server.start('127.0.0.1:0', ())}"
    pd = PdClient([cluster.address])
    calls = OwnerCalls(pd)
    yield cluster, calls
    await calls.close()
    await pd.close()
    await server.stop(0)


async def opened(calls: OwnerCalls, *, repeatable: bool = True) -> int:
    """Call the owner."""
    request = group_service_pb2.OpenGroupSessionRequest()
    response = await calls.call(
        KEY, GroupsStub, lambda stub: stub.OpenGroupSession, request, timeout_s=20, repeatable=repeatable
    )
    return int(response.session)


async def test_a_call_goes_on_at_the_new_owner(cluster: tuple[Cluster, OwnerCalls]) -> None:
    """The owner is looked up once, and again when it is another one."""
    fake, calls = cluster
    assert await opened(calls) == 5
    assert await opened(calls) == 5
    assert fake.calls == ["find", "open", "open"]
    fake.errors = [NotOwner("moved")]
    assert await opened(calls) == 5
    assert fake.calls[3:] == ["open", "find", "open"]


async def test_an_unknown_outcome_is_repeated_where_that_is_harmless(cluster: tuple[Cluster, OwnerCalls]) -> None:
    """Otherwise the caller has to know of it."""
    fake, calls = cluster
    fake.errors = [OutcomeUnknown("fenced")]
    assert await opened(calls) == 5
    fake.errors = [OutcomeUnknown("fenced")]
    with pytest.raises(OutcomeUnknown) as caught:
        await opened(calls, repeatable=False)
    assert caught.value.outcome_unknown


async def test_an_expired_session_ends_the_call_at_once(cluster: tuple[Cluster, OwnerCalls]) -> None:
    """A repeat has the same answer: the caller opens another session. Only a try before may have been carried out."""
    fake, calls = cluster
    fake.errors = [SessionExpired("idle")]
    with pytest.raises(SessionExpired) as told:
        await opened(calls)
    assert fake.calls == ["find", "open"] and not told.value.outcome_unknown
    fake.errors = [OutcomeUnknown("fenced"), SessionExpired("idle")]
    with pytest.raises(SessionExpired) as told:
        await opened(calls)
    assert told.value.outcome_unknown


async def test_full_disks_end_the_call_at_once(cluster: tuple[Cluster, OwnerCalls]) -> None:
    """The owner answers, so nobody reports it as lost; what a try before may have done stays in doubt."""
    fake, calls = cluster
    fake.errors = [StorageFull("no room at rs1")]
    with pytest.raises(StorageFull) as told:
        await opened(calls)
    assert not told.value.outcome_unknown
    fake.errors = [OutcomeUnknown("fenced"), StorageFull("no room at rs1")]
    with pytest.raises(StorageFull) as told:
        await opened(calls)
    assert told.value.outcome_unknown
    assert fake.calls == ["find", "open", "open", "find", "open"]


async def test_calls_of_closed_calls_are_not_retriable(cluster: tuple[Cluster, OwnerCalls]) -> None:
    """One that the close cuts off may have been carried out; one begun after it was not. A loop of repeats ends at both."""
    fake, calls = cluster
    fake.answers.clear()
    under_way = asyncio.create_task(opened(calls))
    await fake.reached.wait()
    await calls.close()
    for call, unknown in ((under_way, True), (opened(calls), False)):
        with pytest.raises(ClientClosed) as caught:
            await call
        assert (caught.value.retriable, caught.value.outcome_unknown) == (False, unknown)
    fake.answers.set()


def test_names_are_spread_over_the_journals() -> None:
    """By a hash that never changes."""
    assert {journal_of(f"group-{number}") for number in range(500)} == {(0, number) for number in range(JOURNALS)}


async def test_a_call_on_a_shard_that_has_ended_fails_at_once(cluster: tuple[Cluster, OwnerCalls]) -> None:
    """Nobody will ever own it again. Whether a try before was carried out is as open as it was."""
    fake, calls = cluster
    fake.ended = True
    with pytest.raises(ShardEnded) as certain:
        await opened(calls)
    assert not certain.value.outcome_unknown
    fake.ended = False
    await opened(calls)
    fake.ended, fake.errors = True, [OutcomeUnknown("no ack in time")]
    with pytest.raises(ShardEnded) as unknown:
        await opened(calls)
    assert unknown.value.outcome_unknown
