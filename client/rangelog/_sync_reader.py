"""The blocking readers of a stream, for `rangelog.sync`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Self

from rangelog._loop_thread import LoopThread
from rangelog._read import cursor_reader, reader
from rangelog._read.cursors import Cursor
from rangelog_core.errors import InvalidArgument
from rangelog_core.record import Record


class Reader(Iterator[Record]):
    """An iterator of the records of a stream in offset order, on which one may also poll. Make it with `client.reader(...)`.

    One that is left goes on where it was when it is iterated again. Use it in one way, `chunks` or iterating or `poll`, and
    from one thread at a time. The errors are those of `rangelog.Reader`.

    Example:
        ```python
        for record in client.reader("flights", start="earliest"):
            print(record.offset, record.value)
        with client.reader("flights", follow=True) as reader:
            while not reader.ended:
                handle(reader.poll(timeout_s=0.5))
        ```
    """

    def __init__(self, loop: LoopThread, of: reader.Reader) -> None:
        self._loop = loop
        self._reader = of
        self._way: str | None = None
        self._begun: Iterator[Record] | None = None
        self._handed_out: int | None = None  # one past the last record that iterating gave
        self._closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[Record]:
        self._use("iterated")
        if self._begun is None:
            self._begun = iter(()) if self._closed else self._records()
        return self._begun

    def __next__(self) -> Record:
        return next(iter(self))

    def chunks(self) -> Iterator[Sequence[Record]]:
        """Yield chunks of consecutive records, not empty, at a much lower cost per record. As `rangelog.Reader.chunks`."""
        self._use("read in chunks")
        return self._loop.iterate(self._reader.chunks())

    def poll(self, *, count_max: int = 500, timeout_s: float = 1.0) -> Sequence[Record]:
        """Return the next records, in place of iterating: as soon as there are some. As `rangelog.Reader.poll`."""
        self._use("polled")
        if self._closed:
            return ()
        return self._loop.run(self._reader.poll(count_max=count_max, timeout_s=timeout_s), reads=True)

    @property
    def ended(self) -> bool:
        """Whether `poll` has returned all records that this reader will have, or the reader is closed."""
        return self._closed or self._reader.ended

    @property
    def next_offset(self) -> int:
        """The offset after the last record that was handed out (of `chunks`: the last chunk); at first, the start."""
        return self._reader.next_offset if self._handed_out is None else self._handed_out

    def lag(self) -> int:
        """Return how many acked records lie between `next_offset` and the stream's end. Raises StreamNotFound, Unavailable."""
        behind = self._loop.run(self._reader.lag(), reads=True)
        return behind if self._handed_out is None else behind + max(0, self._reader.next_offset - self._handed_out)

    def close(self) -> None:
        """End the reader: later polls return nothing, an iteration ends. Idempotent, also after the client was closed."""
        if self._closed or self._loop.forked:
            return
        self._closed = True
        begun = self._begun
        close = getattr(begun, "close", None)
        if close is not None:
            close()
        if self._way == "polled" and not self._loop.stopped:
            self._loop.run(self._reader.close(), reads=True)

    # ---- inside

    def _use(self, way: str) -> None:
        if self._way is None:
            self._way = way
        elif self._way != way:
            raise InvalidArgument(f"this reader is being {self._way}: it cannot be {way} as well, make another one")

    def _records(self) -> Iterator[Record]:
        deserialize = self._reader.deserialize
        for chunk in self._loop.iterate(self._reader.chunks()):
            for record in chunk:
                self._handed_out = record.offset + 1
                yield record if deserialize is None else deserialize(record)


class CursorReader(Reader):
    """A Reader that begins at a cursor. Make it with `client.reader(stream, cursor=…)`.

    Example:
        ```python
        for record in (reader := client.reader("flights", cursor="billing", follow=True)):
            bill(record.value)
            reader.commit()
        ```
    """

    def __init__(self, loop: LoopThread, of: cursor_reader.CursorReader) -> None:
        super().__init__(loop, of)
        self._of = of

    def _records(self) -> Iterator[Record]:
        deserialize = self._of.deserialize
        for chunk in self._loop.iterate(self._of.unmarked_chunks()):
            take = self._of.handed_out.take
            for record in chunk:
                end_offset = record.offset + 1
                take(end_offset)
                self._handed_out = end_offset
                yield record if deserialize is None else deserialize(record)

    def commit(self, *, metadata: str = "") -> Cursor:
        """Move the cursor behind all records that were handed out. As `rangelog.CursorReader.commit`."""
        return self._loop.run(self._of.commit(metadata=metadata))
