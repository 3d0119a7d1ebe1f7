"""Lines of a file, a pipe or a terminal, as they arrive, without blocking the event loop.

What holds: memory is bounded, whatever the input (a line over the record limit is an error before it is complete); a line is
yielded as soon as its end was read; an interrupted command does not wait for input that may never arrive.
"""

from __future__ import annotations

import asyncio
import io
import os
import threading
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, closing
from typing import BinaryIO, Protocol

from rangelog_core.errors import InvalidArgument, RecordTooLarge
from rangelog_core.limits import RECORD_SIZE_BYTES_MAX

_READ_BYTES = 256 * 1024


class LineSplitter:
    """Splits bytes into lines, as they arrive. The line end is not part of a line: LF, with `crlf` CRLF as well."""

    def __init__(self, line_bytes_max: int = RECORD_SIZE_BYTES_MAX, *, crlf: bool = False) -> None:
        self._line_bytes_max = line_bytes_max
        self._before_end = b"\r" if crlf else b""
        self._rest = bytearray()
        self.count = 0

    def feed(self, data: bytes) -> list[bytes]:
        """Return the lines that end in `data`. Raises RecordTooLarge."""
        *ended, rest = data.split(b"\n")
        lines: list[bytes] = []
        for each in ended:
            self._add(each)
            lines.append(self._take())
        self._add(rest)
        return lines

    def close(self) -> list[bytes]:
        """Return the last line if no line end follows it."""
        return [self._take()] if self._rest else []

    def _add(self, part: bytes) -> None:
        self._rest += part
        if len(self._rest) > self._line_bytes_max + len(self._before_end):
            raise RecordTooLarge(
                f"line {self.count + 1} is over {self._line_bytes_max} bytes: "
                "store it as an object and append a reference"
            )

    def _take(self) -> bytes:
        line = bytes(self._rest.removesuffix(self._before_end))
        self._rest.clear()
        self.count += 1
        return line


class Splitter(Protocol):
    """Splits bytes into parts, as they arrive."""

    def feed(self, data: bytes) -> list[bytes]:
        """Return what ends in `data`. Raises RecordTooLarge."""

    def close(self) -> list[bytes]:
        """Return what the end of the input ends. Raises InvalidArgument."""


def lines_of(source: BinaryIO) -> AsyncIterator[list[bytes]]:
    """Yield lists of lines of `source` that arrived together. Raises RecordTooLarge, InvalidArgument."""
    return parts_of(source, LineSplitter())


async def parts_of(source: BinaryIO, splitter: Splitter) -> AsyncIterator[list[bytes]]:
    """Yield lists of what the splitter makes of `source`, as it arrives. Raises RecordTooLarge, InvalidArgument."""
    async with aclosing(_pieces(_own(source))) as pieces:
        async for data in pieces:
            parts = splitter.feed(data)
            if parts:
                yield parts
    rest = splitter.close()
    if rest:
        yield rest


async def once(lines: list[bytes]) -> AsyncIterator[list[bytes]]:
    """Yield lines that are there already, in place of `lines_of`."""
    yield lines


class _Input(Protocol):
    def read(self, size: int, /) -> bytes | None: ...

    def close(self) -> None: ...


class _Borrowed:
    """A file object without a descriptor: it is read directly, and left open."""

    def __init__(self, source: BinaryIO) -> None:
        self.read = source.read

    def close(self) -> None:
        """Do nothing: the file belongs to the caller."""


def _own(source: BinaryIO) -> _Input:
    """The same file under a number of its own: the caller may close the other while a thread still reads.

    Unbuffered: Python's own buffer has a lock that a waiting thread would hold at exit.
    """
    try:
        return io.FileIO(os.dup(source.fileno()))
    except (OSError, ValueError):
        return _Borrowed(source)


async def _pieces(source: _Input) -> AsyncGenerator[bytes, None]:
    """A daemon thread reads ahead by one piece and closes the file; a pool's thread would be waited for at exit."""
    loop = asyncio.get_running_loop()
    pieces: asyncio.Queue[bytes | Exception] = asyncio.Queue()
    room = threading.Semaphore(2)
    unwanted = threading.Event()

    def run() -> None:
        with closing(source):
            read()

    def read() -> None:
        piece: bytes | Exception = b"first"
        while piece and not isinstance(piece, Exception):
            room.acquire()
            if unwanted.is_set():
                return
            try:
                piece = source.read(_READ_BYTES) or b""
            except (OSError, ValueError) as error:
                piece = error
            try:
                loop.call_soon_threadsafe(pieces.put_nowait, piece)
            except RuntimeError:
                return  # the loop is closed, and with it the reader of the lines

    threading.Thread(target=run, name="lines", daemon=True).start()
    try:
        while True:
            piece = await pieces.get()
            room.release()
            if isinstance(piece, Exception):
                raise InvalidArgument(f"cannot read the records: {piece}") from piece
            if not piece:
                return
            yield piece
    finally:
        unwanted.set()
        room.release()
