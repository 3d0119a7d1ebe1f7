"""The client: connections to a cluster, and the verbs on streams."""

from __future__ import annotations

import os
import socket
from collections.abc import AsyncIterator, Callable, Iterable, Sequence

from rangelog._append.fencing import fence_deleted
from rangelog._append.placement_calls import PlacementCalls
from rangelog._append.roll import leave_range
from rangelog._append.takeover import take_over
from rangelog._append.writer import Writer
from rangelog._metadata import CALL_TIMEOUT_S, Metadata
from rangelog._read.cold import ColdReader, ColdStores
from rangelog._read.reader import Reader, Start, StreamView, confirmed_end
from rangelog._read.stream_watches import StreamWatches
from rangelog._stream_info import StreamInfo, stream_info
from rangelog_core.errors import InvalidArgument
from rangelog_core.ids import check_name
from rangelog_core.limits import INFLIGHT_BYTES_MAX
from rangelog_core.net.data_connection import DataConnections
from rangelog_core.net.grpc_options import TlsConfig
from rangelog_core.net.pd_client import PdClient
from rangelog_core.stream_config import StreamConfig, StreamConfigChange, config_message

Endpoints = str | Sequence[str]

DEFAULT_CONFIG = StreamConfig()


class Client:
    """A connection to one cluster. Make it with `rangelog.connect`, use it with `async with`; one per process is enough."""

    def __init__(
        self,
        endpoints: Endpoints,
        *,
        token: str | None,
        tls: TlsConfig | None,
        tier_url: str | None,
        pd: PdClient | None = None,
        connections: DataConnections | None = None,
    ) -> None:
        """`pd`, `connections`: used in place of those that would be made (see rangelog.testing)."""
        listed = endpoints.split(",") if isinstance(endpoints, str) else list(endpoints)
        self._pd = pd or PdClient([each.strip() for each in listed if each.strip()], token=token, tls=tls)
        self._metadata = Metadata(self._pd)
        self._cold_stores = ColdStores(self._metadata, tier_url)
        self._connections = connections or DataConnections(
            token=token,
            tls=tls.ssl_context() if tls is not None else None,
            client_name=f"{socket.gethostname()}/{os.getpid()}",
        )
        self._writer_class: Callable[..., Writer] = Writer
        self._watches = StreamWatches(self._metadata)
        self._placement_calls = PlacementCalls(self._metadata)
        self._writers: dict[Writer, None] = {}

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close writers (without flushing), connections and channels. Idempotent."""
        for writer in list(self._writers):
            await writer.close(flush=False)
        self._placement_calls.close()
        self._watches.close()
        self._cold_stores.close()
        await self._connections.close()
        await self._pd.close()

    # ---- streams

    async def create_stream(
        self, name: str, config: StreamConfig = DEFAULT_CONFIG, *, timeout_s: float = CALL_TIMEOUT_S
    ) -> StreamInfo:
        """Create a stream.

            await client.create_stream("clicks", StreamConfig(retention_seconds=timedelta(days=7)))

        Raises StreamExists, InvalidArgument, Unavailable, OutcomeUnknown.
        """
        message, _ = config_message(config)
        return stream_info(await self._metadata.create_stream(check_name("stream", name), message, timeout_s))

    async def describe_stream(self, name: str, *, timeout_s: float = CALL_TIMEOUT_S) -> StreamInfo:
        """Return a stream as it is now. Raises StreamNotFound, Unavailable."""
        return stream_info(await self._metadata.describe_stream(check_name("stream", name), timeout_s))

    async def list_streams(self, prefix: str = "") -> AsyncIterator[StreamInfo]:
        """Yield the streams whose names start with `prefix`, by name."""
        async for stream in self._metadata.list_streams(prefix):
            yield stream_info(stream)

    async def update_stream(
        self, name: str, change: StreamConfigChange, *, timeout_s: float = CALL_TIMEOUT_S
    ) -> StreamInfo:
        """Change what `change` gives; the rest stays. Writers see the change at their next open.

            await client.update_stream("clicks", StreamConfigChange(hot_retention_seconds=3600))

        Raises StreamNotFound, InvalidArgument (a change of nothing, too), Unavailable, OutcomeUnknown.
        """
        message, fields = config_message(change)
        if not fields:
            raise InvalidArgument("the change gives no field: set at least one")
        return stream_info(await self._metadata.update_stream(check_name("stream", name), message, fields, timeout_s))

    async def delete_stream(self, name: str, *, timeout_s: float = CALL_TIMEOUT_S) -> None:
        """Delete a stream and all it holds. An append that begins after this returned is not acked, whoever wrote.

        Where too few of the range servers answer that held its open range, it returns after 5 s all the same; a writer that
        is cut off together with them may then still get acks, until they hear of the deletion. `timeout_s` bounds the
        placement driver's part. Raises StreamNotFound, OutcomeUnknown.
        """
        deleted = await self._metadata.delete_stream(check_name("stream", name), timeout_s)
        await fence_deleted(self._connections, deleted)

    async def trim_stream(self, name: str, trim_offset: int) -> StreamInfo:
        """Let everything below `trim_offset` go. Raises StreamNotFound, OffsetOutOfRange."""
        return stream_info(await self._metadata.trim_stream(check_name("stream", name), trim_offset))

    async def seal_stream(self, name: str, *, timeout_s: float = 30.0) -> int:
        """Fence whoever writes, seal the open range if there is one, and return where the stream ends.

        Raises SealBlocked when too few replicas answer.
        """
        taken = await take_over(self._metadata, self._connections, check_name("stream", name), timeout_s=timeout_s)
        if taken.left is not None:
            stream = taken.stream
            await leave_range(self._connections, stream.stream_id, stream.epoch, taken.left, taken.addresses)
        return taken.end_offset

    # ---- records

    def writer(
        self,
        stream: str,
        *,
        append_timeout_s: float = 30.0,
        open_timeout_s: float = 30.0,
        inflight_bytes_max: int = INFLIGHT_BYTES_MAX,
    ) -> Writer:
        """Return the stream's writer, to be used with `async with`: opening it fences any earlier one."""
        writer = self._writer_class(
            self._metadata,
            self._connections,
            self._placement_calls,
            check_name("stream", stream),
            append_timeout_s=append_timeout_s,
            open_timeout_s=open_timeout_s,
            inflight_bytes_max=inflight_bytes_max,
        )
        self._writers[writer] = None
        writer.on_closed = self._writers.pop
        return writer

    def reader(
        self,
        stream: str,
        *,
        start: Start = "earliest",
        end: int | None = None,
        follow: bool = False,
        read_preference: str = "hot_first",
        timeout_s: float = 30.0,
    ) -> Reader:
        """Return an asynchronous iterator of records.

        `start`: an offset, "earliest", "latest", or a datetime (the first record at or after it). `end`: stop before this
        offset. Without `follow` it ends at what is acked when it starts; with it, it waits for more. `timeout_s`: how
        long to go on trying where no copy can be read.
        """
        return Reader(
            self._metadata,
            self._connections,
            self.cold_reader(),
            self._watches,
            check_name("stream", stream),
            start=start,
            end=end,
            follow=follow,
            read_preference=read_preference,
            timeout_s=timeout_s,
        )

    def cold_reader(self) -> ColdReader:
        """Return something to read tiered ranges with; one per reader. For the package's own use."""
        return ColdReader(self._metadata, self._cold_stores)

    @property
    def metadata(self) -> Metadata:
        """What the placement driver is asked through. For the package's own use."""
        return self._metadata

    @property
    def connections(self) -> DataConnections:
        """The connections to range servers. For the package's own use."""
        return self._connections

    @property
    def watches(self) -> StreamWatches:
        """What tells readers of changes. For the package's own use."""
        return self._watches

    async def end_offset(self, stream: str) -> int:
        """Return one past the last acked record; with a replica silent, what was acked a moment ago may be missing.

        Raises StreamNotFound, Unavailable.
        """
        view = StreamView(self._metadata, check_name("stream", stream))
        return (await confirmed_end(view, self._connections)).offset

    async def append(self, stream: str, values: Iterable[bytes]) -> int:
        """Open a writer, append, close it; returns the first offset. For scripts: a writer kept open is far cheaper."""
        async with self.writer(stream) as writer:
            first = writer.next_offset
            await writer.append_batch(values)
            return first


async def connect(
    endpoints: Endpoints, *, token: str | None = None, tls: TlsConfig | None = None, tier_url: str | None = None
) -> Client:
    """Connect to a cluster by its placement drivers: "host:port,host:port".

    Nothing is sent yet: the first call finds the leader. `tier_url` overrides the object store's address as the cluster
    knows it. Raises InvalidArgument on bad endpoints.
    """
    return Client(endpoints, token=token, tls=tls, tier_url=tier_url)
