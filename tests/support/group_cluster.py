"""Topics, brokers and their groups over a cluster in memory: what tests of groups run against.

The placement driver's part on topics is a few lists here. A broker is a host of journals with the production service on it;
calls go to the handlers directly, each request and response through its bytes.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, cast

from rangelog import Client, StreamConfig
from rangelog._append.placement_calls import PlacementCalls
from rangelog._append.takeover import take_over
from rangelog.testing import FakeCluster
from rangelog_broker.groups.machine import GroupCoordinator
from rangelog_broker.groups.service import GroupsService
from rangelog_broker.journal.journal import Journal, steady_clock
from rangelog_broker.topic_rights import TopicRights
from rangelog_core.errors import NotOwner, RangelogError, RequestTimeout, TopicNotFound
from rangelog_core.ids import shard_stream_name
from rangelog_core.net.owner_calls import OwnedKey
from rangelog_core.versions import FEATURE_LEVEL
from rangelog_proto.v1 import group_service_pb2, topic_pb2, transaction_pb2, transaction_service_pb2
from rangelog_server_common.rights.guard import RightsGuard
from tests.support.pd_calls import CallsByName

_OUTPUTS = {
    each.name: each.output_type.name for each in group_service_pb2.DESCRIPTOR.services_by_name["Groups"].methods
}


@dataclass
class FakeTopic:
    """A topic as the placement driver has it."""

    topic_id: int
    name: str
    map_version: int = 1
    shards: list[topic_pb2.Shard] = field(default_factory=list)


class Topics(CallsByName):
    """All topics; `error` is raised by every call while it is set."""

    def __init__(self) -> None:
        self.topics: dict[int, FakeTopic] = {}
        self.error: RangelogError | None = None
        self.list_count = 0
        self.consumed: dict[tuple[int, str], dict[int, int]] = {}
        """By topic and group: the cut that was reported last, and not taken back."""
        self.reports: list[tuple[int, str]] = []
        self.report_errors: list[RangelogError] = []
        self.page_size = 1_000

    def create(self, name: str, shard_count: int = 1) -> FakeTopic:
        """Create a topic; its streams are the cluster's."""
        topic = FakeTopic(len(self.topics) + 1, name)
        self.topics[topic.topic_id] = topic
        for _ in range(shard_count):
            self._add(topic, [])
        return topic

    def scale(self, topic: FakeTopic, ends: dict[int, int], children: int) -> list[int]:
        """End shards, each at an offset; return the shards that follow."""
        topic.map_version += 1
        for shard_id, end_offset in ends.items():
            shard = topic.shards[shard_id]
            shard.ended_version, shard.end_offset = topic.map_version, end_offset
        added = [self._add(topic, sorted(ends)) for _ in range(children)]
        for shard_id in ends:
            topic.shards[shard_id].successors.extend(added)
        return added

    def _add(self, topic: FakeTopic, predecessors: list[int]) -> int:
        shard = topic_pb2.Shard(
            topic_id=topic.topic_id,
            shard_id=len(topic.shards),
            created_version=topic.map_version,
            predecessors=predecessors,
        )
        topic.shards.append(shard)
        return shard.shard_id

    def _find(self, reference: topic_pb2.TopicReference) -> FakeTopic:
        if self.error is not None:
            raise self.error
        for topic in self.topics.values():
            named = f"{reference.namespace}/{reference.name}" == topic.name
            if topic.topic_id == reference.topic_id or (not reference.topic_id and named):
                return topic
        raise TopicNotFound(f"no topic {reference}")

    async def describe_topic(
        self, request: topic_pb2.DescribeTopicRequest, *, timeout_s: float
    ) -> topic_pb2.DescribeTopicResponse:
        """As the placement driver."""
        return topic_pb2.DescribeTopicResponse(topic=_message(self._find(request.topic)))

    async def list_shards(
        self, request: topic_pb2.ListShardsRequest, *, timeout_s: float
    ) -> topic_pb2.ListShardsResponse:
        """As the placement driver."""
        await asyncio.sleep(0)
        self.list_count += 1
        topic = self._find(request.topic)
        at = int(request.page_token or 0)
        size = min(request.page_size, self.page_size)
        more = at + size < len(topic.shards)
        return topic_pb2.ListShardsResponse(
            topic=_message(topic),
            shards=topic.shards[at : at + size],
            next_page_token=str(at + size) if more else "",
        )

    async def report_consumed(
        self, request: topic_pb2.ReportConsumedRequest, *, timeout_s: float
    ) -> topic_pb2.ReportConsumedResponse:
        """As the placement driver; keeps the cuts in `consumed`."""
        await asyncio.sleep(0)
        if self.report_errors:
            raise self.report_errors.pop(0)
        topic = self._find(request.topic)
        key = (topic.topic_id, request.group)
        self.reports.append(key)
        if request.unsubscribe:
            self.consumed.pop(key, None)
        else:
            self.consumed[key] = {each.shard_id: each.offset for each in request.cut}
        return topic_pb2.ReportConsumedResponse()


