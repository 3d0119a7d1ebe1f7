"""The blocking client: the operations of the asynchronous client, run on one background event loop per client.

Calls are allowed from any thread but the client's own, on which the callbacks of futures run, and only in the process that
connected: other calls raise InvalidArgument. `close` ends waiting calls with an error, and later calls raise one.

    with rangelog.sync.connect("127.0.0.1:7100") as client:
        with client.writer("flights") as writer:
            writer.append(b"…")
        for record in client.reader("flights"):
            ...
"""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
from collections.abc import AsyncIterator, Coroutine, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar

from rangelog import _client
from rangelog._append.writer import Writer as AsyncWriter
from rangelog._loop_thread import LoopThread
from rangelog._metadata import CALL_TIMEOUT_S
from rangelog._read.reader import Start
from rangelog._stream_info import StreamInfo
from rangelog_core.errors import Overloaded, WriterClosed
from rangelog_core.limits import APPENDS_BYTES_MAX, FETCHES_BYTES_MAX, INFLIGHT_BYTES_MAX
from rangelog_core.net.fork_guard import never_free_in_children
from rangelog_core.net.grpc_options import TlsConfig
from rangelog_core.record import Ack, AppendRecord, Record
from rangelog_core.stream_config import StreamConfig, StreamConfigChange

_T = TypeVar("_T")


class Writer:
    """The blocking writer; make it with `client.writer(name)` and use it with `with`. Safe to use from several threads."""

    def __init__(self, loop: LoopThread, writer: AsyncWriter) -> None:
        self._loop = loop
        self._writer = writer

    def __enter__(self) -> Writer:
        self._loop.run(self._writer.open())
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._loop.forked and kind is not None:
            return  # a forked child that ends by an exception: the writer belongs to its parent
        self._close(flush=kind is None)

    def append(
        self,
        value: bytes,
        *,
        key: bytes | None = None,
        headers: Mapping[str, bytes] | None = None,
        timestamp: datetime | int | None = None,
    ) -> Ack:
        """Append one record and wait for its ack. Arguments and errors are those of `rangelog.Writer.append`."""
        return self._loop.run(self._writer.append(value, key=key, headers=headers, timestamp=timestamp))

    def submit(
        self,
        value: bytes,
        *,
        key: bytes | None = None,
        headers: Mapping[str, bytes] | None = None,
        timestamp: datetime | int | None = None,
    ) -> concurrent.futures.Future[Ack]:
        """Append one record; return a future of its ack. Blocks only while `inflight_bytes_max` bytes are not acked.

        The future cannot be cancelled. Its callbacks run on the client's own thread: they must neither block nor append.
        Arguments and errors are those of `rangelog.Writer.submit`.
        """
        result: concurrent.futures.Future[Ack] = concurrent.futures.Future()
        result.set_running_or_notify_cancel()

        async def submit() -> None:
            while True:
                await self._writer.ready()
                try:
                    future = self._writer.submit(value, key=key, headers=headers, timestamp=timestamp)
                except Overloaded:
                    continue  # another thread took the room
                future.add_done_callback(lambda done: _pass_on(done, result))
                return

        self._loop.run(submit())
        return result

    def append_batch(self, records: Iterable[bytes | AppendRecord]) -> list[Ack]:
        """Append records in order and return one ack per record, once all are acked. Errors as `append`."""
        return self._loop.run(self._writer.append_batch(list(records)))

    def flush(self) -> None:
        """Wait until all appended records are acked. Raises AppendTimeout, WriterFenced, WriterClosed, StreamNotFound."""
        self._loop.run(self._writer.flush())

    def close(self) -> None:
        """Flush and close; idempotent. Raises the errors of `flush`, after closing."""
        self._close(flush=True)

    def _close(self, *, flush: bool) -> None:
        if not self._writer.closed:  # perhaps by the client's close, which does not flush
            self._loop.run(self._writer.close(flush=flush))

    @property
    def next_offset(self) -> int:
        """The offset that the next record will have."""
        return self._writer.next_offset


