"""The client: connections to a cluster, and the operations on streams."""

from __future__ import annotations

import math
import os
import socket
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, overload

from rangelog._append.fencing import fence_deleted
from rangelog._append.placement_calls import PlacementCalls
from rangelog._append.serializing import Serializers, SerializingWriter
from rangelog._append.shared_dials import SharedDials
from rangelog._append.writer import Writer
from rangelog._arguments import checked_arguments
from rangelog._client_topics import TopicOperations
from rangelog._connecting import Connecting
from rangelog._internal_streams import InternalStreams
from rangelog._lag_settings import chosen_lag_limits
from rangelog._metadata import CALL_TIMEOUT_S, Metadata
from rangelog._read.cold import ColdReader, ColdStores
from rangelog._read.cursor_reader import CursorReader
from rangelog._read.cursors import CursorCalls, StreamCursors
from rangelog._read.deserializing import deserializer
from rangelog._read.reader import Reader, Start
from rangelog._read.stream_view import StreamView, confirmed_end
from rangelog._read.stream_watches import StreamWatches
from rangelog._stream_info import StreamInfo, stream_info
from rangelog.protocol.lag_limits import LagLimits
from rangelog_core.errors import InvalidArgument, StreamExists
from rangelog_core.ids import check_name, check_readable_name
from rangelog_core.limits import APPENDS_BYTES_MAX, BUDGET_BYTES_MIN, FETCHES_BYTES_MAX, INFLIGHT_BYTES_MAX
from rangelog_core.net.data_connection import DataConnections
from rangelog_core.net.pd_client import PdClient
from rangelog_core.net.tls import TlsConfig
from rangelog_core.net.token_sources import Token, token_from_environment
from rangelog_core.record import AppendRecord, BytesLike
from rangelog_core.stream_config import StreamConfig, StreamConfigChange, config_message

if TYPE_CHECKING:
    from rangelog_tier.encryption_keys import KeyProvider

DEFAULT_CONFIG = StreamConfig()
FIRST_CONTACT_S = 1.0
"""Where nothing is at any of the addresses, a new client says so after about this time."""


