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

import atexit
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar, overload

from rangelog import _client
from rangelog._append.serializing import Serializers
from rangelog._consume.deserializing import shard_deserializer
from rangelog._consume.group import GroupMember as AsyncGroupMember
from rangelog._consume.group_records import GroupListener
from rangelog._loop_thread import LoopThread
from rangelog._metadata import CALL_TIMEOUT_S
from rangelog._read.reader import Start
from rangelog._stream_info import StreamInfo
from rangelog._sync_cursors import CursorReader, StreamCursors
from rangelog._sync_groups import GroupMember, Groups
from rangelog._sync_reader import Reader as Reader
from rangelog._sync_tables import Table as Table
from rangelog._sync_tables import Tables as Tables
from rangelog._sync_tables import TableWatch as TableWatch
from rangelog._sync_topics import SerializingProducer as SerializingProducer
from rangelog._sync_topics import TopicProducer as TopicProducer
from rangelog._sync_topics import TopicReader as TopicReader
from rangelog._sync_topics import Topics as Topics
from rangelog._sync_transactions import SerializingTransaction as SerializingTransaction
from rangelog._sync_transactions import SerializingTransactional as SerializingTransactional
from rangelog._sync_transactions import Transaction as Transaction
from rangelog._sync_transactions import Transactional as Transactional
from rangelog._sync_transactions import Transactions as Transactions
from rangelog._sync_writer import SerializingWriter as SerializingWriter
from rangelog._sync_writer import Writer as Writer
from rangelog._topics.cut import Cut
from rangelog._transact.transactional import Transactional as AsyncTransactional
from rangelog_core.limits import APPENDS_BYTES_MAX, FETCHES_BYTES_MAX, INFLIGHT_BYTES_MAX
from rangelog_core.net.fork_guard import never_free_in_children
from rangelog_core.net.tls import TlsConfig
from rangelog_core.stream_config import StreamConfig, StreamConfigChange

if TYPE_CHECKING:
    from rangelog_tier.encryption_keys import KeyProvider

_T = TypeVar("_T")


