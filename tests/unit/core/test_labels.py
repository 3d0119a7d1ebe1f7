"""Labels of servers, and the policies that ask for them: what is refused before anything is sent."""

from __future__ import annotations

from typing import Any

import pytest

from rangelog_core.errors import InvalidArgument
from rangelog_core.labels import LABEL_LENGTH_MAX, LABELS_MAX, check_labels
from rangelog_core.stream_config import StreamConfig, StreamConfigChange, config_message


@pytest.mark.parametrize("labels", [[], ["disk=ssd"], ["a=1", "b=1"], ["topology.io/zone-type=a_b/c.d"]])
def test_labels_that_are_valid(labels: list[str]) -> None:
    """Key and value, with the characters that people use in such names."""
    check_labels(labels)


@pytest.mark.parametrize(
    "labels",
    [
        ["disk"],
        ["=ssd"],
        ["disk="],
        ["disk=s d"],
        ["dïsk=ssd"],
        ["disk=ssd\n"],
        ["a=1", "a=2"],
        ["a=1", "a=1"],
        ["k=" + "v" * LABEL_LENGTH_MAX],
        [f"k{number}=v" for number in range(LABELS_MAX + 1)],
        [7],
    ],
)
def test_labels_that_are_not(labels: list[Any]) -> None:
    """What is no label, a key with two values, and too many or too long ones."""
    with pytest.raises(InvalidArgument):
        check_labels(labels)


def test_a_policy_is_a_part_of_the_configuration() -> None:
    """Unset it is the default; in a change None leaves it, and an empty sequence takes the labels away."""
    message, _ = config_message(StreamConfig(zones_min=2, server_labels=("disk=ssd",)))
    assert (message.zones_min, list(message.server_labels)) == (2, ["disk=ssd"])
    assert config_message(StreamConfigChange(zones_min=0))[1] == ["zones_min"]
    message, fields = config_message(StreamConfigChange(server_labels=[]))
    assert (list(message.server_labels), fields) == ([], ["server_labels"])


@pytest.mark.parametrize(
    "wrong", [{"zones_min": 4}, {"zones_min": -1}, {"server_labels": "disk=ssd"}, {"server_labels": ["ssd"]}]
)
def test_a_policy_that_no_range_could_keep(wrong: dict[str, Any]) -> None:
    """More zones than replicas, and what is no list of labels."""
    with pytest.raises(InvalidArgument):
        StreamConfig(**wrong)