@checked_arguments
class Client(TopicOperations):
    """The client of one cluster. Make it with `rangelog.connect`, use it with `async with`; one per process is enough.

    Every method may raise InvalidArgument for a bad name, Unauthorized, Unavailable and RequestTimeout. Times are in seconds.

    Example:
        ```python
        async with rangelog.connect("127.0.0.1:7100") as client:
            await client.create_stream("flights")
        ```
    """

    def __init__(
        self,
        endpoints: str | Sequence[str],
        *,
        token: Token | None,
        tls: TlsConfig | None,
        tier_url: str | None,
        encryption_keys: KeyProvider | None = None,
        appends_bytes_max: int = APPENDS_BYTES_MAX,
        fetches_bytes_max: int = FETCHES_BYTES_MAX,
        lag_limits: LagLimits | None = None,
        pd: PdClient | None = None,
        connections: DataConnections | None = None,
        first_contact_s: float = math.inf,
    ) -> None:
        """`pd`, `connections`: used in place of those that would be made (see rangelog.testing).

        `lag_limits`: of writers; None: those of the environment. `first_contact_s`: see PdClient.
        """
        _check_budget("appends_bytes_max", appends_bytes_max)
        _check_budget("fetches_bytes_max", fetches_bytes_max)
        listed = endpoints.split(",") if isinstance(endpoints, str) else list(endpoints)
        self._pd = pd or PdClient(
            [each.strip() for each in listed if each.strip()], token=token, tls=tls, first_contact_s=first_contact_s
        )
        self._metadata = Metadata(self._pd)
        self._cold_stores = ColdStores(self._metadata, tier_url, encryption_keys)
        self._connections = connections or DataConnections(
            token=token,
            tls=tls,
            client_name=f"{socket.gethostname()}/{os.getpid()}",
            appends_bytes_max=appends_bytes_max,
            fetches_bytes_max=fetches_bytes_max,
        )
        self._watches = StreamWatches(self._metadata)
        self._cursor_calls = CursorCalls(self._metadata)
        self._placement_calls = PlacementCalls(self._metadata)
        self._dials = SharedDials(self._connections, self._placement_calls)
        self._internal = InternalStreams(
            self._metadata, self._connections, self._placement_calls, self._dials, self._watches, self._cold_stores,
            lag_limits or chosen_lag_limits(None, None),
        )  # fmt: skip
        self._open_topics(token=token, tls=tls)

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close writers and producers, without a flush, and all connections. Idempotent; on another loop InvalidArgument."""
        self._pd.home.check()
        for writer in list(self._internal.writers):
            await writer.close(flush=False)
        self._internal.close()
        await self._close_topics()
        self._dials.close()
        self._placement_calls.close()
        self._cursor_calls.close()
        self._watches.close()
        self._cold_stores.close()
        await self._connections.close()
        await self._pd.close()

    # ---- streams

    async def create_stream(
        self,
        name: str,
        config: StreamConfig = DEFAULT_CONFIG,
        *,
        exist_ok: bool = False,
        timeout_s: float = CALL_TIMEOUT_S,
    ) -> StreamInfo:
        """Create a stream.

        Args:
            name: Letters, digits, ".", "_" and "-".
            config: The stream's configuration.
            exist_ok: Return the stream as it is where one with this name exists, whatever its configuration.
            timeout_s: Limit in seconds.

        Returns:
            The stream, with the cluster's defaults filled in.

        Raises:
            StreamExists: A stream with this name exists.
            InvalidArgument: The name or the configuration is not valid.
            OutcomeUnknown: The stream may or may not have been created.

        Example:
            ```python
            await client.create_stream("clicks", StreamConfig(retention_seconds=timedelta(days=7)))
            ```
        """
        message, _ = config_message(config)
        try:
            return stream_info(await self._metadata.create_stream(check_name("stream", name), message, timeout_s))
        except StreamExists:
            if not exist_ok:
                raise
            return await self.describe_stream(name, timeout_s=timeout_s)

    async def describe_stream(self, name: str, *, timeout_s: float = CALL_TIMEOUT_S) -> StreamInfo:
        """Return the current state of a stream. Raises StreamNotFound, Unavailable."""
        return stream_info(await self._metadata.describe_stream(check_name("stream", name), timeout_s))

    async def list_streams(self, prefix: str = "", *, after: str = "") -> AsyncIterator[StreamInfo]:
        """Yield the streams whose names start with `prefix` and come after the name `after`, in order of names."""
        async for stream in self._metadata.list_streams(prefix, after):
            yield stream_info(stream)

    async def update_stream(
        self, name: str, change: StreamConfigChange, *, timeout_s: float = CALL_TIMEOUT_S
    ) -> StreamInfo:
        """Change a stream's configuration. A writer applies the change when it next opens the stream.

        Args:
            name: The stream.
            change: The fields to change; at least one.
            timeout_s: Limit in seconds.

        Returns:
            The stream after the change.

        Raises:
            StreamNotFound: The stream does not exist.
            InvalidArgument: The change is empty or not valid.
            OutcomeUnknown: The change may or may not have been made.

        Example:
            ```python
            await client.update_stream("clicks", StreamConfigChange(hot_retention_seconds=3600))
            ```
        """
        message, fields = config_message(change)
        if not fields:
            raise InvalidArgument("the change gives no field: set at least one")
        return stream_info(await self._metadata.update_stream(check_name("stream", name), message, fields, timeout_s))

    async def delete_stream(self, name: str, *, timeout_s: float = CALL_TIMEOUT_S) -> None:
        """Delete a stream and all its records. An append that begins after the return is not acked, by any writer.

        If too few servers of the open range answer, the call returns after 5 s. A writer that is partitioned together with
        them may then still get acks, until they learn of the deletion.

        Args:
            name: The stream.
            timeout_s: Limit of the placement driver's part in seconds.

        Raises:
            StreamNotFound: The stream does not exist.
            OutcomeUnknown: The stream may or may not have been deleted.
        """
        deleted = await self._metadata.delete_stream(check_name("stream", name), timeout_s)
        await fence_deleted(self._connections, deleted)

    async def trim_stream(self, name: str, trim_offset: int) -> StreamInfo:
        """Remove all records below `trim_offset`; return the stream. Raises StreamNotFound, OffsetOutOfRange."""
        return stream_info(await self._metadata.trim_stream(check_name("stream", name), trim_offset))

    async def seal_stream(self, name: str, *, timeout_s: float = 30.0) -> int:
        """Fence the stream's writer and seal the open range, if there is one.

        Args:
            name: The stream.
            timeout_s: Limit in seconds.

        Returns:
            The end offset of the stream.

        Raises:
            StreamNotFound: The stream does not exist.
            SealBlocked: Too few replicas answer.
        """
        return (await self._internal.settle_end(check_name("stream", name), timeout_s=timeout_s)).end_offset

    # ---- records

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
        """Return a writer of the stream, to be used with `async with`. Its opening fences any earlier writer.

        The hundredth open writer raises the thresholds of Python's garbage collector, unless the program has set its own.

        Args:
            stream: The stream's name.
            append_timeout_s: Default limit of an append, flush or wait in seconds.
            open_timeout_s: Limit of the opening in seconds.
            inflight_bytes_max: Bytes that may be appended and not acked before `ready` waits.
            key_serializer: Function that makes bytes of whatever the program appends as a key.
            value_serializer: The same for values.
        """
        writer = self._internal.writer(
            check_name("stream", stream),
            append_timeout_s=append_timeout_s,
            open_timeout_s=open_timeout_s,
            inflight_bytes_max=inflight_bytes_max,
        )
        if key_serializer is None and value_serializer is None:
            return writer
        return SerializingWriter(writer, Serializers(key_serializer, value_serializer))

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
        self,
        stream: str,
        *,
        start: int | str | datetime | timedelta = "earliest",
        end: int | None = None,
        follow: bool = False,
        read_preference: str = "hot_first",
        timeout_s: float = 30.0,
        cursor: str | None = None,
        auto_commit_s: float | None = None,
        key_deserializer: Callable[[bytes], Any] | None = None,
        value_deserializer: Callable[[bytes], Any] | None = None,
    ) -> Reader | CursorReader:
        """Return a reader: an asynchronous iterator of records in offset order.

        Args:
            stream: The stream's name.
            start: An offset; -n: the last n records; "earliest", "latest"; a datetime: the first record at or after that time;
                a timedelta: so long ago by this program's clock. A start other than an offset moves behind what is trimmed
                before the first record is handed out.
            end: Stop before this offset; None: no such bound.
            follow: Wait for new records. Otherwise the reader ends at the last record that is acked when it starts.
            read_preference: "hot_first", "cold_first", "hot_only" or "cold_only".
            timeout_s: How long to retry while no copy can be read, in seconds.
            cursor: Begin at this cursor of the stream, and at `start` only where there is none. The reader has a `commit`,
                which moves the cursor behind what was handed out.
            auto_commit_s: With a cursor: also commit what is processed every so many seconds, and at the end.
            key_deserializer: Function of bytes; its result is the record's `key`, if it has one. `chunks` stay as they are.
                The record of which it raises counts as handed out.
            value_deserializer: The same for `value`.

        Raises:
            InvalidArgument: An argument is not valid. The reader itself raises the errors of `Reader.chunks`; one with a
                cursor OffsetTrimmed where the cursor is below the trim offset.
        """
        check_name("stream", stream)
        deserialize = deserializer(key_deserializer, value_deserializer)
        reader: Reader | CursorReader
        if cursor is not None:
            reader = CursorReader(
                self._cursor_calls, cursor, self._metadata, self._connections, self.cold_reader(), self._watches, stream,
                auto_commit_s=auto_commit_s, start=start, end=end, follow=follow, read_preference=read_preference,
                timeout_s=timeout_s,
            )  # fmt: skip
        elif auto_commit_s is not None:
            raise InvalidArgument("auto_commit_s needs a cursor to commit to")
        else:
            reader = Reader(
                self._metadata, self._connections, self.cold_reader(), self._watches, stream,
                start=start, end=end, follow=follow, read_preference=read_preference, timeout_s=timeout_s,
            )  # fmt: skip
        reader.deserialize = deserialize
        return reader

    def cursors(self, stream: str) -> StreamCursors:
        """Return the cursors of a stream: named positions of its consumers. Raises InvalidArgument."""
        return StreamCursors(self._cursor_calls, self._metadata, self._connections, check_name("stream", stream))

    @property
    def internal(self) -> InternalStreams:
        """Any stream, those of shards and journals among them. For brokers, and the package's own use."""
        return self._internal

    def cold_reader(self) -> ColdReader:
        """Return a reader of tiered ranges; one per Reader. For the package's own use."""
        return ColdReader(self._metadata, self._cold_stores)

    @property
    def metadata(self) -> Metadata:
        """The calls on the placement driver. For the package's own use."""
        return self._metadata

    @property
    def connections(self) -> DataConnections:
        """The connections to range servers. For the package's own use."""
        return self._connections

    @property
    def watches(self) -> StreamWatches:
        """The watches of streams. For the package's own use."""
        return self._watches

    async def end_offset(self, stream: str) -> int:
        """Return one past the offset of the last acked record. With a silent replica the most recent acks may be missing.

        `stream` may be the one behind a shard of a topic. Raises StreamNotFound, Unavailable.
        """
        view = StreamView(self._metadata, check_readable_name(stream), connections=self._connections)
        return (await confirmed_end(view, self._connections)).offset

    async def append(
        self, stream: str, values: Iterable[BytesLike | AppendRecord], *, expected_end: int | None = None
    ) -> int:
        """Open a writer, append `values`, close it; return the first offset. For scripts: an open writer is far cheaper.

        With `expected_end` nothing is appended unless the stream ends there (docs/sdk.md); an earlier writer is fenced all
        the same. Raises as `Writer.open` and `Writer.append_batch`.
        """
        async with self.writer(stream) as writer:
            first = writer.next_offset
            await writer.append_batch(values, expected_end=expected_end)
            return first


