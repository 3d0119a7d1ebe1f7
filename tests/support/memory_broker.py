"""A broker without sockets, on a cluster of `owner_cluster`: it registers, watches its assignments, opens and scales shards."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from contextlib import suppress

from rangelog_broker.hosting.assignments import AssignmentWatch
from rangelog_broker.hosting.host import Host
from rangelog_broker.hosting.journals import OwnedJournals
from rangelog_broker.hosting.owned import OwnedShards
from rangelog_broker.hosting.registration import Registration
from rangelog_broker.shards.shard import OwnedShard
from rangelog_proto.v1 import broker_pb2
from tests.support.owner_cluster import OwnerCluster
from tests.support.waiting import until


class MemoryBroker:
    """The parts of a runtime between its port and the cluster. `start` it."""

    def __init__(self, cluster: OwnerCluster, name: str, incarnation: int = 1) -> None:
        self.cluster = cluster
        self.name = name
        self.address = f"{name}:{incarnation}"
        self.client = client = cluster.client()
        self.topics = client.metadata.pd
        self.journals = OwnedJournals(client, self.topics)
        self.owned = OwnedShards(client, self.topics, lambda key: key in self.watch.assigned, self.journals.open_table)
        self.host = Host(self._open_one, self.owned.scaling.settled)
        self.watch = AssignmentWatch(client.metadata.pd, name, incarnation)
        self.watch.on_assigned, self.watch.on_withdrawn = self.host.assigned, self.host.withdrawn
        self.watch.on_topic, self.watch.on_topic_gone = self.owned.topic_changed, self.owned.topic_gone
        row = broker_pb2.Broker(
            name=name, incarnation=incarnation, address=self.address, control_address=f"{name}:2", zone=name
        )
        self.registration = Registration(client.metadata.pd, row, self.owned, self.host.unopenable)
        self.registration.heard_version = self.journals.heard_version
        self.owned.broker_version = lambda: self.journals.broker_version
        self._watching: asyncio.Task[None] | None = None

    async def start(self) -> MemoryBroker:
        """Register, and open what is assigned."""
        self.cluster.accepting[self.address] = None
        await self.registration.register()
        self._watching = asyncio.create_task(self.watch.run())
        return self

    async def stop(self) -> None:
        """Hand over what it has, as a stop does."""
        self.cluster.accepting.pop(self.address, None)
        await self.registration.leave()
        await self.watch.wait_for_nothing()
        await self.end()

    async def end(self) -> None:
        """End all tasks."""
        if self._watching is not None:
            self._watching.cancel()
            with suppress(asyncio.CancelledError):
                await self._watching
        await self.owned.scaling.close()
        await self.owned.covering.close()
        await self.host.close()

    async def die(self) -> None:
        """Kill -9: it calls nobody any more, and others notice."""
        self.cluster.accepting.pop(self.address, None)
        if self._watching is not None:
            self._watching.cancel()
        await self.owned.scaling.close()
        await self.owned.covering.close()
        await self.client.metadata.pd.close()
        await self.client.connections.close()
        request = broker_pb2.ReportBrokerLostRequest(name=self.name, incarnation=int(self.address.partition(":")[2]))
        assert (await self.cluster.call("ReportBrokerLost", request)).lost

    async def opened(self, topic_id: int, shard_id: int) -> OwnedShard:
        """Wait until a shard is open here."""
        await until(lambda: self.owned.open_shard((topic_id, shard_id)) is not None)
        shard = self.owned.open_shard((topic_id, shard_id))
        assert shard is not None
        return shard

    async def _open_one(self, key: tuple[int, int]) -> Awaitable[None] | None:
        return await (self.owned.open_one(key) if key[0] else self.journals.open_coordinator(key))
