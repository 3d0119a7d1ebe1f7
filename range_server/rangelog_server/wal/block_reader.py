"""Reads parts of segments by whole blocks, past the page cache where the file system supports it.

Why not through the page cache: bytes that were written past it are not in it, and the kernel would allocate a page for every
4 KiB, which costs more than the rest of the read. Batches that many readers need at the same time are at the tail, and in
the tail cache.
"""

from __future__ import annotations

import errno
import mmap
import threading
from collections.abc import Callable
from pathlib import Path

from rangelog_server.wal.files import BLOCK_BYTES, Segment
from rangelog_server.wal.io import Io, read_all

BUFFER_BYTES = 1024 * 1024 + 2 * BLOCK_BYTES
"""The buffer of each reading thread; a larger read takes memory of its own, for as long as it is referenced."""


class BlockReader:
    """Reads from segments. For any thread; the result of a read is valid until the same thread reads again."""

    def __init__(self, io: Io, path_of: Callable[[int], Path], *, direct: bool) -> None:
        self._io = io
        self._path_of = path_of
        self._direct = direct
        self._local = threading.local()

    def read(self, segment: Segment, position: int, length: int, *, from_disk: bool = False) -> memoryview:
        """Return bytes of a segment, fewer at its end; `from_disk`: past the page cache. Raises OSError."""
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
            return -1  # too many open files are no sign of damage

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
