"""The blocking writer of a stream, for `rangelog.sync`."""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Self

from rangelog._append.many_records import check_iterable
from rangelog._append.serializing import Serializers
from rangelog._append.writer import Writer as AsyncWriter
from rangelog._loop_thread import LoopThread
from rangelog._sync_submit import feed, submit_when_there_is_room
from rangelog_core.record import Ack, AppendRecord, BytesLike


class Writer:
    """The blocking writer; make it with `client.writer(name)` and use it with `with`. Safe to use from several threads.

    Example:
        ```python
        with client.writer("flights") as writer:
            ack = writer.append(b"first", key=b"UA")
            writer.append_all(open("lines.txt", "rb"))
        ```
    """

    def __init__(self, loop: LoopThread, writer: AsyncWriter) -> None:
        self._loop = loop
        self._writer = writer

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._loop.forked and kind is not None:
            return  # a forked child that ends by an exception: the writer belongs to its parent
        self._close(flush=kind is None)

    def open(self) -> None:
        """Become the stream's writer, which fences any earlier one; `with` does it. Raises as `rangelog.Writer.open`."""
        self._loop.run(self._writer.open())

    def append(
        self,
        value: BytesLike,
        *,
        key: BytesLike | None = None,
        headers: Mapping[str, bytes] | None = None,
        timestamp: datetime | int | None = None,
        expected_end: int | None = None,
        timeout_s: float | None = None,
    ) -> Ack:
        """Append one record and wait for its ack. Arguments and errors are those of `rangelog.Writer.append`."""
        return self._loop.run(
            self._writer.append(
                value, key=key, headers=headers, timestamp=timestamp, expected_end=expected_end, timeout_s=timeout_s
            )
        )

    def submit(
        self,
        value: BytesLike,
        *,
        key: BytesLike | None = None,
        headers: Mapping[str, bytes] | None = None,
        timestamp: datetime | int | None = None,
        expected_end: int | None = None,
    ) -> concurrent.futures.Future[Ack]:
        """Append one record; return a future of its ack. Blocks only while `inflight_bytes_max` bytes are not acked.

        The future cannot be cancelled. Its callbacks run on the client's own thread: they must neither block nor append.
        Arguments and errors are those of `rangelog.Writer.submit`.
        """
        writer = self._writer

        def submit() -> asyncio.Future[Ack]:
            return writer.submit(value, key=key, headers=headers, timestamp=timestamp, expected_end=expected_end)

        return submit_when_there_is_room(self._loop, writer.ready, submit)

    def append_nowait(
        self,
        value: BytesLike,
        *,
        key: BytesLike | None = None,
        headers: Mapping[str, bytes] | None = None,
        timestamp: datetime | int | None = None,
        expected_end: int | None = None,
    ) -> int:
        """Append one record without waiting for its ack, and without a future; return the offset that it will have.

        It is acked once `confirm_offset` is above its offset, or once `flush` returns. Call `ready` regularly. Every call
        goes to the client's own thread and back: for many records `append_all` is far cheaper. Arguments and errors are those
        of `rangelog.Writer.append_nowait`.
        """

        async def append() -> int:
            return self._writer.append_nowait(
                value, key=key, headers=headers, timestamp=timestamp, expected_end=expected_end
            )

        return self._loop.run(append())

    def append_batch(
        self,
        records: Iterable[BytesLike | AppendRecord],
        *,
        expected_end: int | None = None,
        timeout_s: float | None = None,
    ) -> list[Ack]:
        """Append records in order and return one ack per record, once all are acked. As `rangelog.Writer.append_batch`."""
        return self._loop.run(self._writer.append_batch(list(records), expected_end=expected_end, timeout_s=timeout_s))

    def append_all(self, records: Iterable[BytesLike | AppendRecord], *, timeout_s: float | None = None) -> int:
        """Append the records of any iterable; return how many, once all are acked. As `rangelog.Writer.append_all`.

        The iterable runs on the calling thread, up to 1,000 records ahead. If it raises, the records that it gave before may be
        appended.
        """
        check_iterable(records)
        return feed(self._loop, records, _size_of, lambda taken: self._writer.append_all(taken, timeout_s=timeout_s))

    def flush(self, *, timeout_s: float | None = None) -> None:
        """Wait until all appended records are acked. Raises AppendTimeout, WriterFenced, WriterClosed, StreamNotFound."""
        self._loop.run(self._writer.flush(timeout_s=timeout_s))

    def ready(self, *, timeout_s: float | None = None) -> None:
        """Wait until there is room to append. Raises AppendTimeout, WriterFenced, WriterClosed."""
        self._loop.run(self._writer.ready(timeout_s=timeout_s))

    def close(self) -> None:
        """Flush and close; idempotent. Raises the errors of `flush`, after closing."""
        self._close(flush=True)

    def _close(self, *, flush: bool) -> None:
        if not self._writer.closed:  # perhaps by the client's close, which does not flush
            self._loop.run(self._writer.close(flush=flush))

    @property
    def closed(self) -> bool:
        """Whether the writer is closed."""
        return self._writer.closed

    @property
    def epoch(self) -> int:
        """The epoch of this writer. Raises WriterClosed before `open`."""
        return self._writer.epoch

    @property
    def next_offset(self) -> int:
        """The offset that the next record will have. Raises WriterClosed before `open`."""
        return self._writer.next_offset

    @property
    def confirm_offset(self) -> int:
        """All records below it are acked. Raises WriterClosed before `open`."""
        return self._writer.confirm_offset


def _size_of(record: BytesLike | AppendRecord) -> int:
    """Return about how much memory a record takes; what is no record is refused later."""
    value = record.value if isinstance(record, AppendRecord) else record
    return memoryview(value).nbytes if isinstance(value, BytesLike) else 0


class SerializingWriter(Writer):
    """The blocking writer of any keys and values; make it with `client.writer(name, value_serializer=…)`.

    The functions run on the calling thread. Methods are those of `Writer`, errors also those of `rangelog.SerializingWriter`.
    """

    def __init__(self, loop: LoopThread, writer: AsyncWriter, serializers: Serializers) -> None:
        super().__init__(loop, writer)
        self._make = serializers

    def append(self, value: Any, *, key: Any = None, **options: Any) -> Ack:
        """See Writer."""
        return super().append(self._make.value(value), key=self._make.key(key), **options)

    def submit(self, value: Any, *, key: Any = None, **options: Any) -> concurrent.futures.Future[Ack]:
        """See Writer."""
        return super().submit(self._make.value(value), key=self._make.key(key), **options)

    def append_nowait(self, value: Any, *, key: Any = None, **options: Any) -> int:
        """See Writer."""
        return super().append_nowait(self._make.value(value), key=self._make.key(key), **options)

    def append_batch(self, records: Iterable[Any], **options: Any) -> list[Ack]:
        """See Writer."""
        return super().append_batch([self._make.record(record) for record in records], **options)

    def append_all(self, records: Iterable[Any], *, timeout_s: float | None = None) -> int:
        """See Writer."""
        check_iterable(records)
        return super().append_all(map(self._make.record, records), timeout_s=timeout_s)
