"""Brokers: registered, heard of, lost by silence or by a probe; who owns what reaches those who watch."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest

from rangelog_core.errors import InvalidArgument, PreconditionFailed, ShardNotFound
from rangelog_pd.broker_probe import BrokerProbes
from rangelog_pd.handlers import brokers, ranges, topics, watch
from rangelog_pd.handlers import cluster as cluster_calls
from rangelog_pd.handlers.service import bound
from rangelog_pd.reconcile import topic_watch
from rangelog_pd.reconcile.owner_commands import MOVE_INTERVAL_MS
from rangelog_pd.state.versions import LEVEL_BROKERS, LEVEL_HOSTS
from rangelog_proto.v1 import broker_pb2 as pb
from rangelog_proto.v1 import pd_pb2, topic_pb2
from tests.support.pd_topics import refer, true_end
from tests.support.waiting import until

numbers = itertools.count(1)


class Probes(BrokerProbes):
    """Answers as the test wants, and notes what was asked."""

    def __init__(self) -> None:
        super().__init__()
        self.alive: set[str] = set()
        self.asked: list[str] = []

    async def accepts(self, address: str) -> bool:
        """See BrokerProbes."""
        self.asked.append(address)
        return address in self.alive


@pytest.fixture
async def cluster(api: Any) -> Any:
    """A leader whose cluster knows topics, with topic 1 of four shards and nobody to own them."""
    await api.driver.reconcile()
    api.driver.broker_probes = Probes()
    create = topic_pb2.CreateNamespaceRequest(request_id="n", name="a")
    await topics.create_namespace(api.driver, create)
    request = topic_pb2.CreateTopicRequest(request_id="t", namespace="a", name="t", shard_count=4)
    await topics.create_topic(api.driver, request)
    return api


async def register(api: Any, name: str, incarnation: int = 1, address: str = "") -> pb.RegisterBrokerResponse:
    address = address or f"{name}:{incarnation}"
    request = pb.RegisterBrokerRequest(
        request_id=f"r{next(numbers)}", name=name, incarnation=incarnation, address=address
    )
    return await brokers.register_broker(api.driver, request)


async def beat(api: Any, *names: str, loads: dict[int, int] | None = None) -> list[pb.BrokerHeartbeatResponse]:
    reports = [pb.ShardLoad(topic_id=1, shard_id=key, bytes_per_s=load) for key, load in (loads or {}).items()]
    return [
        await brokers.broker_heartbeat(
            api.driver, pb.BrokerHeartbeatRequest(name=name, incarnation=1, loads=reports, complete=True)
        )
        for name in names
    ]


async def report_lost(api: Any, name: str, incarnation: int = 1) -> bool:
    request = pb.ReportBrokerLostRequest(name=name, incarnation=incarnation)
    return (await brokers.report_broker_lost(api.driver, request)).lost


def owned(api: Any, name: str) -> int:
    return len(api.machine.state.owners.owned.get(name, ()))


async def test_the_first_broker_owns_all_at_once(cluster: Any) -> None:
    """Its registration is answered after it: it has nothing to wait for. The next ones get their part by moves, in time."""
    answer = await register(cluster, "b1")
    assert (answer.cluster_id != "", answer.heartbeat_interval_ms) == (True, 500)
    assert owned(cluster, "b1") == 20
    await register(cluster, "b2")
    assert owned(cluster, "b2") == 0
    for _ in range(40):
        cluster.driver.clock_ms += MOVE_INTERVAL_MS / 2
        await beat(cluster, "b1", "b2")
        before = owned(cluster, "b2")
        await cluster.driver.reconcile()
        assert owned(cluster, "b2") - before <= 1, "one move at a time"
    assert 8 <= owned(cluster, "b2") <= 12
    listed = await brokers.list_brokers(cluster.driver, pb.ListBrokersRequest())
    assert len(listed.brokers) == 2
    counts = {each.broker: each.shards + each.journals for each in listed.owned}
    assert counts == {name: owned(cluster, name) for name in ("b1", "b2")}
    assert sum(each.journals for each in listed.owned) == 16


async def test_a_shard_moves_only_to_a_broker_that_is_alive(cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Refused: a shard that is not there, a journal, a broker that is not alive, and where another change was faster."""
    for name in ("b1", "b2"):
        await register(cluster, name)
    owners = cluster.machine.state.owners
    [key] = [each for each in owners.owned["b1"] if each[0]][:1]

    async def move(broker: str, topic_id: int = key[0], shard_id: int = key[1]) -> pb.MoveShardResponse:
        request = pb.MoveShardRequest(
            request_id=f"r{next(numbers)}", topic_id=topic_id, shard_id=shard_id, broker=broker
        )
        return await brokers.move_shard(cluster.driver, request)

    before = owners.assignments[key].owner_epoch
    assert (await move("b2")).assignment.owner_epoch == before + 1 and key in owners.owned["b2"]
    assert (await move("b2")).assignment.owner_epoch == before + 1, "it is there already"
    for topic_id, shard_id in ((key[0], 99), (99, 0), (0, 3)):
        with pytest.raises(ShardNotFound):
            await move("b1", topic_id, shard_id)
    with pytest.raises(PreconditionFailed, match="broker 'b9' is not alive"):
        await move("b9")
    row = pb.Broker()
    row.CopyFrom(owners.brokers["b1"])
    row.lost = True
    owners.brokers.put("b1", row)
    with pytest.raises(PreconditionFailed, match="broker 'b1' is not alive"):
        await move("b1")
    row.lost = False
    owners.brokers.put("b1", row)
    propose = cluster.driver.propose_request

    async def overtaken(*args: Any, **more: Any) -> Any:
        owners.assignments.put(
            key, pb.Assignment(topic_id=key[0], shard_id=key[1], broker="b2", incarnation=1, owner_epoch=77)
        )
        return await propose(*args, **more)

    monkeypatch.setattr(cluster.driver, "propose_request", overtaken)
    with pytest.raises(PreconditionFailed, match="assigned otherwise meanwhile"):
        await move("b1")


