"""What producers ask the placement driver, of its real handlers: the shards of a topic, what changed, and owners."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest

from rangelog._produce import topic_map as topic_maps
from rangelog._produce.core import MappedShard
from rangelog._produce.owner_lookup import OwnerLookup
from rangelog._produce.topic_map import TopicMap, topic_reference
from rangelog_core.errors import NotOwner, TopicNotFound, Unavailable
from rangelog_core.ids import Incarnation, ReplicaId
from rangelog_core.key_ranges import KEY_SPACE_END
from rangelog_core.net.data_connection import DataConnection, DataConnections
from rangelog_core.net.pd_client import PdClient
from rangelog_core.net.routes import route_of
from rangelog_pd.handlers import brokers, topics
from rangelog_pd.handlers.service import bound
from rangelog_proto.v1 import broker_pb2
from rangelog_proto.v1 import topic_pb2 as pb
from tests.support.pd_topics import part, refer, true_end

numbers = itertools.count(1)


class HandlersPd(PdClient):
    """Calls the leader's services without a network."""

    def __init__(self, driver: Any) -> None:
        super().__init__(["fake:1"])
        self._services = {f"rangelog.v1.{name}": bound(driver, name) for name in ("Topics", "Brokers")}
        self.after_call: Callable[[], Any] | None = None

    async def call(self, request: Any, response: Any, *, timeout_s: float, **_: Any) -> Any:
        copy = type(request).FromString(request.SerializeToString())
        route = route_of(type(request))
        answer = await getattr(self._services[route.service], route.name)(copy, None)
        if self.after_call is not None:
            await self.after_call()
        return type(answer).FromString(answer.SerializeToString())


@pytest.fixture
async def calls(api: Any) -> Any:
    """A leader with topic 1, "default/t", of sixteen shards."""
    await api.driver.reconcile()
    request = pb.CreateNamespaceRequest(request_id="n", name="default")
    await topics.create_namespace(api.driver, request)
    create = pb.CreateTopicRequest(request_id="t", namespace="default", name="t", shard_count=16)
    await topics.create_topic(api.driver, create)
    return api


async def scale(api: Any, parents: list[int], *key_ranges: pb.KeyRange) -> None:
    """Start and commit a scale of shards that nobody opened."""
    state = api.machine.state
    start = pb.StartScaleRequest(
        request_id=f"r{next(numbers)}",
        topic=refer(1),
        map_version=state.topics.topics[1].map_version,
        parents=parents,
        key_ranges=key_ranges,
    )
    planned = (await topics.start_scale(api.driver, start)).topic
    ends = [pb.ShardEnd(**true_end(state, state.topics.shards[1, each])) for each in parents]
    commit = pb.CommitScaleRequest(request_id=f"r{next(numbers)}", topic_id=1, scale_id=planned.scale_id, ends=ends)
    await topics.commit_scale(api.driver, commit)


def rows(api: Any) -> dict[int, tuple[bool, set[int]]]:
    """Of each shard ever: whether it has ended, and its predecessors."""
    shards = api.machine.state.topics.shards
    return {shard_id: (row.ended_version != 0, set(row.predecessors)) for (_, shard_id), row in shards.items()}


def kept(topic_map: TopicMap) -> dict[int, tuple[bool, set[int]]]:
    """The same of what a producer knows."""
    return {shard.shard_id: (shard.ended, set(shard.predecessors)) for shard in topic_map.shards}


def covers(shards: list[MappedShard]) -> bool:
    """Whether shards tile the key space."""
    ordered = sorted((shard.low, shard.high) for shard in shards)
    ends = [0, *(high for _, high in ordered)]
    return [low for low, _ in ordered] == ends[:-1] and ends[-1] == KEY_SPACE_END


