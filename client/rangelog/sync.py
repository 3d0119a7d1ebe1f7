"""The blocking facade: the same verbs, run on one background event loop per client.

A call may come from any thread but the client's own (on which the callbacks of futures run), and only in the process that
connected: elsewhere it raises InvalidArgument. Once the client is closed, whoever waits and whoever comes later gets an error.

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
from rangelog_core.limits import INFLIGHT_BYTES_MAX
from rangelog_core.net.fork_guard import never_free_in_children
from rangelog_core.net.grpc_options import TlsConfig
from rangelog_core.record import Ack, AppendRecord, Record
from rangelog_core.stream_config import StreamConfig, StreamConfigChange

_T = TypeVar("_T")


class Writer:
    """The blocking writer. Safe to use from several threads."""

    def __init__(self, loop: LoopThread, writer: AsyncWriter) -> None:
        self._loop = loop
        self._writer = writer

    def __enter__(self) -> Writer:
        self._loop.run(self._writer.open())
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._loop.forked and kind is not None:
            return  # a child that leaves by an exception: the writer is its parent's
        self._close(flush=kind is None)

    def append(
        self,
        value: bytes,
        *,
        key: bytes | None = None,
        headers: Mapping[str, bytes] | None = None,
        timestamp: datetime | int | None = None,
    ) -> Ack:
        """Append one record and wait for its ack. Raises as the asynchronous writer does."""
        return self._loop.run(self._writer.append(value, key=key, headers=headers, timestamp=timestamp))

    def submit(
        self,
        value: bytes,
        *,
        key: bytes | None = None,
        headers: Mapping[str, bytes] | None = None,
        timestamp: datetime | int | None = None,
    ) -> concurrent.futures.Future[Ack]:
        """Append one record; the future gives its ack. Blocks only while too much is not acked yet.

        The future cannot be cancelled. Its callbacks run on the client's own thread: they must not block, nor append.
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
        """Append records in order and wait for all their acks."""
        return self._loop.run(self._writer.append_batch(list(records)))

    def flush(self) -> None:
        """Wait until everything submitted is acked."""
        self._loop.run(self._writer.flush())

    def close(self) -> None:
        """Flush and let go; idempotent."""
        self._close(flush=True)

    def _close(self, *, flush: bool) -> None:
        if not self._writer.closed:  # by the client's close, perhaps, which does not flush
            self._loop.run(self._writer.close(flush=flush))

    @property
    def next_offset(self) -> int:
        """The offset that the next record will have."""
        return self._writer.next_offset


class Client:
    """The blocking client; see rangelog.Client for what each verb does and raises."""

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
        """Close everything, without flushing writers; whoever waits in another thread gets an error.

        Idempotent, from several threads as well. Does nothing in a forked process: the client is its parent's.
        """
        self._loop.stop(self._client.close)
        _open_clients.discard(self)

    def create_stream(
        self, name: str, config: StreamConfig = _client.DEFAULT_CONFIG, *, timeout_s: float = CALL_TIMEOUT_S
    ) -> StreamInfo:
        """Create a stream."""
        return self._loop.run(self._client.create_stream(name, config, timeout_s=timeout_s))

    def describe_stream(self, name: str) -> StreamInfo:
        """Return a stream as it is now."""
        return self._loop.run(self._client.describe_stream(name), reads=True)

    def list_streams(self, prefix: str = "") -> Iterator[StreamInfo]:
        """Yield the streams whose names start with `prefix`."""
        return self._loop.iterate(self._client.list_streams(prefix))

    def update_stream(self, name: str, change: StreamConfigChange, *, timeout_s: float = CALL_TIMEOUT_S) -> StreamInfo:
        """Change what `change` gives; the rest stays."""
        return self._loop.run(self._client.update_stream(name, change, timeout_s=timeout_s))

    def delete_stream(self, name: str) -> None:
        """Delete a stream and all it holds."""
        self._loop.run(self._client.delete_stream(name))

    def trim_stream(self, name: str, trim_offset: int) -> StreamInfo:
        """Let everything below an offset go."""
        return self._loop.run(self._client.trim_stream(name, trim_offset))

    def seal_stream(self, name: str) -> int:
        """Fence whoever writes, seal the open range, return where the stream ends."""
        return self._loop.run(self._client.seal_stream(name))

    def end_offset(self, stream: str) -> int:
        """Return one past the last acked record."""
        return self._loop.run(self._client.end_offset(stream), reads=True)

    def writer(
        self,
        stream: str,
        *,
        append_timeout_s: float = 30.0,
        open_timeout_s: float = 30.0,
        inflight_bytes_max: int = INFLIGHT_BYTES_MAX,
    ) -> Writer:
        """Return the stream's writer, to be used with `with`."""
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
        """Iterate over records."""
        reader = self._client.reader(stream, start=start, end=end, follow=follow, read_preference=read_preference)
        for chunk in self._loop.iterate(reader.chunks()):
            yield from chunk

    def run(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Run a coroutine of the asynchronous API on this client's loop."""
        return self._loop.run(work)

    def iterate(self, items: AsyncIterator[_T]) -> Iterator[_T]:
        """Iterate over something asynchronous of this client's."""
        return self._loop.iterate(items)

    @property
    def asynchronous(self) -> _client.Client:
        """The client underneath; its coroutines run with `run`."""
        return self._client


_open_clients: set[Client] = set()


@atexit.register
def _close_all() -> None:
    """A program may end without `close`: quietly."""
    for client in list(_open_clients):
        client.close()


def connect(
    endpoints: str | Sequence[str],
    *,
    token: str | None = None,
    tls: TlsConfig | None = None,
    tier_url: str | None = None,
) -> Client:
    """Connect to a cluster; see rangelog.connect."""
    loop = LoopThread()
    try:
        return Client(loop, loop.run(_client.connect(endpoints, token=token, tls=tls, tier_url=tier_url)))
    except BaseException:
        loop.stop()
        raise


def _pass_on(done: asyncio.Future[Ack], result: concurrent.futures.Future[Ack]) -> None:
    error = WriterClosed(outcome_unknown=True) if done.cancelled() else done.exception()
    if error is not None:
        result.set_exception(error)
    else:
        result.set_result(done.result())
