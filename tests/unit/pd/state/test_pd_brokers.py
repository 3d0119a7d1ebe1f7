"""Brokers and owners in the state: registration, loss, assignments and the queue of what has no owner."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rangelog_core.errors import InvalidArgument, PreconditionFailed
from rangelog_pd.state import brokers
from rangelog_pd.state.machine import Machine
from rangelog_pd.state.owner_tables import JOURNAL_KEYS, JOURNALS
from rangelog_pd.state.tables import ShardKey
from rangelog_pd.state.versions import LEVEL_BROKERS
from rangelog_proto.v1 import broker_pb2, pd_pb2, pd_state_pb2, topic_pb2
from tests.support.pd_topics import TopicCalls, part

BROKERS = ("b1", "b2")


def register(pd: Any, name: str, incarnation: int = 1, **changes: Any) -> None:
    fields = {"name": name, "incarnation": incarnation, "address": f"{name}:1", "zone": "z", "version": "1"} | changes
    pd.do(broker_pb2.RegisterBrokerResponse, register_broker=broker_pb2.RegisterBrokerRequest(**fields))


def lose(pd: Any, name: str, incarnation: int = 1) -> None:
    command = pd_state_pb2.MarkBrokerLost(name=name, incarnation=incarnation)
    pd.do(pd_pb2.CreateStreamResponse, mark_broker_lost=command)


def assign(pd: Any, key: ShardKey, broker: str, incarnation: int = 1, *, before: int | None = None) -> int:
    """Assign, by the owner epoch of now unless another is given; return the one afterwards."""
    if before is None:
        before = owner(pd, key)[1]
    item = broker_pb2.Assignment(
        topic_id=key[0], shard_id=key[1], broker=broker, incarnation=incarnation, owner_epoch=before
    )
    command = pd_state_pb2.AssignShards(assignments=[item])
    pd.do(pd_pb2.CreateStreamResponse, assign_shards=command)
    return owner(pd, key)[1]


def owner(pd: Any, key: ShardKey) -> tuple[str, int]:
    """The broker and the owner epoch of a shard or journal."""
    found = pd.state.owners.assignments.find(key)
    return (found.broker, found.owner_epoch) if found is not None else ("", 0)


def test_each_current_shard_and_each_journal_is_to_be_owned(topics: TopicCalls) -> None:
    """Journals once there is a broker; a shard that has ended, or is gone, is nobody's."""
    pd = topics.pd
    topic_id = topics.create(shards=2).topic_id
    assert list(pd.state.owners.unowned) == [(1, 0), (1, 1)]
    register(pd, "b1")
    assert set(pd.state.owners.unowned) == {(1, 0), (1, 1), *JOURNAL_KEYS}
    assert len(JOURNAL_KEYS) == JOURNALS == 16
    for key in list(pd.state.owners.unowned):
        assert assign(pd, key, "b1") == 1
    assert not pd.state.owners.unowned
    topics.scale(topic_id, [0, 1], part(0, 8), part(8, 16))
    assert list(pd.state.owners.unowned) == [(1, 2), (1, 3)]
    assert owner(pd, (1, 0)) == ("", 0)
    assign(pd, (1, 2), "b1")
    topics.delete(topic_id, force=True)
    assert not pd.state.owners.unowned
    assert len(pd.state.owners.assignments) == JOURNALS


def test_the_owner_epoch_rises_with_each_assignment(topics: TopicCalls) -> None:
    """Also to the same broker; across the loss of an owner and a restart of the placement driver."""
    pd = topics.pd
    topics.create()
    register(pd, "b1")
    register(pd, "b2")
    assert [assign(pd, (1, 0), name) for name in ("b1", "b2", "b2")] == [1, 2, 3]
    lose(pd, "b2")
    assert (1, 0) in pd.state.owners.unowned
    pd.reload()
    assert (1, 0) in pd.state.owners.unowned
    assert assign(pd, (1, 0), "b1") == 4


def test_an_assignment_that_does_not_hold_any_more_is_passed_over(topics: TopicCalls) -> None:
    """Another owner epoch, a broker that is lost or was never there, a shard that is not current; the others are made."""
    pd = topics.pd
    topics.create()
    for name in ("b1", "b2", "b3"):
        register(pd, name)
    lose(pd, "b3")
    assign(pd, (1, 0), "b1")
    assign(pd, (1, 0), "b2", before=0)
    assign(pd, (1, 0), "b2", incarnation=2)
    assign(pd, (1, 0), "b3")
    assign(pd, (1, 0), "b9")
    assign(pd, (1, 0), "")
    assert owner(pd, (1, 0)) == ("b1", 1)
    for key in ((1, 7), (0, 16), (9, 0)):
        assert assign(pd, key, "b1") == 0
    items = [
        broker_pb2.Assignment(topic_id=1, shard_id=0, broker="b2", incarnation=1, owner_epoch=each) for each in (7, 1)
    ]
    pd.do(pd_pb2.CreateStreamResponse, assign_shards=pd_state_pb2.AssignShards(assignments=items))
    assert owner(pd, (1, 0)) == ("b2", 2)
    with pytest.raises(InvalidArgument):
        too_many = pd_state_pb2.AssignShards(assignments=items * 501)
        pd.do(pd_pb2.CreateStreamResponse, assign_shards=too_many)


