"""Pieces of snapshots in a side log: the best whole one is found; what was cut off, mixed or damaged is none."""

from __future__ import annotations

import random

import pytest

from rangelog.errors import Corruption, UnsupportedVersion
from rangelog_broker.shards.side_entry import SideFold, encode_piece, encode_snapshot


def search(*values: bytes, first: int = 0) -> SideFold:
    """Feed records in order."""
    made = SideFold()
    for offset, value in enumerate(values, first):
        made.feed(offset, value)
    return made


def test_a_snapshot_is_found_with_its_first_record() -> None:
    """All pieces in order, and where the first one is."""
    records = encode_snapshot(3, 100, [b"ab", b"cd", b"e"])
    found = search(*records, first=7).best
    assert found is not None
    assert (found.offset, found.pieces, found.first_record) == (100, (b"ab", b"cd", b"e"), 7)


def test_an_empty_table_has_a_snapshot() -> None:
    """One empty piece: that nothing is known is known."""
    found = search(*encode_snapshot(1, 0, [])).best
    assert found is not None and found.pieces == (b"",)


def test_the_highest_offset_is_the_best_whoever_wrote_it() -> None:
    """A deposed owner's late snapshot is lower: it does not replace a better one. Of equal ones the later counts."""
    low, high, again = encode_snapshot(9, 50, [b"l"]), encode_snapshot(3, 80, [b"h"]), encode_snapshot(4, 80, [b"a"])
    found = search(*high, *low).best
    assert found is not None and (found.offset, found.first_record) == (80, 0)
    found = search(*high, *low, *again).best
    assert found is not None and (found.pieces, found.first_record) == ((b"a",), 2)


def test_a_snapshot_without_its_start_or_end_is_none() -> None:
    """The start was trimmed, or its owner died: the one before it stays the best."""
    whole, cut = encode_snapshot(1, 10, [b"w"]), encode_snapshot(2, 20, [b"x", b"y", b"z"])
    assert search(*cut[1:]).best is None
    assert search(*cut[:-1]).best is None
    found = search(*whole, *cut[:2]).best
    assert found is not None and found.offset == 10


def test_pieces_of_two_owners_are_not_mixed() -> None:
    """A deposed owner's pieces end where the next owner's begin; the rest of them counts for nothing."""
    old, new = encode_snapshot(1, 30, [b"a", b"b", b"c"]), encode_snapshot(2, 20, [b"x", b"y"])
    found = search(*old[:2], *new, old[2]).best
    assert found is not None and (found.offset, found.pieces) == (20, (b"x", b"y"))
    assert search(old[0], new[1], old[1], old[2]).best is None
    skipped = search(old[0], old[2], old[1], old[2])
    assert skipped.best is None, "a missing piece is not made up for by a later one"


def test_a_snapshot_after_a_cut_one_is_found() -> None:
    """What is incomplete does not stand in the way of what follows."""
    cut, whole = encode_snapshot(1, 30, [b"a", b"b"]), encode_snapshot(1, 40, [b"c", b"d"])
    found = search(cut[0], *whole).best
    assert found is not None and found.pieces == (b"c", b"d")


@pytest.mark.parametrize(
    ("value", "error"),
    [
        (b"", Corruption),
        (encode_piece(1, 1, 0, 1, b"")[:-1], Corruption),
        (encode_piece(1, 1, 1, 1, b""), Corruption),
        (encode_piece(1, 1, 0, 0, b""), Corruption),
        (encode_piece(1, 1, 0, 1_000_001, b""), Corruption),
        (b"\x03" + encode_piece(1, 1, 0, 1, b"")[1:], UnsupportedVersion),
    ],
)
def test_what_does_not_decode_is_a_typed_error(value: bytes, error: type[Exception]) -> None:
    """Cut short, impossible numbers, an unknown kind."""
    with pytest.raises(error):
        search(value)


def test_random_bytes_are_taken_or_refused() -> None:
    """Any value of a record: a typed error or nothing found, and at most two snapshots are held."""
    draw = random.Random(4)
    whole = encode_snapshot(2, 70, [b"abc", b"def"])
    refused = 0
    for _ in range(2_000):
        made = search(*whole)
        value = bytearray(draw.choice(whole))
        for _ in range(draw.randint(0, 3)):
            value[draw.randrange(len(value))] = draw.randrange(256)
        del value[draw.randint(1, len(value)) :]
        try:
            made.feed(2, bytes(value))
        except (Corruption, UnsupportedVersion):
            refused += 1
        assert made.best is not None
    assert 0 < refused < 2_000
