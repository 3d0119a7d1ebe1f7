"""Which broker owns a shard, and the connections to brokers: of one client, for all its producers.

What holds: lookups of one turn of the loop share a call. There is one connection to each broker. A broker that cannot be
reached, or whose connection breaks, is reported to the placement driver before its shards are looked up again; reports of
one broker at the same time are one.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

from rangelog_core.errors import NotOwner, RangelogError, Unavailable
from rangelog_core.ids import ReplicaId
from rangelog_core.net.data_connection import DataConnection, DataConnections, replica_id
from rangelog_core.net.pd_client import PdClient
from rangelog_proto.v1 import broker_pb2 as pb

CALL_TIMEOUT_S = 3.0
SHARDS_PER_CALL = 1_000
_KNOWN_MAX = 1_000

OwnedShard = tuple[int, int]
"""(topic id, shard id)."""
_Asked = tuple[OwnedShard, "asyncio.Future[BrokerAddress]"]


class BrokerAddress(NamedTuple):
    """A broker in one incarnation, and where producers connect to it."""

    broker: ReplicaId
    address: str


class OwnerLookup:
    """See the module. All methods are for the client's event loop."""

    def __init__(self, brokers: PdClient, connections: DataConnections) -> None:
        self._brokers = brokers
        self._connections = connections
        self._asked: list[_Asked] = []
        self._known: dict[ReplicaId, str] = {}
        self._reports: dict[ReplicaId, asyncio.Task[None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def close(self) -> None:
        """Cancel the calls in progress."""
        for task in (*self._tasks, *self._reports.values()):
            task.cancel()
        for _, future in self._asked:
            future.cancel()

    async def find(self, shard: OwnedShard) -> BrokerAddress:
        """Return the broker that a shard is assigned to. Raises NotOwner where it is to none; Unavailable."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[BrokerAddress] = loop.create_future()
        self._asked.append((shard, future))
        if len(self._asked) == 1:
            loop.call_soon(self._send)
        return await future

    async def connect(self, owner: BrokerAddress) -> DataConnection:
        """Return the connection to a broker. Raises Unavailable, after a report, and what DataConnections.get raises."""
        try:
            return await self._connections.get(owner.broker, owner.address, kind="broker")
        except Unavailable as error:
            await self.report_lost(owner.broker)
            raise Unavailable(f"broker {owner.broker} at {owner.address} cannot be reached") from error

    async def report_lost(self, broker: ReplicaId) -> None:
        """Report that a broker is not reached; return once the placement driver has looked, or does not answer."""
        task = self._reports.get(broker)
        if task is None:
            task = self._reports[broker] = asyncio.create_task(self._report(broker))
            task.add_done_callback(lambda _: self._reports.pop(broker, None))
        await asyncio.wait([task])

    async def any_broker(self, attempt: int, wanted: ReplicaId | None = None) -> DataConnection:
        """Return a connection to some broker: at the first attempt one that is open, and that of `wanted` if it is.

        Raises NotOwner, Unavailable.
        """
        known = random.sample(list(self._known), len(self._known)) if not attempt else []
        if wanted in self._known and not attempt:
            known.insert(0, wanted)
        for broker in known:
            connection = self._connections.existing(broker)
            if connection is not None:
                return connection
        listed = await self._brokers.call(pb.ListBrokersRequest(), pb.ListBrokersResponse, timeout_s=CALL_TIMEOUT_S)
        alive = [each for each in listed.brokers if not each.lost]
        if not alive:
            raise NotOwner("no broker is running")
        return await self.connect(self._learn(random.choice(alive)))

    # ---- inside

    def _send(self) -> None:
        asked, self._asked = [each for each in self._asked if not each[1].done()], []
        for first in range(0, len(asked), SHARDS_PER_CALL):
            task = asyncio.create_task(self._find_many(asked[first : first + SHARDS_PER_CALL]))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _find_many(self, asked: Sequence[_Asked]) -> None:
        shards = [pb.OwnedShard(topic_id=topic_id, shard_id=shard_id) for (topic_id, shard_id), _ in asked]
        try:
            found = await self._brokers.call(
                pb.FindOwnersRequest(shards=shards), pb.FindOwnersResponse, timeout_s=CALL_TIMEOUT_S
            )
        except RangelogError as error:
            for _, future in asked:
                if not future.done():
                    future.set_exception(error)
            return
        brokers = {(each.name, each.incarnation): self._learn(each) for each in found.brokers}
        owners = {
            (each.topic_id, each.shard_id): brokers.get((each.broker, each.incarnation)) for each in found.assignments
        }
        for shard, future in asked:
            owner = owners.get(shard)
            if future.done():
                continue
            if owner is None:
                future.set_exception(NotOwner("no broker owns the shard now: is one running? See `pdctl broker list`"))
            else:
                future.set_result(owner)

    def _learn(self, broker: pb.Broker) -> BrokerAddress:
        known = BrokerAddress(replica_id(broker.name, broker.incarnation), broker.address)
        if len(self._known) >= _KNOWN_MAX:
            self._known.clear()
        self._known[known.broker] = known.address
        return known

    async def _report(self, broker: ReplicaId) -> None:
        request = pb.ReportBrokerLostRequest(name=broker.server, incarnation=broker.incarnation)
        with suppress(RangelogError):
            response = await self._brokers.call(request, pb.ReportBrokerLostResponse, timeout_s=CALL_TIMEOUT_S)
            if response.lost:
                self._known.pop(broker, None)
