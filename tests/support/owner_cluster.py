"""A cluster in one process for the tests of brokers: the production placement driver on a consensus of one, and three range
servers that keep lists. No ports, no files; what a test switches off fails at once."""

from __future__ import annotations

import asyncio
import threading
import uuid
from collections import Counter, deque
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

from rangelog import Client
from rangelog.errors import RangelogError, StorageFull, Unavailable
from rangelog.testing.connections import FakeConnection
from rangelog.testing.range_server import FakeRangeServer
from rangelog.testing.session import FakeSession
from rangelog_broker.shards.submission_window import PlacedRun
from rangelog_core.batch import encode_batch, peek_header
from rangelog_core.batch_extension import (
    Producer,
    Submission,
    Tag,
    encode_extension,
    encode_producer,
    encode_submission,
)
from rangelog_core.frame import Frame, Opcode
from rangelog_core.ids import ReplicaId, shard_stream_name
from rangelog_core.key_ranges import KEY_SPACE_END, KeyRange
from rangelog_core.net.data_connection import DataConnection, DataConnections, PeerKind
from rangelog_core.net.pd_client import PdClient
from rangelog_core.net.routes import route_of
from rangelog_pd.consensus.local import LocalConsensus
from rangelog_pd.driver import Driver
from rangelog_pd.handlers.service import SERVICES, bound
from rangelog_pd.settings import MemberSettings, PdSettings
from rangelog_pd.state.machine import Machine
from rangelog_proto.v1 import broker_pb2, data_pb2, pd_pb2, pd_state_pb2, topic_pb2
from tests.support.waiting import until

SERVERS = ("rs1", "rs2", "rs3")
QUARTER = KEY_SPACE_END // 4
LONG_MS = 3_600_000
RECONCILE_S = 0.1
"""Half of the interval of production: a minute of virtual time is 600 rounds of all reconcilers."""


