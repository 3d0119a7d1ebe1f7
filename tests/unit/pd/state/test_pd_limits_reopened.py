"""What the placement driver keeps, filled up to each documented bound: one more is refused, and a restarted member has it all.

The table of bounds: tests/tidy/test_limits_table.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from rangelog_core.errors import InvalidArgument, RangelogError
from rangelog_core.key_ranges import KEY_SPACE_END, KeyRange
from rangelog_core.limits import (
    BROKERS_MAX,
    COMMAND_SHARDS_MAX,
    CURSOR_METADATA_BYTES_MAX,
    CURSORS_PER_STREAM_MAX,
    NAMESPACES_MAX,
    TAGS_BYTES_MAX,
    TAGS_MAX,
    TOPIC_SHARDS_MAX,
)
from rangelog_pd.state.cut_tables import GROUPS_MAX
from rangelog_proto.v1 import broker_pb2, topic_pb2
from tests.unit.pd.conftest import Pd
from tests.unit.pd.state.test_pd_cursors import put

pytestmark = pytest.mark.timeout(600)
IN_SHARES = pytest.mark.parametrize("share", [25, pytest.param(1, marks=pytest.mark.long)])
"""Of a bound that takes long to reach; the whole one is `long`."""


def reopened(pd: Pd) -> None:
    """A restart changes nothing."""
    before, indexes = pd.machine.snapshot(), pd.state.indexes()
    pd.reload()
    pd.state.validate()
    pd.state.validate_indexes()
    assert (pd.machine.snapshot(), pd.state.indexes()) == (before, indexes)


def create(pd: Pd, name: str, shards: int, **fields: Any) -> topic_pb2.Topic:
    """Create a topic in "ns"."""
    request = topic_pb2.CreateTopicRequest(namespace="ns", name=name, shard_count=shards, **fields)
    return pd.do(topic_pb2.CreateTopicResponse, f"c-{name}", create_topic=request).topic


def namespace(pd: Pd, name: str) -> None:
    """Create a namespace."""
    request = topic_pb2.CreateNamespaceRequest(name=name)
    pd.do(topic_pb2.CreateNamespaceResponse, f"n-{name}", create_namespace=request)


def halved(pd: Pd, topic_id: int, parents: Sequence[topic_pb2.Shard]) -> None:
    """Split shards in two."""
    topic = pd.state.topics.topics[topic_id]
    key_ranges = []
    for each in parents:
        low = int.from_bytes(each.key_range.low)
        high = int.from_bytes(each.key_range.high) or KEY_SPACE_END
        middle = (low + high) // 2
        key_ranges += [KeyRange(low, middle).to_bytes(), KeyRange(middle, high).to_bytes()]
    start = topic_pb2.StartScaleRequest(
        topic=topic_pb2.TopicReference(topic_id=topic_id),
        map_version=topic.map_version,
        parents=[each.shard_id for each in parents],
        key_ranges=[topic_pb2.KeyRange(low=low, high=high) for low, high in key_ranges],
    )
    request_id = f"s-{topic.map_version}-{parents[0].shard_id}-{len(parents)}"  # a refusal is kept under its id
    scale = pd.do(topic_pb2.StartScaleResponse, request_id, start_scale=start).topic.scale_id
    ends = [topic_pb2.ShardEnd(shard_id=each.shard_id, stream_id=each.stream_id) for each in parents]
    commit = topic_pb2.CommitScaleRequest(topic_id=topic_id, scale_id=scale, ends=ends)
    pd.do(topic_pb2.CommitScaleResponse, f"{request_id}-c", commit_scale=commit)


def current(pd: Pd, topic_id: int) -> list[topic_pb2.Shard]:
    """The current shards of a topic, in order of keys."""
    rows = [row for key, row in pd.state.topics.shards.items() if key[0] == topic_id and not row.ended_version]
    return sorted(rows, key=lambda each: each.key_range.low)


@IN_SHARES
def test_namespaces(pd: Pd, share: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many as there may be."""
    monkeypatch.setattr("rangelog_pd.state.namespaces.NAMESPACES_MAX", NAMESPACES_MAX // share)
    for number in range(NAMESPACES_MAX // share):
        namespace(pd, f"n{number}")
    with pytest.raises(InvalidArgument):
        namespace(pd, "one-more")
    reopened(pd)
    with pytest.raises(InvalidArgument):
        namespace(pd, "one-more-again")


@IN_SHARES
def test_shards_of_a_topic(pd: Pd, share: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many in a creation and in a scale as one command makes, then as many as a topic may have; parents are kept."""
    at_once, in_all = COMMAND_SHARDS_MAX // share, TOPIC_SHARDS_MAX // share
    monkeypatch.setattr("rangelog_pd.state.topics.COMMAND_SHARDS_MAX", at_once)
    monkeypatch.setattr("rangelog_pd.state.shards.COMMAND_SHARDS_MAX", at_once)
    monkeypatch.setattr("rangelog_pd.state.shards.TOPIC_SHARDS_MAX", in_all)
    namespace(pd, "ns")
    with pytest.raises(InvalidArgument):
        create(pd, "too-many", at_once + 1)
    topic_id = create(pd, "t", at_once).topic_id
    with pytest.raises(InvalidArgument):
        halved(pd, topic_id, current(pd, topic_id)[: at_once // 2 + 1])
    while len(shards := current(pd, topic_id)) < in_all:
        halved(pd, topic_id, shards[: at_once // 2])
    assert len(shards) == in_all
    with pytest.raises(InvalidArgument):
        halved(pd, topic_id, shards[:1])
    reopened(pd)
    with pytest.raises(InvalidArgument):
        halved(pd, topic_id, shards[1:2])
    assert len(current(pd, topic_id)) == in_all


def test_tags_of_a_topic(pd: Pd) -> None:
    """Fifty, of two KiB together."""
    namespace(pd, "ns")
    each = TAGS_BYTES_MAX // TAGS_MAX
    tags = {f"{number:02d}": "v" * (each - 2) for number in range(TAGS_MAX)}
    tags["00"] += "v" * (TAGS_BYTES_MAX - TAGS_MAX * each)
    for wrong in (tags | {"x": ""}, tags | {"00": tags["00"] + "v"}):
        with pytest.raises(InvalidArgument):
            create(pd, "wrong", 1, tags=wrong)
    topic_id = create(pd, "t", 1, tags=tags).topic_id
    reopened(pd)
    assert dict(pd.state.topics.topics[topic_id].tags) == tags


def test_cursors_of_a_stream(pd: Pd) -> None:
    """As many as a stream may have, with as much metadata as each may have."""
    stream_id = pd.create_stream("s").stream_id
    for number in range(CURSORS_PER_STREAM_MAX):
        put(pd, stream_id, 0, f"c{number}", metadata="m" * CURSOR_METADATA_BYTES_MAX, request_id=f"r{number}")
    with pytest.raises(RangelogError):
        put(pd, stream_id, 0, "one-more", request_id="more")
    reopened(pd)
    with pytest.raises(RangelogError):
        put(pd, stream_id, 0, "one-more", request_id="more again")


def test_groups_that_a_topic_is_trimmed_by(pd: Pd) -> None:
    """As many consumers of a topic as its retention may depend on."""
    namespace(pd, "ns")
    reference = topic_pb2.TopicReference(topic_id=create(pd, "t", 1).topic_id)

    def report(group: str) -> None:
        cut = [topic_pb2.ShardPosition(shard_id=0)]
        request = topic_pb2.ReportConsumedRequest(topic=reference, group=group, cut=cut)
        pd.do(topic_pb2.ReportConsumedResponse, f"g-{group}", report_consumed=request)

    for number in range(GROUPS_MAX):
        report(f"g{number}")
    with pytest.raises(InvalidArgument):
        report("one-more")
    reopened(pd)
    with pytest.raises(InvalidArgument):
        report("one-more-again")
    report("g0")


@IN_SHARES
def test_brokers(pd: Pd, share: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many as may be registered."""
    monkeypatch.setattr("rangelog_pd.state.brokers.BROKERS_MAX", BROKERS_MAX // share)

    def register(name: str) -> None:
        request = broker_pb2.RegisterBrokerRequest(name=name, incarnation=1, address="h:1", control_address="h:2")
        pd.do(broker_pb2.RegisterBrokerResponse, f"b-{name}", register_broker=request)

    for number in range(BROKERS_MAX // share):
        register(f"b{number}")
    with pytest.raises(InvalidArgument):
        register("one-more")
    reopened(pd)
    with pytest.raises(InvalidArgument):
        register("one-more-again")
