"""What a group tells of its topics: to who may describe these, in the words of the placement driver."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from rangelog_core.errors import RightMissing
from rangelog_core.net.owner_calls import journal_of
from rangelog_core.net.principals import Principal, Role
from rangelog_core.rights import ANY, KINDS, NONE, Verb, right_missing
from rangelog_proto.v1 import group_pb2
from rangelog_proto.v1 import group_service_pb2 as pb
from rangelog_server_common import grpc_server
from rangelog_server_common.rights.grants import Grant
from tests.support.group_cluster import Broker, FakeTopic, GroupCluster

pytestmark = pytest.mark.virtual

GROUP = "orders"
JOURNAL = journal_of(GROUP)[1]
TOPIC = KINDS["topic"]
ALICE, OPS = Principal(Role.CLIENT, "a"), Principal(Role.ADMIN, "ops")


class Described:
    """A broker with a group of two topics and a checkpoint, while rights are enforced."""

    def __init__(self, cluster: GroupCluster, broker: Broker, mine: FakeTopic, theirs: FakeTopic) -> None:
        self.cluster, self.broker = cluster, broker
        self.mine, self.theirs = mine, theirs
        self.broker.rights.grants.heard(1)

    def may(self, topic: Any, verbs: Verb) -> None:
        """What client:a may do to a topic; NONE: nothing, as of one that was deleted."""
        key = ("client:a", TOPIC, "", topic.topic_id)
        self.broker.rights.grants.keep(key, Grant(verbs, TOPIC, topic.name), 1, 0.0)

    async def prepare(self) -> None:
        """Join, which needs rights of its own, and begin a checkpoint."""
        service = self.broker.service
        session = (await service.OpenGroupSession(pb.OpenGroupSessionRequest(journal=JOURNAL), None)).session
        topic_ids = [self.mine.topic_id, self.theirs.topic_id]
        join = group_pb2.GroupJoin(member="m", session_ms=10_000, topic_ids=topic_ids)
        proposal = pb.GroupProposal(session=session, sequence=1, settled=1)
        await service.JoinGroup(pb.JoinGroupRequest(proposal=proposal, group=GROUP, join=join), None)
        proposal = pb.GroupProposal(session=session, sequence=2, settled=2)
        checkpoint = group_pb2.GroupCheckpoint(name="c")
        request = pb.RequestCheckpointRequest(proposal=proposal, group=GROUP, checkpoint=checkpoint)
        await service.RequestCheckpoint(request, None)

    async def answers(self, caller: Principal) -> list[str]:
        """What the caller gets, of the group and of its checkpoint: "answered", or the words of a refusal."""
        token = grpc_server._CALLER.set((caller,))
        service, found = self.broker.service, []
        try:
            for call, request in (
                (service.DescribeGroup, pb.DescribeGroupRequest(group=GROUP)),
                (service.DescribeCheckpoint, pb.DescribeCheckpointRequest(group=GROUP, name="c")),
            ):
                try:
                    await call(request, None)  # type: ignore[arg-type]
                    found.append("answered")
                except RightMissing as error:
                    found.append(error.message)
        finally:
            grpc_server._CALLER.reset(token)
        return found


@pytest.fixture
async def described() -> AsyncIterator[Described]:
    """See Described."""
    async with GroupCluster() as cluster:
        topics = [await cluster.create_topic(f"default/{name}") for name in ("mine", "theirs")]
        made = Described(cluster, await cluster.broker(JOURNAL), *topics)
        await made.prepare()
        yield made


async def test_a_topic_without_a_right_is_told_of_to_nobody(described: Described) -> None:
    """One verb on each topic is enough; administrators need none."""
    described.may(described.mine, Verb.READ)
    described.may(described.theirs, NONE)
    words = right_missing("client:a", ANY, TOPIC, "default/theirs").message
    assert await described.answers(ALICE) == [words] * 2
    assert await described.answers(OPS) == ["answered"] * 2
    described.may(described.theirs, Verb.TRIM)
    assert await described.answers(ALICE) == ["answered"] * 2


async def test_a_deleted_topic_hides_nothing(described: Described) -> None:
    """No rule can give a right on it, and the group has it until a member joins."""
    described.may(described.mine, Verb.READ)
    described.may(described.theirs, NONE)
    del described.cluster.topics.topics[described.theirs.topic_id]
    assert await described.answers(ALICE) == ["answered"] * 2


async def test_rights_that_are_not_enforced(described: Described) -> None:
    """Everybody sees everything, as before."""
    described.broker.rights.grants.heard(0)
    assert await described.answers(ALICE) == ["answered"] * 2
