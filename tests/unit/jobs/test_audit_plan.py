"""The plan of an audit: pieces by copies, and what the listing itself shows to be wrong."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from rangelog_jobs.audit import fold
from rangelog_jobs.audit_plan import AuditedObject, AuditPiece, StreamPlan, cut_pieces, pieces_of
from rangelog_jobs.block_digests import BLOCK_RECORDS
from rangelog_proto.v1 import common_pb2


def a_range(index: int, start: int, end: int | None, tiered: int = 0, *, dropped: bool = False) -> common_pb2.Range:
    """A range; open without an end."""
    state = common_pb2.RANGE_STATE_OPEN if end is None else common_pb2.RANGE_STATE_SEALED
    return common_pb2.Range(
        index=index, start_offset=start, end_offset=end or 0, state=state, tiered_end_offset=tiered, hot_dropped=dropped
    )


def an_object(start: int, end: int) -> AuditedObject:
    """An object, whose key says what it has."""
    return AuditedObject(f"{start}-{end}", start, end, 100 * (end - start), "sha256:")


def test_pieces_go_by_the_copies_that_there_are() -> None:
    """Dropped and tiered, both, partly tiered, open."""
    ranges = [a_range(0, 0, 10, 10, dropped=True), a_range(1, 10, 20, 20), a_range(2, 20, 30, 25), a_range(3, 30, None)]
    objects = [an_object(0, 10), an_object(10, 15), an_object(15, 20), an_object(20, 25)]
    pieces, findings = pieces_of(3, 40, ranges, objects)
    assert findings == []
    assert pieces == [
        AuditPiece(3, 10, "cold", "0-10"),
        AuditPiece(10, 15, "both", "10-15"),
        AuditPiece(15, 20, "both", "15-20"),
        AuditPiece(20, 25, "both", "20-25"),
        AuditPiece(25, 30, "hot"),
        AuditPiece(30, 40, "hot"),
    ]
    assert cut_pieces(pieces, 12, 18) == [AuditPiece(12, 15, "both", "10-15"), AuditPiece(15, 18, "both", "15-20")]


@pytest.mark.parametrize(
    ("ranges", "objects", "found"),
    [
        ([a_range(0, 0, 10), a_range(1, 12, None)], [], [("gap", 10, 12)]),
        ([a_range(0, 5, None)], [], [("gap", 0, 5)]),
        ([a_range(0, 0, 10)], [], [("gap", 10, 20)]),
        ([], [], [("gap", 0, 20)]),
        ([a_range(0, 0, 10), a_range(1, 8, None)], [], [("repeat", 8, 10)]),
        ([a_range(0, 0, 20, 20)], [an_object(0, 12)], [("no_object", 12, 20)]),
        ([a_range(0, 0, 20, 20)], [an_object(0, 8), an_object(10, 20)], [("no_object", 8, 10)]),
        ([a_range(0, 0, 20, 20)], [an_object(0, 12), an_object(10, 20)], [("overlap", 10, 12)]),
        ([a_range(0, 0, 20, 15, dropped=True)], [an_object(0, 15)], [("gap", 15, 20)]),
        ([a_range(0, 0, 0), a_range(1, 0, None)], [], []),  # a range that a writer left empty
    ],
)
def test_a_listing_that_does_not_hold_together(
    ranges: list[common_pb2.Range], objects: list[AuditedObject], found: list[tuple[str, int, int]]
) -> None:
    """Each hole and each overlap is found."""
    _, findings = pieces_of(0, 20, ranges, objects)
    assert [(each.kind, each.start, each.end) for each in findings] == found


def test_tasks_begin_and_end_with_blocks() -> None:
    """They cover the stream, and each object has one of its own."""
    end = 200 * BLOCK_RECORDS + 7
    plan = StreamPlan("s", 1, 5, end, [AuditPiece(5, end, "hot")], [an_object(5, 50)])
    work = plan.tasks()
    records = [each for each in work if each["kind"] == "records"]
    assert [each["kind"] for each in work if each not in records] == ["object"]
    assert (records[0]["start"], records[-1]["end"]) == (5, end)
    for one, other in pairwise(records):
        assert one["end"] == other["start"]
        assert one["end"] % BLOCK_RECORDS == 0
    assert len(records) > 1
    assert StreamPlan("s", 1, 3, 3).tasks() == []


def test_results_are_folded() -> None:
    """Findings in order, sums, and no digest where a part is missing."""
    plan = StreamPlan("s", 1, 0, 10)
    part: dict[str, Any] = {
        "kind": "records", "findings": [], "blocks": [(0, 10, "00" * 32)], "compared": 4, "read": 10, "size_bytes": 99,
        "gone": False,
    }  # fmt: skip
    told = {"kind": "gap", "start": 3, "end": 4, "text": "t", "key": ""}
    whole = fold(plan, [part, {"kind": "object", "findings": [], "size_bytes": 5}])
    assert (whole.read_count, whole.compared_count, whole.payload_bytes, whole.object_bytes) == (10, 4, 99, 5)
    assert whole.digest is not None and whole.findings == []
    broken = fold(plan, [part | {"blocks": [], "findings": [told], "gone": True}])
    assert (broken.digest, [each.kind for each in broken.findings]) == (None, ["gap"])
    assert "trimmed" in broken.note
