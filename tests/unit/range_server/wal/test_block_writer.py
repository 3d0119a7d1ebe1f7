"""Writes by whole blocks leave what the same writes one after the other would leave, whatever their places and sizes."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest

from rangelog_server.wal import blocks as module
from rangelog_server.wal.blocks import ONE_STEP_BYTES_MAX, BlockWriter
from rangelog_server.wal.entry import ENTRY_HEADER_BYTES
from rangelog_server.wal.files import BLOCK_BYTES, Segment
from rangelog_server.wal.io import Io
from tests.fakes.disk import WRITE, ProcessGone
from tests.fakes.faces import LogDisk

SIZE = 64 * BLOCK_BYTES


def opened(io: LogDisk, size: int = SIZE) -> tuple[Segment, BlockWriter]:
    """A segment that holds something already, and a writer on it."""
    fd = io.create(Path("segment"), size)
    io.pwritev(fd, [b"\x11" * size], 0)
    return Segment(1, fd, size), BlockWriter(io, lambda sequence: Path("segment"))


@pytest.mark.parametrize("seed", range(30))
def test_consecutive_writes_of_any_size(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each begins where the last entry of the one before begins, as the log's END is written over by what follows."""
    monkeypatch.setattr(module, "_STAGE_BYTES", 4 * BLOCK_BYTES)  # so that many take several steps
    monkeypatch.setattr(module, "_JOINED_BYTES_MAX", random_size(Random(seed)))
    random, io = Random(seed), LogDisk()
    segment, writer = opened(io)
    expected = bytearray(b"\x11" * SIZE)
    position = random.choice((0, 1, 33, 4095, 4096))
    while True:
        buffers = [random.randbytes(random_size(random)) for _ in range(random.randrange(1, 12))]
        end = position + sum(map(len, buffers))
        if end > SIZE:
            break
        writer.write(segment, buffers, position)
        padded = end + -end % BLOCK_BYTES
        expected[position:end] = b"".join(buffers)
        expected[end:padded] = bytes(padded - end)
        assert io.pread(segment.fd, SIZE, 0) == bytes(expected)
        position = end - len(buffers[-1])
        if random.random() < 0.1:  # an earlier process wrote; this one knows nothing of it
            writer = BlockWriter(io, lambda sequence: Path("segment"))


def random_size(random: Random) -> int:
    """Small mostly, some of several blocks."""
    return random.choice((random.randrange(1, 100), random.randrange(1, 6000), random.randrange(1, 40_000)))


def test_the_first_block_of_a_large_write_goes_last() -> None:
    """Cut before any of its calls, the block that held the END still does."""
    for cut in range(20):
        io = LogDisk()
        segment, writer = opened(io)
        writer.write(segment, [b"a" * 100, b"END"], 0)
        io.cut_after = cut
        try:
            writer.write(segment, [b"b" * 50_000, b"END"], 100)
        except ProcessGone:
            if cut:
                continue  # the last call itself may be torn, as every call may
            assert io.content("segment")[:103] == b"a" * 100 + b"END"
        else:
            assert cut > 1
            return
    raise AssertionError("it never came to an end")


def test_the_end_that_a_large_write_goes_over_is_whole_until_its_last_step() -> None:
    """Also where it lies across the border of two blocks: half of it would be a torn tail, and put replicas in doubt."""
    for position in range(BLOCK_BYTES - ENTRY_HEADER_BYTES - 2, BLOCK_BYTES + 2):
        end = bytes(range(1, ENTRY_HEADER_BYTES + 1))
        for kills in range(1, 10):
            io = Killed()
            segment, writer = opened(io)
            writer.write(segment, [b"a" * position, end], 0)
            io.writes_left = kills
            try:
                writer.write(segment, [b"b" * 50_000], position)
            except KilledHere:
                assert io.pread(segment.fd, ENTRY_HEADER_BYTES, position) == end, (position, kills)
            else:
                assert kills > 2
                break
        else:
            raise AssertionError("it never came to an end")


class KilledHere(Exception):
    """The process is gone before a call."""