class Client:
    """The blocking client of one cluster. Its methods have the arguments, results and errors of those of `rangelog.Client`."""

    def __init__(self, loop: LoopThread, client: _client.Client) -> None:
        self._loop = loop
        self._client = client
        _open_clients.add(self)
        never_free_in_children(self)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close writers, without a flush, and all connections; calls that wait in other threads raise an error.

        Idempotent, also from several threads. Does nothing in a forked process: the client belongs to its parent.
        """
        self._loop.stop(self._client.close)
        _open_clients.discard(self)

    def create_stream(
        self, name: str, config: StreamConfig = _client.DEFAULT_CONFIG, *, timeout_s: float = CALL_TIMEOUT_S
    ) -> StreamInfo:
        """Create a stream. Raises StreamExists, InvalidArgument, Unavailable, OutcomeUnknown."""
        return self._loop.run(self._client.create_stream(name, config, timeout_s=timeout_s))

    def describe_stream(self, name: str) -> StreamInfo:
        """Return the current state of a stream. Raises StreamNotFound, Unavailable."""
        return self._loop.run(self._client.describe_stream(name), reads=True)

    def list_streams(self, prefix: str = "") -> Iterator[StreamInfo]:
        """Yield the streams whose names start with `prefix`, in order of names."""
        return self._loop.iterate(self._client.list_streams(prefix))

    def update_stream(self, name: str, change: StreamConfigChange, *, timeout_s: float = CALL_TIMEOUT_S) -> StreamInfo:
        """Change a stream's configuration. Raises StreamNotFound, InvalidArgument, Unavailable, OutcomeUnknown."""
        return self._loop.run(self._client.update_stream(name, change, timeout_s=timeout_s))

    def delete_stream(self, name: str) -> None:
        """Delete a stream and all its records. Raises StreamNotFound, OutcomeUnknown."""
        self._loop.run(self._client.delete_stream(name))

    def trim_stream(self, name: str, trim_offset: int) -> StreamInfo:
        """Remove all records below `trim_offset`; return the stream. Raises StreamNotFound, OffsetOutOfRange."""
        return self._loop.run(self._client.trim_stream(name, trim_offset))

    def seal_stream(self, name: str) -> int:
        """Fence the stream's writer, seal the open range, return the stream's end offset. Raises SealBlocked."""
        return self._loop.run(self._client.seal_stream(name))

    def end_offset(self, stream: str) -> int:
        """Return one past the offset of the last acked record. Raises StreamNotFound, Unavailable."""
        return self._loop.run(self._client.end_offset(stream), reads=True)

    def writer(
        self,
        stream: str,
        *,
        append_timeout_s: float = 30.0,
        open_timeout_s: float = 30.0,
        inflight_bytes_max: int = INFLIGHT_BYTES_MAX,
    ) -> Writer:
        """Return a writer of the stream, to be used with `with`. Times are in seconds."""
        writer = self._client.writer(
            stream,
            append_timeout_s=append_timeout_s,
            open_timeout_s=open_timeout_s,
            inflight_bytes_max=inflight_bytes_max,
        )
        return Writer(self._loop, writer)

    def reader(
        self,
        stream: str,
        *,
        start: Start = "earliest",
        end: int | None = None,
        follow: bool = False,
        read_preference: str = "hot_first",
    ) -> Iterator[Record]:
        """Yield the stream's records in offset order. The arguments are those of `rangelog.Client.reader`."""
        reader = self._client.reader(stream, start=start, end=end, follow=follow, read_preference=read_preference)
        for chunk in self._loop.iterate(reader.chunks()):
            yield from chunk

    def run(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Run a coroutine of the asynchronous API on this client's loop and return its result."""
        return self._loop.run(work)

    def iterate(self, items: AsyncIterator[_T]) -> Iterator[_T]:
        """Yield the items of an asynchronous iterator of this client's `asynchronous` API."""
        return self._loop.iterate(items)

    @property
    def asynchronous(self) -> _client.Client:
        """The asynchronous client underneath; its coroutines run with `run`."""
        return self._client


_open_clients: set[Client] = set()


@atexit.register
def _close_all() -> None:
    """Close all clients at exit, so that a program without `close` ends without a message."""
    for client in list(_open_clients):
        client.close()


def connect(
    endpoints: str | Sequence[str],
    *,
    token: str | None = None,
    tls: TlsConfig | None = None,
    tier_url: str | None = None,
    appends_bytes_max: int = APPENDS_BYTES_MAX,
    fetches_bytes_max: int = FETCHES_BYTES_MAX,
) -> Client:
    """Return a blocking client of a cluster. The arguments and errors are those of `rangelog.connect`."""
    loop = LoopThread()
    try:
        connecting = _client.connect(
            endpoints,
            token=token,
            tls=tls,
            tier_url=tier_url,
            appends_bytes_max=appends_bytes_max,
            fetches_bytes_max=fetches_bytes_max,
        )
        return Client(loop, loop.run(connecting))
    except BaseException:
        loop.stop()
        raise


def _pass_on(done: asyncio.Future[Ack], result: concurrent.futures.Future[Ack]) -> None:
    error = WriterClosed(outcome_unknown=True) if done.cancelled() else done.exception()
    if error is not None:
        result.set_exception(error)
    else:
        result.set_result(done.result())
