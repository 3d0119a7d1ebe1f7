"""What a check of event files reports."""

from __future__ import annotations

import pytest

from rangelog_files.event_file import EventFileWriter
from rangelog_files.events import Event
from rangelog_files.index_file import ENTRY_BYTES
from rangelog_files.layout import EventPath
from rangelog_files.verifying import CLOSED, DAMAGED, OPEN, TORN, VerifiedFile, verify_files
from tests.unit.files.memory_files import DAY_MS, MemoryFiles, Written, place


def whole() -> MemoryFiles:
    """One file with three blocks, closed, with an index."""
    files = MemoryFiles()
    file = Written(files, place(), index_bytes=0)
    for number in range(3):
        file.block(number, b"a", b"b")
    file.end(9)
    return files


def verified(files: MemoryFiles, path: EventPath) -> VerifiedFile:
    """The result for one file."""
    (found,) = verify_files(files, [path])
    return found


def test_a_whole_file_has_no_problem() -> None:
    """All is counted."""
    files = whole()
    size = len(files.data[place().data_path])
    assert verified(files, place()) == VerifiedFile(place().data_path, 6, 3, size, CLOSED)


def test_a_file_that_is_cut_is_not_damaged() -> None:
    """At every byte: it is open between two blocks, and torn within one; its index is not to blame."""
    files = whole()
    data = bytes(files.data[place().data_path])
    states = []
    for cut in range(len(data)):
        files.data[place().data_path] = bytearray(data[:cut])
        found = verified(files, place())
        states.append(found.state)
        assert found.size_bytes == cut and found.reason == found.index_reason == ""
    assert states.count(OPEN) == 5 and set(states) == {OPEN, TORN}


def test_every_flipped_bit_is_a_problem() -> None:
    """Of the file; of the index it is one wherever an entry is not the block's any more."""
    files = whole()
    data, index = (bytes(files.data[path]) for path in (place().data_path, place().index_path))
    for position in range(len(data)):
        files.data[place().data_path] = bytearray(data)
        files.data[place().data_path][position] ^= 0x10
        assert verified(files, place()).state == DAMAGED
    files.data[place().data_path] = bytearray(data)
    for position in range(len(index) - ENTRY_BYTES * 3):
        files.data[place().index_path] = bytearray(index)
        files.data[place().index_path][position] ^= 1
        report = verified(files, place())
        assert report.state == CLOSED and report.index_reason
    files.data[place().index_path] = bytearray(index)
    files.data[place().index_path][-ENTRY_BYTES] ^= 1
    assert "begins at byte" in verified(files, place()).index_reason
    del files.data[place().index_path]
    assert verified(files, place()).index_reason == ""


@pytest.mark.parametrize("time_ms", [DAY_MS - 1, DAY_MS, 2 * DAY_MS - 1, 2 * DAY_MS])
def test_a_time_outside_of_the_partition_is_a_problem(time_ms: int) -> None:
    """A reader of a time range would not open the file."""
    files = MemoryFiles()
    Written(files, place(day=1)).block(time_ms, b"a")
    assert (verified(files, place(day=1)).state == DAMAGED) == (not DAY_MS <= time_ms < 2 * DAY_MS)


def test_events_that_do_not_fit_the_schema_are_a_problem() -> None:
    """Although every checksum fits."""
    files = MemoryFiles()
    lying = EventFileWriter("x")
    data = lying.begin() + lying.block(1, [Event(b"a")])
    files.append(place(), data + lying._headed(5, b"\4" + b"\1" * 9))
    report = verified(files, place())
    assert report.reason and (report.blocks, report.events) == (1, 1) and len(data) < report.size_bytes