async def test_a_broker_registers_once_more_to_tell_its_level(cluster: Any) -> None:
    """Where the cluster version let it not before; one of before, which registers without, is not asked again and again."""

    async def asked(level: int) -> tuple[bool, int]:
        request = pb.BrokerHeartbeatRequest(name="b1", incarnation=1, feature_level=level, complete=True)
        answer = await brokers.broker_heartbeat(cluster.driver, request)
        return answer.register, answer.broker_version

    async def tell(level: int) -> None:
        request = pb.RegisterBrokerRequest(
            request_id=f"r{next(numbers)}",
            name="b1",
            incarnation=1,
            address="b1:1",
            feature_level=level,
            endpoints=[pb.Endpoint(door="rest", address="b1:3")],
        )
        await brokers.register_broker(cluster.driver, request)

    state = cluster.machine.state
    state.cluster_version = LEVEL_BROKERS - 1
    await tell(LEVEL_BROKERS)
    assert not state.owners.brokers["b1"].endpoints, "a placement driver of before would keep none"
    assert state.owners.brokers["b1"].feature_level == 0 and await asked(LEVEL_BROKERS) == (False, 0)
    state.cluster_version = LEVEL_BROKERS
    assert [await asked(level) for level in (0, LEVEL_BROKERS - 1)] == [(False, 0)] * 2
    assert await asked(LEVEL_BROKERS) == (True, 0)
    await tell(LEVEL_BROKERS)
    assert await asked(LEVEL_BROKERS) == (False, LEVEL_BROKERS)
    assert [each.door for each in state.owners.brokers["b1"].endpoints] == ["rest"]


async def test_a_broker_registers_once_more_with_its_host(cluster: Any) -> None:
    """Where the cluster version let it not before."""
    row: dict[str, Any] = {"name": "b1", "incarnation": 1, "feature_level": LEVEL_HOSTS, "host": "h"}
    asked, state = pb.BrokerHeartbeatRequest(complete=True, **row), cluster.machine.state
    for level, host in ((LEVEL_HOSTS - 1, ""), (LEVEL_HOSTS, "h")):
        state.cluster_version = level
        request = pb.RegisterBrokerRequest(request_id=f"r{next(numbers)}", address="b1:1", **row)
        await brokers.register_broker(cluster.driver, request)
        assert state.owners.brokers["b1"].host == host
        assert not (await brokers.broker_heartbeat(cluster.driver, asked)).register
        state.cluster_version = LEVEL_HOSTS
        assert (await brokers.broker_heartbeat(cluster.driver, asked)).register is (not host)


