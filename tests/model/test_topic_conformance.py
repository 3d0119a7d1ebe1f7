"""The model of topics says what the product does: random walks through it, taken by the product's own classes in step."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from rangelog._produce import core
from rangelog._produce.core import ProducerCore
from rangelog_broker.shards.owner import ShardOwner
from rangelog_broker.shards.producer_table import NEXT, AckedBatch, Found, ProducerTable, Standing
from rangelog_core.batch_extension import Producer
from rangelog_core.errors import Corruption
from rangelog_pd.state import shards as pd_shards
from rangelog_pd.state.store import State
from rangelog_proto.v1 import topic_pb2
from tests.model.case import Case
from tests.model.conformance_topic import WEIGHTS, TopicWalk
from tests.model.conformance_walks import OutOfStep, follow, walk
from tests.model.search import explore
from tests.model.topic_cases import TOPIC
from tests.model.topic_model import TopicModel
from tests.model.topic_state import Promises, Topic

WALKS = 60
"""Of each instance. A walk takes some 10 ms; thousands more were taken while this was written."""

WIDE: dict[str, Any] = {"scales": 2, "takeovers": 3, "window": 5}
TOPICS = [
    Topic(((0, 1, (0, 1, 0, 1, 1, 0)),), **WIDE),
    Topic(((0, 1, (0, 1, 0, 1, 1, 0, 0, 0)),), **WIDE, batch_records=1, snapshots=True),
    Topic(((0, 1, (0, 0, 0, 0, 0, 0, 0, 0)),), takeovers=3, window=5, batch_records=1, snapshots=True, expiries=1),
    Topic(((0, 1, (0, 1, 0, 1)),), scales=2, takeovers=2, window=5, snapshots=True, expiries=1),
    Topic(((0, 1, (0, 1, 0)), (0, 2, (1, 0)), (0, 3, (0, 1))), **WIDE, snapshots=True),
    Topic(((0, 1, (0, 1, 0)), (1, 1, (1, 0, 1)), (1, 2, (1, 0))), **WIDE),
]  # fmt: skip


UNRESOLVED_COUNTED = Topic(((0, 1, (0, 0, 0, 0, 0, 0)),), window=5, batch_records=1, wrong="unresolved-counted")
"""With the window of the product."""

DECIDED_BY_THE_PRODUCT = (
    "ack-in-flight", "gap-accepted", "starts-anywhere", "no-epoch-check", "epochs-not-inherited", "epochs-of-one-parent",
    "epochs-not-passed-on", "sequences-inherited", "expired-without-floor", "stale-end", "end-unchecked", "goes-on",
    "parent-reopened", "asked-without-epoch", "any-order", "requeued-last", "new-overtakes", "doubt-on-parents-only",
    "map-goes-back",
)  # fmt: skip
"""Wrong choices that a step of a walk would make; the others are about what is around it."""


def topic_walk(instance: Topic, seed: int) -> TopicWalk:
    """Take a random walk through the model of topics."""
    walked = TopicWalk(instance)
    walk(walked, seed, WEIGHTS, steps=120)
    return walked


def test_the_product_walks_with_the_topic_model() -> None:
    """Owners, tables, producers and the placement driver stand where the model does, and refuse what it lacks."""
    taken: Counter[str] = Counter()
    refused = 0
    for instance in TOPICS:
        for seed in range(WALKS):
            walked = topic_walk(instance, seed)
            taken.update(walked.taken)
            refused += walked.refused
    assert all(taken.values()), taken
    assert refused > 500


@pytest.mark.parametrize(
    "case", [case for case in TOPIC if case.name in DECIDED_BY_THE_PRODUCT], ids=lambda case: case.name
)
def test_the_product_does_not_go_the_way_of_a_wrong_choice(case: Case) -> None:
    """Led along the way by which the model found it, the product falls out of step before the end."""
    assert isinstance(case.instance, Topic)
    with pytest.raises(OutOfStep):
        follow(TopicWalk(case.instance, led=True), case.search().path)


def test_a_producer_does_not_outrun_the_table() -> None:
    """Acks of later batches make no room: the oldest batch without an outcome stays among those that an owner remembers."""
    instance = UNRESOLVED_COUNTED
    model, promises = TopicModel(instance), Promises(instance)
    found = explore(instance.initial(), model.successors, promises.invariant)
    assert found.violation == "WRONG-ACK"
    with pytest.raises(OutOfStep, match="the core numbers"):
        follow(TopicWalk(instance, led=True), found.path)


def test_the_product_opens_a_log_behind_the_expiry_of_a_producer() -> None:
    """Led to where the wrong choice finds damage, the product finds none."""
    (case,) = [case for case in TOPIC if case.name == "expiry-breaks-the-fold"]
    assert isinstance(case.instance, Topic)
    follow(TopicWalk(case.instance, led=True), case.search().path)


def _find_any_epoch(self: ProducerTable, producer: Producer) -> Found:
    entry = self._entries.get(producer.producer_id)
    epoch = entry.epoch if entry is not None else producer.epoch
    return _find(self, producer._replace(epoch=max(epoch, self.floor(producer.producer_id))))


def _find_beyond_gaps(self: ProducerTable, producer: Producer) -> Found:
    found = _find(self, producer)
    return NEXT if found.standing is Standing.GAP else found


def _forget_what_is_in_flight(self: ShardOwner, producer: Producer) -> Found:
    return self.table.find(producer)


def _in_flight_by_count(self: core._Lane) -> int:
    return len(self.unresolved)


def _requeue_last(self: ProducerCore, records: list[core.Queued]) -> None:
    for record in records:
        self._lane(self.shard_of(record[1])).queue.append(record)


def _parents_only(self: ProducerCore, shard_id: int) -> tuple[int, ...]:
    return self._shards[shard_id].predecessors


def _map_of_any_version(self: ProducerCore, version: int, shards: list[core.MappedShard]) -> None:
    self._map_version = 0
    _mapped(self, version, shards)


def _expire_without_floors(self: ProducerTable, below: int) -> int:
    count = len(self._entries)
    self._entries.clear()
    return count


def _note_as_found(self: ProducerTable, batch: AckedBatch) -> None:
    if self.find(batch.producer).standing is not Standing.NEXT:
        raise Corruption("where it cannot follow")
    _note(self, batch)


def _end_without_a_seal(state: State, topic: topic_pb2.Topic, shard: topic_pb2.Shard) -> None:
    _end_shard(state, topic, shard)
    stream = state.streams.copy(shard.stream_id)
    stream.sealed_for_good = False
    state.put_stream(stream)


_find, _note, _mapped, _end_shard = ProducerTable.find, ProducerTable.note, ProducerCore.mapped, pd_shards._end_shard


@pytest.mark.parametrize(
    ("target", "name", "broken"),
    [
        (ProducerTable, "find", _find_any_epoch),
        (ProducerTable, "find", _find_beyond_gaps),
        (ProducerTable, "epochs", lambda self: {}),
        (ProducerTable, "expire", _expire_without_floors),
        (ProducerTable, "note", _note_as_found),
        (ShardOwner, "_find", _forget_what_is_in_flight),
        (core._Lane, "in_flight", property(_in_flight_by_count)),
        (ProducerCore, "_requeue", _requeue_last),
        (ProducerCore, "_ancestors", lambda self, shard_id: ()),
        (ProducerCore, "_ancestors", _parents_only),
        (ProducerCore, "mapped", _map_of_any_version),
        (pd_shards, "_check_end", lambda *_: None),
        (pd_shards, "_end_shard", _end_without_a_seal),
    ],
    ids=[
        "any-epoch", "gap-accepted", "epochs-not-passed-on", "expired-without-floor", "expiry-breaks-the-fold",
        "in-flight-forgotten", "unresolved-counted", "requeued-last", "new-overtakes", "doubt-on-parents-only",
        "map-goes-back", "end-unchecked", "stream-not-sealed",
    ],
)  # fmt: skip
def test_a_product_that_is_changed_falls_out_of_step(
    monkeypatch: pytest.MonkeyPatch, target: Any, name: str, broken: Any
) -> None:
    """Walks are worth something only if a rule that is left out in the product shows."""
    monkeypatch.setattr(target, name, broken)
    with pytest.raises(OutOfStep):
        for seed in range(WALKS):
            for instance in TOPICS:
                topic_walk(instance, seed)
