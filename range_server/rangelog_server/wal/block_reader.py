"""Reads stretches of segments by whole blocks, past the page cache where the file system can.

Why not through the page cache: what was written past it is not in there, and the kernel would take a fresh page for every
4 KiB that is read, which costs more than everything else about reading it. What many readers want at the same time is at
the tail, and there in memory already.
"""

from __future__ import annotations

import errno
import mmap
import threading
from collections.abc import Callable
from pathlib import Path

from rangelog_server.wal.blocks import BLOCK_BYTES
from rangelog_server.wal.files import Segment
from rangelog_server.wal.io import Io, read_all

BUFFER_BYTES = 1024 * 1024 + 2 * BLOCK_BYTES
"""Kept for each thread that reads; a larger stretch takes memory of its own, for as long as it is looked at."""


class BlockReader:
    """For any thread; what one of them was given is good until it reads again."""

    def __init__(self, io: Io, path_of: Callable[[int], Path], *, direct: bool) -> None:
        self._io = io
        self._path_of = path_of
        self._direct = direct
        self._local = threading.local()

    def read(self, segment: Segment, position: int, length: int, *, from_disk: bool = False) -> memoryview:
        """Return bytes of a segment, fewer at its end; `from_disk`: not those that are cached. Raises OSError."""
        fd = self._open(segment) if self._direct else -1
        if fd < 0:
            return self._read_buffered(segment, position, length, from_disk=from_disk)
        try:
            skip = position % BLOCK_BYTES
            buffer = self._buffer(skip + length)
            done = self._fill(fd, buffer, position - skip)
            return buffer[skip : min(done, skip + length)]
        finally:
            self._io.close(fd)

    def _open(self, segment: Segment) -> int:
        try:
            return self._io.open_direct(self._path_of(segment.sequence))
        except OSError as error:
            if error.errno not in (errno.EMFILE, errno.ENFILE):
                raise
            return -1  # that too many files are open is no reason to distrust this one

    def _fill(self, fd: int, buffer: memoryview, start: int) -> int:
        done = 0
        while done < len(buffer):
            step = self._io.pread_into(fd, buffer[done:], start + done)
            done += step
            if step <= 0 or step % BLOCK_BYTES:  # the end of the file
                break
        return done

    def _buffer(self, length: int) -> memoryview:
        """Return aligned memory of whole blocks."""
        size = length + -length % BLOCK_BYTES
        if size > BUFFER_BYTES:
            return memoryview(mmap.mmap(-1, size))
        kept: memoryview | None = getattr(self._local, "buffer", None)
        if kept is None:
            kept = self._local.buffer = memoryview(mmap.mmap(-1, BUFFER_BYTES))
        return kept[:size]

    def _read_buffered(self, segment: Segment, position: int, length: int, *, from_disk: bool) -> memoryview:
        if from_disk:
            start = position - position % BLOCK_BYTES
            self._io.drop_cache(segment.fd, start, position - start + length + BLOCK_BYTES)
        return memoryview(read_all(self._io, segment.fd, length, position))
