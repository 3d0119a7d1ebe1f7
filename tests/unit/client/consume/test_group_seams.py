"""Members over real gRPC calls, and from blocking code."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from rangelog import Client, GroupMember
from rangelog._consume.group_calls import GroupCalls
from rangelog._consume.group_shards import GroupShards
from rangelog._consume.groups import Groups
from rangelog._loop_thread import LoopThread
from rangelog._sync_groups import GroupMember as BlockingMember
from rangelog._sync_groups import Groups as BlockingGroups
from rangelog_broker.groups.kind import GROUPS
from rangelog_core.errors import GroupNotFound, MemberNotFound, SessionExpired
from rangelog_core.net.owner_calls import OwnerCalls, journal_of
from rangelog_core.net.pd_client import PdClient
from rangelog_proto.v1 import broker_pb2, group_pb2, group_service_pb2
from rangelog_proto.v1.broker_pb2_grpc import BrokersServicer, add_BrokersServicer_to_server
from rangelog_proto.v1.group_service_pb2_grpc import add_GroupsServicer_to_server
from rangelog_server_common.grpc_server import GrpcServer
from tests.support.group_cluster import GroupCluster

GROUP, TOPIC = "billing", "default/flights"
JOURNAL = journal_of(GROUP)[1]


class Owners(BrokersServicer):
    """All journals belong to the broker on this port."""

    address = ""

    async def FindOwners(self, request: Any, context: Any) -> Any:
        """This one."""
        return broker_pb2.FindOwnersResponse(brokers=[broker_pb2.Broker(name="b", control_address=self.address)])


def parts(cluster: GroupCluster, calls: Any) -> tuple[GroupCalls, GroupShards]:
    """What a client makes members of."""
    client: Any = cluster.client
    shards = GroupShards(cluster.topics, client.metadata, client.connections, client._group_reader)
    return GroupCalls(calls), shards


def member_of(calls: GroupCalls, shards: GroupShards) -> GroupMember:
    """A member."""
    return GroupMember(
        calls, shards, GROUP, [TOPIC], member_id=None, start="earliest", session_s=10, auto_commit_s=None,
        checkpoint_every_s=None, skip_trimmed=False, listener=None,
    )  # fmt: skip


async def test_members_over_grpc() -> None:
    """Errors come as their own classes; a session that has expired is replaced."""
    async with GroupCluster() as cluster:
        broker = await cluster.broker(JOURNAL)
        server, owners = GrpcServer(), Owners()
        add_BrokersServicer_to_server(owners, server.server)  # type: ignore[no-untyped-call]
        add_GroupsServicer_to_server(broker.service, server.server)  # type: ignore[no-untyped-call]
        owners.address = f"127.0.0.1:{await server.start('127.0.0.1:0', (GROUPS.service,))}"
        pd = PdClient([owners.address])
        owner_calls = OwnerCalls(pd)
        calls, shards = parts(cluster, owner_calls)
        topic = await cluster.create_topic(TOPIC)
        await cluster.append(topic, 0, b"a", b"b")
        with pytest.raises(GroupNotFound):
            await Groups(calls, shards).describe(GROUP)
        async with member_of(calls, shards) as member:
            async for record in member:
                await member.commit()
                if record.value == b"b":
                    break
            calls._sessions[JOURNAL].number = 999_999
            await calls.request_checkpoint(GROUP, "c", 0, 10)
            assert calls._sessions[JOURNAL].number != 999_999
            with pytest.raises(MemberNotFound):
                await calls.heartbeat(group_service_pb2.HeartbeatGroupRequest(group=GROUP, member="nobody"), 10)
        assert (await Groups(calls, shards).describe(GROUP)).shards[0].offset == 2
        broker.service.close()
        await owner_calls.close()
        await pd.close()
        await server.stop(0)


async def test_a_session_that_expires_twice_is_said() -> None:
    """Instead of a loop without an end."""

    class Expired:
        async def call(self, *arguments: Any, **options: Any) -> Any:
            if isinstance(arguments[3], group_service_pb2.OpenGroupSessionRequest):
                return group_service_pb2.OpenGroupSessionResponse(session=1)
            raise SessionExpired("idle")

    with pytest.raises(SessionExpired):
        await GroupCalls(Expired()).delete(GROUP, 1)


@pytest.mark.parametrize("applied", [False, True])
async def test_what_may_have_been_applied_is_not_repeated(applied: bool) -> None:
    """Its first try had no answer, and the session is not known to the next owner: a reset would undo what came after it."""

    class Expired:
        tries = 0

        async def call(self, *arguments: Any, **options: Any) -> Any:
            if isinstance(arguments[3], group_service_pb2.OpenGroupSessionRequest):
                return group_service_pb2.OpenGroupSessionResponse(session=1)
            self.tries += 1
            if self.tries == 1:
                raise SessionExpired("idle", outcome_unknown=applied)
            return group_service_pb2.CommitPositionsResponse()

    asks: list[Callable[[GroupCalls], Awaitable[None]]] = [
        lambda calls: calls.reset(GROUP, group_pb2.GroupReset(), 1),
        lambda calls: calls.delete(GROUP, 1),
        lambda calls: calls.request_checkpoint(GROUP, "c", 0, 1),
        lambda calls: calls.delete_checkpoint(GROUP, "c", 1),
    ]
    for ask in asks:
        owners = Expired()
        if applied:
            with pytest.raises(SessionExpired) as told:
                await ask(GroupCalls(owners))
            assert told.value.outcome_unknown
        else:
            await ask(GroupCalls(owners))
        assert owners.tries == (1 if applied else 2)
    owners = Expired()
    await GroupCalls(owners).commit(GROUP, group_pb2.GroupCommit(), 1)
    assert owners.tries == 2, "positions move forward only"


def test_members_in_blocking_code() -> None:
    """The same group, from a program without an event loop."""
    loop = LoopThread()

    async def make() -> tuple[GroupCluster, GroupCalls, GroupShards, GroupMember]:
        cluster = GroupCluster()
        await cluster.broker(JOURNAL)
        topic = await cluster.create_topic(TOPIC)
        await cluster.append(topic, 0, b"a", b"b", b"c")
        calls, shards = parts(cluster, cluster.calls)
        return cluster, calls, shards, member_of(calls, shards)

    cluster, calls, shards, member = loop.run(make())
    try:
        groups = BlockingGroups(loop, Groups(calls, shards))
        with BlockingMember(loop, member) as blocking:
            found = []
            for record in blocking:
                found.append(record.value)
                blocking.commit()
                if len(found) == 3:
                    break
            assert list(blocking.position().values()) == [3]
            assert groups.describe(GROUP).members[0].member_id == blocking.member_id
        assert found == [b"a", b"b", b"c"]
        assert [each.records for each in groups.lag(GROUP)] == [0]
        groups.reset(GROUP, "earliest")
        assert [each.records for each in groups.lag(GROUP)] == [3]
        groups.delete(GROUP)
    finally:

        async def end() -> None:
            await cluster.__aexit__()

        loop.stop(end)


async def test_a_client_makes_members() -> None:
    """With its own connections; a bad argument is refused at once."""
    async with GroupCluster() as cluster:
        assert isinstance(cluster.client, Client)
        assert cluster.client.group("g", "flights").group == "g"
        assert cluster.client.groups is cluster.client.groups
