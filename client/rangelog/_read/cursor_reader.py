"""A reader that begins at a cursor of its stream, and moves it.

What holds: what is committed was handed out before: by `commit` all of it, the last record included; by automatic commits what
is processed: a record is, once the next one is asked for. The cursor is of the stream that is read, by its id. Whoever begins
at the cursor again gets every record that was not committed, and perhaps some of them for the second time.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager, suppress

from rangelog._metadata import Metadata
from rangelog._read.cold import ColdReader
from rangelog._read.cursors import Cursor, CursorCalls, check_metadata
from rangelog._read.reader import Reader, Start
from rangelog._read.stream_watches import StreamWatches
from rangelog_core.errors import InvalidArgument, OffsetTrimmed, OutcomeUnknown, RangelogError
from rangelog_core.ids import check_name
from rangelog_core.net.data_connection import DataConnections
from rangelog_core.record import Record

SIGN_OF_LIFE_S = 60.0
"""After so long an automatic commit repeats a position that has not changed, so that the cursor of an idle consumer lives."""
LAST_COMMIT_TIMEOUT_S = 5.0
_log = logging.getLogger("rangelog.cursor")


class HandedOut:
    """How far records were handed out, and how far they are processed. One thread writes, any may read."""

    def __init__(self, position: int) -> None:
        self.end = self.processed = position

    def take(self, end_offset: int) -> None:
        """Note that records up to an offset are handed out, so that all before are processed."""
        self.processed = self.end
        self.end = end_offset

    def move(self, position: int) -> None:
        """Note where the reader begins; nothing was handed out."""
        self.end = self.processed = position

    def finish(self) -> None:
        """Note that there are no more, or that all are processed."""
        self.processed = self.end


class CursorReader(Reader):
    """A Reader that begins at a cursor. Make it with `client.reader(stream, cursor=…)`; iterate once.

    Example:
        ```python
        async for record in (reader := client.reader("flights", cursor="billing", follow=True)):
            bill(record.value)
            await reader.commit()
        ```
    """

    def __init__(
        self,
        calls: CursorCalls,
        cursor: str,
        metadata: Metadata,
        connections: DataConnections,
        cold: ColdReader,
        watches: StreamWatches,
        stream: str,
        *,
        auto_commit_s: float | None,
        start: Start,
        end: int | None,
        follow: bool,
        read_preference: str,
        timeout_s: float,
    ) -> None:
        """Raises InvalidArgument."""
        super().__init__(
            metadata, connections, cold, watches, stream,
            start=start, end=end, follow=follow, read_preference=read_preference, timeout_s=timeout_s,
        )  # fmt: skip
        if auto_commit_s is not None and not (
            isinstance(auto_commit_s, int | float) and 0.001 <= auto_commit_s <= 86_400
        ):
            raise InvalidArgument(
                f"auto_commit_s must be a number of seconds from 0.001 to 86,400, not {auto_commit_s!r}"
            )
        self.cursor = check_name("cursor", cursor)
        self._calls = calls
        self._auto_commit_s = auto_commit_s
        self._handed_out: HandedOut | None = None
        self._committed = -1
        self._committed_at_s = 0.0
        self._failed: RangelogError | None = None

    async def chunks(self) -> AsyncGenerator[Sequence[Record], None]:
        """Yield chunks of consecutive records; a chunk is processed when the next one is asked for. See `Reader.chunks`."""
        async with aclosing(self.unmarked_chunks()) as chunks:
            async for chunk in chunks:
                self.handed_out.take(chunk[-1].offset + 1)
                yield chunk

    def _to_poll(self) -> AsyncGenerator[Sequence[Record], None]:
        return self.unmarked_chunks()

    def _polled(self, records: Sequence[Record]) -> None:
        self.handed_out.take(records[-1].offset + 1)

    async def commit(self, *, metadata: str = "") -> Cursor:
        """Move the cursor behind all records that were handed out, the last one included.

        Before the first record: to where the reader begins, so that it begins there again. A cursor that another program has
        moved further stays there.

        Args:
            metadata: Up to 512 bytes of UTF-8 that are kept beside the position.

        Returns:
            The cursor as it is then.

        Raises:
            OffsetTrimmed: The position was trimmed meanwhile.
            StreamNotFound: The stream was deleted, even if its name is used again.
            OutcomeUnknown: The commit may have been taken; a repeat does no harm.
        """
        check_metadata(metadata)
        if self._handed_out is None:
            await self.begin()
        return await self._commit(self.handed_out.end, metadata)

    @property
    def handed_out(self) -> HandedOut:
        """How far records were handed out. For the package's own use, once it has begun."""
        if self._handed_out is None:
            self._handed_out = HandedOut(self.position)
        return self._handed_out

    async def unmarked_chunks(self) -> AsyncGenerator[Sequence[Record], None]:
        """As `chunks`, without noting what is handed out. For the package's own use."""
        async with self._committing(), aclosing(super().chunks()) as chunks:
            async for chunk in chunks:
                if self._failed is not None:
                    raise self._failed
                yield chunk
                if self._failed is not None:
                    raise self._failed
            self.handed_out.finish()

    async def _records(self) -> AsyncGenerator[Record, None]:
        async with aclosing(self.unmarked_chunks()) as chunks:
            async for chunk in chunks:
                take = self.handed_out.take
                for record in chunk:
                    take(record.offset + 1)
                    yield record

    async def _resolve(self) -> None:
        """Begin at the cursor, or where there is none at `start`."""
        await self._view.last_range()  # resolves the name
        found = await self._calls.get(self._view.stream.stream_id, self.cursor)
        if found is not None:
            self._start = found.offset
        try:
            await super()._resolve()
        except OffsetTrimmed as error:
            if found is None:
                raise
            raise OffsetTrimmed(f"of cursor {self.cursor!r}: {error.message}", offset=error.offset) from error
        self._handed_out = HandedOut(self.position)

    def _begin_later(self, error: OffsetTrimmed) -> None:
        super()._begin_later(error)
        self.handed_out.move(self.position)

    async def _commit(self, offset: int, metadata: str) -> Cursor:
        stream_id = self._view.stream.stream_id
        try:
            committed = await self._calls.set(stream_id, self.cursor, offset, metadata=metadata)
        except OffsetTrimmed as error:
            if not self._is_movable or error.offset is None:
                raise
            offset = error.offset  # where a reader with this start would begin by now
            committed = await self._calls.set(stream_id, self.cursor, offset, metadata=metadata)
        self._committed, self._committed_at_s = offset, time.monotonic()
        return committed

    @asynccontextmanager
    async def _committing(self) -> AsyncIterator[None]:
        """Commit what is processed every `auto_commit_s` seconds, and once more at the end."""
        if self._auto_commit_s is None:
            yield
            return
        task = asyncio.create_task(self._commit_at_times(self._auto_commit_s))
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait([task])
            if self._failed is None:
                with suppress(RangelogError, TimeoutError):
                    async with asyncio.timeout(LAST_COMMIT_TIMEOUT_S):
                        await self._commit_processed()

    async def _commit_at_times(self, interval_s: float) -> None:
        while self._failed is None:
            await asyncio.sleep(interval_s)
            try:
                await self._commit_processed()
            except RangelogError as error:
                if error.retriable or isinstance(error, OutcomeUnknown):
                    _log.info("cursor %s of %s is committed later: %s", self.cursor, self._view.name, error)
                else:
                    self._failed = error  # for whoever reads

    async def _commit_processed(self) -> None:
        if self._handed_out is None:
            return  # it has not begun
        processed = self._handed_out.processed
        if processed != self._committed or time.monotonic() - self._committed_at_s >= SIGN_OF_LIFE_S:
            await self._commit(processed, "")