class Killed(LogDisk):
    """Killed between two writes."""

    writes_left = 1_000_000

    def pwritev(self, fd: int, buffers: Sequence[bytes | memoryview], position: int) -> int:
        """See Io."""
        self.writes_left -= 1
        if not self.writes_left:
            raise KilledHere
        return super().pwritev(fd, buffers, position)


class Counting(LogDisk):
    """Notes each write."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[tuple[int, int]] = []

    def pwritev(self, fd: int, buffers: Sequence[bytes | memoryview], position: int) -> int:
        """See Io."""
        self.writes.append((position, sum(map(len, buffers))))
        return super().pwritev(fd, buffers, position)


def test_small_writes_take_one_call_and_large_ones_end_with_their_first_block() -> None:
    """What latency costs, and the order that a kill must not break."""
    io = Counting()
    segment, writer = opened(io)
    io.writes.clear()
    writer.write(segment, [b"x" * 1_200], 4_000)
    assert io.writes == [(0, ONE_STEP_BYTES_MAX)]
    io.writes.clear()
    writer.write(segment, [b"x" * 20_000], 5_000)
    assert io.writes == [(8_192, 20_480), (4_096, 4_096)]
    io.writes.clear()
    writer.write(segment, [b"x" * 20_000], 8_190)
    assert io.writes == [(12_288, 16_384), (4_096, 8_192)], "the header of its first entry lies in two blocks"


class NoDirect(LogDisk):
    """A file system that knows no direct writes."""

    def open_direct(self, path: Path) -> int:
        """See Io."""
        return -1


@pytest.mark.parametrize("size", [100, 30_000])
def test_where_there_are_no_direct_writes_the_page_cache_takes_them(size: int) -> None:
    """The same bytes, nothing padded."""
    io = NoDirect()
    segment, writer = opened(io)
    writer.write(segment, [b"h" * 10, b"x" * size], 77)
    assert io.pread(segment.fd, size + 11, 77) == b"h" * 10 + b"x" * size + b"\x11"


def test_the_last_bytes_of_a_segment_that_is_no_multiple_of_a_block() -> None:
    """They go through the page cache, and what was there before stays."""
    io = LogDisk()
    segment, writer = opened(io, 3 * BLOCK_BYTES + 100)
    writer.write(segment, [b"y" * 12_000], 0)
    writer.write(segment, [b"z" * 380], 12_000)
    assert io.pread(segment.fd, 13_000, 0)[:12_380] == b"y" * 12_000 + b"z" * 380


def test_real_files(tmp_path: Path) -> None:
    """The production calls, on whatever file system this is: what was written is read back, in one process or the next."""
    io, path = Io(), tmp_path / "segment"
    segment = Segment(1, io.create(path, 16 * BLOCK_BYTES), 16 * BLOCK_BYTES)
    writer = BlockWriter(io, lambda sequence: path)
    random = Random(1)
    content, position = b"", 0
    for size in (10, 5_000, 1, 30_000, 4_096):
        piece = random.randbytes(size)
        writer.write(segment, [piece], position)
        content, position = content + piece, position + size
    io.fdatasync(segment.fd)
    assert path.read_bytes()[:position] == content
    writer.close()
    BlockWriter(io, lambda sequence: path).write(segment, [b"tail"], position)
    assert path.read_bytes()[: position + 4] == content + b"tail"
    io.close(segment.fd)


def test_a_short_write_is_gone_on_with_or_an_error() -> None:
    """A device that takes a block at a time gets the rest; one that ends within a block has failed."""

    class Short(LogDisk):
        step = BLOCK_BYTES

        def pwritev(self, fd: int, buffers: Sequence[bytes | memoryview], position: int) -> int:
            part = b"".join(buffers)[: self.step]
            super().pwritev(fd, [part], position)
            return len(part)

    io = Short()
    io.step = SIZE
    segment, writer = opened(io)
    io.step = BLOCK_BYTES
    writer.write(segment, [b"q" * 30_000], 5)
    assert io.pread(segment.fd, 30_000, 5) == b"q" * 30_000
    io.fail = lambda call: (_ for _ in ()).throw(OSError(errno.EIO, "gone")) if call == WRITE else None
    with pytest.raises(OSError, match="gone"):
        writer.write(segment, [b"r" * 10_000], 40_000)
