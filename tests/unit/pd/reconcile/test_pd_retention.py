"""Retention of topics by the leader: which cut a topic is trimmed to, and when; what waits for snapshots, and who is asked."""

from __future__ import annotations

from typing import Any

import pytest

from rangelog_core.errors import PreconditionFailed
from rangelog_core.limits import COMMAND_BYTES_MAX, TOPIC_SHARDS_MAX
from rangelog_pd.reconcile.coverage import TURN_MS, WANTED_MS, Coverage
from rangelog_pd.reconcile.retention_policy import bytes_behind, cuts_to_trim_to
from rangelog_pd.reconcile.retention_queue import _retain
from rangelog_pd.reconcile.topic_tasks import topic_tasks
from rangelog_pd.state.cut_tables import cut_of
from rangelog_pd.state.topic_states import ACTIVE, TRUNCATING
from rangelog_proto.v1 import broker_pb2, pd_pb2, pd_state_pb2, topic_pb2
from tests.support.pd_topics import TopicCalls, part, refer

RECORD_BYTES = 10


@pytest.fixture
def topics(pd: Any) -> TopicCalls:
    return TopicCalls(pd)


def retained(topics: TopicCalls, **fields: Any) -> int:
    """A topic of two shards with a retention."""
    config = topic_pb2.TopicConfig(retention=topic_pb2.Retention(**fields))
    return topics.create(shards=2, config=config).topic_id


def size_of(topics: TopicCalls) -> Any:
    """Each record has ten bytes."""
    return lambda stream_id, index: (
        RECORD_BYTES
        * (topics.pd.state.ranges[stream_id, index].end_offset - topics.pd.state.ranges[stream_id, index].start_offset)
    )


def wanted(topics: TopicCalls, topic_id: int) -> list[dict[int, int]]:
    found = cuts_to_trim_to(topics.pd.state, topics.topic(topic_id), size_of(topics), topics.pd.wall_ms)
    return [each.cut for each in found]


def take(topics: TopicCalls, topic_id: int) -> None:
    topics.pd.do(pd_pb2.CreateStreamResponse, take_cuts=pd_state_pb2.TakeCuts(topic_ids=[topic_id]))


def report(topics: TopicCalls, topic_id: int, group: str, cut: dict[int, int], *, number: int = 0) -> None:
    positions = [topic_pb2.ShardPosition(shard_id=each, offset=offset) for each, offset in cut.items()]
    request = topic_pb2.ReportConsumedRequest(topic=refer(topic_id), group=group, cut=positions, epoch=1, number=number)
    topics.pd.do(topic_pb2.ReportConsumedResponse, report_consumed=request)


def trims(topics: TopicCalls, topic_id: int) -> list[int]:
    return [topics.stream(topic_id, each).trim_offset for each in range(topics.topic(topic_id).next_shard_id)]


def test_by_age_a_topic_is_trimmed_to_the_newest_cut_that_is_old_enough(topics: TopicCalls) -> None:
    """To the millisecond; what was written behind that cut stays, however old."""
    topic_id = retained(topics, age_ms=1_000)
    topics.write(topic_id, 0, 7)
    take(topics, topic_id)
    topics.pd.pass_ms(400)
    topics.write(topic_id, 1, 5)
    take(topics, topic_id)
    topics.pd.pass_ms(599)
    assert wanted(topics, topic_id) == []
    topics.pd.pass_ms(1)
    assert wanted(topics, topic_id) == [{0: 7, 1: 0}]
    topics.pd.pass_ms(400)
    assert wanted(topics, topic_id) == [{0: 7, 1: 5}]


def test_by_size_enough_is_kept_behind_the_cut(topics: TopicCalls) -> None:
    """The bound for each shard of the cut; the bytes of shards that followed count."""
    topic_id = retained(topics, shard_size_bytes=60)
    topics.write(topic_id, 0, 7)
    topics.write(topic_id, 1, 5)
    take(topics, topic_id)
    assert wanted(topics, topic_id) == []
    topics.scale(topic_id, [0, 1], part(0, 16))
    topics.write(topic_id, 2, 11)
    state = topics.pd.state
    assert bytes_behind(state, topic_id, {0: 7, 1: 5}, size_of(topics)) == 110
    assert bytes_behind(state, topic_id, {0: 0, 1: 5}, size_of(topics)) == 180
    assert wanted(topics, topic_id) == []
    topics.write(topic_id, 2, 1)
    assert wanted(topics, topic_id) == [{0: 7, 1: 5}]


