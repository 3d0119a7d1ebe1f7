"""rangelog itself as a measured system: a local cluster of its own, or one that runs already.

As recommended to users: uvloop where it is installed (see `command`), one client, one writer kept open, no future per record
where none is needed. `pump_writer` is the only function with the fastest way to append.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import time
import uuid
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import rangelog
from rangelog_bench.system import Stop, System
from rangelog_bench.workload import SHARED
from rangelog_cli.local.health import leader, wait_healthy
from rangelog_cli.local.processes import Cluster
from rangelog_core.errors import InvalidArgument
from rangelog_core.stream_config import StreamConfig

if TYPE_CHECKING:
    from rangelog import Client, Writer

NAME = "rangelog"
SETTING = "flushed on 2 of 3"
RANGE_SERVERS = 3
RANGE_SERVERS_FOR_FAILOVER = 4
"""One more than a range needs, so that there are enough for the next range."""
_SUBMITS_AT_ONCE = 64
_OPEN_TIMEOUT_S = 60.0


async def pump_writer(writer: Writer, payload: bytes, end_s: float) -> int:
    """Append the payload as fast as the client can until `end_s` (of time.monotonic); return how many were acked."""
    first = writer.next_offset
    while time.monotonic() < end_s:
        for _ in range(_SUBMITS_AT_ONCE):
            writer.append_nowait(payload)
        await writer.ready()
    await writer.flush()
    return writer.confirm_offset - first


class Rangelog(System):
    """Our own cluster in `directory`, or (without failover) the one at `against`."""

    name = NAME
    setting = SETTING
    with_tls = False
    """Of all clusters of its own that are started from now on: mutual TLS on all ports."""
    append_timeout_s = 60.0
    """The writer itself retries; a second append here would be a second record."""

    def __init__(self, directory: Path, against: str | None = None) -> None:
        self.directory = directory
        self._against = against
        self._cluster: Cluster | None = None
        self._client: Client | None = None
        self._writer: Writer | None = None
        self._stream = ""
        self.abilities = SHARED - {"failover"} if against else SHARED

    @property
    def cluster(self) -> Cluster:
        """The cluster of its own. Raises InvalidArgument when another cluster is measured."""
        if self._cluster is None:
            raise InvalidArgument("this measurement kills or reconfigures servers: leave out --against")
        return self._cluster

    @property
    def endpoints(self) -> str:
        """The addresses for `rangelog.connect`."""
        return self._against or self.cluster.connect_string

    @property
    def client(self) -> Client:
        """The connected client."""
        assert self._client is not None
        return self._client

    @property
    def writer(self) -> Writer:
        """The writer of the log in use."""
        assert self._writer is not None
        return self._writer

    async def start(self) -> None:
        """Start the servers and connect."""
        if self._against is None:
            await self.start_cluster(RANGE_SERVERS)
        else:
            self._client = await rangelog.connect(self._against)

    async def start_cluster(
        self, range_servers: int, *, pds: int = 3, brokers: int = 0, tier_url: str | None = None
    ) -> None:
        """Start the cluster in the directory (or start it again, with more range servers) and connect to it."""
        self._cluster = Cluster.open(
            self.directory / "cluster", pds=pds, range_servers=range_servers, brokers=brokers, tier_url=tier_url,
            tls=self.with_tls or None,
            env={"RANGELOG_PD_REPACK_TARGET_BYTES": "0"},  # what is tiered stays as it is while it is measured
        )  # fmt: skip
        if self._cluster.client_tls is not None:  # for all clients, those in processes of their own as well
            self._cluster.client_tls.to_environment(os.environ)
        await asyncio.to_thread(self._cluster.start)
        await asyncio.to_thread(wait_healthy, self._cluster)
        self._client = await rangelog.connect(self._cluster.connect_string)

    async def stop(self) -> None:
        """End everything that `start` started and remove its files. Idempotent, also after a failed start."""
        await self.stop_cluster()
        shutil.rmtree(self.directory, ignore_errors=True)

    async def stop_cluster(self) -> None:
        """Disconnect and stop every process; the data stays."""
        if self._client is not None:
            if self._stream and self._against:
                await self._drop_stream()
            await self._client.close()
        self._client = self._writer = None
        self._stream = ""
        if self._cluster is not None:
            await asyncio.to_thread(self._cluster.stop)
            self._cluster = None

    def pids(self) -> Mapping[str, int]:
        """Name → pid of the servers that run; empty for another cluster."""
        if self._cluster is None:
            return {}
        return {name: each.pid for name, each in self._cluster.members.items() if each.running}

    async def fresh_log(self) -> None:
        """Go on with a new, empty log; the old one may go."""
        if self._stream:
            await self._drop_stream()
        self._stream = await self.new_stream()
        self._writer = self.client.writer(self._stream, open_timeout_s=_OPEN_TIMEOUT_S)
        await self._writer.open()

    async def new_stream(self, **config: Any) -> str:
        """Create a stream, by default one that is never tiered (no peer does that beside the appends); its name."""
        name = f"bench-{uuid.uuid4().hex[:12]}"
        await self.client.create_stream(name, StreamConfig(**({"tiered": False} | config)))
        return name

    async def _drop_stream(self) -> None:
        name, self._stream = self._stream, ""
        if self._writer is not None:
            await self._writer.close(flush=False)
        await self.client.delete_stream(name)

    # ---- the workload

    async def pump(self, payload: bytes, seconds: float) -> int:
        """Append the payload as often as possible for so long; return how many were acked, once all sent are."""
        return await pump_writer(self.writer, payload, time.monotonic() + seconds)

    async def append(self, payload: bytes) -> None:
        """Append one record and return once it is acked."""
        await self.writer.append(payload)

    def send(self, payload: bytes, on_acked: Callable[[], None]) -> None:
        """Append without waiting, and without a task per record; `on_acked` is called once it is acked."""
        self.writer.submit(payload).add_done_callback(lambda done: on_acked() if done.exception() is None else None)

    async def read_all(self, count: int) -> int:
        """Read the log in chunks of the SDK until `count` records came, and access every record; return how many came."""
        came = size_bytes = 0
        async for chunk in self.client.reader(self._stream, end=count).chunks():
            for record in chunk:
                size_bytes += len(record.value)
            came += len(chunk)
        assert size_bytes
        return came

    async def read_all_arrow(self, count: int) -> int:
        """The same as Arrow, never as records."""
        came = 0
        async for chunk in arrow_chunks(self.client, self._stream, end=count):
            came += sum(table.num_rows for table in chunk)
        return came

    async def tail(self, on_record: Callable[[bytes], None]) -> Stop:
        """Deliver every record that is appended from now on; returns what ends it."""
        reader = self.client.reader(self._stream, start="latest", follow=True)

        async def follow() -> None:
            async for chunk in reader.chunks():
                for record in chunk:
                    on_record(record.value)

        following = asyncio.create_task(follow())

        async def stop() -> None:
            following.cancel()
            await asyncio.wait([following])

        return stop

    # ---- failover

    async def prepare_failover(self) -> None:
        """Add one more range server, in the same directory."""
        await self.stop_cluster()
        await self.start_cluster(RANGE_SERVERS_FOR_FAILOVER)

    async def in_charge(self) -> str:
        """Return a server with a replica of the open range, since no server leads a range."""
        _, ranges = await self.client.metadata.ranges(self._stream, 0)
        return str(ranges[-1].replicas[0].server)

    async def pd_leader(self) -> str:
        """Name of the placement driver that leads."""
        return await asyncio.to_thread(leader, self.cluster.pd_addresses, self.cluster.tls)

    def kill(self, name: str) -> None:
        """`kill -9` it."""
        self.cluster.kill(name)

    async def restore(self, name: str) -> None:
        """Start it again and return once the log has all its copies."""
        await asyncio.to_thread(self.cluster.start_member, name)
        await asyncio.to_thread(wait_healthy, self.cluster)


async def arrow_chunks(
    client: Client, stream: str, *, end: int, read_preference: str = "hot_first"
) -> AsyncIterator[list[Any]]:
    """Yield lists of Arrow record batches of [0, end), which must be acked."""
    from rangelog.spark.reading import ArrowReader

    reader = ArrowReader(
        client.metadata,
        client.connections,
        client.cold_reader(),
        client.watches,
        stream,
        start=0,
        end=end,
        follow=False,
        read_preference=read_preference,
        timeout_s=60.0,
        resolved=True,
    )
    async for chunk in reader.chunks():
        yield chunk
