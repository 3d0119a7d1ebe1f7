"""A broker made by hand for tests of topics: it sends heartbeats, writes to shards, and ends those that scale or seal."""

from __future__ import annotations

import asyncio
import threading
import uuid
from collections.abc import Awaitable, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Self, TypeVar

import rangelog
from rangelog._append.placement_calls import PlacementCalls
from rangelog._append.roll import leave_range
from rangelog._append.takeover import take_over
from rangelog._append.writer import Writer
from rangelog_core.errors import RangelogError
from rangelog_core.ids import shard_stream_name
from rangelog_core.net.pd_client import PdClient
from rangelog_proto.v1 import broker_pb2, pd_pb2, topic_pb2

TIMEOUT_S = 10.0
PAUSE_S = 0.1

_T = TypeVar("_T")


class HandBroker:
    """Runs on a thread of its own between `with`; `idle` keeps it from ending shards.

    It owns what nobody else writes: the tests have one of it, and the epochs of streams decide anyway.
    """

    def __init__(self, connect_string: str, name: str) -> None:
        self.name = name
        self.idle = False
        self.failed: list[BaseException] = []
        self._connect_string = connect_string
        self._incarnation = uuid.uuid4().int & ((1 << 63) - 1) or 1
        self._writers: dict[tuple[int, int], Writer] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self._run(self._start())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._run(self._stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(TIMEOUT_S)
        self._loop.close()
        assert not self.failed, self.failed

    def write(self, topic_id: int, shard_id: int, values: Sequence[bytes]) -> None:
        """Append to a shard, as its owner does, and leave the range open."""
        self._run(self._write(topic_id, shard_id, values))

    def _run(self, work: Awaitable[_T]) -> _T:
        async def call() -> _T:
            return await work

        return asyncio.run_coroutine_threadsafe(call(), self._loop).result(60)

    # ---- on the thread

    async def _start(self) -> None:
        self._client = await rangelog.connect(self._connect_string)
        self._pd = PdClient(self._connect_string.split(","))
        self._topics, self._brokers = self._pd, self._pd
        await self._brokers.call(
            broker_pb2.RegisterBrokerRequest(
                request_id=uuid.uuid4().hex, name=self.name, incarnation=self._incarnation, address="127.0.0.1:1"
            ),
            broker_pb2.RegisterBrokerResponse,
            timeout_s=TIMEOUT_S,
        )
        self._task = asyncio.create_task(self._work())

    async def _stop(self) -> None:
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task
        for writer in self._writers.values():
            await writer.close(flush=False)
        await self._client.close()
        await self._pd.close()

    async def _work(self) -> None:
        beat = broker_pb2.BrokerHeartbeatRequest(name=self.name, incarnation=self._incarnation, complete=True)
        while True:
            try:
                asked = (await self._brokers.call(beat, broker_pb2.BrokerHeartbeatResponse, timeout_s=TIMEOUT_S)).cover
                del beat.covered[:]
                beat.covered.extend(asked)  # it has no producers, so nothing is missing in a snapshot of them
                if not self.idle:
                    await self._end_shards()
            except RangelogError as error:
                if not (error.retriable or isinstance(error, rangelog.errors.PreconditionFailed)):
                    self.failed.append(error)
            await asyncio.sleep(PAUSE_S)

    async def _end_shards(self) -> None:
        """Carry out the scales and seals that topics wait for."""
        listed = await self._topics.call(
            topic_pb2.ListTopicsRequest(), topic_pb2.ListTopicsResponse, timeout_s=TIMEOUT_S
        )
        for topic in listed.topics:
            reference = topic_pb2.TopicReference(topic_id=topic.topic_id)
            if topic.state == topic_pb2.TOPIC_STATE_SCALING:
                described = topic_pb2.DescribeTopicRequest(topic=reference)
                plan = (await self._topics.call(described, topic_pb2.DescribeTopicResponse, timeout_s=TIMEOUT_S)).scale
                ends = [await self._end(topic.topic_id, each) for each in plan.parents]
                commit = topic_pb2.CommitScaleRequest(
                    request_id=uuid.uuid4().hex, topic_id=topic.topic_id, scale_id=plan.scale_id, ends=ends
                )
                await self._topics.call(commit, topic_pb2.CommitScaleResponse, timeout_s=TIMEOUT_S)
            elif topic.state == topic_pb2.TOPIC_STATE_SEALING:
                request = topic_pb2.ListShardsRequest(topic=reference)
                for shard in (
                    await self._topics.call(request, topic_pb2.ListShardsResponse, timeout_s=TIMEOUT_S)
                ).shards:
                    end = await self._end(topic.topic_id, shard.shard_id)
                    seal = topic_pb2.EndShardRequest(request_id=uuid.uuid4().hex, topic_id=topic.topic_id, end=end)
                    await self._topics.call(seal, topic_pb2.EndShardResponse, timeout_s=TIMEOUT_S)

    async def _end(self, topic_id: int, shard_id: int) -> topic_pb2.ShardEnd:
        """Close a shard, seal its stream, and return how it ended."""
        writer = self._writers.pop((topic_id, shard_id), None)
        if writer is not None:
            await writer.close()
        name = shard_stream_name(topic_id, shard_id)
        metadata, connections = self._client.metadata, self._client.connections
        calls = PlacementCalls(metadata)
        taken = await take_over(metadata, calls, connections, name, timeout_s=TIMEOUT_S)
        stream = taken.stream
        if taken.left is not None:
            await leave_range(connections, stream.stream_id, stream.epoch, taken.left, taken.addresses)
        fields: dict[str, Any] = {}
        ranges = (
            await self._pd.call(pd_pb2.ListRangesRequest(name=name), pd_pb2.ListRangesResponse, timeout_s=TIMEOUT_S)
        ).ranges
        if ranges:
            fields["last_range_index"] = ranges[-1].index
        return topic_pb2.ShardEnd(
            shard_id=shard_id,
            stream_id=stream.stream_id,
            epoch=stream.epoch,
            end_offset=taken.end_offset,
            **fields,
        )

    async def _write(self, topic_id: int, shard_id: int, values: Sequence[bytes]) -> None:
        writer = self._writers.get((topic_id, shard_id))
        if writer is None:
            writer = self._writers[topic_id, shard_id] = Writer(
                self._client.internal, shard_stream_name(topic_id, shard_id),
                append_timeout_s=30.0, open_timeout_s=30.0, inflight_bytes_max=1 << 20,
            )  # fmt: skip
            await writer.open()
        await writer.append_batch(values)
        await writer.flush()