def test_by_consumption_the_slowest_group_decides(topics: TopicCalls) -> None:
    """Up to what is sealed; with no group nothing goes, and age goes beyond the groups."""
    topic_id = retained(topics, consumed=True, age_ms=1_000)
    topics.write(topic_id, 0, 7)
    topics.write(topic_id, 1, 5)
    assert wanted(topics, topic_id) == []
    report(topics, topic_id, "fast", {0: 99, 1: 4})
    assert wanted(topics, topic_id) == [{0: 7, 1: 4}]
    report(topics, topic_id, "slow", {0: 2, 1: 5})
    assert wanted(topics, topic_id) == [{0: 2, 1: 4}]
    take(topics, topic_id)
    topics.pd.pass_ms(1_000)
    assert wanted(topics, topic_id) == [{0: 7, 1: 5}, {0: 2, 1: 4}]
    topics.update(topic_id, "retention", config=topic_pb2.TopicConfig(retention=topic_pb2.Retention(age_ms=5_000)))
    assert wanted(topics, topic_id) == [], "groups count only where the topic wants it"


def test_a_group_that_has_moved_back_meanwhile_is_waited_for(topics: TopicCalls) -> None:
    """A truncation that was chosen before is passed over; by age nothing is asked. The last report counts."""
    topic_id = retained(topics, consumed=True)
    topics.write(topic_id, 0, 7)
    topics.write(topic_id, 1, 5)
    report(topics, topic_id, "group", {0: 6, 1: 5}, number=3)
    chosen = wanted(topics, topic_id)[0]
    report(topics, topic_id, "group", {0: 2, 1: 5}, number=4)
    with pytest.raises(PreconditionFailed, match="later report"):
        report(topics, topic_id, "group", {0: 6, 1: 5}, number=3)

    def retain(cut: dict[int, int], *, by_consumption: bool) -> None:
        positions = [topic_pb2.ShardPosition(shard_id=each, offset=offset) for each, offset in cut.items()]
        request = topic_pb2.TruncateTopicRequest(topic=refer(topic_id), cut=positions)
        command = pd_state_pb2.RetainTopic(request=request, covered=positions, by_consumption=by_consumption)
        topics.pd.do(topic_pb2.TruncateTopicResponse, retain_topic=command)

    with pytest.raises(PreconditionFailed, match="since the cut was chosen"):
        retain(chosen, by_consumption=True)
    assert trims(topics, topic_id) == [0, 0]
    retain(wanted(topics, topic_id)[0], by_consumption=True)
    assert trims(topics, topic_id) == [2, 5]
    retain(chosen, by_consumption=False)
    assert trims(topics, topic_id) == [6, 5]


class Fleet:
    """Two brokers that own the shards, and have what is asked of them covered when the test says so."""

    def __init__(self, pd: Any) -> None:
        self.pd, self.topics = pd, TopicCalls(pd)
        for name in ("b1", "b2"):
            register = broker_pb2.RegisterBrokerRequest(name=name, incarnation=1, address=f"{name}:1")
            pd.do(broker_pb2.RegisterBrokerResponse, register_broker=register)

    def assign(self, broker: str, *keys: tuple[int, int]) -> None:
        made = [broker_pb2.Assignment(topic_id=key[0], shard_id=key[1], broker=broker, incarnation=1) for key in keys]
        self.pd.do(broker_pb2.RegisterBrokerResponse, assign_shards=pd_state_pb2.AssignShards(assignments=made))

    def beat(self, broker: str, *covered: tuple[int, int, int]) -> list[tuple[int, int, int]]:
        """A heartbeat with what is covered; returns what is asked for."""
        covers = [broker_pb2.ShardCover(topic_id=each[0], shard_id=each[1], offset=each[2]) for each in covered]
        request = broker_pb2.BrokerHeartbeatRequest(name=broker, incarnation=1, covered=covers)
        asked = self.pd.topics.heartbeat(self.pd.state, request, self.pd.now_ms)
        return [(each.topic_id, each.shard_id, each.offset) for each in asked]