def test_another_incarnation_owns_nothing_yet(topics: TopicCalls) -> None:
    """What the former one owned is to be assigned again; a late report of its loss concerns the former one only."""
    pd = topics.pd
    topics.create()
    register(pd, "b1")
    assign(pd, (1, 0), "b1")
    register(pd, "b1")
    assert (1, 0) not in pd.state.owners.unowned, "the same incarnation registers again"
    register(pd, "b1", 2)
    assert (1, 0) in pd.state.owners.unowned
    assign(pd, (1, 0), "b1", 2)
    lose(pd, "b1", 1)
    assert (1, 0) not in pd.state.owners.unowned
    lose(pd, "b1", 2)
    assert (1, 0) in pd.state.owners.unowned
    register(pd, "b1", 2)
    assert (1, 0) not in pd.state.owners.unowned, "it was not lost after all, and nobody has taken the shard"


@pytest.mark.parametrize(
    "changes",
    [
        *(
            {"name": ""},
            {"name": "a/b"},
            {"incarnation": 0},
            {"address": ""},
            {"address": "x" * 301},
            {"zone": "z" * 201},
        ),
        {"endpoints": [broker_pb2.Endpoint(door=f"d{number:02}", address="h:1") for number in range(17)]},
        {"endpoints": [broker_pb2.Endpoint(door=each, address="h:1") for each in ("b", "a")]},
        {"endpoints": [broker_pb2.Endpoint(door="a", address="h:1")] * 2},
        {"endpoints": [broker_pb2.Endpoint(door="a/b", address="h:1")]},
        {"endpoints": [broker_pb2.Endpoint(door="a")]},
    ],
)
def test_a_registration_that_cannot_be_is_refused(topics: TopicCalls, changes: Any) -> None:
    """With the reason, and without a trace."""
    before = topics.pd.machine.snapshot()
    with pytest.raises(InvalidArgument):
        register(topics.pd, **({"name": "b1"} | changes))
    assert topics.pd.machine.snapshot() == before


def test_a_broker_has_sixteen_doors_at_most(topics: TopicCalls) -> None:
    """All of them are in its row, and in snapshots."""
    endpoints = [
        broker_pb2.Endpoint(door=f"d{number:02}", address=f"h:{number}") for number in range(brokers.DOORS_MAX)
    ]
    register(topics.pd, "b1", endpoints=endpoints)
    assert list(topics.pd.state.owners.brokers["b1"].endpoints) == endpoints
    restored = Machine()
    restored.restore(topics.pd.machine.snapshot())
    assert list(restored.state.owners.brokers["b1"].endpoints) == endpoints


