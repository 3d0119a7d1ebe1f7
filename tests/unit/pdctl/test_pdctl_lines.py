"""Lines of standard input: cut right wherever the reads end, handed on at once, bounded, and never in the way of Ctrl-C."""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdctl.lines import LineSplitter, lines_of
from rangelog_core.errors import InvalidArgument, RecordTooLarge
from rangelog_core.limits import RECORD_SIZE_BYTES_MAX

_LINES = st.lists(st.text(alphabet="ab\r\x00é", max_size=5).map(str.encode), max_size=8)


@pytest.fixture
def pipe() -> Iterator[tuple[int, BinaryIO]]:
    """The end to write to, and the end to read from as a file object."""
    reading, writing = os.pipe()
    pipe = os.fstat(writing).st_ino
    with os.fdopen(reading, "rb") as source:
        yield writing, source
    with contextlib.suppress(OSError):  # the test closed it, and somebody else may have the number by now
        if os.fstat(writing).st_ino == pipe:
            os.close(writing)


async def _all(source: BinaryIO) -> list[bytes]:
    return [line async for lines in lines_of(source) for line in lines]


@given(_LINES, st.booleans(), st.lists(st.integers(1, 7), min_size=1), st.booleans())
def test_cuts_do_not_matter(lines: list[bytes], ended: bool, sizes: list[int], crlf: bool) -> None:
    """However the bytes come, the lines are those that were written; with `crlf` one carriage return is taken off each."""
    data = b"\n".join(lines) + (b"\n" if ended and lines else b"")
    splitter, found, position, turn = LineSplitter(crlf=crlf), [], 0, 0
    while position < len(data):
        size = sizes[turn % len(sizes)]
        found += splitter.feed(data[position : position + size])
        position, turn = position + size, turn + 1
    found += splitter.close()
    wanted = data.split(b"\n")
    if not wanted[-1]:
        wanted.pop()  # what follows the last line end is no line
    assert found == ([line.removesuffix(b"\r") for line in wanted] if crlf else wanted)
    assert splitter.count == len(found)


def test_empty_lines_are_records() -> None:
    """An empty line counts; the end of the input after a line end does not."""
    splitter = LineSplitter(crlf=True)
    assert splitter.feed(b"\n\r\n\n") == [b"", b"", b""]
    assert splitter.close() == []


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b""])
def test_line_at_the_limit(end: bytes) -> None:
    """A line of exactly the limit passes, whatever ends it."""
    splitter = LineSplitter(line_bytes_max=10, crlf=True)
    assert splitter.feed(b"x" * 10 + end) + splitter.close() == [b"x" * 10]


def test_a_carriage_return_counts_where_it_is_kept() -> None:
    """It is a byte of the record."""
    assert LineSplitter(line_bytes_max=10).feed(b"x" * 9 + b"\r\n") == [b"x" * 9 + b"\r"]
    with pytest.raises(RecordTooLarge, match="line 1 is over 10 bytes"):
        LineSplitter(line_bytes_max=10).feed(b"x" * 10 + b"\r\n")


def test_line_over_the_limit() -> None:
    """A longer line is refused before it is whole, and named by its number."""
    splitter = LineSplitter(line_bytes_max=10)
    assert splitter.feed(b"one\ntwo\n") == [b"one", b"two"]
    with pytest.raises(RecordTooLarge, match="line 3 is over 10 bytes"):
        for _ in range(4):
            splitter.feed(b"xxx")


async def test_endless_line_takes_bounded_memory(pipe: tuple[int, BinaryIO]) -> None:
    """Of a line that never ends, little more than the limit is read."""
    writing, source = pipe
    written = 0

    def write() -> None:
        nonlocal written
        try:
            while True:
                written += os.write(writing, b"x" * 65_536)
        except OSError:
            pass  # nobody reads any more

    thread = threading.Thread(target=write, daemon=True)
    thread.start()
    async with asyncio.timeout(20):
        with pytest.raises(RecordTooLarge):
            await _all(source)
    source.close()
    thread.join(10)
    assert written < 3 * RECORD_SIZE_BYTES_MAX


async def test_lines_come_as_they_are_written(pipe: tuple[int, BinaryIO]) -> None:
    """A line is there as soon as its end is, while the writer goes on and the event loop runs."""
    writing, source = pipe
    lines = aiter(lines_of(source))
    async with asyncio.timeout(20):
        os.write(writing, b"one\ntw")
        assert await anext(lines) == [b"one"]
        waiting = asyncio.ensure_future(anext(lines))
        for _ in range(3):
            await asyncio.sleep(0)
        assert not waiting.done()
        os.write(writing, b"o\nthree")
        assert await waiting == [b"two"]
        os.close(writing)
        assert await anext(lines) == [b"three"]
        with pytest.raises(StopAsyncIteration):
            await anext(lines)


async def test_who_stops_reading_takes_nothing_from_the_next_file_of_that_number(pipe: tuple[int, BinaryIO]) -> None:
    """The reading thread waits for more when nobody wants it any more; its file is closed, and another gets its number."""
    writing, source = pipe
    before = set(threading.enumerate())
    lines = lines_of(source)
    os.write(writing, b"one\n")
    async with asyncio.timeout(20):
        assert await anext(lines) == [b"one"]
    (reader,) = set(threading.enumerate()) - before
    await lines.aclose()  # type: ignore[attr-defined]
    number = source.fileno()
    source.close()
    other, other_writing = os.pipe()
    if other != number:  # another thread of the test process may have taken the number and given it back
        os.dup2(other, number)
    try:
        os.write(other_writing, b"mine")
        with contextlib.suppress(BrokenPipeError):  # the thread was not waiting yet, and has ended
            os.write(writing, b"two\n")
        await asyncio.to_thread(reader.join, 10)
        assert not reader.is_alive()
        os.set_blocking(number, False)
        assert os.read(number, 10) == b"mine"
    finally:
        for each in {other, other_writing, number}:
            os.close(each)


def test_input_that_never_comes_does_not_hold_up_the_end(pipe: tuple[int, BinaryIO]) -> None:
    """A command that is interrupted while it waits for a line ends at once, though the reading thread still waits."""

    async def interrupted() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await _all(pipe[1])

    runner = threading.Thread(target=lambda: asyncio.run(interrupted()))
    runner.start()
    runner.join(10)
    assert not runner.is_alive()


async def test_files_that_are_not_the_systems() -> None:
    """A file object without a descriptor is read as well."""
    assert await _all(io.BytesIO(b"a\nb")) == [b"a", b"b"]
    assert await _all(io.BytesIO(b"")) == []


async def test_input_that_cannot_be_read(tmp_path: Path) -> None:
    """A directory as input is an error of ours."""
    descriptor = os.open(tmp_path, os.O_RDONLY)

    class Directory(io.BytesIO):
        def fileno(self) -> int:
            return descriptor

        def read(self, size: int | None = -1) -> bytes:
            return os.read(descriptor, size or 0)

    try:
        with pytest.raises(InvalidArgument, match="cannot read"):
            await _all(Directory())
    finally:
        os.close(descriptor)
