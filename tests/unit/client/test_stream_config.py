"""StreamConfig and StreamConfigChange: what is sent for them, and what is refused when they are made."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, fields
from datetime import timedelta
from typing import Any

import pytest

from rangelog import StreamConfig, StreamConfigChange
from rangelog_core.errors import InvalidArgument
from rangelog_core.stream_config import config_message
from rangelog_core.stream_defaults import with_defaults
from rangelog_proto.v1 import common_pb2


def test_a_default_config_leaves_to_the_cluster_what_it_decides() -> None:
    """Only what has a default here is sent; the placement driver fills in the rest."""
    message, names = config_message(StreamConfig())
    none = ["cursor_retention", "server_labels", "zones_min"]
    assert sorted(names) == sorted(["compression", "durability", "tiered", *none])
    assert not any(getattr(message, name) for name in none), "an earlier placement driver is sent nothing that is new"
    full = with_defaults(message)
    assert (full.replicas, full.acks, full.hot_retention_ms, full.tiered) == (3, 2, 600_000, True)


def test_one_replica_needs_one_ack() -> None:
    """Acks that are not given never exceed the replicas."""
    assert with_defaults(config_message(StreamConfig(replicas=1))[0]).acks == 1


def test_every_field_is_sent_in_the_units_of_the_wire() -> None:
    """Seconds and timedeltas become ms, infinity the wire's for ever, words its enums."""
    message, _ = config_message(
        StreamConfig(
            replicas=5,
            acks=3,
            range_size_bytes_max=1 << 26,
            range_age_seconds=timedelta(hours=1),
            retention_seconds=1.001,
            retention_bytes=1 << 30,
            hot_retention_seconds=float("inf"),
            durability="memory",
            compression="zstd",
            tiered=False,
        )
    )
    assert message == common_pb2.StreamConfig(
        replicas=5,
        acks=3,
        range_size_bytes_max=1 << 26,
        range_age_ms_max=3_600_000,
        retention_ms=1_001,
        retention_bytes=1 << 30,
        hot_retention_ms=-1,
        durability="DURABILITY_MEMORY",
        compression="COMPRESSION_ZSTD",
        tiered=False,
    )


def test_the_message_has_no_field_that_the_config_lacks() -> None:
    """Whoever adds a field to the message adds it to both values."""
    of_message = {field.name for field in common_pb2.StreamConfig.DESCRIPTOR.fields}
    values = {
        "durability": "memory", "compression": "zstd", "tiered": False, "cursor_retention": "keep", "server_labels": ["a=b"],
    }  # fmt: skip
    everything: dict[str, Any] = {field.name: values.get(field.name, 1) for field in fields(StreamConfigChange)}
    assert set(config_message(StreamConfigChange(**everything))[1]) == of_message
    assert [field.name for field in fields(StreamConfig)] == [field.name for field in fields(StreamConfigChange)]


def test_a_change_names_only_what_it_gives() -> None:
    """A zero that is given is a change; None is not."""
    message, names = config_message(StreamConfigChange(retention_seconds=0, tiered=False))
    assert sorted(names) == ["retention_ms", "tiered"]
    assert (message.retention_ms, message.tiered) == (0, False)
    assert config_message(StreamConfigChange())[1] == []


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        ({"replicas": 0}, "replicas must be a whole number from 1 to"),
        ({"replicas": True}, "replicas"),
        ({"replicas": "3"}, "replicas"),
        ({"replicas": 1 << 32}, "replicas must be a whole number from 1 to 4294967295"),
        ({"acks": 1 << 32, "replicas": (1 << 32) - 1}, "acks"),
        ({"acks": 4}, r"acks must be 1 to replicas \(3\)"),
        ({"range_size_bytes_max": -1}, "range_size_bytes_max"),
        ({"retention_bytes": 1 << 62}, "retention_bytes"),
        ({"retention_bytes": 1.5}, "retention_bytes"),
        ({"retention_seconds": -1}, "retention_seconds"),
        ({"retention_seconds": timedelta(seconds=-1)}, "retention_seconds"),
        ({"retention_seconds": float("inf")}, "retention_seconds"),
        ({"hot_retention_seconds": float("nan")}, "hot_retention_seconds"),
        ({"range_age_seconds": "1h"}, "range_age_seconds"),
        ({"durability": "fast"}, "bad durability 'fast': choose one of flushed, memory"),
        ({"compression": []}, "bad compression"),
        ({"tiered": 1}, "tiered must be True or False"),
    ],
)
def test_what_cannot_be_right_is_refused_when_it_is_made(bad: dict[str, Any], said: str) -> None:
    """A typed error names the field, before anything is sent."""
    with pytest.raises(InvalidArgument, match=said):
        StreamConfig(**bad)


def test_a_config_is_a_value() -> None:
    """Equal when its fields are, and never changed."""
    assert StreamConfig(acks=2) == StreamConfig(acks=2) != StreamConfig()
    with pytest.raises(FrozenInstanceError):
        StreamConfig().tiered = False  # type: ignore[misc]
