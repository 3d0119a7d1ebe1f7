"""Digests of records: the same for the same records however they come, another one for any change or swap."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest

from rangelog_jobs.block_digests import BLOCK_RECORDS, Block, BlockDigests, stream_digest
from rangelog_tier.arrow import SCHEMA

Row = dict[str, Any]
DIGEST_OF_TEN = "sha256:81041c582d5b67c4633eeb5a1d7551764c8f34b8fd453fe450e5c2dedae49ad6"


def rows_of(count: int, start: int = 0) -> list[Row]:
    """Records of all forms: without key, with an empty one, without value, with headers."""
    return [
        {
            "offset": start + number,
            "timestamp": 1_357_000_000_000_000 + number * 1_000,
            "key": None if number % 5 == 0 else b"k" * (number % 3),
            "value": b"%d" % number * (number % 4),
            "headers": [("h", b"%d" % number), ("empty", b"")] if number % 3 == 0 else [],
        }
        for number in range(count)
    ]


def table(rows: Sequence[Row]) -> pa.RecordBatch:
    """Records as the readers return them."""
    return pa.RecordBatch.from_pylist(list(rows), schema=SCHEMA)


def blocks_of(rows: Sequence[Row], cuts: Sequence[int] = ()) -> list[Block]:
    """The blocks of records that come in chunks."""
    digests = BlockDigests(rows[0]["offset"])
    whole = table(rows)
    edges = [0, *sorted(cuts), len(rows)]
    for low, high in pairwise(edges):
        digests.add(whole.slice(low, high - low))
    return digests.end()


def test_chunks_do_not_matter() -> None:
    """However the records are cut, and sliced out of larger tables."""
    rows = rows_of(3 * BLOCK_RECORDS + 100, start=BLOCK_RECORDS - 50)
    expected = blocks_of(rows)
    assert [(each.start, each.end) for each in expected] == [
        (BLOCK_RECORDS - 50, BLOCK_RECORDS),
        (BLOCK_RECORDS, 2 * BLOCK_RECORDS),
        (2 * BLOCK_RECORDS, 3 * BLOCK_RECORDS),
        (3 * BLOCK_RECORDS, 4 * BLOCK_RECORDS),
        (4 * BLOCK_RECORDS, 4 * BLOCK_RECORDS + 50),
    ]
    lots = random.Random(7)
    for _ in range(5):
        assert blocks_of(rows, [lots.randrange(len(rows)) for _ in range(20)]) == expected


def test_parts_that_begin_with_blocks_make_the_same_digest() -> None:
    """Which is what Spark's tasks do."""
    rows = rows_of(2 * BLOCK_RECORDS + 10)
    whole = blocks_of(rows)
    parts = blocks_of(rows[:BLOCK_RECORDS]) + blocks_of(rows[BLOCK_RECORDS:])
    assert stream_digest(0, len(rows), parts) == stream_digest(0, len(rows), whole)
    assert (stream_digest(0, len(rows), whole) or "").startswith("sha256:")
    assert stream_digest(0, len(rows), whole[1:]) is None
    assert stream_digest(0, len(rows), whole[:-1]) is None
    assert stream_digest(0, len(rows), [whole[0], whole[2]]) is None


@pytest.mark.parametrize(
    "change",
    [
        {"timestamp": 1},
        {"key": b""},  # was none
        {"key": b"k"},
        {"value": b"x"},
        {"headers": []},
        {"headers": [("empty", b""), ("h", b"0")]},
        {"headers": [("h", b"0"), ("empt", b"y")]},
        {"headers": [("h0", b""), ("empty", b"")]},
    ],
)
def test_any_change_shows(change: Row) -> None:
    """Of the first record, which has no key, an empty value and two headers."""
    rows = rows_of(10)
    changed = [rows[0] | change, *rows[1:]]
    assert blocks_of(changed) != blocks_of(rows)


def test_order_shows() -> None:
    """Two values that are swapped, or a byte that moves from one value to the next."""
    rows = rows_of(10)
    swapped = [dict(each) for each in rows]
    swapped[1]["value"], swapped[2]["value"] = rows[2]["value"], rows[1]["value"]
    assert blocks_of(swapped) != blocks_of(rows)
    moved = [dict(each) for each in rows]
    moved[1]["value"], moved[2]["value"] = rows[1]["value"] + rows[2]["value"][:1], rows[2]["value"][1:]
    assert blocks_of(moved) != blocks_of(rows)


def test_the_digest_is_this_one() -> None:
    """It is compared between versions and clusters, so it never changes by accident."""
    assert stream_digest(0, 10, blocks_of(rows_of(10))) == DIGEST_OF_TEN
