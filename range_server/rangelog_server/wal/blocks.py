"""Writes to a segment by whole blocks, past the page cache where the file system supports it.

What holds: bytes before the position of a write are rewritten unchanged; the bytes behind it up to the end of its block
become zeros. A write of more than `ONE_STEP_BYTES_MAX` writes the block with its first header last, over the END marker
there, or both blocks where the header spans two: a process that is killed during the write leaves a log that ends cleanly,
instead of a torn one that makes tails untrusted.

Why not through the page cache: the kernel would allocate pages for all bytes of the log, and filling them costs several times
the rest of an append; readers at the tail are served from the tail cache. On a file system without direct writes (some
in-memory ones) the page cache is used.
"""

from __future__ import annotations

import errno
import mmap
from collections.abc import Callable, Sequence
from pathlib import Path

from rangelog_server.wal.entry import ENTRY_HEADER_BYTES
from rangelog_server.wal.files import BLOCK_BYTES, Segment
from rangelog_server.wal.io import Io, read_all, write_all

ONE_STEP_BYTES_MAX = 2 * BLOCK_BYTES
_STAGE_BYTES = 1024 * 1024
_JOINED_BYTES_MAX = 64 * 1024
_BUFFERS_MAX = 1000  # the kernel takes 1024 in one call


class BlockWriter:
    """Writes consecutive parts of one segment. For one thread."""

    def __init__(self, io: Io, path_of: Callable[[int], Path], *, direct: bool = True) -> None:
        self._io = io
        self._path_of = path_of
        self._direct = direct
        self._stage = memoryview(mmap.mmap(-1, _STAGE_BYTES)) if direct else memoryview(b"")  # mmap: aligned
        self._sequence = -1
        self._fd = -1
        self._kept_start = 0
        self._kept = b""  # the last bytes written, from a block's start on

    def close(self) -> None:
        """Close the file; idempotent."""
        if self._fd >= 0:
            self._io.close(self._fd)
        self._fd, self._sequence, self._kept = -1, -1, b""

    def write(self, segment: Segment, buffers: Sequence[bytes], position: int) -> None:
        """Write `buffers` at `position`; not yet flushed. Raises OSError."""
        if segment.sequence != self._sequence:
            self._turn_to(segment)
        start = position - position % BLOCK_BYTES
        before = self._before(segment, start, position)
        size = len(before) + sum(map(len, buffers))
        padding = -size % BLOCK_BYTES
        if self._fd < 0 or start + size + padding > segment.size_bytes:
            self._write_buffered(segment, buffers, position)
            return
        pieces = [before, *buffers, bytes(padding)]
        if size <= _JOINED_BYTES_MAX or size < len(pieces) * BLOCK_BYTES:
            pieces = [b"".join(pieces)]  # many small buffers: cheaper than one by one
        last_bytes = BLOCK_BYTES if position - start + ENTRY_HEADER_BYTES <= BLOCK_BYTES else 2 * BLOCK_BYTES
        self._put(pieces, size + padding, start, last_bytes)

    def _turn_to(self, segment: Segment) -> None:
        self.close()
        self._sequence = segment.sequence
        if self._direct:
            self._fd = self._io.open_direct(self._path_of(segment.sequence))

    def _before(self, segment: Segment, start: int, position: int) -> bytes:
        """Return the bytes in [start, position)."""
        skip = start - self._kept_start
        if self._kept and skip >= 0 and position - self._kept_start <= len(self._kept):
            return self._kept[skip : position - self._kept_start]
        return read_all(self._io, segment.fd, position - start, start) if self._fd >= 0 else b""

    def _put(self, pieces: Sequence[bytes], size: int, start: int, last_bytes: int) -> None:
        """Write `size` bytes, whole blocks, at a block, through the stage; the first `last_bytes` last, unless all fit."""
        stage, filled, done = self._stage, 0, 0
        first = b""
        for piece in pieces:
            view, taken = memoryview(piece), 0
            while taken < len(view):
                step = min(len(view) - taken, _STAGE_BYTES - filled)
                stage[filled : filled + step] = view[taken : taken + step]
                filled, taken = filled + step, taken + step
                if filled == _STAGE_BYTES or done + filled == size:
                    if not done and size > ONE_STEP_BYTES_MAX:
                        first = bytes(stage[:last_bytes])
                        self._put_stage(last_bytes, filled, start)
                    else:
                        self._put_stage(0, filled, start + done)
                    done += filled
                    if done == size:
                        self._keep(stage[:filled], start + size)
                    filled = 0
        if first:
            stage[:last_bytes] = first
            self._put_stage(0, last_bytes, start)

    def _keep(self, stage: memoryview, end: int) -> None:
        """Keep the last two blocks, as far as they are in memory: the next write starts in one of them."""
        kept = bytes(stage[-2 * BLOCK_BYTES :])
        self._kept_start, self._kept = end - len(kept), kept

    def _put_stage(self, begin: int, end: int, position: int) -> None:
        """Write [begin, end) of the stage, whose byte 0 belongs at `position`."""
        while begin < end:
            step = self._io.pwritev(self._fd, [self._stage[begin:end]], position + begin)
            if step <= 0 or step % BLOCK_BYTES:
                raise OSError(errno.EIO, "a direct write ended within a block")
            begin += step

    def _write_buffered(self, segment: Segment, buffers: Sequence[bytes], position: int) -> None:
        self._kept = b""
        if sum(map(len, buffers)) <= ONE_STEP_BYTES_MAX:
            write_all(self._io, segment.fd, buffers, position)
            return
        at = position + len(buffers[0])
        for start in range(1, len(buffers), _BUFFERS_MAX):
            at = write_all(self._io, segment.fd, buffers[start : start + _BUFFERS_MAX], at)
        write_all(self._io, segment.fd, buffers[:1], position)