def _message(topic: FakeTopic) -> topic_pb2.Topic:
    namespace, name = topic.name.split("/")
    return topic_pb2.Topic(topic_id=topic.topic_id, namespace=namespace, name=name, map_version=topic.map_version)


class Coordinators:
    """In place of the coordinators of transactions."""

    def __init__(self) -> None:
        self.states: dict[tuple[str, int], transaction_pb2.TransactionState] = {}
        """By transactional id and number; those that are not here are unknown."""
        self.asked = 0

    async def call(self, key: OwnedKey, stub_type: Any, method: Any, request: Any, **_: Any) -> Any:
        """As OwnerCalls, of DescribeTransaction."""
        self.asked += 1
        state = self.states.get((request.name.transactional_id, request.name.number), 0)
        result = transaction_pb2.TransactionResult(state=state)
        return transaction_service_pb2.DescribeTransactionResponse(result=result)


class Broker:
    """A broker that hosts journals, and its service."""

    def __init__(self, client: Client, topics: Topics) -> None:
        self.client = client
        self.journals: dict[int, Journal[GroupCoordinator]] = {}
        self.coordinators = Coordinators()
        self.rights = RightsGuard()
        self.service = GroupsService(self, topics, self.coordinators, TopicRights(self.rights, topics))
        self.clock_ms: Callable[[], int] = steady_clock()

    def find(self, number: int) -> Journal[GroupCoordinator]:
        """See JournalHost."""
        journal = self.journals.get(number)
        if journal is None or journal.closed is not None:
            raise NotOwner(f"journal {number} is not here")
        return journal

    async def take(self, number: int) -> Journal[GroupCoordinator]:
        """Become the owner of a journal; whoever was it is fenced."""
        name = f"groups-{number}"
        if [each async for each in self.client.list_streams(name) if each.name == name] == []:
            await self.client.create_stream(name, StreamConfig(range_size_bytes_max=1 << 20))
        journal = await Journal.open(self.client, name, GroupCoordinator, clock_ms=lambda: self.clock_ms())
        journal.raise_level(FEATURE_LEVEL)
        self.journals[number] = journal
        return journal

    async def close(self) -> None:
        """End the service and the journals."""
        self.service.close()
        for journal in self.journals.values():
            await journal.close()


class Calls:
    """In place of OwnerCalls: calls the brokers' handlers, the believed owner first."""

    def __init__(self, brokers: Callable[[], list[Broker]]) -> None:
        self._brokers = brokers
        self.names: list[str] = []
        self.lose_answers: Callable[[str], bool] = lambda name: False
        """Whether the answer of a call is lost, so that it is repeated."""

    @staticmethod
    def stub(broker: Broker) -> Any:
        """In place of the gRPC stub of a broker."""
        return _Stub(broker.service)

    async def call(
        self,
        key: OwnedKey,
        stub_type: type[Any],
        method: Callable[[Any], Callable[..., Awaitable[Any]]],
        request: Any,
        *,
        timeout_s: float,
        repeatable: bool,
    ) -> Any:
        """As OwnerCalls."""
        assert repeatable
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        last: RangelogError = NotOwner("no broker")
        while loop.time() < deadline:
            for broker in list(self._brokers()):
                stub = _Stub(broker.service)
                try:
                    response = await method(stub)(request)
                except RangelogError as error:
                    last = error
                    if not error.retriable:
                        raise error.with_outcome(unknown=type(error).outcome_unknown) from error
                    continue
                self.names.append(stub.name)
                if not self.lose_answers(stub.name):
                    return response
            await asyncio.sleep(0.005)
        raise RequestTimeout(f"no owner answers: {last}")


