"""The blocking forms of `client.cursors(…)` and of a reader that begins at a cursor, for `rangelog.sync`."""

from __future__ import annotations

from collections.abc import Iterator

from rangelog._loop_thread import LoopThread
from rangelog._read import cursor_reader, cursors
from rangelog._read.cursors import Cursor
from rangelog._sync_reader import Reader
from rangelog_core.record import Record


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


class StreamCursors:
    """The cursors of one stream. Its methods have the arguments, results and errors of those of `rangelog.StreamCursors`."""

    def __init__(self, loop: LoopThread, of: cursors.StreamCursors) -> None:
        self._loop = loop
        self._cursors = of

    def get(self, name: str) -> Cursor | None:
        """Return a cursor, or None where there is none."""
        return self._loop.run(self._cursors.get(name), reads=True)

    def set(self, name: str, offset: int, *, metadata: str = "", expected_version: int | None = None) -> Cursor:
        """Set a cursor. Raises PreconditionFailed, OffsetTrimmed, OffsetOutOfRange, OutcomeUnknown."""
        return self._loop.run(self._cursors.set(name, offset, metadata=metadata, expected_version=expected_version))

    def list(self) -> Iterator[Cursor]:
        """Yield the stream's cursors by name."""
        return self._loop.iterate(self._cursors.list())

    def delete(self, name: str, *, expected_version: int | None = None) -> bool:
        """Delete a cursor; return whether there was one. Raises PreconditionFailed, OutcomeUnknown."""
        return self._loop.run(self._cursors.delete(name, expected_version=expected_version))
