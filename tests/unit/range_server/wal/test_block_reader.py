"""Reading by whole blocks: the bytes asked for, wherever they begin and end, with direct reads and without."""

from __future__ import annotations

import errno
import threading
from pathlib import Path
from random import Random

import pytest

from rangelog_server.wal.block_reader import BUFFER_BYTES, BlockReader
from rangelog_server.wal.files import Segment
from rangelog_server.wal.io import Io
from tests.fakes.disk import READ
from tests.fakes.faces import LogDisk

SIZE = 3 * BUFFER_BYTES + 100


class Watched(Io):
    """The real disk; counts what is read how. `refuses`: a file system without direct access."""

    def __init__(self, *, refuses: bool = False) -> None:
        self.refuses = refuses
        self.direct, self.buffered, self.opened = 0, 0, 0

    def open_direct(self, path: Path) -> int:
        """See Io."""
        self.opened += 1
        return -1 if self.refuses else super().open_direct(path)

    def close(self, fd: int) -> None:
        """See Io."""
        self.opened -= 1
        super().close(fd)

    def pread_into(self, fd: int, buffer: memoryview, position: int) -> int:
        """See Io."""
        self.direct += 1
        return super().pread_into(fd, buffer, position)

    def pread(self, fd: int, length: int, position: int) -> bytes:
        """See Io."""
        self.buffered += 1
        return super().pread(fd, length, position)


def segment_of(path: Path, io: Io) -> tuple[Segment, bytes]:
    """A file of that many random bytes, on the disk."""
    content = Random(1).randbytes(SIZE)
    path.write_bytes(content)
    fd = io.open(path)
    io.fdatasync(fd)
    return Segment(1, fd, SIZE), content


@pytest.mark.parametrize(("direct", "refuses"), [(True, False), (True, True), (False, False)])
def test_reads_what_was_asked_for(tmp_path: Path, *, direct: bool, refuses: bool) -> None:
    """At any place, of any length, also beyond what is kept for a thread and over the end of the file."""
    io = Watched(refuses=refuses)
    segment, content = segment_of(tmp_path / "segment", io)
    reader = BlockReader(io, lambda sequence: tmp_path / "segment", direct=direct)
    chance = Random(2)
    lengths = [1, 24, 4095, 4096, 4097, 100_000, BUFFER_BYTES, BUFFER_BYTES + 1, 2 * BUFFER_BYTES]
    places = [(chance.randrange(SIZE - length), length) for length in lengths for _ in range(4)]
    places += [(0, SIZE), (4096, 8192), (SIZE - 10, 10), (SIZE - 10, 5000), (SIZE - 5000, 9000)]
    for position, length in places:
        assert reader.read(segment, position, length) == content[position : position + length]
        assert reader.read(segment, position, length, from_disk=True) == content[position : position + length]
    assert bool(io.direct) == (direct and not refuses)
    assert bool(io.buffered) != bool(io.direct)
    assert io.opened == (2 * len(places) if refuses else 0)  # every descriptor that was got was closed
    io.close(segment.fd)


def test_threads_do_not_share_memory(tmp_path: Path) -> None:
    """What one thread looks at stays while another one reads."""
    io = Watched()
    segment, content = segment_of(tmp_path / "segment", io)
    reader = BlockReader(io, lambda sequence: tmp_path / "segment", direct=True)
    mine = reader.read(segment, 100, 1000)
    other = threading.Thread(target=reader.read, args=(segment, 50_000, 1000))
    other.start()
    other.join(10)
    assert mine == content[100:1100]
    again = reader.read(segment, 41_060, 1000)
    assert again == content[41_060:42_060] == mine  # the same memory
    io.close(segment.fd)


def test_too_many_open_files_do_not_make_a_segment_unreadable(tmp_path: Path) -> None:
    """Its own descriptor is still there; any other reason why it cannot be opened is an error."""
    io = Watched()
    segment, content = segment_of(tmp_path / "segment", io)
    reader = BlockReader(io, lambda sequence: tmp_path / "segment", direct=True)

    def refuse(path: Path) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    io.open_direct = refuse  # type: ignore[method-assign]
    assert reader.read(segment, 5_000, 100) == content[5_000:5_100]
    lost = BlockReader(Io(), lambda sequence: tmp_path / "renamed", direct=True)
    with pytest.raises(FileNotFoundError):
        lost.read(segment, 5_000, 100)
    io.close(segment.fd)


def test_a_bad_block_is_an_error() -> None:
    """And the descriptor is closed."""
    io = LogDisk()
    fd = io.create(Path("segment"), 8192)
    reader = BlockReader(io, lambda sequence: Path("segment"), direct=True)

    def fail(call: str) -> None:
        if call == READ:
            raise OSError(errno.EIO, "Input/output error")

    io.fail = fail
    with pytest.raises(OSError, match="Input/output"):
        reader.read(Segment(1, fd, 8192), 0, 100)
    assert list(io.descriptors) == [fd]
