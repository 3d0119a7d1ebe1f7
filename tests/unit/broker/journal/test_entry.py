"""Entries of a journal: what is encoded comes back, and what is not an entry is a typed error."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rangelog_broker.journal.entry import (
    Command,
    Entry,
    EntryKind,
    Level,
    Open,
    Own,
    Piece,
    Proof,
    decode_entry,
    encode_entry,
)
from rangelog_core.errors import Corruption, RangelogError, UnsupportedVersion

U64 = st.integers(0, (1 << 64) - 1)
U32 = st.integers(0, (1 << 32) - 1)


@st.composite
def commands(draw: st.DrawFn) -> Command:
    sequence = draw(U64)
    return Command(draw(U64), draw(U64), sequence, draw(st.integers(0, sequence)), draw(st.binary(max_size=64)))


ENTRIES = st.one_of(
    st.builds(Open, U64, U64),
    st.builds(Level, U32),
    commands(),
    st.builds(Proof),
    st.builds(Own, U64, st.binary(max_size=64)),
    st.builds(Piece, U64, U64, U32, st.booleans(), st.binary(max_size=64)),
)


@given(ENTRIES)
def test_an_entry_comes_back(entry: Entry) -> None:
    """Every field, of every kind."""
    assert decode_entry(encode_entry(entry)) == entry


@given(st.binary(max_size=80))
def test_other_bytes_are_a_typed_error(data: bytes) -> None:
    """Or an entry that encodes to the same bytes."""
    try:
        entry = decode_entry(data)
    except (Corruption, UnsupportedVersion):
        return
    assert encode_entry(entry) == data


@pytest.mark.parametrize(
    "entry", [Open(1), Open(1, 2), Command(1, 2, 3, 3, b""), Own(1, b""), Piece(1, 2, 3, True, b""), Proof(), Level(1)]
)
def test_an_entry_that_is_cut_short_is_corruption(entry: Entry) -> None:
    """At every byte."""
    data = encode_entry(entry)
    for length in range(len(data)):
        with pytest.raises(Corruption):
            decode_entry(data[:length])


@pytest.mark.parametrize(("version", "kind"), [(2, EntryKind.COMMAND), (0, EntryKind.OPEN), (1, 9), (255, 255)])
def test_a_later_version_or_kind_is_not_skipped(version: int, kind: int) -> None:
    """The state of who skipped it would differ from then on."""
    with pytest.raises(UnsupportedVersion, match="upgrade this broker"):
        decode_entry(bytes((version, kind)) + bytes(60))


def test_a_session_without_a_number_is_corruption() -> None:
    """It would have that of its entry: an encoding of its own has that."""
    data = encode_entry(Open(1, 2))
    with pytest.raises(Corruption, match="no number"):
        decode_entry(data[:-8] + bytes(8))


def test_a_command_settled_before_itself_is_corruption() -> None:
    """No proposer has the result of a command that it proposes."""
    with pytest.raises(RangelogError):
        decode_entry(encode_entry(Command(1, 2, 3, 4, b"")))
