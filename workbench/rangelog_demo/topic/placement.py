"""The second scene's calls on the placement driver: brokers, and which of them owns what. Every call has a deadline."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from rangelog_core.errors import Unavailable
from rangelog_core.net.pd_client import PdClient
from rangelog_proto.v1 import broker_pb2

_CALL_TIMEOUT_S = 10.0


class BrokerPlacement:
    """The brokers of a cluster. Bound to the running event loop; close it."""

    def __init__(self, pd_addresses: list[str]) -> None:
        self._pd = PdClient(pd_addresses)
        self._brokers = self._pd

    async def close(self) -> None:
        """Close the connections."""
        await self._pd.close()

    async def alive(self) -> set[str]:
        """Names of the brokers that shards may be assigned to."""
        listed = await self._brokers.call(
            broker_pb2.ListBrokersRequest(), broker_pb2.ListBrokersResponse, timeout_s=_CALL_TIMEOUT_S
        )
        return {broker.name for broker in listed.brokers if not broker.lost}

    async def owner_of_most(self, topic_id: int, shard_ids: Iterable[int]) -> str:
        """The broker that owns most of these shards. Raises Unavailable when none of them has an owner."""
        wanted = [broker_pb2.OwnedShard(topic_id=topic_id, shard_id=each) for each in shard_ids]
        found = await self._brokers.call(
            broker_pb2.FindOwnersRequest(shards=wanted), broker_pb2.FindOwnersResponse, timeout_s=_CALL_TIMEOUT_S
        )
        owned = Counter(each.broker for each in found.assignments if each.broker)
        if not owned:
            raise Unavailable(f"no shard of topic {topic_id} has an owner: do the brokers run?")
        return min(owned, key=lambda name: (-owned[name], name))
