"""The options of a mirror, as Spark's Kafka source gets them."""

from __future__ import annotations

from typing import Any

import pytest

from rangelog_core.errors import InvalidArgument
from rangelog_jobs.mirror import MirrorOptions


def options(**more: Any) -> MirrorOptions:
    """Those of a small mirror."""
    return MirrorOptions(**({"bootstrap": "k:9092", "topic": "t", "target": "s", "checkpoint": "/c"} | more))


def test_options_for_kafka() -> None:
    """Headers are asked for; others are passed on."""
    assert options().to_kafka() == {
        "kafka.bootstrap.servers": "k:9092",
        "subscribe": "t",
        "startingOffsets": "earliest",
        "includeHeaders": "true",
    }
    more = options(start="latest", records_per_batch=7, more={"kafka.security.protocol": "SSL"}).to_kafka()
    assert (more["startingOffsets"], more["maxOffsetsPerTrigger"], more["kafka.security.protocol"]) == (
        "latest",
        "7",
        "SSL",
    )


@pytest.mark.parametrize("address", ["k:1", "k1:1,k2:2", "127.0.0.1:9092", "[::1]:9092"])
def test_addresses_that_are_taken(address: str) -> None:
    """One or several."""
    assert options(bootstrap=address).to_kafka()["kafka.bootstrap.servers"] == address


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"bootstrap": ""}, "--kafka is host:port"),
        ({"bootstrap": "kafka"}, "--kafka is host:port"),
        ({"bootstrap": "k:1,"}, "--kafka is host:port"),
        ({"topic": ""}, "--topic is the name"),
        ({"topic": "a,b"}, "--topic is the name"),
        ({"start": "7"}, "--start is earliest or latest"),
        ({"more": {"subscribe": "u"}}, "'subscribe' is set by the job itself"),
    ],
)
def test_what_is_wrong_is_named(more: dict[str, Any], said: str) -> None:
    """Before Kafka is asked."""
    with pytest.raises(InvalidArgument, match=said):
        options(**more).to_kafka()