async def test_a_broker_that_refuses_connections_loses_its_shards_at_once(cluster: Any) -> None:
    """By one probe, before the report is answered; a wrong report takes nothing."""
    await register(cluster, "b1")
    await register(cluster, "b2")
    cluster.driver.broker_probes.alive = {"b1:1", "b2:1"}
    assert not await report_lost(cluster, "b1")
    assert owned(cluster, "b1") == 20
    cluster.driver.broker_probes.alive = {"b2:1"}
    assert await report_lost(cluster, "b1")
    assert (owned(cluster, "b1"), owned(cluster, "b2")) == (0, 20)
    asked = len(cluster.driver.broker_probes.asked)
    assert await report_lost(cluster, "b1") and await report_lost(cluster, "b2", 9) and await report_lost(cluster, "b9")
    assert len(cluster.driver.broker_probes.asked) == asked, "what is lost already is not probed"
    [answer] = await beat(cluster, "b1")
    assert answer.register
    await register(cluster, "b1")
    assert not (await beat(cluster, "b1"))[0].register


async def test_a_silent_broker_is_lost(cluster: Any) -> None:
    """The backstop, where nobody had a connection to it; another leader begins to count anew."""
    await register(cluster, "b1")
    await register(cluster, "b2")
    cluster.driver.clock_ms += 4_000
    await beat(cluster, "b2")
    cluster.driver.clock_ms += 2_000
    cluster.change_leader()
    await cluster.driver.reconcile()
    assert owned(cluster, "b1") == 20
    cluster.driver.clock_ms += 4_500
    await beat(cluster, "b2")
    cluster.driver.clock_ms += 600
    for _ in range(2):
        await cluster.driver.reconcile()
    assert owned(cluster, "b1") == 0


async def test_a_broker_that_starts_again_has_its_shards_back(cluster: Any) -> None:
    """Under another incarnation, at once; a second process of its name elsewhere is refused while the first one lives."""
    await register(cluster, "b1", address="h:1")
    cluster.driver.broker_probes.alive = {"h:1"}
    with pytest.raises(PreconditionFailed, match="alive at h:1"):
        await register(cluster, "b1", 2, address="h:2")
    await register(cluster, "b1", 3, address="h:1")
    assert {each.incarnation for each in cluster.machine.state.owners.assignments.values()} == {3}
    cluster.driver.broker_probes.alive = set()
    await register(cluster, "b1", 4, address="h:2")
    assert {each.owner_epoch for each in cluster.machine.state.owners.assignments.values()} == {3}
    for bad in ("", "h", "h:x"):
        with pytest.raises(InvalidArgument):
            await brokers.register_broker(
                cluster.driver, pb.RegisterBrokerRequest(request_id="r", name="b", incarnation=1, address=bad)
            )


async def scale(api: Any, shard_id: int) -> None:
    """Replace a shard that nobody opened by another one of the same keys."""
    state = api.machine.state
    shard = state.topics.shards[1, shard_id]
    start = topic_pb2.StartScaleRequest(
        request_id=f"r{next(numbers)}",
        topic=refer(1),
        map_version=state.topics.topics[1].map_version,
        parents=[shard_id],
        key_ranges=[shard.key_range],
    )
    planned = (await topics.start_scale(api.driver, start)).topic
    commit = topic_pb2.CommitScaleRequest(
        request_id=f"r{next(numbers)}",
        topic_id=1,
        scale_id=planned.scale_id,
        ends=[topic_pb2.ShardEnd(**true_end(state, shard))],
    )
    await topics.commit_scale(api.driver, commit)


async def test_children_have_owners_when_the_commit_is_answered(cluster: Any) -> None:
    """Nobody takes batches for their keys before; a listing of shards has the owners beside them."""
    await register(cluster, "b1")
    await scale(cluster, 0)
    assert not cluster.machine.state.owners.unowned
    listed = await topics.list_shards(cluster.driver, topic_pb2.ListShardsRequest(topic=refer(1)))
    assert [each.shard_id for each in listed.owners] == [each.shard_id for each in listed.shards] == [4, 1, 2, 3]
    assert {(each.broker, each.owner_epoch) for each in listed.owners} == {("b1", 1)}
    asked = [pb.OwnedShard(topic_id=1, shard_id=each) for each in (0, 4)]
    found = await brokers.find_owners(cluster.driver, pb.FindOwnersRequest(shards=asked))
    assert [each.shard_id for each in found.ended] == [0]
    assert [each.shard_id for each in found.assignments] == [4]


