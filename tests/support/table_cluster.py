"""Tables in memory: a placement driver for topics, two brokers with real journals over a FakeCluster, and calls that go wrong.

The placement driver is the real one, on a consensus of one. The brokers are real but for their processes: `TablesService` on
`Journal[TablePartition]`. Owners change by `move`, which the former owner does not learn of. Calls are lost before or after
they are carried out, and arrive again later, as a seeded generator decides.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from rangelog import Client, StreamConfig
from rangelog._table.tables import Tables
from rangelog.errors import NotOwner, RangelogError, RequestTimeout, StreamExists, Unavailable
from rangelog.testing import FakeCluster
from rangelog_broker.journal.journal import Journal
from rangelog_broker.journal.owner import DEFAULT_LIMITS, OwnerLimits
from rangelog_broker.tables.kind import TABLES
from rangelog_broker.tables.machine import TablePartition
from rangelog_broker.tables.service import TablesService
from rangelog_core.net.owner_calls import OwnedKey
from rangelog_core.net.pd_client import PdClient
from rangelog_core.net.routes import route_of
from rangelog_core.versions import FEATURE_LEVEL
from rangelog_pd.consensus.local import LocalConsensus
from rangelog_pd.driver import Driver
from rangelog_pd.handlers.service import bound
from rangelog_pd.settings import MemberSettings, PdSettings
from rangelog_pd.state.machine import Machine
from rangelog_proto.v1 import broker_pb2
from rangelog_proto.v1.table_service_pb2_grpc import add_TablesServicer_to_server
from rangelog_server_common.grpc_server import GrpcServer

TableJournal = Journal[TablePartition]
HEARS = 0.7
"""How likely a client hears of another owner at once."""
LOOKS_AGAIN = 0.1
"""How likely a client looks for the owner that it knows."""


class TopicPd(PdClient):
    """The calls on topics of a placement driver in memory. `brokers` has those on brokers, where a test needs them."""

    def __init__(self, folder: Path) -> None:
        super().__init__(["memory:1"])
        member = MemberSettings(raft_address="pd1:1", api_address="pd1:2")
        settings = PdSettings(name="pd1", data_dir=folder, members={"pd1": member}, raft_secret="not so secret")
        self.machine = Machine()
        self.driver = Driver(settings, LocalConsensus(self.machine, name="pd1"), self.machine)
        self._topics = bound(self.driver, "Topics")
        self._is_ready = False
        self.brokers: Any = None

    async def call(self, request: Any, response: Any, *, timeout_s: float, **_: Any) -> Any:
        route = route_of(type(request))
        if route.service.endswith(".Brokers"):
            return await getattr(self.brokers, route.name)(request)
        assert route.service.endswith(".Topics")
        if not self._is_ready:
            await self.driver.reconcile()  # raises the cluster version
            self._is_ready = True
        return await getattr(self._topics, route.name)(type(request).FromString(request.SerializeToString()), None)


class TableBroker:
    """One broker: the journals that it believes to own, and its service."""

    def __init__(self) -> None:
        self.journals: dict[OwnedKey, TableJournal] = {}
        self.service = TablesService(self)
        self.address = ""
        self._server: GrpcServer | None = None

    async def serve(self) -> None:
        """Listen on a port of loopback."""
        self._server = GrpcServer()
        add_TablesServicer_to_server(self.service, self._server.server)  # type: ignore[no-untyped-call]
        self.address = f"127.0.0.1:{await self._server.start('127.0.0.1:0', (TABLES.service,))}"

    async def close(self) -> None:
        """Stop, without a word to anybody."""
        if self._server is not None:
            await self._server.stop(0)
        for journal in self.journals.values():
            await journal.close()

    def find(self, topic_id: int, shard_id: int) -> TableJournal:
        journal = self.journals.get((topic_id, shard_id))
        if journal is None:
            raise NotOwner(f"this broker does not own shard {shard_id} of topic {topic_id}")
        return journal


class TableCluster:
    """See the module. `owners` are the calls of clients; use it with `async with`."""

    def __init__(
        self, folder: Path, *, seed: int = 0, trouble: float = 0, limits: OwnerLimits = DEFAULT_LIMITS
    ) -> None:
        """`trouble`: how likely a call goes wrong."""
        self.pd = TopicPd(folder)
        self.brokers = [TableBroker(), TableBroker()]
        self.owned_by: dict[OwnedKey, TableBroker] = {}
        self.owners = TroubledOwners(self, random.Random(seed), trouble)
        self._rng = random.Random(seed + 1)
        self._of_clients = [self.owners]
        self._limits = limits
        self._streams = FakeCluster()
        self._client: Client
        self._lock = asyncio.Lock()
        self._tables: list[Tables] = []

    async def __aenter__(self) -> TableCluster:
        self._client = self._streams.client()
        return self

    async def __aexit__(self, *_: object) -> None:
        for tables in self._tables:
            await tables.close()
        for owners in self._of_clients:
            await owners.close()
        for broker in self.brokers:
            await broker.close()
        await self._client.close()

    def tables(self) -> Tables:
        """What a client has as `client.tables`; the first one calls over `owners`."""
        if self._tables:
            self._of_clients.append(TroubledOwners(self, random.Random(self._rng.random()), self.owners.trouble))
        made = Tables(self.pd, self._of_clients[-1])
        self._tables.append(made)
        return made

    async def owner(self, key: OwnedKey) -> TableBroker:
        """Return the owner of a partition, which gets its first one now."""
        async with self._lock:
            if key not in self.owned_by:
                if key[0] not in self.pd.machine.state.topics.topics:
                    raise NotOwner("no broker owns it")
                await self._open(key, self.brokers[0])
            return self.owned_by[key]

    async def move(self, key: OwnedKey) -> None:
        """Make the other broker the owner. The former one keeps its journal, and learns of it when that is fenced.

        Some clients hear of it at once.
        """
        async with self._lock:
            former = self.owned_by[key]
            await self._open(key, next(each for each in self.brokers if each is not former))
        for owners in self._of_clients:
            if self._rng.random() < HEARS:
                owners.forget(key)

    # ---- over gRPC: what OwnerCalls asks the placement driver

    async def serve(self) -> None:
        """Have the brokers listen, and the placement driver name them."""
        for broker in self.brokers:
            await broker.serve()
        self.pd.brokers = self

    async def FindOwners(self, request: broker_pb2.FindOwnersRequest) -> broker_pb2.FindOwnersResponse:
        (shard,) = request.shards
        try:
            owner = await self.owner((shard.topic_id, shard.shard_id))
        except NotOwner:
            return broker_pb2.FindOwnersResponse()
        named = broker_pb2.Broker(name=owner.address, incarnation=1, control_address=owner.address)
        return broker_pb2.FindOwnersResponse(brokers=[named])

    async def ReportBrokerLost(
        self, request: broker_pb2.ReportBrokerLostRequest
    ) -> broker_pb2.ReportBrokerLostResponse:
        for key, owner in list(self.owned_by.items()):
            if owner.address == request.name:
                await self.move(key)
        return broker_pb2.ReportBrokerLostResponse(lost=True)

    async def _open(self, key: OwnedKey, broker: TableBroker) -> None:
        stream = f"table-{key[0]}-{key[1]}"
        try:
            await self._client.create_stream(stream, StreamConfig(range_size_bytes_max=64 * 1024))
        except StreamExists:
            pass
        replaced = broker.journals.pop(key, None)
        if replaced is not None:
            await replaced.close()
        broker.journals[key] = await Journal.open(self._client, stream, TablePartition, limits=self._limits)
        broker.journals[key].raise_level(FEATURE_LEVEL)
        self.owned_by[key] = broker


class TroubledOwners:
    """Calls on owners as OwnerCalls makes them, on a network that loses and repeats.

    Each client knows an owner until that refuses, or until it happens to look again.
    """

    def __init__(self, cluster: TableCluster, rng: random.Random, trouble: float) -> None:
        self.trouble = trouble
        self.calls = 0
        self.silent = False
        """Nobody answers."""
        self.on_lost: Callable[[], Awaitable[object]] | None = None
        self._next = ""
        self._known: dict[OwnedKey, TableBroker] = {}
        self._cluster = cluster
        self._rng = rng
        self._late: set[asyncio.Task[None]] = set()

    def forget(self, key: OwnedKey) -> None:
        """Look for the owner of a partition with the next call."""
        self._known.pop(key, None)

    def lose_next(self, kind: str) -> None:
        """Have this go wrong with the next call; `on_lost` is called when a response is lost."""
        self._next = kind

    async def close(self) -> None:
        """End what is still on its way."""
        for task in self._late:
            task.cancel()
        if self._late:
            await asyncio.wait(self._late)

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
        assert repeatable
        deadline = time.monotonic() + timeout_s
        last: RangelogError = Unavailable("nobody answers")
        while time.monotonic() < deadline:
            await asyncio.sleep(0 if not self.silent else 0.005)
            try:
                broker = await self._broker(key)
                self.calls += 1
                answered = method(broker.service)
                response = await self._delivered(answered, request)
            except RangelogError as error:
                last = error
                self._known.pop(key, None)
                if not error.retriable:
                    raise
            else:
                if response is not None:
                    return response
        raise RequestTimeout(f"no owner answered in time ({last.message})", outcome_unknown=False)

    async def _broker(self, key: OwnedKey) -> TableBroker:
        if self.silent:
            raise Unavailable("nobody answers")
        if key not in self._known or self._rng.random() < LOOKS_AGAIN:
            self._known[key] = await self._cluster.owner(key)
        return self._known[key]

    async def _delivered(self, method: Callable[..., Awaitable[Any]], request: Any) -> Any:
        """Return the response; None: it was lost, or the request was."""
        data, rng = request.SerializeToString(), self._rng
        goes_wrong = rng.random() < self.trouble
        kind = rng.choice(["lost request", "lost response", "late", "repeated"]) if goes_wrong else ""
        kind, self._next = self._next or kind, ""
        if kind in ("late", "repeated"):
            task = asyncio.create_task(self._arrive_late(method, type(request).FromString(data), rng.randint(1, 200)))
            self._late.add(task)
            task.add_done_callback(self._late.discard)
        if kind in ("lost request", "late"):
            return None
        response = await method(type(request).FromString(data), None)
        if kind == "lost response":
            if self.on_lost is not None:
                await self.on_lost()
            return None
        return type(response).FromString(response.SerializeToString())

    async def _arrive_late(self, method: Callable[..., Awaitable[Any]], request: Any, turns: int) -> None:
        for _ in range(turns):
            await asyncio.sleep(0)
        try:
            await method(request, None)
        except RangelogError:
            pass
