"""The checker of groups sees each kind of damage in a history that was sound."""

from __future__ import annotations

import pytest

from tests.support.group_checker import (
    CommitRefused,
    CommitSent,
    CommitTaken,
    Event,
    Given,
    Handed,
    Looking,
    Seen,
    TopicShard,
    check_group,
)

TOPIC = {
    0: TopicShard([], [("a", 0), ("b", 0), ("a", 1)]),
    1: TopicShard([0], [("a", 2)]),
    2: TopicShard([1], []),
}
SOUND: list[Event] = [
    Given("m", 0, 1, 0),
    Handed("m", 0, 1, 0),
    Handed("m", 0, 1, 1),
    CommitSent(1, "m", 0, 1, 1),
    CommitTaken(1),
    Given("n", 0, 2, 1),
    CommitSent(2, "m", 0, 1, 2),
    CommitRefused(2),
    Looking(8),
    Seen(8, 0, 1),
    Handed("n", 0, 2, 1),
    Handed("n", 0, 2, 2),
    CommitSent(3, "n", 0, 2, 3),
    CommitTaken(3),
    Given("m", 1, 3, 0),
    Handed("m", 1, 3, 0),
    CommitSent(4, "m", 1, 3, 1),
    Given("m", 2, 4, 0),
    Looking(9),
    Seen(9, 0, 3),
    Seen(9, 1, 1),
]


def test_a_sound_history_is_sound() -> None:
    """With a commit that was refused, and one without an answer."""
    assert check_group(SOUND, TOPIC) == []


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        (Given("n", 0, 2, 1), Given("n", 0, 1, 1), "in one generation"),
        (CommitRefused(2), CommitTaken(2), "stale member"),
        (Given("n", 0, 2, 1), Given("n", 0, 2, 0), "does not begin where"),
        (Given("n", 0, 2, 1), Given("n", 0, 2, 2), "does not begin where"),
        (Handed("n", 0, 2, 1), Handed("n", 0, 2, 2), "not the next one"),
        (Handed("n", 0, 2, 2), Handed("m", 0, 1, 2), "beyond what it got"),
        (Seen(9, 0, 3), Seen(9, 0, 2), "went back"),
        (Seen(8, 0, 1), Seen(8, 0, 3), "nobody has committed"),
        (CommitSent(3, "n", 0, 2, 3), CommitSent(3, "n", 0, 2, 2), "handed out before 0 was finished"),
        (Handed("m", 1, 3, 0), None, "never handed out"),
        (Seen(9, 1, 1), None, "committed up to 0 of 1"),
        (Handed("m", 1, 3, 0), Handed("x", 1, 3, 0), "was not given to it"),
        (Handed("n", 0, 2, 2), None, "nobody processed"),
    ],
)
def test_damage_is_seen(old: Event, new: Event | None, what: str) -> None:
    """One event that is another one, or missing."""
    spoiled = [new if each == old else each for each in SOUND]
    found = " / ".join(check_group([each for each in spoiled if each is not None], TOPIC))
    assert any(each in found for each in what.split("|")), found


def test_a_key_whose_records_are_committed_out_of_order_is_seen() -> None:
    """Where the shards have no order among themselves, their records of one key still have."""
    topic = {0: TopicShard([], [("a", 1)]), 1: TopicShard([], [("a", 0)])}
    history: list[Event] = []
    for shard in (0, 1):
        history += [
            Given("m", shard, 1, 0), Handed("m", shard, 1, 0), CommitSent(shard, "m", shard, 1, 1), CommitTaken(shard),
            Looking(shard), Seen(shard, shard, 1),
        ]  # fmt: skip
    assert check_group(history, topic) == ["record 0 of key a was committed after 1"]


def test_an_answer_that_comes_late_is_no_fault() -> None:
    """What was committed before a successor was handed out comes before its records, whenever its sender learns of it."""
    topic = {0: TopicShard([], [("a", 0)]), 1: TopicShard([0], [("a", 1)])}
    history: list[Event] = [
        Given("m", 0, 1, 0), Handed("m", 0, 1, 0), CommitSent(1, "m", 0, 1, 1),
        Given("n", 1, 2, 0), Handed("n", 1, 2, 0), CommitSent(2, "n", 1, 2, 1), CommitTaken(2), CommitTaken(1),
        Looking(3), Seen(3, 0, 1), Seen(3, 1, 1),
    ]  # fmt: skip
    assert check_group(history, topic) == []


def test_who_learns_late_that_it_had_a_shard_begins_behind_others() -> None:
    """Its records are read again; its commits are refused."""
    topic = {0: TopicShard([], [("a", 0)])}
    history: list[Event] = [
        Given("n", 0, 2, 0), Handed("n", 0, 2, 0), CommitSent(1, "n", 0, 2, 1), CommitTaken(1),
        Given("m", 0, 1, 0), Handed("m", 0, 1, 0), CommitSent(2, "m", 0, 1, 1), CommitRefused(2),
        Looking(3), Seen(3, 0, 1),
    ]  # fmt: skip
    assert check_group(history, topic) == []
    assert check_group([*history, CommitTaken(2)], topic) == [
        "CommitSent(number=2, member='m', shard=0, since=1, offset=1) was taken from a stale member"
    ]
