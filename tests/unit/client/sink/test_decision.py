"""What a sink has decided: the records of its control stream, and how far a decision is carried out."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rangelog._sink.decision import BATCH, DECISION, DONE, PIECE, ControlLog, Decision, Joining, StagedSpan, split
from rangelog_core.errors import Corruption, InvalidArgument, PreconditionFailed, UnsupportedVersion

A, B, FOREIGN = 11, (1 << 64) - 1, 33


def span(attempt: int, batches: int) -> StagedSpan:
    """A span of so many batches."""
    return StagedSpan(attempt, "staging", 7, 100, 100 + batches, batches, 5 * batches)


DECIDED = Decision(4, 1_000, (span(A, 2), span(B, 3)))
MARKS = [(A, 0), (A, 1), (B, 0), (B, 1), (B, 2)]


def test_a_decision_survives_its_record() -> None:
    """All fields come back."""
    assert Decision.decode(DECIDED.encode()) == DECIDED
    assert DECIDED.batches == 5


@pytest.mark.parametrize("copied", range(6))
def test_what_is_there_is_counted(copied: int) -> None:
    """The decision's batches that the target has, between those of others."""
    there = [(FOREIGN, 0), *MARKS[:copied], (A, 7), (FOREIGN, 1)]
    assert DECIDED.copied(there) == copied
    assert DECIDED.copied([]) == 0


@pytest.mark.parametrize("first", range(5))
def test_the_front_may_be_trimmed(first: int) -> None:
    """The first mark that is left says how much was there; without one nothing does."""
    assert DECIDED.copied(MARKS[first:4], cut=True) == (4 if first < 4 else None)


@pytest.mark.parametrize(
    "marks", [MARKS[1:], [MARKS[0], MARKS[0]], [MARKS[0], MARKS[2]], [MARKS[0], MARKS[1], MARKS[0]]]
)
def test_a_hole_or_a_repeat_is_corruption(marks: list[tuple[int, int]]) -> None:
    """Nothing is appended behind what cannot be."""
    with pytest.raises(Corruption, match="missing or repeated"):
        DECIDED.copied(marks)


def broken(**changes: object) -> bytes:
    """A decision's record with other fields."""
    return json.dumps({**json.loads(DECIDED.encode()), **changes}).encode()


@pytest.mark.parametrize(
    "data",
    [
        b"", b"{", b"[]", b"null", b"\xff", b'{"version":1}', b"[" * 100_000,
        broken(number=-1), broken(number="4"), broken(number=True), broken(spans=None), broken(spans=[[1, 2]]),
        broken(spans=[[1, "s", 1, 1, 1, 1]]), broken(spans=[[1, 2, 1, 1, 1, 1, 1]]), broken(spans=[[1, "s", 1, 1, 1, 1, 1.5]]),
        broken(target_from=None),
    ],
)  # fmt: skip
def test_a_record_that_is_no_decision_is_corruption(data: bytes) -> None:
    """Whatever it is."""
    with pytest.raises(Corruption):
        Decision.decode(data)


@given(st.binary(max_size=200))
def test_garbage_is_a_typed_error(data: bytes) -> None:
    """Never another exception."""
    with pytest.raises((Corruption, UnsupportedVersion)):
        Decision.decode(data)


def test_a_later_version_is_refused() -> None:
    """It may mean something else."""
    with pytest.raises(UnsupportedVersion, match="version 2"):
        Decision.decode(broken(version=2))


def test_too_many_tasks_are_refused() -> None:
    """A decision is one record."""
    with pytest.raises(InvalidArgument, match="coalesce"):
        Decision(1, 0, tuple(span(A, 1) for _ in range(50_000))).encode()


def test_the_log_knows_the_last_decision() -> None:
    """And whether it is carried out."""
    log = ControlLog()
    assert not log.has(0)
    log.note(0, BATCH, b"")
    log.note(1, DECISION, DECIDED.encode())
    assert (log.last, log.last_offset, log.done) == (DECIDED, 1, False)
    assert [log.has(number) for number in (3, 4, 5)] == [True, True, False]
    log.note(2, DONE, b"")
    assert log.done
    log.note(3, PIECE, b"")
    log.note(4, DECISION, Decision(5, 0, ()).encode())
    assert (log.last_offset, log.done) == (4, False)


def test_only_the_last_batch_of_work_is_repeated_and_has_as_many_records() -> None:
    """What another one has would never be appended."""
    decided = Decision(7, 0, (span(1, 2), span(2, 3)))
    decided.check_repeat(7, decided.records)
    with pytest.raises(PreconditionFailed, match=rf"7 .* with {decided.records} rows, not {decided.records + 1}"):
        decided.check_repeat(7, decided.records + 1)
    with pytest.raises(PreconditionFailed, match=r"micro-batch 6 .* and 7 after it"):
        decided.check_repeat(6, decided.records)


def test_a_control_stream_holds_nothing_else() -> None:
    """Numbers rise, and a user's record in it is noticed."""
    log = ControlLog()
    log.note(0, DECISION, DECIDED.encode())
    with pytest.raises(Corruption, match="decided on 4 after 4"):
        log.note(1, DECISION, DECIDED.encode())
    with pytest.raises(Corruption, match="unknown kind"):
        log.note(1, None, b"mine")


@pytest.mark.parametrize("size", [1, 512 * 1024, 512 * 1024 + 1, 8 * 1024 * 1024])
def test_batches_are_cut_and_joined(size: int) -> None:
    """One batch after the other, each of any size."""
    joining = Joining()
    data = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
    for _ in range(2):
        *pieces, last = split(data)
        assert [joining.add(*piece) for piece in pieces] == [None] * len(pieces)
        assert joining.add(*last) == data
        assert all(len(value) <= 512 * 1024 for _, value in [*pieces, last])


def test_a_span_of_something_else_is_corruption() -> None:
    """A foreign record, or pieces without an end."""
    with pytest.raises(Corruption):
        Joining().add(None, b"")
    joining = Joining()
    with pytest.raises(Corruption):
        for _ in range(40):
            joining.add(PIECE, bytes(512 * 1024))
