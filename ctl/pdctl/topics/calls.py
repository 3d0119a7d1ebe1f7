"""Calls on topics that several commands make: a topic's shards by page, all brokers, many calls at once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from rangelog_core.errors import StaleMapVersion
from rangelog_core.net.pages import pages_by_token

if TYPE_CHECKING:
    from rangelog_core.key_ranges import KeyRange
    from rangelog_core.net.pd_client import PdClient
    from rangelog_core.topic_names import TopicName
    from rangelog_proto.v1 import broker_pb2, topic_pb2

_PAGE_SIZE = 1_000
_LISTINGS_MAX = 5
_CALLS_AT_ONCE = 32

_T = TypeVar("_T")
_Item = TypeVar("_Item")


class Listing(NamedTuple):
    """A topic with shards of one map version, and to whom these are assigned."""

    topic: topic_pb2.Topic
    shards: dict[int, topic_pb2.Shard]
    owners: dict[int, broker_pb2.Assignment]


def reference(path: TopicName) -> topic_pb2.TopicReference:
    """Return what names a topic in a request."""
    from rangelog_proto.v1 import topic_pb2

    return topic_pb2.TopicReference(namespace=path.namespace, name=path.name)


def encode_key_range(key_range: KeyRange) -> topic_pb2.KeyRange:
    """Return a key range as it is sent."""
    from rangelog_proto.v1 import topic_pb2

    low, high = key_range.to_bytes()
    return topic_pb2.KeyRange(low=low, high=high)


async def list_shards(
    pd: PdClient,
    topic: topic_pb2.TopicReference,
    timeout_s: float,
    *,
    selection: str = "CURRENT",
    since_map_version: int = 0,
) -> Listing:
    """Return the current shards, ALL of them or those CHANGED since a map version: all of one map version.

    Raises TopicNotFound, StaleMapVersion (the topic is scaled faster than it can be listed).
    """
    from rangelog_proto.v1 import topic_pb2

    request = topic_pb2.ListShardsRequest(
        topic=topic,
        selection=f"SHARD_SELECTION_{selection}",
        since_map_version=since_map_version,
        page_size=_PAGE_SIZE,
    )
    for _ in range(_LISTINGS_MAX):
        found = await _list_shards_once(pd, request, timeout_s)
        if found is not None:
            return found
    raise StaleMapVersion("the topic is being scaled at the moment: run the command again")


async def _list_shards_once(pd: PdClient, request: topic_pb2.ListShardsRequest, timeout_s: float) -> Listing | None:
    """Return the listing, or None if the map changed between two pages."""
    from rangelog_proto.v1 import topic_pb2

    request.page_token = ""
    shards: dict[int, topic_pb2.Shard] = {}
    owners: dict[int, broker_pb2.Assignment] = {}
    first: topic_pb2.Topic | None = None
    async for page in pages_by_token(pd, request, topic_pb2.ListShardsResponse, timeout_s):
        first = first or page.topic
        if (page.topic.topic_id, page.topic.map_version) != (first.topic_id, first.map_version):
            return None
        shards.update((each.shard_id, each) for each in page.shards)
        owners.update((each.shard_id, each) for each in page.owners)
    return Listing(page.topic, shards, owners)


async def broker_counts(pd: PdClient, timeout_s: float) -> broker_pb2.ListBrokersResponse:
    """Return the registered brokers, and how much is assigned to each."""
    from rangelog_proto.v1 import broker_pb2

    return await pd.call(broker_pb2.ListBrokersRequest(), broker_pb2.ListBrokersResponse, timeout_s=timeout_s)


async def all_brokers(pd: PdClient, timeout_s: float) -> dict[str, broker_pb2.Broker]:
    """Return the registered brokers by name."""
    return {each.name: each for each in (await broker_counts(pd, timeout_s)).brokers}


async def for_each(items: Iterable[_Item], work: Callable[[_Item], Awaitable[_T]]) -> list[_T]:
    """Return the results of `work` on each item, in order; a bounded number of them at once. Raises the first error."""
    room = asyncio.Semaphore(_CALLS_AT_ONCE)

    async def one(item: _Item) -> _T:
        async with room:
            return await work(item)

    tasks = [asyncio.ensure_future(one(item)) for item in items]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
