"""Readers' side of a cluster: range servers in memory that push, and a placement driver that says what a test wants."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any
from unittest.mock import Mock

from rangelog._read.hot import HotRange
from rangelog._read.reader import Reader
from rangelog._read.stream_watches import StreamWatches
from rangelog_core.errors import StreamNotFound, Unavailable
from rangelog_core.ids import ReplicaId
from rangelog_core.net.data_connection import DataConnections
from rangelog_proto.v1 import common_pb2, pd_pb2
from rangelog_server.testing import batch
from tests.support.memory_server import MemoryServer
from tests.support.pd_calls import CallsByName


class Cluster(CallsByName):
    """One open range of stream 1 on three servers, and what a placement driver would say of it."""

    def __init__(self, servers: list[MemoryServer]) -> None:
        self.servers = servers
        self.stream = common_pb2.Stream(stream_id=1, name="s", epoch=1)
        self.connections = DataConnections()
        self.end = 0
        self.floor_offset = 0
        self.arbitrates = True
        self._missed: list[tuple[MemoryServer, bytes]] = []
        self.pd = self

    async def ranges(
        self, name: str, from_offset: int, *, stream_id: int = 0, last_only: bool = False
    ) -> tuple[common_pb2.Stream, list[common_pb2.Range]]:
        """As Metadata."""
        if stream_id not in (0, self.stream.stream_id):
            raise StreamNotFound(f"stream {name!r} was deleted")
        return self.stream, [self.open_range()]

    async def watch(self, request: pd_pb2.WatchRequest, *, timeout_s: float) -> pd_pb2.WatchResponse:
        """As PdClient, of an early placement driver: readers look by themselves."""
        raise Unavailable("nothing is watched here")

    def open_range(self) -> common_pb2.Range:
        """As the placement driver lists it."""
        replicas = [server.replica for server in self.servers]
        return common_pb2.Range(
            stream_id=1, index=0, epoch=1, replicas=replicas, acks=2, floor_offset=self.floor_offset
        )

    async def prove_end(
        self, source: common_pb2.Range, end_offset: int, holders: Sequence[ReplicaId], timeout_s: float
    ) -> common_pb2.Range:
        """As Metadata."""
        assert len(holders) >= source.acks
        if not self.arbitrates:
            raise Unavailable("no placement driver leads")
        self.floor_offset = max(self.floor_offset, end_offset)
        return self.open_range()

    def follow(self, **options: Any) -> tuple[asyncio.Task[None], list[int]]:
        """Start a follower; return its task, and the list that gets the offsets of what it shows."""
        seen: list[int] = []

        async def follow() -> None:
            async for record in self.reader(follow=True, **options):
                seen.append(record.offset)

        return asyncio.create_task(follow()), seen

    def append(self, count: int, *, size: int = 1_000, confirmed: bool = True) -> None:
        """A batch of one record each, to all."""
        for _ in range(count):
            data = batch(self.end, [b"%d" % self.end + b"." * size])
            self.end += 1
            for server in self.servers:
                server.append(data)
        if confirmed:
            for server in self.servers:
                server.confirm(self.end)

    def append_to_others(self, number: int) -> None:
        """A batch of one record to all servers but one, which does not hear of it."""
        data = batch(self.end, [b"%d" % self.end])
        self.end += 1
        self._missed.append((self.servers[number], data))
        for server in self.servers:
            if server is not self.servers[number]:
                server.append(data)
                server.confirm(self.end)

    def catch_up(self) -> None:
        """Give what they missed to those that did not hear of it."""
        for server, data in self._missed:
            server.append(data)
            server.confirm(self.end)
        self._missed.clear()

    def reader(self, **options: Any) -> Reader:
        """A reader of the stream."""
        metadata: Any = self
        defaults: dict[str, Any] = {"start": "earliest", "end": None, "follow": False, "timeout_s": 5.0}
        return Reader(
            metadata,
            self.connections,
            Mock(),
            StreamWatches(metadata),
            "s",
            read_preference="hot_only",
            **(defaults | options),
        )

    async def heard_from_all(self) -> None:
        """Wait until what the servers have sent so far was dealt with: their answers come after it."""
        _, (source,) = await self.ranges("s", 0)
        for _ in range(3):
            assert len(await HotRange(self.connections, source).ask_all()) == 3

    def fetches(self) -> list[int]:
        """How many fetches each server has under way."""
        return [server.fetches() for server in self.servers]


async def at_once(attempt: int) -> None:
    """In place of `backoff`: the next try comes in the next turn of the loop."""
    await asyncio.sleep(0)
