"""The checker of the chaos run's topic sees each kind of damage in notes that were sound."""

from __future__ import annotations

from typing import Any

import pytest

from tests.chaos.chaos_topic_check import Found, TopicVerdict, check
from tests.chaos.chaos_topic_notes import RecordName, name_of, value_of

A0, A1, B0 = RecordName("p-1", 0, 0), RecordName("p-1", 0, 1), RecordName("p-1", 1, 0)
PRODUCER: list[list[Any]] = [
    ["sent", *A0], ["sent", *B0], ["sent", *A1], ["acked", *A0, 0, 0, 5], ["acked", *A1, 1, 0, 7], ["done"],
]  # fmt: skip
MEMBERS: list[list[list[Any]]] = [
    [["gained", 0], ["got", 0, 0, 1, 3], ["got", 0, 1, 2, 3]],
    [["gained", 1], ["got", 1, 0, 1, 3], ["gained", 0], ["got", 0, 1, 2, 4]],
]
TOPIC = [Found(0, 0, A0), Found(0, 1, B0), Found(1, 0, A1)]


def judged(
    topic: list[Found] = TOPIC, producer: list[list[Any]] = PRODUCER, members: list[list[list[Any]]] = MEMBERS
) -> TopicVerdict:
    """The verdict on notes."""
    verdict = TopicVerdict()
    check(verdict, {"hot_first": topic}, [producer], members)
    return verdict


def test_sound_notes_are_sound() -> None:
    """With a record of unknown outcome that is there, and one that the group was handed twice."""
    verdict = judged()
    assert verdict.clean, verdict.problems
    assert (verdict.acked, verdict.unknown, verdict.final, verdict.handed, verdict.shards) == (2, 1, 3, 4, 2)
    assert verdict.acks_ns == {"key-0": [5, 7]}


@pytest.mark.parametrize(
    ("topic", "kind"),
    [
        (TOPIC[:2], "lost"),
        ([TOPIC[0], TOPIC[1], Found(1, 1, A1)], "lost"),
        ([*TOPIC, Found(1, 1, A0)], "duplicated"),
        ([TOPIC[2], TOPIC[0], TOPIC[1]], "misordered"),
        ([*TOPIC, Found(1, 1, None)], "damaged"),
        ([*TOPIC, Found(1, 1, RecordName("p-1", 0, 2))], "damaged"),
    ],
)
def test_damage_of_the_topic_is_seen(topic: list[Found], kind: str) -> None:
    """A record that is gone, elsewhere, there twice, in another order, or nobody's."""
    assert judged(topic).counts == {kind: 1}


def test_two_places_of_one_name_are_seen() -> None:
    """What a client by HTTP was told of one request."""
    assert judged(producer=[*PRODUCER, ["differs", *A0, [0, 0], [1, 1]]]).counts == {"duplicated": 1}


@pytest.mark.parametrize(
    ("members", "kind"),
    [
        (MEMBERS[:1], "lost"),
        ([*MEMBERS, [["gained", 0], ["got", 0, 0, 1, 5], ["got", 0, 2, 3, 5]]], "misordered"),
        ([*MEMBERS, [["gained", 0], ["got", 0, 0, 1, 5], ["got", 0, 0, 1, 5]]], "misordered"),
        ([*MEMBERS, [["got", 0, 0, 1, 5]]], "misordered"),
        ([*MEMBERS, [["gained", 0], ["got", 0, 1, 2, 4]]], "duplicated"),
    ],
)
def test_damage_of_the_group_is_seen(members: list[list[list[Any]]], kind: str) -> None:
    """A record that no member was handed; one out of order, or again under one holding; one of a shard that is not held;
    one that two instances were handed under one ownership."""
    assert judged(members=members).counts == {kind: 1}


def test_a_value_tells_its_record() -> None:
    """And a damaged one tells nothing."""
    assert name_of(value_of(A1)) == A1
    assert name_of(value_of(A1)[:-1] + b"!") is None
    assert name_of(b"anything") is None