@pytest.fixture
def fleet(pd: Any) -> Fleet:
    return Fleet(pd)


def test_retention_takes_cuts_and_trims_once_owners_have_covered_it(fleet: Fleet) -> None:
    """Nothing is proposed before; the topic is never in a state of its own for it."""
    pd, topics = fleet.pd, fleet.topics
    topic_id = retained(topics, age_ms=8_000)
    fleet.assign("b1", (topic_id, 0))
    fleet.assign("b2", (topic_id, 1))
    topics.write(topic_id, 0, 7)
    topics.write(topic_id, 1, 5)
    kinds: list[str] = []
    for _ in range(80):
        pd.pass_ms(100)
        kinds += pd.reconcile()
    assert kinds.count("take_cuts") == 1, "nothing new was sealed after the first"
    assert fleet.beat("b1") == []
    for _ in range(25):
        pd.pass_ms(100)
        assert "retain_topic" not in pd.reconcile()
    assert fleet.beat("b1") == [(topic_id, 0, 7)]
    assert fleet.beat("b2") == [(topic_id, 1, 5)]
    assert fleet.beat("b1", (topic_id, 0, 9)) == []
    fleet.beat("b2", (topic_id, 1, 4))
    for _ in range(11):
        pd.pass_ms(100)
        assert "retain_topic" not in pd.reconcile()
    fleet.beat("b2", (topic_id, 1, 5))
    kinds = []
    for _ in range(25):
        pd.pass_ms(100)
        kinds += pd.reconcile()
        assert topics.topic(topic_id).state == ACTIVE
    assert kinds == ["retain_topic"]
    assert trims(topics, topic_id) == [7, 5]
    assert [cut_of(each) for each in pd.state.cuts.of(topic_id)] == []


def test_a_truncation_by_request_goes_on_as_it_is_covered(fleet: Fleet) -> None:
    """Current shards by their owners, ended ones by any broker; it is listed until it is done."""
    pd, topics = fleet.pd, fleet.topics
    topic_id = topics.create().topic_id
    topics.write(topic_id, 0, 7)
    topics.scale(topic_id, [0], part(0, 8), part(8, 16))
    fleet.assign("b2", (topic_id, 1))
    topics.write(topic_id, 1, 5)
    topics.truncate(topic_id, {1: 5, 2: 0}, covered=False)
    assert "continue_topic" not in pd.reconcile()
    [task] = topic_tasks(pd.state, pd.wall_ms)
    assert (task.kind, task.topic_name, task.since_ms) == ("truncate-topic", "ns/t", pd.wall_ms)
    assert "2 shards" in task.detail
    asked = fleet.beat("b1") + fleet.beat("b2")
    assert sorted(asked) == [(topic_id, 0, 7), (topic_id, 1, 5)]
    assert (topic_id, 1, 5) in fleet.beat("b2")
    fleet.beat("b1", (topic_id, 0, 7))
    assert pd.reconcile().count("continue_topic") == 1
    assert trims(topics, topic_id) == [7, 0, 0]
    assert topics.topic(topic_id).state == TRUNCATING
    assert "continue_topic" not in pd.reconcile()
    fleet.beat("b2", (topic_id, 1, 5))
    pd.reconcile()
    assert topics.topic(topic_id).state == ACTIVE
    assert trims(topics, topic_id) == [7, 5, 0]
    assert list(topic_tasks(pd.state, pd.wall_ms)) == []


def test_a_scale_is_listed_with_its_reason(topics: TopicCalls) -> None:
    """Its own, or that it was requested."""
    topic_id = topics.create().topic_id
    topics.start_scale(topic_id, [0], part(0, 8), part(8, 16))
    [task] = topic_tasks(topics.pd.state, topics.pd.wall_ms)
    assert (task.kind, task.topic_name, task.detail) == (
        "scale-topic", "ns/t", "requested: 1 shard becomes 2",
    )  # fmt: skip
    assert task.since_ms == topics.pd.wall_ms