def _check_budget(name: str, size_bytes: int) -> None:
    if type(size_bytes) is not int or size_bytes < BUDGET_BYTES_MIN:
        raise InvalidArgument(f"{name} must be a whole number of bytes from {BUDGET_BYTES_MIN} up, not {size_bytes!r}")


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
    first_contact_s: float = FIRST_CONTACT_S,
) -> Connecting:
    """Return a client of a cluster: await it, or use `async with`. No request is sent: the first call finds who leads.

    Args:
        endpoints: Addresses of placement drivers: "host:port,host:port", or a sequence of them.
        token: The token of this program, or the one that the cluster shares: a string, `rangelog.TokenFile(path)`, or a
            function that returns it. A file or function is asked again for each call, so a new token needs no new client.
            None: what RANGELOG_TOKEN or RANGELOG_TOKEN_FILE name, where one is set.
        tls: This program's certificate, where the cluster has TLS. None: that of RANGELOG_TLS_CA, RANGELOG_TLS_CERT and
            RANGELOG_TLS_KEY, where they are set.
        tier_url: The object store's URL, where this program reaches it by another URL than the cluster.
        encryption_keys: The keys of encrypted objects, `KeyDirectory` or `KmsKeys`. None: those that
            RANGELOG_ENCRYPTION_KEYS_DIR or RANGELOG_ENCRYPTION_KMS_KEY_ID names, where one is set.
        appends_bytes_max: Bytes that all writers of the client have sent and that are not acked, 1 MiB or more. Each writer
            may have one batch in flight beyond it.
        fetches_bytes_max: Bytes that all readers of the client may have received and not read yet, 1 MiB or more. Each
            reader may have 64 KiB beyond it.
        replica_lag_ms_min: How long a replica may hold a writer's batches back at least until the writer takes it for slow and
            leaves its range, in ms; between both limits ten times what confirms take of late. None: what
            RANGELOG_REPLICA_LAG_MS_MIN says, where it is set, else 500.
        replica_lag_ms_max: How long at most: None: what RANGELOG_REPLICA_LAG_MS_MAX says, else 2,000. More than an append's
            limit makes appends end with AppendTimeout where one replica too many stands still.
        first_contact_s: Until a placement driver has answered once, a call gives up after so many seconds where nothing is at
            any of the addresses, in place of its own limit: most likely they are wrong.

    Raises:
        InvalidArgument: An address or a limit is not valid.
        ConfigInvalid: The files of `tls` cannot be used, the certificate has expired, or a variable is not valid.

    Example:
        ```python
        async with rangelog.connect("127.0.0.1:7100,127.0.0.1:7101,127.0.0.1:7102") as client: ...
        client = await rangelog.connect("127.0.0.1:7100")
        ```
    """
    return Connecting(
        lambda: Client(
            endpoints,
            token=token if token is not None else token_from_environment(),
            tls=tls or TlsConfig.from_environment(),
            tier_url=tier_url,
            encryption_keys=encryption_keys,
            appends_bytes_max=appends_bytes_max,
            fetches_bytes_max=fetches_bytes_max,
            lag_limits=chosen_lag_limits(replica_lag_ms_min, replica_lag_ms_max),
            first_contact_s=first_contact_s,
        )
    )