async def test_a_producer_follows_the_map_over_scales(calls: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """By page, with ended shards while they may be asked for, without them otherwise; each map is of one version."""
    monkeypatch.setattr(topic_maps, "SHARD_PAGE_SIZE_MAX", 3)
    pd = HandlersPd(calls.driver)
    topic_map = TopicMap(pd, topic_reference("t"))
    await topic_map.load(5)
    assert kept(topic_map) == rows(calls) and topic_map.version == 1
    assert not await topic_map.refresh(keep_ended=False)
    await scale(calls, [0], part(0, 1))
    await scale(calls, [1, 16], part(0, 2))
    assert await topic_map.refresh(keep_ended=True)
    assert kept(topic_map) == rows(calls), "0 became 16, which became 17: the way between is known"
    assert covers([shard for shard in topic_map.shards if not shard.ended])
    for parent in (4, 5, 6):
        await scale(calls, [parent], part(parent, parent + 1))
    meanwhile = iter([2, 3])

    async def scale_meanwhile() -> None:
        parent = next(meanwhile, None)
        if parent is not None:
            await scale(calls, [parent], part(parent, parent + 1))

    pd.after_call = scale_meanwhile
    assert await topic_map.refresh(keep_ended=False)
    assert topic_map.version == calls.machine.state.topics.topics[1].map_version == 8
    current = {each for each, (ended, _) in rows(calls).items() if not ended}
    assert {each for each, (ended, _) in kept(topic_map).items() if not ended} == current
    assert covers([shard for shard in topic_map.shards if not shard.ended])


async def test_a_listing_that_never_comes_to_rest_ends(calls: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """With an error that is worth another try."""
    monkeypatch.setattr(topic_maps, "SHARD_PAGE_SIZE_MAX", 3)
    pd = HandlersPd(calls.driver)
    parents = itertools.count(16)

    async def scale_again() -> None:
        newest = next(parents)
        await scale(calls, [0 if newest == 16 else newest - 1], part(0, 1))

    pd.after_call = scale_again
    with pytest.raises(Unavailable):
        await TopicMap(pd, topic_reference("default/t")).load(5)


async def test_a_topic_that_is_gone_is_reported_as_such(calls: Any) -> None:
    """Also when another topic has its name by now: the id counts."""
    topic_map = TopicMap(HandlersPd(calls.driver), topic_reference("t"))
    await topic_map.load(5)
    delete = pb.DeleteTopicRequest(request_id="d", topic=refer(1), force=True)
    await topics.delete_topic(calls.driver, delete)
    await calls.driver.reconcile()
    with pytest.raises(TopicNotFound):
        await topic_map.refresh(keep_ended=False)
    with pytest.raises(TopicNotFound):
        await TopicMap(HandlersPd(calls.driver), topic_reference("t")).load(5)


async def test_owners_are_found_where_shards_are_assigned(calls: Any) -> None:
    """None before a broker is there; its address and incarnation afterwards."""
    owners = OwnerLookup(HandlersPd(calls.driver), DataConnections())
    with pytest.raises(NotOwner):
        await owners.find((1, 0))
    register = broker_pb2.RegisterBrokerRequest(request_id="b", name="b1", incarnation=7, address="h:1")
    await brokers.register_broker(calls.driver, register)
    found = await owners.find((1, 0))
    assert (found.broker.server, found.broker.incarnation, found.address) == ("b1", 7, "h:1")
    with pytest.raises(NotOwner):
        await owners.find((1, 99))
    owners.close()


async def test_the_last_owner_is_asked_first(calls: Any) -> None:
    """At the first attempt, and if there is a connection to it; otherwise any broker."""
    connections = DataConnections()
    owners = OwnerLookup(HandlersPd(calls.driver), connections)
    brokers_of = {name: ReplicaId(name, Incarnation(7)) for name in ("b1", "b2", "b3")}
    for broker in brokers_of.values():
        owners._known[broker] = "h:1"
        connections._connections[broker] = DataConnection(broker)
    for wanted in (*brokers_of.values(), *brokers_of.values()):
        assert (await owners.any_broker(0, wanted)).replica == wanted
    connections._connections[brokers_of["b2"]].closed = Unavailable("gone")
    assert (await owners.any_broker(0, brokers_of["b2"])).replica != brokers_of["b2"]
    assert (await owners.any_broker(0, ReplicaId("b9", Incarnation(1)))).replica in brokers_of.values()
    owners.close()