def test_another_leader_asks_anew(fleet: Fleet) -> None:
    """What the former one heard is gone with it; the truncation goes on from the state."""
    pd, topics = fleet.pd, fleet.topics
    topic_id = topics.create().topic_id
    fleet.assign("b1", (topic_id, 0))
    topics.write(topic_id, 0, 7)
    topics.truncate(topic_id, {0: 7}, covered=False)
    pd.reconcile()
    fleet.beat("b1", (topic_id, 0, 7))
    pd.topics.start_leading()
    assert "continue_topic" not in pd.reconcile()
    assert fleet.beat("b1") == [(topic_id, 0, 7)]
    fleet.beat("b1", (topic_id, 0, 7))
    assert "continue_topic" in pd.reconcile()


def test_a_shard_that_has_ended_is_asked_of_one_broker_after_the_other(fleet: Fleet) -> None:
    """The first may be unable to read it; a lost one is not asked."""
    pd, topics = fleet.pd, fleet.topics
    topic_id = topics.create().topic_id
    topics.scale(topic_id, [0], part(0, 8), part(8, 16))
    coverage = Coverage()
    turns = []
    for _ in range(4):
        coverage.want((topic_id, 0), 7, pd.now_ms)
        asked = [name for name in ("b1", "b2") if coverage.asked_of(pd.state.owners, name, pd.now_ms)]
        assert len(asked) == 1
        turns += asked
        pd.pass_ms(int(TURN_MS))
    assert turns in (["b1", "b2"] * 2, ["b2", "b1"] * 2)
    lost = pd_state_pb2.MarkBrokerLost(name="b1", incarnation=1)
    pd.do(broker_pb2.RegisterBrokerResponse, mark_broker_lost=lost)
    for _ in range(2):
        coverage.want((topic_id, 0), 7, pd.now_ms)
        assert coverage.asked_of(pd.state.owners, "b2", pd.now_ms)
        pd.pass_ms(int(TURN_MS))


def test_what_nobody_wants_any_more_is_not_asked_for_nor_kept(fleet: Fleet) -> None:
    """A report of a shard that was not asked for is dropped as well."""
    coverage = Coverage()
    owners = fleet.pd.state.owners
    topic_id = fleet.topics.create().topic_id
    fleet.assign("b1", (topic_id, 0))
    coverage.reported([broker_pb2.ShardCover(topic_id=topic_id, shard_id=0, offset=9)])
    assert not coverage.want((topic_id, 0), 7, 0.0)
    assert coverage.asked_of(owners, "b1", WANTED_MS - 1)
    assert not coverage.asked_of(owners, "b1", WANTED_MS)
    assert not coverage.want((topic_id, 0), 7, WANTED_MS)
    coverage.reported([broker_pb2.ShardCover(topic_id=topic_id, shard_id=0, offset=8)])
    coverage.reported([broker_pb2.ShardCover(topic_id=topic_id, shard_id=0, offset=3)])
    assert coverage.want((topic_id, 0), 8, WANTED_MS), "it never becomes less"
    assert not coverage.want((topic_id, 0), 9, WANTED_MS)


def test_a_truncation_by_retention_fits_in_one_command() -> None:
    """Of the largest topic, at large offsets; what does not fit is covered by the parts that follow."""
    cut = {1_000_000 + each: 1 << 55 for each in range(TOPIC_SHARDS_MAX)}
    command = _retain(1, cut, cut, by_consumption=True)
    assert len(command.retain_topic.request.cut) == TOPIC_SHARDS_MAX
    assert 0 < len(command.retain_topic.covered) < TOPIC_SHARDS_MAX
    command.version, command.now_ms = 4, 1_700_000_000_000
    assert command.ByteSize() <= COMMAND_BYTES_MAX
    assert len(_retain(1, {0: 5}, {0: 5}, by_consumption=False).retain_topic.covered) == 1


def test_topics_take_their_turns(pd: Any) -> None:
    """A hundred topics that are due within one interval are not looked at together."""
    topics = TopicCalls(pd)
    for number in range(100):
        topic_id = topics.create(
            f"t{number}", config=topic_pb2.TopicConfig(retention=topic_pb2.Retention(age_ms=8_000))
        ).topic_id
        topics.write(topic_id, 0, 1)
    taken = []
    for _ in range(11):
        found = [each.take_cuts.topic_ids for each in pd.proposals() if each.HasField("take_cuts")]
        taken.append(sum(map(len, found)))
        pd.pass_ms(100)
    assert sum(taken) >= 100
    assert max(taken) <= 20, taken
