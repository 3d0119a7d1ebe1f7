"""Topics and their readers in blocking code: the same verbs, records and positions."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import pytest

from rangelog import Cut, KeyRange, TopicConfigChange, errors, sync
from rangelog._topics import topics as asynchronous
from rangelog_core.key_ranges import KEY_SPACE_END
from tests.support.fake_topics import TopicCluster
from tests.support.shard_streams import end_topic, scale, write


@pytest.fixture
def client() -> Iterator[sync.Client]:
    """A blocking client of a new cluster in memory."""
    with TopicCluster().sync_client() as made:
        yield made


def test_a_topic_is_administered_and_read(client: sync.Client) -> None:
    """From its creation to its deletion."""
    topics, inside = client.topics, client.asynchronous
    topics.create_namespace("air")
    assert list(topics.namespaces()) == ["air"]
    topic_id = topics.create("air/t", shards=[KeyRange(0, KEY_SPACE_END)], tags={"a": "b"}).topic_id
    client.run(write(inside, topic_id, 0, [b"a", b"b"]))
    client.run(scale(inside, "air/t", [0], 2))
    client.run(write(inside, topic_id, 2, [b"c"]))
    assert [each.name for each in topics.list(tags={"a": "b"})] == ["air/t"]
    assert topics.update("air/t", TopicConfigChange(), set_tags={"c": "d"}).tags == {"a": "b", "c": "d"}
    assert [each.shard_id for each in topics.shards("air/t")] == [1, 2]
    assert topics.cut("air/t", "tail") == Cut(topic_id, {1: 0, 2: 1})
    assert [(each.shard_id, each.value) for each in client.topic_reader("air/t")] == [(0, b"a"), (0, b"b"), (2, b"c")]
    with pytest.raises(errors.RequestTimeout):
        topics.scale("air/t", [1], 2, timeout_s=0.01)
    topics.cancel_scale("air/t")
    assert topics.truncate("air/t", Cut(topic_id, {1: 0, 2: 0})).state == "active"
    topics.seal("air/t")
    client.run(end_topic(inside, "air/t"))
    assert topics.describe("air/t").state == "sealed"
    topics.delete("air/t")
    with pytest.raises(errors.TopicNotFound):
        list(client.topic_reader("air/t"))
    topics.delete_namespace("air")


def test_the_position_counts_what_the_caller_has(client: sync.Client) -> None:
    """Record by record, and chunk by chunk; an abandoned reader keeps its position."""
    topic_id = client.topics.create("t").topic_id
    client.run(write(client.asynchronous, topic_id, 0, [b"a", b"b", b"c"]))
    reader = client.topic_reader("t")
    for number, _ in enumerate(reader):
        assert reader.position() == Cut(topic_id, {0: number + 1})
        if number == 1:
            break
    assert [each.value for each in client.topic_reader("t", start=reader.position())] == [b"c"]
    chunks = client.topic_reader("t")
    assert [[record.value for record in chunk.records] for chunk in chunks.chunks()] == [[b"a", b"b", b"c"]]
    assert chunks.position() == Cut(topic_id, {0: 3})


def test_blocking_topics_have_every_verb() -> None:
    """With the same arguments, but for time limits of short calls."""

    def verbs(of: type[Any]) -> dict[str, set[str]]:
        return {
            name: set(inspect.signature(verb).parameters) - {"timeout_s"}
            for name, verb in vars(of).items()
            if not name.startswith("_") and name not in ("shard_map", "cut_in")
        }

    assert verbs(sync.Topics) == verbs(asynchronous.Topics)
