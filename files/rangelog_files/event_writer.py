"""The writer of a stream of event files for an event loop.

What holds: an append returns once its event is on the disk; events of one caller are read in the order of its appends.
`inflight_bytes_max` bounds the bytes that are appended and not acked. When an error has `outcome_unknown` the event may be in a
file; otherwise it is in none, and may be appended again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, cast

from rangelog_core.errors import AppendTimeout, Overloaded, RangelogError, WriterClosed
from rangelog_core.record import AppendRecord, BytesLike
from rangelog_files.commit_drivers import LoopCommits
from rangelog_files.event_target import EventAck
from rangelog_files.events import Event, check_event
from rangelog_files.open_prefix import EventPlace, OpenPrefix, event_of

INFLIGHT_BYTES_MAX = 16 << 20


class EventWriter:
    """The writer for an event loop. Make it with `store.writer()` and use it with `async with`.

    Example:
        ```python
        async with store.writer() as writer:
            ack = await writer.append(b"first", key=b"UA")
            for value in values:
                writer.submit(value)
                await writer.ready()
            await writer.flush()
        ```
    """

    def __init__(
        self, place: EventPlace, prefix: str | None, *, inflight_bytes_max: int, append_timeout_s: float
    ) -> None:
        self._place = place
        self._prefix = prefix
        self._bytes_max = inflight_bytes_max
        self._append_timeout_s = append_timeout_s
        self._writing: OpenPrefix | None = None
        self._commits: LoopCommits[Event] | None = None
        self._pending: dict[asyncio.Future[EventAck], int] = {}
        self._pending_bytes = 0
        self._error: RangelogError | None = None
        self._changed = asyncio.Event()

    async def __aenter__(self) -> EventWriter:
        await self.open()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        await self.close(flush=kind is None)

    async def open(self) -> None:
        """Become the writer of the prefix.

        Raises:
            StreamNotFound: The stream does not exist.
            PreconditionFailed: The prefix has a writer, which the message names; or the stream has all of its writers.
            StorageFull: The disk has no room.
            AccessDenied: The directory may not be written.
        """
        opening = asyncio.ensure_future(asyncio.to_thread(OpenPrefix, self._place, self._prefix))
        try:
            self._writing = await asyncio.shield(opening)
        except asyncio.CancelledError:
            opening.add_done_callback(_leave)  # no lock stays behind
            raise
        self._commits = LoopCommits(self._writing.queue, self._writing.target)

    @property
    def prefix(self) -> str:
        """The prefix of its files. Raises WriterClosed before `open`."""
        return self._open()[0].target.prefix

    @property
    def groups(self) -> int:
        """How many flushes its events have shared, so far. Raises WriterClosed before `open`."""
        return self._open()[0].target.groups

    async def append(
        self,
        value: BytesLike,
        *,
        key: BytesLike | None = None,
        headers: Mapping[str, bytes] | None = None,
        timestamp: datetime | int | None = None,
        timeout_s: float | None = None,
    ) -> EventAck:
        """Append one event, and return where it is once it is on the disk.

        Args:
            value: The value.
            key: The key, if any.
            headers: Header names and values.
            timestamp: The event's own time: a datetime, or milliseconds since 1970; None: that at which it is written.
            timeout_s: Limit in seconds; None: the writer's `append_timeout_s`.

        Raises:
            AppendTimeout: No flush in time; the event may be written yet.
            StorageFull: The disk has no room.
            RecordTooLarge: The event exceeds 1 MiB.
            InvalidArgument: Value, key, headers or timestamp are not valid.
            WriterClosed: The writer is not open, or the stream has fewer writers now.
        """
        if self._pending_bytes >= self._bytes_max:
            await self.ready(timeout_s=timeout_s)
        acked = self.submit(value, key=key, headers=headers, timestamp=timestamp)
        try:
            return cast(EventAck, await self._within(asyncio.shield(acked), timeout_s))
        except RangelogError:
            if acked.done() and self._error is acked.exception():
                self._error = None  # its caller has it: `flush` and `close` need not raise it again
            raise

    def submit(
        self,
        value: BytesLike,
        *,
        key: BytesLike | None = None,
        headers: Mapping[str, bytes] | None = None,
        timestamp: datetime | int | None = None,
    ) -> asyncio.Future[EventAck]:
        """Append one event without waiting; return a future of its ack. The arguments and errors are those of `append`.

        Call `await writer.ready()` regularly. Raises Overloaded: twice `inflight_bytes_max` bytes are not acked.
        """
        commits = self._open()[1]
        if self._pending_bytes >= 2 * self._bytes_max:
            raise Overloaded("too many bytes are appended and not acked: await writer.ready() between appends")
        event = event_of(value, key, headers, timestamp)
        size_bytes = check_event(event)
        future = cast("asyncio.Future[EventAck]", commits.submit(event, size_bytes))
        self._pending[future] = size_bytes
        self._pending_bytes += size_bytes
        future.add_done_callback(self._done)
        return future

    async def append_batch(
        self, records: Iterable[BytesLike | AppendRecord], *, timeout_s: float | None = None
    ) -> list[EventAck]:
        """Append events in order, and return the ack of each once all are on the disk.

        `records` are values, or AppendRecords with key, headers and timestamp. Raises the error of the first event that has
        one, as `append` does: then some of the others may be acked.
        """
        futures = []
        for record in records:
            if self._pending_bytes >= self._bytes_max:
                await self.ready(timeout_s=timeout_s)
            each = record if isinstance(record, AppendRecord) else AppendRecord(record)
            futures.append(self.submit(each.value, key=each.key, headers=each.headers, timestamp=each.timestamp_ms))
        await self._within(asyncio.shield(asyncio.gather(*futures, return_exceptions=True)), timeout_s)
        return [future.result() for future in futures]

    async def ready(self, *, timeout_s: float | None = None) -> None:
        """Return once fewer than `inflight_bytes_max` bytes are not acked. Raises AppendTimeout, WriterClosed."""
        self._open()
        while self._pending_bytes >= self._bytes_max:
            self._changed.clear()
            await self._within(self._changed.wait(), timeout_s)

    async def flush(self, *, timeout_s: float | None = None) -> None:
        """Return once all appended events are on the disk. Raises the error of the first that is not; AppendTimeout."""
        self._open()
        if self._pending:
            await self._within(asyncio.wait(list(self._pending)), timeout_s)
            await asyncio.sleep(0)  # so that `_done` has seen them
        error, self._error = self._error, None
        if error is not None:
            raise error

    async def close(self, *, flush: bool = True) -> None:
        """Wait for the outcome of all appends, write the end mark, and leave the prefix. Idempotent.

        `flush`: raise the first error of an append since the last `flush`, as `flush` does.
        """
        if self._writing is None:
            return
        try:
            if flush:
                await self.flush()
            elif self._pending:
                await asyncio.wait(list(self._pending), timeout=self._append_timeout_s)
        finally:
            writing, commits = self._writing, self._commits
            self._writing = self._commits = None
            assert commits is not None
            await asyncio.to_thread(commits.close)
            await asyncio.to_thread(writing.close)

    def _open(self) -> tuple[OpenPrefix, LoopCommits[Event]]:
        if self._writing is None or self._commits is None:
            raise WriterClosed("the writer is not open: use it with `async with`")
        return self._writing, self._commits

    def _done(self, future: asyncio.Future[EventAck]) -> None:
        self._pending_bytes -= self._pending.pop(future)
        self._changed.set()
        if not future.cancelled() and isinstance(error := future.exception(), RangelogError):
            self._error = self._error or error

    async def _within(self, wait: Any, timeout_s: float | None) -> Any:
        limit_s = self._append_timeout_s if timeout_s is None else timeout_s
        try:
            return await asyncio.wait_for(wait, limit_s)
        except TimeoutError:
            raise AppendTimeout(
                f"no flush within {limit_s:g} s: what was appended may be written yet", outcome_unknown=True
            ) from None


def _leave(opening: asyncio.Future[OpenPrefix]) -> None:
    """Release the lock of a writer whose opening was cancelled."""
    if not opening.cancelled() and opening.exception() is None:
        opening.result().lock.release()