# ---- watching


async def ask(api: Any, session: int = 0, acked: int = 0, **fields: Any) -> pd_pb2.WatchResponse:
    request = pd_pb2.WatchRequest(session=session, acked=acked, call=next(numbers), **fields)
    return await watch.watch(api.driver, request)


def of_topic(answer: pd_pb2.WatchResponse) -> list[tuple[int, str, int]]:
    """(shard, broker, owner epoch) of what an answer has of topic 1."""
    return sorted((each.shard_id, each.broker, each.owner_epoch) for each in answer.assignments if each.topic_id == 1)


async def test_a_broker_watches_what_it_owns(cluster: Any) -> None:
    """What it gets, what it loses and what has ended; what was not acked comes again."""
    begun = await ask(cluster, begin_broker="b1")
    assert not begun.assignments
    await register(cluster, "b1")
    lost = await ask(cluster, begun.session, begun.sequence)
    assert len(lost.assignments) == 20
    first = await ask(cluster, begun.session, begun.sequence)
    assert of_topic(first) == of_topic(lost) == [(each, "b1", 1) for each in range(4)]
    await scale(cluster, 0)
    second = await ask(cluster, begun.session, first.sequence)
    assert of_topic(second) == [(0, "", 0), (4, "b1", 1)]
    await register(cluster, "b2")
    assert await report_lost(cluster, "b1")
    third = await ask(cluster, begun.session, second.sequence)
    assert of_topic(third) == [(each, "b2", 2) for each in (1, 2, 3, 4)]
    await scale(cluster, 1)
    assert not (await ask(cluster, begun.session, third.sequence)).assignments, "others' shards are not its business"