class OwnerCluster:
    """See the module. Use `owner_cluster()`."""

    def __init__(self) -> None:
        members = {"pd1": MemberSettings(raft_address="pd1:1", api_address="pd1:2")}
        settings = PdSettings(
            name="pd1",
            data_dir=Path("/nowhere"),
            members=members,
            server_suspect_ms=LONG_MS,
            server_dead_ms=2 * LONG_MS,
        )
        machine = Machine()
        self.driver = Driver(settings, LocalConsensus(machine, name="pd1"), machine)
        self.accepting: dict[str, None] = {}
        """Addresses of brokers that accept connections."""
        self.driver.broker_probes.accepts = self._accepts  # type: ignore[method-assign]
        services = [bound(self.driver, each.name) for each in SERVICES]
        self.handlers: dict[str, Any] = {name: call for each in services for name, call in vars(each).items()}
        self.servers = {name: _named_server(name) for name in SERVERS}
        self.lock = threading.RLock()
        self.clients: list[Client] = []
        self.calls: Counter[str] = Counter()
        self.failures: dict[str, deque[RangelogError]] = {}
        """By RPC: what its next calls fail with, before they have an effect."""
        self.lost_answers: dict[str, int] = {}
        """By RPC: so many of its next calls have their effect and no answer."""
        self.held: dict[str, asyncio.Event] = {}
        """By RPC: its calls wait for the event first."""

    async def start(self) -> None:
        """Register the range servers; everything of the present feature level is enabled."""
        for number, name in enumerate(SERVERS):
            request = pd_pb2.RegisterServerRequest(
                request_id=f"r-{name}", server=name, incarnation=1, boot=1, data_address=f"{name}:1", zone=f"z{number}"
            )
            await self.call("RegisterServer", request)
            await self.call("Heartbeat", pd_pb2.HeartbeatRequest(server=name, incarnation=1, complete=True, sequence=1))
        await self.driver.reconcile()
        self.driver.brokers.moved_ms = float("inf")  # no moves for balance: shards stay where a test has them

    async def assign(self, topic_id: int, shard_id: int, broker: str, incarnation: int = 1) -> None:
        """Give a shard to a broker."""
        while True:
            with self.driver.state() as state:
                former = state.owners.assignments.find((topic_id, shard_id))
            if former is not None and (former.broker, former.incarnation) == (broker, incarnation):
                self.driver._tell_watchers()
                return
            epoch = former.owner_epoch if former is not None else 0
            made = broker_pb2.Assignment(
                topic_id=topic_id, shard_id=shard_id, broker=broker, incarnation=incarnation, owner_epoch=epoch
            )
            command = pd_state_pb2.AssignShards(assignments=[made])
            await self.driver.propose_own(pd_state_pb2.Command(assign_shards=command))

    async def reconcile(self) -> None:
        """As a leader does, until cancelled."""
        while True:
            await self.driver.reconcile()
            await asyncio.sleep(RECONCILE_S)

    async def call(self, name: str, request: Any) -> Any:
        """Call the placement driver; messages are copied as a wire does."""
        self.calls[name] += 1
        await asyncio.sleep(0)
        if name in self.held:
            await self.held[name].wait()
        failures = self.failures.get(name)
        if failures:
            raise failures.popleft()
        response = await self.handlers[name](type(request).FromString(request.SerializeToString()), None)
        self._commit_ends(response)
        if self.lost_answers.get(name, 0) > 0:
            self.lost_answers[name] -= 1
            raise Unavailable("the answer was lost", outcome_unknown=True)
        return type(response).FromString(response.SerializeToString())

    def client(self) -> Client:
        """Return a client, with connections of its own."""
        made = Client("fake:1", token=None, tls=None, tier_url=None, pd=_Pd(self), connections=_Connections(self))
        self.clients.append(made)
        return made

    def fail(self, name: str, *errors: RangelogError) -> None:
        """The next calls of an RPC fail."""
        self.failures.setdefault(name, deque()).extend(errors)

    def hold_acks(self, *names: str) -> None:
        """Range servers answer no appends from here on."""
        for name in names or SERVERS:
            self.servers[name].holds_appends = True

    def release_acks(self) -> None:
        """Take what was held back."""
        with self.lock:
            for server in self.servers.values():
                server.release_appends()

    def fill(self, *names: str) -> None:
        """The disks of these range servers are full, and those of the others are not."""
        with self.lock:
            for name, server in self.servers.items():
                server.is_full = name in names

    async def close(self) -> None:
        """Close all clients."""
        for client in self.clients:
            await client.close()

    # ---- topics

    async def create_topic(self, name: str = "t", shards: int = 1) -> int:
        """Create an active topic of equal shards; return its id."""
        client = self.clients[0] if self.clients else self.client()
        topics = client.metadata.pd
        if name == "t":
            await topics.call(
                topic_pb2.CreateNamespaceRequest(request_id="n", name="ns"),
                topic_pb2.CreateNamespaceResponse,
                timeout_s=5,
            )
        request = topic_pb2.CreateTopicRequest(request_id=f"c-{name}", namespace="ns", name=name, shard_count=shards)
        topic_id: int = (await topics.call(request, topic_pb2.CreateTopicResponse, timeout_s=5)).topic.topic_id
        while (await self.describe(topic_id)).topic.state != topic_pb2.TOPIC_STATE_ACTIVE:
            await self.driver.reconcile()
        return topic_id

    async def describe(self, topic_id: int) -> topic_pb2.DescribeTopicResponse:
        """The topic as the placement driver has it."""
        reference = topic_pb2.TopicReference(topic_id=topic_id)
        found: topic_pb2.DescribeTopicResponse = await self.handlers["DescribeTopic"](
            topic_pb2.DescribeTopicRequest(topic=reference), None
        )
        return found

    async def shard(self, topic_id: int, shard_id: int) -> topic_pb2.Shard:
        """A shard's row."""
        with self.driver.state() as state:
            made = topic_pb2.Shard()
            made.CopyFrom(state.topics.shards[topic_id, shard_id])
            return made

    async def start_scale(self, topic_id: int, parents: list[int], edges: list[int]) -> int:
        """Start to scale `parents` into the ranges between `edges`, in quarters of the key space; return the plan's id."""
        described = await self.describe(topic_id)
        ranges = [KeyRange(low * QUARTER, high * QUARTER).to_bytes() for low, high in pairwise(edges)]
        request = topic_pb2.StartScaleRequest(
            request_id=uuid.uuid4().hex,
            topic=topic_pb2.TopicReference(topic_id=topic_id),
            map_version=described.topic.map_version,
            parents=parents,
            key_ranges=[topic_pb2.KeyRange(low=low, high=high) for low, high in ranges],
        )
        started = await self.call("StartScale", request)
        return int(started.topic.scale_id)

    async def cancel_scale(self, topic_id: int, scale_id: int) -> None:
        """Drop a plan."""
        request = topic_pb2.CancelScaleRequest(request_id=uuid.uuid4().hex, topic_id=topic_id, scale_id=scale_id)
        await self.call("CancelScale", request)

    async def truncate(self, topic_id: int, shard_id: int, offset: int) -> None:
        """Ask for a shard to be trimmed; it is once a snapshot covers what goes, see `cover`."""
        request = topic_pb2.TruncateTopicRequest(
            request_id=uuid.uuid4().hex,
            topic=topic_pb2.TopicReference(topic_id=topic_id),
            cut=[topic_pb2.ShardPosition(shard_id=shard_id, offset=offset)],
        )
        await self.call("TruncateTopic", request)
        await self.driver.reconcile()

    async def cover(self, topic_id: int, shard_id: int, offset: int) -> None:
        """Report that a snapshot reaches an offset, as a heartbeat does; go on with the truncation."""
        covered = broker_pb2.ShardCover(topic_id=topic_id, shard_id=shard_id, offset=offset)
        self.driver.topics.coverage.reported([covered])
        await self.driver.reconcile()

    async def seal_topic(self, topic_id: int) -> None:
        """Start to seal a topic."""
        reference = topic_pb2.TopicReference(topic_id=topic_id)
        await self.call("SealTopic", topic_pb2.SealTopicRequest(request_id=uuid.uuid4().hex, topic=reference))

    async def until_state(self, topic_id: int, state: topic_pb2.TopicState) -> None:
        """Wait until the topic is in a state."""

        async def is_there() -> bool:
            return (await self.describe(topic_id)).topic.state == state

        await until(is_there, f"the topic is not in state {state}")

    async def read(self, topic_id: int, shard_id: int) -> list[bytes]:
        """All acked records of a shard, as a reader finds them."""
        client, row = self.client(), await self.shard(topic_id, shard_id)
        name = shard_stream_name(topic_id, shard_id)
        end = await client.internal.end(name, row.stream_id)
        values: list[bytes] = []
        if end:
            async for chunk in client.internal.records(name, row.stream_id, 0, end):
                values += [record.value for record in chunk]
        return values

    # ---- inside

    async def _accepts(self, address: str) -> bool:
        await asyncio.sleep(0)
        return address in self.accepting

    def _commit_ends(self, response: Any) -> None:
        if isinstance(response, pd_pb2.SealRangeResponse):
            found = [response]
        elif isinstance(response, pd_pb2.SealRangesResponse):
            found = [each.response for each in response.results if each.HasField("response")]
        else:
            return
        with self.lock:
            for each in (one.range for one in found):
                for replica in each.replicas:
                    server = self.servers[replica.server]
                    server.commit_end(each.stream_id, each.index, each.start_offset, each.end_offset)


