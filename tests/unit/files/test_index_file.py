"""R7: what an index says, and what is left of one that is cut, flipped, or of another file."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rangelog_files.index_file import ENTRY_BYTES, EventIndex, IndexEntry, IndexWriter, parse_index

ENTRIES = st.lists(st.tuples(st.integers(0, 50), st.integers(1, 40))).map(
    lambda steps: tuple(
        IndexEntry(time_ms, sum(size for _, size in steps[: number + 1]))
        for number, time_ms in enumerate(sorted(time_ms for time_ms, _ in steps))
    )
)


def index_of(entries: tuple[IndexEntry, ...], file_id: str = "f") -> bytes:
    """The bytes of an index with all of these entries."""
    writer = IndexWriter(file_id, interval_bytes=0)
    return writer.begin() + b"".join(writer.block(*entry) for entry in entries)


@given(ENTRIES, st.integers(-1, 60), st.integers(-1, 1_000))
def test_r7_lookup_is_by_floor(entries: tuple[IndexEntry, ...], time_ms: int, offset: int) -> None:
    """The last entry of an earlier time; the last entry at or before an offset."""
    index = parse_index(index_of(entries), "f")
    assert index.entries == entries
    assert index.before_time(time_ms) == next((each for each in reversed(entries) if each.timestamp_ms < time_ms), None)
    assert index.at_offset(offset) == next((each for each in reversed(entries) if each.offset <= offset), None)


@given(ENTRIES, st.data())
def test_r7_a_cut_or_flipped_index_gives_some_entries_and_no_error(
    entries: tuple[IndexEntry, ...], data: st.DataObject
) -> None:
    """Those before the change are as they were; times never fall, and offsets rise."""
    whole = index_of(entries)
    cut = data.draw(st.integers(0, len(whole)))
    assert parse_index(whole[:cut], "f").entries == entries[: max(0, len(parse_index(whole[:cut], "f").entries))]
    changed = bytearray(whole)
    changed[data.draw(st.integers(0, len(whole) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    found = parse_index(bytes(changed), "f").entries
    assert list(found) == sorted(found) and len({each.offset for each in found}) == len(found)
    assert all(each.timestamp_ms >= 0 for each in found)


def test_r7_an_index_of_another_file_or_version_says_nothing() -> None:
    """So do an event file, no bytes, and half of the head."""
    data = index_of((IndexEntry(1, 2),), "other")
    assert parse_index(data, "f").entries == ()
    assert parse_index(b"E1" + data[2:], "other").entries == ()
    assert parse_index(b"", "f").entries == parse_index(data[:9], "other").entries == ()
    assert parse_index(data, "other") != EventIndex() and len(parse_index(data, "other").entries) == 1


def test_r7_there_is_an_entry_for_each_interval() -> None:
    """The first block has one, and then the first that begins an interval later."""
    writer = IndexWriter("f", interval_bytes=100)
    writer.begin()
    sizes = [len(writer.block(5, offset)) for offset in (40, 80, 139, 140, 200, 239, 500, 510)]
    assert sizes == [ENTRY_BYTES, 0, 0, ENTRY_BYTES, 0, 0, ENTRY_BYTES, 0]
