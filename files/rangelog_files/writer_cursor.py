"""The files of one writer, read in their order: which bytes are read next, and when; a core without I/O.

What holds: a reader leaves a file behind its end mark. Where the file has none, it leaves it once the writer's next file exists
*and* the bytes that were there by then are read: so what a writer wrote before it died is not passed over, and the file of a
dead writer holds no reader up. Without an end mark, a file of a later partition is the next one only once the present partition
is over. A block that is written in part is waited for. An index or a position counts where a head proves it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from typing import NamedTuple

from rangelog_core.errors import Corruption, OffsetOutOfRange, RangelogError, UnsupportedVersion
from rangelog_files.block_filters import TimeFilter
from rangelog_files.event_file import FILE_ID, EndMark, EventBlock, EventFileDecoder
from rangelog_files.index_file import INDEX_BYTES_MAX, EventIndex, IndexEntry, parse_index
from rangelog_files.layout import EventPath

POLL_MS_MIN = 100
POLL_MS_MAX = 3_200
"""A writer that writes nothing is asked after 100 ms, 200 ms … and then each 3.2 s."""
READ_BYTES_MIN = 8 << 10
READ_BYTES_MAX = 1 << 20
"""Reads grow while they follow each other, and are small again behind what was passed over."""


class FileRead(NamedTuple):
    """Wanted: up to `length` bytes of a file from `offset` on; no bytes at its end, None where there is no such file."""

    path: str
    offset: int
    length: int


Steps = Generator[FileRead | None, bytes | None, bool]
"""Asks for reads and gets their results; after a None it goes on when it is asked again."""


class WriterCursor:
    """Reads the files of one writer."""

    def __init__(self, path: EventPath, offset: int, times: TimeFilter, *, follow: bool) -> None:
        """Begin.

        Args:
            path: The first file.
            offset: Of the first event in it, or 0: from its beginning.
            times: Which blocks are wanted.
            follow: Whether the files are written to meanwhile, and go on for ever.
        """
        self.path = path
        """The present file."""
        self.offset = offset
        """In the present file: of the first event that was not taken."""
        self.block: EventBlock | None = None
        """The next block, once it is there."""
        self.wake_ms = 0
        """Not to be asked for a read before this time, in ms since 1970."""
        self.finished = False
        """There are no more files, and none are waited for."""
        self._times, self._follow = times, follow
        self._later: list[EventPath] = []
        self._missed, self._now_ms = 0, 0
        self._decoder, self._read_bytes = EventFileDecoder(), READ_BYTES_MIN
        self._asked: FileRead | None = None
        self._error: RangelogError | None = None
        self._steps = self._read_files()

    def seen(self, paths: Iterable[EventPath]) -> None:
        """Take note of files of this writer that exist."""
        self._later = sorted({*self._later, *(path for path in paths if path > self.path)})

    def wants(self, now_ms: int) -> FileRead | None:
        """Return the read that is needed; None: there is a block, or nothing to read before `wake_ms`. Raises as `got`."""
        self._now_ms = now_ms
        if self._error is not None:
            raise self._error
        while self.block is None and not self.finished and now_ms >= self.wake_ms and self._asked is None:
            self._go_on(None)
        return self._asked

    def got(self, data: bytes | None, now_ms: int) -> None:
        """Take the result of the read that was wanted.

        Raises Corruption, UnsupportedVersion: the file cannot be read on; `leave` goes on with the next one. OffsetOutOfRange.
        """
        self._now_ms = now_ms
        self._go_on(data)

    def take(self) -> EventBlock:
        """Return the block, and go on behind it."""
        block, self.block = self.block, None
        assert block is not None
        self.offset = block.end_offset
        return block

    def leave(self) -> tuple[EventPath, int]:
        """Go on with the file behind the present one, which cannot be read on; return this one, and where it was left."""
        self._error, self.block = None, None
        self._decoder.ended = EndMark(self.offset, 0)
        self._steps = self._read_files(leave=True)
        return self.path, self.offset

    def _go_on(self, data: bytes | None) -> None:
        try:
            self._asked = self._steps.send(data)
        except StopIteration:
            self._asked, self.finished = None, True
        except (Corruption, UnsupportedVersion, OffsetOutOfRange) as error:
            self._asked = None
            self._error = type(error)(f"{self.path.data_path}: {error.message}", offset=error.offset)
            raise self._error from error

    def _read_files(self, *, leave: bool = False) -> Steps:
        """Read one file after the other."""
        while True:
            if not leave:
                yield from self._read_file()
            leave = False
            while self._follow and not self._next_path():
                self._sleep()
                yield None
            if not self._later:
                return True
            self.path, self.offset = self._later.pop(0), 0
            self._decoder, self._read_bytes = EventFileDecoder(), READ_BYTES_MIN
            self._missed = 0

    def _next_path(self) -> EventPath | None:
        """Return the file behind the present one, if the present one may be left for it."""
        if not self._later:
            return None
        path = self._later[0]
        is_over = path.partition == self.path.partition or self._now_ms >= self.path.partition.end_s * 1_000
        return path if is_over or not self._follow or self._decoder.ended is not None else None

    def _sleep(self) -> None:
        """Be asked later, and later each time."""
        self.wake_ms = self._now_ms + min(POLL_MS_MIN << min(self._missed, 10), POLL_MS_MAX)
        self._missed += 1

    def _more(self) -> Steps:
        """Feed the next bytes of the file; False: there are no more of this file, so it is left."""
        while True:
            next_path = self._next_path()  # before the bytes are read: those of before this file existed are among them
            data = yield FileRead(self.path.data_path, self._decoder.wanted_offset, self._read_bytes)
            if data:
                self._missed = 0
                self._decoder.feed(data)
                self._read_bytes = min(2 * self._read_bytes, READ_BYTES_MAX)
                return True
            if next_path is not None or not self._follow:
                return False
            self._sleep()
            yield None

    def _read_file(self) -> Steps:
        """Hand out the blocks of the present file; the end: it is left."""
        decoder = self._decoder
        while decoder.read_properties() is None:
            if not (yield from self._more()):
                return False
        begin = self.offset
        yield from self._find_start(begin)
        while True:
            wanted_offset = decoder.wanted_offset
            block = decoder.next_block(self._accepts, begin)
            if decoder.wanted_offset != wanted_offset:
                self._read_bytes = READ_BYTES_MIN  # a block was passed over, and perhaps the next one is
            if block is not None and self._times.is_over(block.timestamp_ms):
                return True
            if block is not None:
                self.block = block
                yield None
            elif decoder.ended is not None:
                if decoder.ended.offset < begin:
                    raise OffsetOutOfRange(
                        f"the file ends at {decoder.ended.offset}, before the position {begin}", offset=begin
                    )
                return True
            elif not (yield from self._more()):
                return False

    def _accepts(self, timestamp_ms: int) -> bool:
        first_ms = self._times.first_ms(self._now_ms)
        return first_ms is None or timestamp_ms >= first_ms

    def _find_start(self, begin: int) -> Steps:
        """Begin at a position, or near the first time that is wanted: where a head proves that a block begins there."""
        decoder = self._decoder
        assert decoder.properties is not None
        first_ms = self._times.first_ms(self._now_ms)
        if begin > decoder.properties.size_bytes:
            # The byte before a position exists, or it is not a position of this file.
            data = yield FileRead(self.path.data_path, begin - 1, self._read_bytes)
            if data is None:
                return False
            if not data:
                raise OffsetOutOfRange(f"the file has no byte {begin}: it is a position of another file", offset=begin)
            decoder.jump(begin)
            decoder.feed(data[1:])
            if not self._is_at_head():
                yield from self._use_index(lambda index: index.at_offset(begin))
        elif first_ms is not None:
            while (head := decoder.peek()) is None:
                if not (yield from self._more()):
                    return False
            if 0 <= head.timestamp_ms < first_ms:
                yield from self._use_index(lambda index: index.before_time(first_ms))
        return True

    def _is_at_head(self, timestamp_ms: int | None = None) -> bool:
        """Return whether a block begins here, of this time if one is given; True at the end of what is written for any time."""
        try:
            head = self._decoder.peek()
        except Corruption:
            return False
        return timestamp_ms is None if head is None else timestamp_ms in (None, head.timestamp_ms)

    def _use_index(self, look_up: Callable[[EventIndex], IndexEntry | None]) -> Steps:
        """Begin at the block that the index proposes, or at the first one of the file."""
        decoder, properties = self._decoder, self._decoder.properties
        assert properties is not None
        data = yield FileRead(self.path.index_path, 0, INDEX_BYTES_MAX)
        entry = look_up(parse_index(data or b"", properties.values.get(FILE_ID, "")))
        self._read_bytes = READ_BYTES_MIN
        if entry is not None and entry.offset >= properties.size_bytes:
            decoder.jump(entry.offset)
            decoder.feed((yield FileRead(self.path.data_path, entry.offset, self._read_bytes)) or b"")
            if self._is_at_head(entry.timestamp_ms):
                return True
        decoder.jump(properties.size_bytes)
        return False