class _Pd(PdClient):
    def __init__(self, cluster: OwnerCluster) -> None:
        super().__init__(["fake:1"])
        self._cluster = cluster

    async def call(self, request: Any, response: Any, *, timeout_s: float, **_: Any) -> Any:
        if self._closed:
            raise Unavailable("the client is closed")
        async with asyncio.timeout(timeout_s):
            return await self._cluster.call(route_of(type(request)).name, request)


class _Connections(DataConnections):
    def __init__(self, cluster: OwnerCluster) -> None:
        super().__init__()
        self._cluster = cluster

    async def _make(self, replica: ReplicaId, address: str, kind: PeerKind) -> DataConnection:
        if replica.server not in self._cluster.servers:
            return await super()._make(replica, address, kind)  # a broker, with a port
        connection = FakeConnection(replica, self._cluster.servers[replica.server], self._cluster.lock)
        self._connections[replica] = connection
        return connection


class _RangeServer(FakeRangeServer):
    def __init__(self) -> None:
        super().__init__()
        self.is_full = False

    def take(self, session: FakeSession, frame: Frame) -> None:
        if self.is_full and frame.opcode is Opcode.APPEND:
            message = data_pb2.Append.FromString(frame.message)
            error = StorageFull("no room in the log: No space left on device")
            session.refuse(0, error, stream_id=message.stream_id, range_index=message.range_index)
        else:
            super().take(session, frame)


