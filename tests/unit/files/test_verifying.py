"""What a check of event files reports."""

from __future__ import annotations

import pytest

from rangelog_files.event_file import HEAD_BYTES, EventFileWriter
from rangelog_files.events import Event
from rangelog_files.index_file import ENTRY_BYTES
from rangelog_files.verifying import FileReport, verify_file, verify_stream
from tests.unit.files.memory_files import DAY_MS, MemoryFiles, Written, place


def whole() -> MemoryFiles:
    """One file with three blocks, closed, with an index."""
    files = MemoryFiles()
    file = Written(files, place(), index_bytes=0)
    for number in range(3):
        file.block(number, b"a", b"b")
    file.end(9)
    return files


def test_a_whole_file_has_no_problem() -> None:
    """Counts, and when it was closed."""
    files = whole()
    size = len(files.data[place().data_path])
    assert list(verify_stream(files, "who", 1)) == [FileReport(place(), 3, 6, size, 0, 9, "", "")]


def test_a_file_that_is_cut_has_unfinished_bytes_and_no_problem() -> None:
    """Every cut: blocks and the rest are the file."""
    files = whole()
    data = bytes(files.data[place().data_path])
    for cut in range(len(data)):
        files.data[place().data_path] = bytearray(data[:cut])
        report = verify_file(files, place())
        assert report.size_bytes + report.unfinished_bytes == cut or report.problem == "the file has no properties yet"
        assert report.closed_ms is None and report.index_problem == ""


def test_every_flipped_bit_is_a_problem() -> None:
    """Of the file; of the index it is one wherever an entry is not the block's any more."""
    files = whole()
    data, index = (bytes(files.data[path]) for path in (place().data_path, place().index_path))
    for position in range(len(data)):
        files.data[place().data_path] = bytearray(data)
        files.data[place().data_path][position] ^= 0x10
        assert verify_file(files, place()).problem
    files.data[place().data_path] = bytearray(data)
    for position in range(len(index) - ENTRY_BYTES * 3):
        files.data[place().index_path] = bytearray(index)
        files.data[place().index_path][position] ^= 1
        report = verify_file(files, place())
        assert not report.problem and report.index_problem
    files.data[place().index_path] = bytearray(index)
    files.data[place().index_path][-ENTRY_BYTES] ^= 1
    assert "begins at byte" in verify_file(files, place()).index_problem
    del files.data[place().index_path]
    assert verify_file(files, place()).index_problem == ""


@pytest.mark.parametrize("time_ms", [DAY_MS - 1, DAY_MS, 2 * DAY_MS - 1, 2 * DAY_MS])
def test_a_time_outside_of_the_partition_is_a_problem(time_ms: int) -> None:
    """A reader of a time range would not open the file."""
    files = MemoryFiles()
    Written(files, place(day=1)).block(time_ms, b"a")
    assert bool(verify_file(files, place(day=1)).problem) == (not DAY_MS <= time_ms < 2 * DAY_MS)


def test_events_that_do_not_fit_the_schema_are_a_problem() -> None:
    """Although every checksum fits."""
    files = MemoryFiles()
    lying = EventFileWriter("x")
    data = lying.begin() + lying.block(1, [Event(b"a")])
    files.append(place(), data + lying._headed(5, b"\4" + b"\1" * 9))
    report = verify_file(files, place())
    assert (
        report.problem and (report.blocks, report.events) == (1, 1) and len(data) < report.size_bytes + HEAD_BYTES + 10
    )