class _Stub:
    def __init__(self, service: GroupsService) -> None:
        self._service = service
        self.name = ""

    def __getattr__(self, name: str) -> Callable[[Any], Awaitable[Any]]:
        self.name = name
        handler = getattr(self._service, name)

        async def call(request: Any) -> Any:
            copy = type(request).FromString(request.SerializeToString())
            response = await handler(copy, None)
            made = getattr(group_service_pb2, _OUTPUTS[name])
            assert isinstance(response, made)
            return made.FromString(response.SerializeToString())

        return call


class GroupCluster:
    """A cluster with topics and brokers. Use it with `async with`."""

    def __init__(self) -> None:
        self.fake = FakeCluster()
        self.topics = Topics()
        self.client = self.fake.client()
        self.brokers: list[Broker] = []
        self.calls = Calls(lambda: self.brokers)
        self._writers: dict[str, Any] = {}

    async def __aenter__(self) -> GroupCluster:
        return self

    async def __aexit__(self, *_: object) -> None:
        for broker in self.brokers:
            await broker.close()
        for writer in self._writers.values():
            await writer.close(flush=False)
        await self.client.close()

    async def broker(self, *journals: int) -> Broker:
        """Start a broker that owns journals; it is asked before those that were started earlier."""
        broker = Broker(self.client, self.topics)
        self.brokers.insert(0, broker)
        for number in journals:
            await broker.take(number)
        return broker

    # ---- topics and records

    async def create_topic(self, name: str, shard_count: int = 1) -> FakeTopic:
        """Create a topic with its streams."""
        topic = self.topics.create(name, shard_count)
        for shard in topic.shards:
            await self._create_stream(shard)
        return topic

    async def append(self, topic: FakeTopic, shard_id: int, *values: bytes, keys: list[bytes] | None = None) -> None:
        """Append records to a shard."""
        name = shard_stream_name(topic.topic_id, shard_id)
        writer = self._writers.get(name)
        if writer is None:
            writer = self._writers[name] = self._writer(name)
            await writer.open()
        for at, value in enumerate(values):
            await writer.append(value, key=keys[at] if keys else None)

    async def scale(self, topic: FakeTopic, parents: list[int], children: int) -> list[int]:
        """Seal the parents' streams for good, and have shards follow them."""
        ends = {}
        for shard_id in parents:
            name = shard_stream_name(topic.topic_id, shard_id)
            writer = self._writers.pop(name, None)
            if writer is not None:
                await writer.close()
            ends[shard_id] = (
                await take_over(
                    self.client.metadata,
                    PlacementCalls(self.client.metadata),
                    self.client.connections,
                    name,
                    timeout_s=10,
                )
            ).end_offset
        added = self.topics.scale(topic, ends, children)
        driver = cast(Any, self.fake)._driver
        for shard_id in parents:
            stream = driver._stream(shard_stream_name(topic.topic_id, shard_id))
            stream.sealed_for_good, stream.version = True, stream.version + 1
        for shard_id in added:
            await self._create_stream(topic.shards[shard_id])
        return added

    async def trim(self, topic: FakeTopic, shard_id: int, offset: int) -> None:
        """Trim a shard's stream, after sealing its open range."""
        name = shard_stream_name(topic.topic_id, shard_id)
        writer = self._writers.pop(name, None)
        if writer is not None:
            await writer.close()
        await take_over(
            self.client.metadata, PlacementCalls(self.client.metadata), self.client.connections, name, timeout_s=10
        )
        await self.client.metadata.trim_stream(name, offset)

    async def _create_stream(self, shard: topic_pb2.Shard) -> None:
        """Under an internal name, which no client can give."""
        name = shard_stream_name(shard.topic_id, shard.shard_id)
        info = await self.client.create_stream(re.sub("^_", "", name))
        driver = cast(Any, self.fake)._driver
        driver._ids[name] = driver._ids.pop(info.name)
        driver._streams[info.stream_id].name = name
        shard.stream_id = info.stream_id

    def _writer(self, name: str) -> Any:
        writer = self.client.writer(re.sub("^_", "", name))
        writer.stream = name
        return writer