def _named_server(name: str) -> _RangeServer:
    server = _RangeServer()
    server.replica.server, server.replica.data_address = name, f"{name}:1"
    return server


@asynccontextmanager
async def owner_cluster(*, reconciles: bool = True) -> AsyncIterator[OwnerCluster]:
    """A running cluster; `reconciles`: the placement driver goes on with its own work all the while."""
    cluster = OwnerCluster()
    await cluster.start()
    task = asyncio.create_task(cluster.reconcile()) if reconciles else None
    try:
        yield cluster
    finally:
        if task is not None:
            task.cancel()
        await cluster.close()


# ---- producers


def made_batch(producer: Producer, *values: bytes, timestamp_ms: int = 5) -> bytes:
    """A producer's batch of these records."""
    extension = encode_extension({Tag.PRODUCER: encode_producer(producer)})
    return encode_batch(
        stream_id=0,
        range_index=0,
        epoch=0,
        base_offset=0,
        timestamps_ms=[timestamp_ms] * len(values),
        values=list(values),
        extension=extension,
    )


class Replies:
    """What producers were answered, by request. See shards.reply.Reply."""

    def __init__(self) -> None:
        self.acks: dict[int, int] = {}
        self.places: dict[int, list[PlacedRun]] = {}
        self.errors: dict[int, RangelogError] = {}
        self._requests = 0

    def acked(self, request_id: int, offset: int) -> None:
        """See Reply."""
        assert request_id not in self.acks and request_id not in self.errors, "a request has one answer"
        self.acks[request_id] = offset

    def placed(self, request_id: int, runs: Sequence[PlacedRun]) -> None:
        """See Reply."""
        self.places[request_id] = list(runs)
        self.acked(request_id, -1)

    def refused(self, request_id: int, error: RangelogError) -> None:
        """See Reply."""
        assert request_id not in self.acks and request_id not in self.errors, "a request has one answer"
        self.errors[request_id] = error

    def send(self, shard: Any, producer: Producer, *values: bytes) -> int:
        """Send a batch to an owner; return the request's number. What is refused at once is raised."""
        data = made_batch(producer, *(values or (b"%d" % producer.sequence,)))
        self._requests += 1
        shard.produce(peek_header(data), producer, data, self, self._requests)
        return self._requests

    async def submit(self, shard: Any, submission: Submission) -> list[PlacedRun]:
        """Send a batch of a submission and return where its records are."""
        numbers = [each for first, count in submission.runs for each in range(first, first + count)]
        fields = encode_extension({Tag.SUBMISSION: encode_submission(submission)})
        data = encode_batch(stream_id=0, range_index=0, epoch=0, base_offset=0, timestamps_ms=[5] * len(numbers),
                            values=[b"%d" % each for each in numbers], extension=fields)  # fmt: skip
        self._requests += 1
        request = self._requests
        shard.produce(peek_header(data), submission, data, self, request)
        await self.answer(request)
        return self.places[request]

    async def answer(self, request: int) -> int:
        """Wait for an answer; return the offset or raise the error."""
        await until(lambda: request in self.acks or request in self.errors)
        if request in self.errors:
            raise self.errors[request]
        return self.acks[request]

    async def produce(self, shard: Any, producer: Producer, *values: bytes) -> int:
        """Send and wait."""
        return await self.answer(self.send(shard, producer, *values))
