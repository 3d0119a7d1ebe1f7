"""The seal arithmetic, case by case, and the recovery core's order of steps."""

from __future__ import annotations

import itertools

import pytest

from rangelog.protocol.quorum import confirmed_offset, seal_end_offset, seal_quorum
from rangelog.protocol.recovery import Answer, Commit, Copy, Fence, Recovery
from rangelog_core.errors import InternalError
from rangelog_core.ids import Incarnation, ReplicaId

A, B, C = (ReplicaId(name, Incarnation(1)) for name in "abc")


@pytest.mark.parametrize(
    "answers,end",
    [([7, 5], 7), ([7, 5, 5], 5), ([7, 7, 5], 7), ([7], None), ([], None), ([3, 3], 3), ([9, 7, 5], 7)],
)
def test_seal_end_of_three(answers: list[int], end: int | None) -> None:
    """The larger of two, the middle of three, nothing from one."""
    for order in itertools.permutations(answers):
        assert seal_end_offset(order, 3, 2) == end


def test_nothing_acked_is_cut_whatever_the_silent_hold() -> None:
    """For every small state of the disks and every set of answers: acked stays below the end."""
    for replicas, acks in ((3, 2), (4, 2), (4, 3), (5, 3), (3, 3), (2, 2), (1, 1)):
        for held in itertools.product(range(3), repeat=replicas):
            acked = confirmed_offset(held, acks)
            for size in range(replicas + 1):
                for answered in itertools.combinations(held, size):
                    end = seal_end_offset(answered, replicas, acks)
                    assert (end is not None) == (size >= seal_quorum(replicas, acks))
                    assert end is None or end >= acked


def test_two_answers_copy_before_the_commit() -> None:
    """With the third silent, the longer tail is copied to the shorter answer, and only then committed."""
    core = Recovery((A, B, C), 2, 0)
    assert core.effects() == [Fence(A), Fence(B), Fence(C)]
    core.answered(0, A, Answer.TRUTHFUL, 7)
    core.answered(1, B, Answer.TRUTHFUL, 5)
    assert core.effects() == []  # a short grace for the third
    core.tick(200)
    copy = Copy(A, B, 5, 7)
    assert core.effects() == [copy]
    core.copied(210, copy)
    assert core.effects() == [Commit(7)]
    core.committed(7)
    assert core.end_offset == 7


def test_three_answers_need_no_copy() -> None:
    """The middle of three lies on two replicas already."""
    core = Recovery((A, B, C), 2, 0)
    core.effects()
    for replica, end in ((A, 7), (B, 5), (C, 5)):
        core.answered(0, replica, Answer.TRUTHFUL, end)
    assert core.effects() == [Commit(5)]


def test_doubt_and_silence_count_for_nothing() -> None:
    """An unknown or doubtful answer never decides; one truthful answer is not enough."""
    for answer in (Answer.UNKNOWN, Answer.DOUBTFUL):
        core = Recovery((A, B, C), 2, 0)
        core.effects()
        core.answered(0, A, Answer.TRUTHFUL, 7)
        core.answered(0, B, answer, 0)
        core.lost(0, C, "down")
        core.tick(10_000)
        assert core.effects() == []
        assert "1 of 3" in core.blocked_because()
        core.retry_lost()
        assert core.effects() == [Fence(B), Fence(C)]
        core.answered(11_000, C, Answer.TRUTHFUL, 5)
        core.tick(12_000)
        assert core.effects() == [Copy(A, C, 5, 7)]


def test_when_all_answered_doubt_ends_at_the_longest() -> None:
    """After a power cut of all three, each with a torn tail, the range ends at the longest one, with copies."""
    core = Recovery((A, B, C), 2, 0)
    core.effects()
    for replica, end, answer in ((A, 4, Answer.DOUBTFUL), (B, 7, Answer.DOUBTFUL), (C, 5, Answer.TRUTHFUL)):
        core.answered(0, replica, answer, end)
    copy = Copy(B, C, 5, 7)
    assert core.effects() == [copy]
    core.copied(10, copy)
    assert core.effects() == [Commit(7)]


def test_a_source_that_dies_is_forgotten() -> None:
    """Losing the longer answer before its tail was copied starts the decision over."""
    core = Recovery((A, B, C), 2, 0)
    core.effects()
    core.answered(0, A, Answer.TRUTHFUL, 7)
    core.answered(0, B, Answer.TRUTHFUL, 5)
    core.tick(200)
    core.effects()
    core.lost(210, A, "died")
    assert core.effects() == [Fence(B), Fence(C)]
    core.answered(220, B, Answer.TRUTHFUL, 5)
    core.answered(230, C, Answer.TRUTHFUL, 6)
    core.tick(400)
    assert core.effects() == [Copy(C, B, 5, 6)]


def test_a_doubtful_answer_counts_once_another_disk_is_gone_for_good() -> None:
    """One disk failed already, so the doubtful tail is a torn write: its answer decides, with the copies it lacks."""
    core = Recovery((A, B, C), 2, 0)
    core.effects()
    core.answered(0, A, Answer.TRUTHFUL, 7)
    core.answered(0, B, Answer.DOUBTFUL, 5)
    core.tick(5_000)
    assert core.effects() == []  # C may come back and tell of more
    core.lost(5_000, C, "another incarnation is registered", gone=True)
    copy = Copy(A, B, 5, 7)
    assert core.effects() == [copy]
    core.copied(5_100, copy)
    assert core.effects() == [Commit(7)]


def test_two_disks_gone_for_good_block_the_seal() -> None:
    """Beyond the promise's bound nothing is guessed, and who is gone is not asked again."""
    core = Recovery((A, B, C), 2, 0)
    core.effects()
    core.answered(0, A, Answer.TRUTHFUL, 7)
    core.lost(0, B, "gone", gone=True)
    core.lost(0, C, "gone", gone=True)
    core.tick(60_000)
    core.retry_lost()
    assert core.effects() == []
    assert "1 of 3" in core.blocked_because()


def test_a_range_of_two_replicas_survives_one_of_them() -> None:
    """Made while servers were few: the survivor has all that was acked, and nobody is left to copy to."""
    for dead in (lambda core: core.lost(0, B, "gone", gone=True), lambda core: core.answered(0, B, Answer.UNKNOWN, 0)):
        core = Recovery((A, B), 2, 0)
        core.effects()
        core.answered(0, A, Answer.TRUTHFUL, 7)
        core.tick(5_000)
        assert core.effects() == []
        dead(core)
        core.tick(10_000)
        assert core.effects() == [Commit(7)]


def test_no_commit_before_the_end_is_decided() -> None:
    """A seal whose end is not decided is never committed, also under `python -O`."""
    with pytest.raises(InternalError):
        Recovery((), 2, 0)._commit()