async def test_a_broker_hears_of_a_loss_among_changes_that_were_missed(
    cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was sent as its own is sent again when it is not any more."""
    await register(cluster, "b1")
    begun = await ask(cluster, begin_broker="b1")
    monkeypatch.setattr(cluster.driver, "_tell_watchers", lambda: None)
    await register(cluster, "b2")
    assert await report_lost(cluster, "b1")
    cluster.machine.restore(cluster.machine.snapshot())
    told = await ask(cluster, begun.session, begun.sequence)
    assert {each.broker for each in told.assignments} == {"b2"} and len(told.assignments) == 20


async def test_a_watcher_of_a_topic_gets_its_owners(cluster: Any) -> None:
    """A producer needs no other call to find them."""
    await register(cluster, "b1")
    begun = await ask(cluster, begin_topics=[pd_pb2.WatchedTopic(topic_id=1)])
    assert of_topic(begun) == [(each, "b1", 1) for each in range(4)]
    await register(cluster, "b1", 2, address="b1:1")
    moved = await ask(cluster, begun.session, begun.sequence)
    assert [each[2] for each in of_topic(moved)] == [2] * 4 and len(moved.assignments) == 4


async def test_more_says_whether_all_was_sent(cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that begins anew gives up what is not in the whole of it."""
    monkeypatch.setattr(topic_watch, "TOPIC_ROWS_PER_ANSWER", 8)
    await register(cluster, "b1")
    answer = await ask(cluster, begin_broker="b1")
    found = [(len(answer.assignments), answer.more)]
    while answer.more:
        answer = await ask(cluster, answer.session, answer.sequence)
        found.append((len(answer.assignments), answer.more))
    assert found == [(8, True), (8, True), (4, False)]
    cluster.driver.watches.close(answer.session)
    assert not cluster.driver.watches._by_broker
    with pytest.raises(InvalidArgument):
        await ask(cluster, begin_broker="b" * 201)


def test_every_call_of_the_service_has_a_handler(api: Any) -> None:
    """None ends as unimplemented."""
    service = bound(api.driver, "Brokers")
    for method in pb.DESCRIPTOR.services_by_name["Brokers"].methods:
        assert method.name in vars(service)


# ---- the probe itself


async def test_a_probe_is_a_connection() -> None:
    """A port that listens accepts; a closed one does not. Many at once are one connection."""
    opened: list[object] = []
    server = await asyncio.start_server(lambda reader, writer: opened.append(writer.close()), "127.0.0.1", 0)
    address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    probes = BrokerProbes()
    assert await asyncio.gather(*(probes.accepts(address) for _ in range(20))) == [True] * 20
    await until(lambda: opened, within_s=5)
    server.close()
    await server.wait_closed()
    assert len(opened) == 1
    assert not await probes.accepts(address)
    with pytest.raises(InvalidArgument):
        await probes.accepts("nowhere")
    assert not probes._running


async def test_owners_are_found_while_they_count_as_alive(cluster: Any) -> None:
    """The owners of shards and journals are returned with their addresses; what is with a lost broker is left out."""
    await register(cluster, "b1", address="h:1")
    shards = [pb.OwnedShard(topic_id=1, shard_id=2), pb.OwnedShard(shard_id=15), pb.OwnedShard(topic_id=9)]
    found = await brokers.find_owners(cluster.driver, pb.FindOwnersRequest(shards=shards))
    assert [(each.topic_id, each.shard_id, each.broker) for each in found.assignments] == [(1, 2, "b1"), (0, 15, "b1")]
    assert [each.address for each in found.brokers] == ["h:1"]
    await brokers.report_broker_lost(cluster.driver, pb.ReportBrokerLostRequest(name="b1", incarnation=1))
    assert not (await brokers.find_owners(cluster.driver, pb.FindOwnersRequest(shards=shards))).assignments
    with pytest.raises(InvalidArgument, match="1000"):
        await brokers.find_owners(cluster.driver, pb.FindOwnersRequest(shards=[pb.OwnedShard()] * 1_001))


async def test_owners_report_how_busy_shards_are_and_the_leader_scales(cluster: Any) -> None:
    """From the averages in a heartbeat to a plan that is listed with its reason; nobody carries it out, so it is cancelled."""
    answer = await register(cluster, "b1")
    assert answer.rate_minute_ms == cluster.driver.settings.scaling_minute_ms
    policy = topic_pb2.ScalingPolicy(kind=topic_pb2.SCALING_KIND_EVENTS, target_per_s=100)
    update = topic_pb2.UpdateTopicRequest(
        request_id="u", topic=refer(1), config=topic_pb2.TopicConfig(scaling=policy), fields=["scaling"]
    )
    await topics.update_topic(cluster.driver, update)
    load = pb.ShardLoad(topic_id=1, shard_id=2, events_averages=[900] * 4, bytes_averages=[1] * 4)
    request = pb.BrokerHeartbeatRequest(name="b1", incarnation=1, loads=[load], complete=True)
    await brokers.broker_heartbeat(cluster.driver, request)
    await cluster.driver.reconcile()
    listed = (await cluster_calls.list_tasks(cluster.driver, pd_pb2.ListTasksRequest())).tasks
    assert [(each.kind, each.topic_name) for each in listed] == [("scale-topic", "a/t")]
    assert "shard 2: 900/900/900/900" in listed[0].detail
    assert not (await cluster_calls.list_tasks(cluster.driver, pd_pb2.ListTasksRequest(failing_only=True))).tasks
    await cluster.driver.reconcile()
    for _ in range(cluster.driver.settings.scale_timeout_ms // 2_000 + 1):
        cluster.driver.clock_ms += 2_000
        await beat(cluster, "b1")
        await cluster.driver.reconcile()
    assert not (await cluster_calls.list_tasks(cluster.driver, pd_pb2.ListTasksRequest())).tasks


async def test_a_truncation_asks_the_owner_for_a_snapshot(cluster: Any) -> None:
    """In the response to its heartbeat, until it reports that it has one; a follower of the topic sees it active again."""
    await cluster.register("rs1", "rs2", "rs3")
    await register(cluster, "b1")
    stream = cluster.machine.state.streams[cluster.machine.state.topics.shards[1, 0].stream_id]
    await cluster.open(name=stream.name)
    made = pd_pb2.CreateRangeRequest(request_id="r", stream_id=stream.stream_id, epoch=1, start_offset=0)
    await ranges.create_range(cluster.driver, made)
    await cluster.seal(7, stream_id=stream.stream_id)
    cut = [topic_pb2.ShardPosition(shard_id=each, offset=5 * (each == 0)) for each in range(4)]
    request = topic_pb2.TruncateTopicRequest(request_id="k", topic=refer(1), cut=cut)
    answer = await topics.truncate_topic(cluster.driver, request)
    assert answer.topic.state == topic_pb2.TOPIC_STATE_TRUNCATING
    await cluster.driver.reconcile()
    [answered] = await beat(cluster, "b1")
    assert list(answered.cover) == [pb.ShardCover(topic_id=1, shard_id=0, offset=5)]
    covered = pb.BrokerHeartbeatRequest(name="b1", incarnation=1, covered=[pb.ShardCover(topic_id=1, offset=6)])
    assert not (await brokers.broker_heartbeat(cluster.driver, covered)).cover
    await cluster.driver.reconcile()
    assert cluster.machine.state.streams[stream.stream_id].trim_offset == 5
    described = await topics.describe_topic(cluster.driver, topic_pb2.DescribeTopicRequest(topic=refer(1)))
    assert described.topic.state == topic_pb2.TOPIC_STATE_ACTIVE


async def test_a_broker_that_claims_shards_of_another_is_not_believed(cluster: Any) -> None:
    """Its snapshots cover nothing and its averages scale nothing; also an earlier incarnation's of the owner itself."""
    await cluster.register("rs1", "rs2", "rs3")
    await register(cluster, "b1", incarnation=1)
    await register(cluster, "b1", incarnation=2)
    await register(cluster, "b2")
    stream = cluster.machine.state.streams[cluster.machine.state.topics.shards[1, 0].stream_id]
    await cluster.open(name=stream.name)
    made = pd_pb2.CreateRangeRequest(request_id="r", stream_id=stream.stream_id, epoch=1, start_offset=0)
    await ranges.create_range(cluster.driver, made)
    await cluster.seal(7, stream_id=stream.stream_id)
    owner = cluster.machine.state.owners.assignments.find((1, 0))
    assert (owner.broker, owner.incarnation) == ("b1", 2)
    cut = [topic_pb2.ShardPosition(shard_id=each, offset=5 * (each == 0)) for each in range(4)]
    await topics.truncate_topic(cluster.driver, topic_pb2.TruncateTopicRequest(request_id="k", topic=refer(1), cut=cut))
    await cluster.driver.reconcile()
    averages = [1 << 40] * 4
    load = pb.ShardLoad(topic_id=1, events_averages=averages, bytes_averages=averages, mature=True)
    claim = {"loads": [load], "covered": [pb.ShardCover(topic_id=1, offset=6)]}
    for name, incarnation, believed in (("b2", 1, False), ("b1", 1, False), ("b3", 1, False), ("b1", 2, True)):
        request = pb.BrokerHeartbeatRequest(name=name, incarnation=incarnation, **claim)
        await brokers.broker_heartbeat(cluster.driver, request)
        await cluster.driver.reconcile()
        assert (cluster.machine.state.streams[stream.stream_id].trim_offset == 5) is believed, (name, incarnation)


async def test_groups_subscribe_for_retention(cluster: Any) -> None:
    """By a call with a request id, as each command; the topic names its groups."""
    cut = [topic_pb2.ShardPosition(shard_id=each) for each in range(4)]
    request = topic_pb2.ReportConsumedRequest(topic=refer(1), group="g", cut=cut)
    with pytest.raises(InvalidArgument, match="request id"):
        await topics.report_consumed(cluster.driver, request)
    request.request_id = "g"
    await topics.report_consumed(cluster.driver, request)
    described = await topics.describe_topic(cluster.driver, topic_pb2.DescribeTopicRequest(topic=refer(1)))
    assert list(described.consuming_groups) == ["g"]
    request.request_id, request.epoch = "h", 3
    await topics.report_consumed(cluster.driver, request)
    request.request_id, request.epoch = "i", 2
    with pytest.raises(PreconditionFailed, match="later owner"):
        await topics.report_consumed(cluster.driver, request)
    request.request_id, request.unsubscribe = "j", True
    del request.cut[:]
    with pytest.raises(PreconditionFailed, match="later owner"):
        await topics.report_consumed(cluster.driver, request)
    request.request_id, request.epoch = "k", 4
    await topics.report_consumed(cluster.driver, request)
    described = await topics.describe_topic(cluster.driver, topic_pb2.DescribeTopicRequest(topic=refer(1)))
    assert not described.consuming_groups
