"""Values of topics: names, configurations, cuts and their text form. Bad ones are refused before anything is sent."""

from __future__ import annotations

import doctest
import importlib
import math
import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rangelog import StreamConfig, StreamConfigChange, errors
from rangelog._topics.cut import Cut
from rangelog._topics.messages import topic_config_message, topic_info
from rangelog._topics.values import Retention, ScalingPolicy, TopicConfig, TopicConfigChange
from rangelog_core.limits import OFFSET_MAX
from rangelog_core.stream_defaults import with_defaults
from rangelog_core.topic_names import parse_topic_name
from rangelog_pd.state.topic_config import FIELDS, with_topic_defaults
from rangelog_proto.v1 import topic_pb2 as pb


@pytest.mark.parametrize("name", ["rangelog_core.topic_names", "rangelog._topics.cut", "rangelog._topics.values"])
def test_examples_give_what_they_show(name: str) -> None:
    """Examples in docstrings run as they are printed."""
    results = doctest.testmod(importlib.import_module(name))
    assert results.attempted and not results.failed


@pytest.mark.parametrize("name", ["", "a/", "/a", "a/b/c", "a b", "a/-b", "_topic-1-shard-0", "x" * 201, None, 3])
def test_a_bad_name_is_refused(name: Any) -> None:
    """Two valid parts, or one; nothing internal."""
    with pytest.raises(errors.InvalidArgument):
        parse_topic_name(name)


@pytest.mark.parametrize(
    "bad",
    [
        lambda: ScalingPolicy(kind="often"),  # type: ignore[arg-type]
        lambda: ScalingPolicy(kind="events"),
        lambda: ScalingPolicy(target_per_s=5),
        lambda: ScalingPolicy(kind="bytes", target_per_s=1, factor=1),
        lambda: ScalingPolicy(shards_min=0),
        lambda: ScalingPolicy(shards_min=True),
        lambda: Retention(age_seconds=-1),
        lambda: Retention(shard_size_bytes=1.5),  # type: ignore[arg-type]
        lambda: TopicConfig(stream=StreamConfig(retention_seconds=5)),
        lambda: TopicConfig(stream=StreamConfig(retention_bytes=5)),
        lambda: TopicConfig(scaling=None),  # type: ignore[arg-type]
        lambda: TopicConfigChange(stream=StreamConfigChange(retention_bytes=5)),
        lambda: TopicConfigChange(stream=StreamConfig()),  # type: ignore[arg-type]
    ],
)
def test_a_bad_configuration_is_refused(bad: Any) -> None:
    """By the constructor."""
    with pytest.raises(errors.InvalidArgument):
        bad()


def test_a_configuration_comes_back_as_it_was_given() -> None:
    """Through the messages, with the placement driver's defaults where nothing was given."""
    config = TopicConfig(
        stream=StreamConfig(
            replicas=5, acks=3, compression="zstd", hot_retention_seconds=math.inf, range_age_seconds=60
        ),
        scaling=ScalingPolicy(kind="bytes", target_per_s=1_000_000, factor=4, shards_min=2),
        retention=Retention(age_seconds=86_400, shard_size_bytes=10_000),
    )
    message, _ = topic_config_message(config)
    topic = pb.Topic(topic_id=1, namespace="n", name="t", config=with_topic_defaults(message), state=1, tags={"a": "b"})
    found = topic_info(topic)
    assert (found.name, found.state, found.tags) == ("n/t", "active", {"a": "b"})
    assert (found.config.scaling, found.config.retention) == (config.scaling, config.retention)
    assert topic_config_message(found.config)[0].stream == with_defaults(message.stream)


def test_a_change_names_the_fields_that_the_placement_driver_knows() -> None:
    """All of them can be named; None names nothing."""
    assert topic_config_message(TopicConfigChange()) == (pb.TopicConfig(), [])
    stream = StreamConfigChange(
        replicas=3, acks=2, range_size_bytes_max=1 << 20, range_age_seconds=1, hot_retention_seconds=1,
        durability="memory", compression="none", tiered=False, zones_min=2, server_labels=["disk=ssd"],
    )  # fmt: skip
    _, fields = topic_config_message(TopicConfigChange(stream=stream, scaling=ScalingPolicy(), retention=Retention()))
    assert sorted(fields) == sorted(FIELDS)


OFFSETS = st.dictionaries(st.integers(0, (1 << 64) - 1), st.integers(0, OFFSET_MAX), min_size=1, max_size=20)


@given(topic_id=st.integers(1, (1 << 64) - 1), offsets=OFFSETS)
def test_a_cut_survives_its_text(topic_id: int, offsets: dict[int, int]) -> None:
    """The text does not depend on the order in which the shards were given; equal cuts are one key of a dictionary."""
    cut = Cut(topic_id, offsets)
    other = Cut(topic_id, dict(reversed(offsets.items())))
    assert Cut.from_json(cut.to_json()) == cut == other == pickle.loads(pickle.dumps(cut))
    assert cut.to_json() == other.to_json() and len({cut, other}) == 1


def test_a_cut_does_not_change() -> None:
    """Neither by what it was made of, nor by itself."""
    offsets = {0: 1}
    cut = Cut(7, offsets)
    offsets[0] = 2
    assert cut.offsets == {0: 1}
    with pytest.raises(TypeError):
        cut.offsets[0] = 2  # type: ignore[index]


@pytest.mark.parametrize(
    ("topic_id", "offsets"),
    [
        (0, {0: 0}),
        (1, {}),
        (1, {-1: 0}),
        (1, {0: -1}),
        (1, {0: 1 << 63}),
        (1, {True: 0}),
        (1, {0: 1.0}),
        (1, [0]),
        ("1", {0: 0}),
    ],
)
def test_a_bad_cut_is_refused(topic_id: Any, offsets: Any) -> None:
    """Ids and offsets are whole numbers in their bounds, and there is a shard."""
    with pytest.raises(errors.InvalidArgument):
        Cut(topic_id, offsets)


@pytest.mark.parametrize(
    "text",
    [
        "", "null", "7", "[" * 100_000, '{"cut":1}', '{"cut":1,"topic_id":1,"offsets":{}}',
        '{"cut":1,"topic_id":1,"offsets":{"0":0},"x":1}', '{"cut":1,"topic_id":1,"offsets":{"00":0}}',
        '{"cut":1,"topic_id":1,"offsets":{"-1":0}}', '{"cut":1,"topic_id":1,"offsets":{"0":0,"0":1}}',
        '{"cut":1,"topic_id":1,"offsets":{"0":"0"}}', '{"cut":1,"topic_id":1,"offsets":{"٣":0}}', '{"cut":true}',
        '{"topic_id":1,"offsets":{"0":0}}', '{"cut":1,"topic_id":1,"offsets":{"0":NaN}}', "x" * 1_000_000, b"{}", None,
    ],
)  # fmt: skip
def test_what_is_no_text_of_a_cut_is_refused(text: Any) -> None:
    """Whatever it is."""
    with pytest.raises(errors.InvalidArgument):
        Cut.from_json(text)


def test_a_later_version_of_a_cut_is_named() -> None:
    """Its reader is told to upgrade."""
    with pytest.raises(errors.UnsupportedVersion, match="version 2"):
        Cut.from_json('{"cut":2,"anything":0}')