class Client:
    """The blocking client of one cluster. Its methods have the arguments, results and errors of those of `rangelog.Client`."""

    def __init__(self, loop: LoopThread, client: _client.Client) -> None:
        self._loop = loop
        self._client = client
        self._topics = Topics(loop, client.topics)
        self._tables = Tables(loop, client.tables)
        _open_clients.add(self)
        never_free_in_children(self)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close writers and producers, without a flush, and all connections; calls that wait in other threads raise an error.

        Idempotent, also from several threads. Does nothing in a forked process: the client belongs to its parent.
        """
        self._loop.stop(self._client.close)
        _open_clients.discard(self)

    def create_stream(
        self,
        name: str,
        config: StreamConfig = _client.DEFAULT_CONFIG,
        *,
        exist_ok: bool = False,
        timeout_s: float = CALL_TIMEOUT_S,
    ) -> StreamInfo:
        """Create a stream; with `exist_ok` it may exist. Raises StreamExists, InvalidArgument, Unavailable, OutcomeUnknown."""
        return self._loop.run(self._client.create_stream(name, config, exist_ok=exist_ok, timeout_s=timeout_s))

    def describe_stream(self, name: str) -> StreamInfo:
        """Return the current state of a stream. Raises StreamNotFound, Unavailable."""
        return self._loop.run(self._client.describe_stream(name), reads=True)

    def list_streams(self, prefix: str = "", *, after: str = "") -> Iterator[StreamInfo]:
        """Yield the streams whose names start with `prefix` and come after the name `after`, in order of names."""
        return self._loop.iterate(self._client.list_streams(prefix, after=after))

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

    @overload
    def writer(
        self, stream: str, *, append_timeout_s: float = ..., open_timeout_s: float = ..., inflight_bytes_max: int = ...,
        key_serializer: None = ..., value_serializer: None = ...,
    ) -> Writer: ...  # fmt: skip

    @overload
    def writer(
        self, stream: str, *, append_timeout_s: float = ..., open_timeout_s: float = ..., inflight_bytes_max: int = ...,
        key_serializer: Callable[[Any], bytes] | None = ..., value_serializer: Callable[[Any], bytes],
    ) -> SerializingWriter: ...  # fmt: skip

    @overload
    def writer(
        self, stream: str, *, append_timeout_s: float = ..., open_timeout_s: float = ..., inflight_bytes_max: int = ...,
        key_serializer: Callable[[Any], bytes], value_serializer: None = ...,
    ) -> SerializingWriter: ...  # fmt: skip

    def writer(
        self,
        stream: str,
        *,
        append_timeout_s: float = 30.0,
        open_timeout_s: float = 30.0,
        inflight_bytes_max: int = INFLIGHT_BYTES_MAX,
        key_serializer: Callable[[Any], bytes] | None = None,
        value_serializer: Callable[[Any], bytes] | None = None,
    ) -> Writer | SerializingWriter:
        """Return a writer of the stream, to be used with `with`. The arguments are those of `rangelog.Client.writer`."""
        serializers = _serializers(key_serializer, value_serializer)
        writer = self._client.writer(
            stream,
            append_timeout_s=append_timeout_s,
            open_timeout_s=open_timeout_s,
            inflight_bytes_max=inflight_bytes_max,
        )
        return Writer(self._loop, writer) if serializers is None else SerializingWriter(self._loop, writer, serializers)

    @overload
    def producer(
        self, topic: str, *, producer_id: int | None = ..., producer_epoch: int = ..., append_timeout_s: float = ...,
        open_timeout_s: float = ..., inflight_bytes_max: int = ...,
        key_serializer: None = ..., value_serializer: None = ...,
    ) -> TopicProducer: ...  # fmt: skip

    @overload
    def producer(
        self, topic: str, *, producer_id: int | None = ..., producer_epoch: int = ..., append_timeout_s: float = ...,
        open_timeout_s: float = ..., inflight_bytes_max: int = ...,
        key_serializer: Callable[[Any], bytes] | None = ..., value_serializer: Callable[[Any], bytes],
    ) -> SerializingProducer: ...  # fmt: skip

    @overload
    def producer(
        self, topic: str, *, producer_id: int | None = ..., producer_epoch: int = ..., append_timeout_s: float = ...,
        open_timeout_s: float = ..., inflight_bytes_max: int = ...,
        key_serializer: Callable[[Any], bytes], value_serializer: None = ...,
    ) -> SerializingProducer: ...  # fmt: skip

    def producer(
        self,
        topic: str,
        *,
        producer_id: int | None = None,
        producer_epoch: int = 0,
        append_timeout_s: float = 30.0,
        open_timeout_s: float = 30.0,
        inflight_bytes_max: int = INFLIGHT_BYTES_MAX,
        key_serializer: Callable[[Any], bytes] | None = None,
        value_serializer: Callable[[Any], bytes] | None = None,
    ) -> TopicProducer | SerializingProducer:
        """Return a producer of a topic, to be used with `with`. The arguments are those of `rangelog.Client.producer`."""
        serializers = _serializers(key_serializer, value_serializer)
        producer = self._client.producer(
            topic,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            append_timeout_s=append_timeout_s,
            open_timeout_s=open_timeout_s,
            inflight_bytes_max=inflight_bytes_max,
        )
        if serializers is None:
            return TopicProducer(self._loop, producer)
        return SerializingProducer(self._loop, producer, serializers)

    @overload
    def reader(
        self, stream: str, *, start: Start = ..., end: int | None = ..., follow: bool = ..., read_preference: str = ...,
        timeout_s: float = ..., cursor: None = ..., auto_commit_s: None = ...,
        key_deserializer: Callable[[bytes], Any] | None = ..., value_deserializer: Callable[[bytes], Any] | None = ...,
    ) -> Reader: ...  # fmt: skip

    @overload
    def reader(
        self, stream: str, *, start: Start = ..., end: int | None = ..., follow: bool = ..., read_preference: str = ...,
        timeout_s: float = ..., cursor: str, auto_commit_s: float | None = ...,
        key_deserializer: Callable[[bytes], Any] | None = ..., value_deserializer: Callable[[bytes], Any] | None = ...,
    ) -> CursorReader: ...  # fmt: skip

    def reader(
        self, stream: str, *, start: int | str | datetime | timedelta = "earliest", end: int | None = None,
        follow: bool = False, read_preference: str = "hot_first", timeout_s: float = 30.0,
        cursor: str | None = None, auto_commit_s: float | None = None,
        key_deserializer: Callable[[bytes], Any] | None = None, value_deserializer: Callable[[bytes], Any] | None = None,
    ) -> Reader | CursorReader:  # fmt: skip
        """Return a reader: an iterator of the stream's records in offset order, which may be polled, too.

        The arguments are those of `rangelog.Client.reader`.
        """
        make: Callable[..., Any] = self._client.reader
        made = make(
            stream, start=start, end=end, follow=follow, read_preference=read_preference, timeout_s=timeout_s,
            cursor=cursor, auto_commit_s=auto_commit_s, key_deserializer=key_deserializer,
            value_deserializer=value_deserializer,
        )  # fmt: skip
        return Reader(self._loop, made) if cursor is None else CursorReader(self._loop, made)

    def cursors(self, stream: str) -> StreamCursors:
        """Return the cursors of a stream."""
        return StreamCursors(self._loop, self._client.cursors(stream))

    @property
    def topics(self) -> Topics:
        """The administration of topics."""
        return self._topics

    def topic_reader(
        self,
        topic: str,
        *,
        start: str | Cut | datetime | timedelta = "earliest",
        end: Cut | None = None,
        follow: bool = False,
        read_preference: str = "hot_first",
        timeout_s: float = 30.0,
        key_deserializer: Callable[[bytes], Any] | None = None,
        value_deserializer: Callable[[bytes], Any] | None = None,
    ) -> TopicReader:
        """Return a reader of a topic, to be iterated. The arguments are those of `rangelog.Client.topic_reader`."""
        reader = self._client.topic_reader(
            topic, start=start, end=end, follow=follow, read_preference=read_preference, timeout_s=timeout_s
        )
        return TopicReader(self._loop, reader, shard_deserializer(key_deserializer, value_deserializer))

    @property
    def transactions(self) -> Transactions:
        """The administration of transactions."""
        return Transactions(self._loop, self._client.transactions)

    @overload
    def transactional(
        self, transactional_id: str, *, timeout_s: float = ..., key_serializer: None = ..., value_serializer: None = ...
    ) -> Transactional: ...

    @overload
    def transactional(
        self, transactional_id: str, *, timeout_s: float = ...,
        key_serializer: Callable[[Any], bytes] | None = ..., value_serializer: Callable[[Any], bytes],
    ) -> SerializingTransactional: ...  # fmt: skip

    @overload
    def transactional(
        self, transactional_id: str, *, timeout_s: float = ...,
        key_serializer: Callable[[Any], bytes], value_serializer: None = ...,
    ) -> SerializingTransactional: ...  # fmt: skip

    def transactional(
        self,
        transactional_id: str,
        *,
        timeout_s: float = 60.0,
        key_serializer: Callable[[Any], bytes] | None = None,
        value_serializer: Callable[[Any], bytes] | None = None,
    ) -> Transactional | SerializingTransactional:
        """Return an instance of a transactional id, to be used with `with`. As `rangelog.Client.transactional`."""

        async def make() -> AsyncTransactional:
            return self._client.transactional(transactional_id, timeout_s=timeout_s)

        serializers = _serializers(key_serializer, value_serializer)
        program = self._loop.run(make(), reads=True)
        if serializers is None:
            return Transactional(self._loop, program)
        return SerializingTransactional(self._loop, program, serializers)

    @property
    def tables(self) -> Tables:
        """The administration of tables."""
        return self._tables

    def table(self, name: str) -> Table:
        """Return a table. Raises InvalidArgument."""
        return Table(self._loop, self._client.table(name))

    @property
    def groups(self) -> Groups:
        """The administration of consumer groups."""
        return Groups(self._loop, self._client.groups)

    def group(
        self,
        group: str,
        *topics: str,
        member_id: str | None = None,
        start: str | datetime | Cut = "earliest",
        session_s: float = 10.0,
        auto_commit_s: float | None = None,
        checkpoint_every_s: float | None = None,
        skip_trimmed: bool = False,
        listener: GroupListener | None = None,
        key_deserializer: Callable[[bytes], Any] | None = None,
        value_deserializer: Callable[[bytes], Any] | None = None,
    ) -> GroupMember:
        """Return a member of a consumer group, to be used with `with`. The arguments are those of `rangelog.Client.group`."""

        async def make() -> AsyncGroupMember:
            return self._client.group(
                group,
                *topics,
                member_id=member_id,
                start=start,
                session_s=session_s,
                auto_commit_s=auto_commit_s,
                checkpoint_every_s=checkpoint_every_s,
                skip_trimmed=skip_trimmed,
                listener=listener,
            )

        deserialize = shard_deserializer(key_deserializer, value_deserializer)
        return GroupMember(self._loop, self._loop.run(make(), reads=True), deserialize)

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


def _serializers(key: Callable[[Any], bytes] | None, value: Callable[[Any], bytes] | None) -> Serializers | None:
    """Return them, or None where there is nothing to make. Raises InvalidArgument."""
    return None if key is None and value is None else Serializers(key, value)


_open_clients: set[Client] = set()


@atexit.register
def _close_all() -> None:
    """Close all clients at exit, so that a program without `close` ends without a message."""
    for client in list(_open_clients):
        client.close()


def connect(
    endpoints: str | Sequence[str],
    *,
    token: str | Callable[[], str] | None = None,
    tls: TlsConfig | None = None,
    tier_url: str | None = None,
    encryption_keys: KeyProvider | None = None,
    appends_bytes_max: int = APPENDS_BYTES_MAX,
    fetches_bytes_max: int = FETCHES_BYTES_MAX,
    replica_lag_ms_min: float | None = None,
    replica_lag_ms_max: float | None = None,
    first_contact_s: float = _client.FIRST_CONTACT_S,
) -> Client:
    """Return a blocking client of a cluster. The arguments and errors are those of `rangelog.connect`."""
    loop = LoopThread()
    try:
        connecting = _client.connect(
            endpoints,
            token=token,
            tls=tls,
            tier_url=tier_url,
            encryption_keys=encryption_keys,
            appends_bytes_max=appends_bytes_max,
            fetches_bytes_max=fetches_bytes_max,
            replica_lag_ms_min=replica_lag_ms_min,
            replica_lag_ms_max=replica_lag_ms_max,
            first_contact_s=first_contact_s,
        )
        return Client(loop, loop.run(connecting.made()))
    except BaseException:
        loop.stop()
        raise


_PUBLIC = sorted(
    name for name, each in globals().items() if not name.startswith("_") and "sync" in getattr(each, "__module__", "")
)


def __dir__() -> list[str]:
    """List what a program may use."""
    return _PUBLIC