def test_a_lost_broker_that_owns_nothing_makes_room_for_another(
    topics: TopicCalls, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Names that are never used again do not fill the table; one that is alive, or still named as an owner, stays."""
    monkeypatch.setattr(brokers, "BROKERS_MAX", 2)
    pd = topics.pd
    register(pd, "b1")
    register(pd, "b2")
    with pytest.raises(InvalidArgument, match="limit"):
        register(pd, "b3")
    assign(pd, (0, 0), "b1")
    lose(pd, "b1")
    with pytest.raises(InvalidArgument, match="limit"):
        register(pd, "b3")
    assign(pd, (0, 0), "b2")
    register(pd, "b3")
    assert list(pd.state.owners.brokers) == ["b2", "b3"]


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("register"), st.sampled_from(BROKERS), st.integers(1, 2)),
        st.tuples(st.just("lose"), st.sampled_from(BROKERS), st.integers(1, 2)),
        st.tuples(st.just("assign"), st.sampled_from(BROKERS), st.integers(0, 5)),
        st.tuples(st.just("assign"), st.sampled_from(BROKERS), st.integers(0, 5)),
        st.tuples(st.just("scale"), st.just(""), st.integers(0, 1)),
        st.tuples(st.just("restart"), st.just(""), st.just(0)),
    ),
    max_size=25,
)


@given(steps=STEPS)
def test_the_queue_is_what_the_rows_say(steps: list[tuple[str, str, int]]) -> None:
    """Under any order of events; owner epochs never fall, and a second member comes to the same bytes."""
    machine, twin = Machine(), Machine()
    applied = 0

    def do(**action: Any) -> None:
        nonlocal applied
        applied += 1
        command = pd_state_pb2.Command(version=4, now_ms=applied, **action).SerializeToString()
        assert machine.apply(applied, command) == twin.apply(applied, command)

    do(create_namespace=topic_pb2.CreateNamespaceRequest(name="ns"))
    do(create_topic=topic_pb2.CreateTopicRequest(namespace="ns", name="t", shard_count=2))
    epochs: dict[ShardKey, int] = {}
    for kind, name, number in steps:
        owners = machine.state.owners
        if kind == "register":
            do(register_broker=broker_pb2.RegisterBrokerRequest(name=name, incarnation=number, address="x:1"))
        elif kind == "lose":
            do(mark_broker_lost=pd_state_pb2.MarkBrokerLost(name=name, incarnation=number))
        elif kind == "assign":
            key = [(1, 0), (1, 1), (1, 2), (1, 3), (0, 3), (0, 4)][number]
            incarnation = owners.brokers[name].incarnation if name in owners.brokers else 1
            known = owners.assignments.find(key)
            item = broker_pb2.Assignment(
                topic_id=key[0],
                shard_id=key[1],
                broker=name,
                incarnation=incarnation,
                owner_epoch=known.owner_epoch if known is not None else 0,
            )
            do(assign_shards=pd_state_pb2.AssignShards(assignments=[item]))
        elif kind == "scale":
            scale(machine, do, number)
        else:
            machine.restore(machine.snapshot())
        check_queue(machine, epochs)
    assert machine.snapshot() == twin.snapshot()


def scale(machine: Machine, do: Any, place: int) -> None:
    """Replace one current shard by another of the same keys."""
    topics = machine.state.topics
    topic, shard_id = topics.topics[1], topics.maps.of(1).current[place][1]
    shard = topics.shards[1, shard_id]
    start = topic_pb2.StartScaleRequest(
        topic=topic_pb2.TopicReference(topic_id=1),
        map_version=topic.map_version,
        parents=[shard_id],
        key_ranges=[shard.key_range],
    )
    do(start_scale=start)
    ends = [topic_pb2.ShardEnd(shard_id=shard_id, stream_id=shard.stream_id)]
    do(commit_scale=topic_pb2.CommitScaleRequest(topic_id=1, scale_id=topic.scale_id + 1, ends=ends))


def check_queue(machine: Machine, epochs: dict[ShardKey, int]) -> None:
    """Compare the queue with the rows."""
    owners = machine.state.owners
    machine.state.validate()
    machine.state.validate_indexes()
    current = {(1, shard_id) for _, shard_id in machine.state.topics.maps.of(1).current}
    owned = {key for key, each in owners.assignments.items() if owners.is_alive(each.broker, each.incarnation)}
    journals = set(JOURNAL_KEYS) if owners.brokers else set()
    assert set(owners.unowned) == (current | journals) - owned
    assert set(owners.assignments) <= current | set(JOURNAL_KEYS)
    for key, each in owners.assignments.items():
        assert each.owner_epoch >= epochs.get(key, 0)
        epochs[key] = each.owner_epoch


def raise_cluster_version(pd: Any, version: int) -> None:
    pd.do(pd_pb2.CreateStreamResponse, set_cluster_version=pd_state_pb2.SetClusterVersion(version=version))


def test_the_broker_version_is_what_every_broker_has(topics: TopicCalls) -> None:
    """Of those that are not lost, and at most the cluster version; it never falls, across a restart neither."""
    pd = topics.pd
    raise_cluster_version(pd, LEVEL_BROKERS)
    versions = lambda: pd.state.owners.broker_version  # noqa: E731
    register(pd, "b1", feature_level=LEVEL_BROKERS + 2)
    pd.reload()
    assert versions() == LEVEL_BROKERS
    raise_cluster_version(pd, LEVEL_BROKERS + 1)
    assert versions() == LEVEL_BROKERS + 1
    register(pd, "b2", feature_level=LEVEL_BROKERS + 1)
    raise_cluster_version(pd, LEVEL_BROKERS + 3)
    assert versions() == LEVEL_BROKERS + 1
    lose(pd, "b2")
    assert versions() == LEVEL_BROKERS + 2
    with pytest.raises(PreconditionFailed, match="start it with the program that they run"):
        register(pd, "b2", 2, feature_level=LEVEL_BROKERS + 1)
    assert pd.state.owners.brokers["b2"].lost
    register(pd, "b2", 2, feature_level=LEVEL_BROKERS + 3)
    assert versions() == LEVEL_BROKERS + 2
    lose(pd, "b1")
    lose(pd, "b2", 2)
    assert versions() == LEVEL_BROKERS + 3, "that of the last one"


def test_one_broker_that_tells_no_level_keeps_the_version_down(topics: TopicCalls) -> None:
    """As all do before the cluster version rises; they tell it as they register once more."""
    pd = topics.pd
    register(pd, "b1")
    register(pd, "b2")
    raise_cluster_version(pd, LEVEL_BROKERS)
    register(pd, "b1", feature_level=LEVEL_BROKERS)
    assert pd.state.owners.broker_version == 0
    register(pd, "b2", feature_level=LEVEL_BROKERS)
    assert pd.state.owners.broker_version == LEVEL_BROKERS
