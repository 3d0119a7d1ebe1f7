"""The source of a table: a stream, or all shards of a topic, and its live objects at one moment.

What holds: an object that is returned was committed when it was asked for, and not trimmed as a whole. Streams and topics are
asked for by id, so those of another one that has the name by now are never taken for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from rangelog import Client
from rangelog.ranges import CALL_TIMEOUT_S, TopicCalls, by_id, by_name
from rangelog_core.errors import PreconditionFailed, StreamNotFound
from rangelog_core.ids import INTERNAL_NAME_START, check_name
from rangelog_core.manifest import ManifestShard, StreamManifest
from rangelog_core.net.manifest_calls import fetch_manifest
from rangelog_core.tier_stores import parse_tier, store_of_key
from rangelog_core.topic_kinds import check_kind
from rangelog_core.topic_names import TopicName, parse_topic_name
from rangelog_proto.v1 import topic_pb2 as pb
from rangelog_tier.opening import store_location

_CALLS_AT_ONCE = 16


class TableSource(NamedTuple):
    """The stream or topic that a table shows. `kind`: "stream" or "topic"; `number`: its id."""

    kind: str
    name: str
    number: int


class LiveObject(NamedTuple):
    """A live object: its URL, shard (None: of a stream), span of offsets, and how many of its first rows are trimmed."""

    url: str
    shard_id: int | None
    start_offset: int
    end_offset: int
    size_bytes: int
    trimmed_count: int


async def find_sources(
    client: Client, *, stream: str | None, prefix: str | None, topic: str | None
) -> list[TableSource]:
    """Return the stream, the topic, or the streams whose names start with `prefix`, by name.

    Raises StreamNotFound (also if no name has the prefix), TopicNotFound, TopicKindForbids (a table), InvalidArgument.
    """
    if topic is not None:
        name = parse_topic_name(topic)
        found, _ = await TopicCalls(client.metadata.pd).describe(by_name(name))
        return [TableSource("topic", str(name), check_kind(found, pb.TOPIC_KIND_RECORDS).topic_id)]
    if stream is not None:
        described = await client.metadata.describe_stream(check_name("stream", stream))
        return [TableSource("stream", described.name, described.stream_id)]
    listed = [
        TableSource("stream", each.name, each.stream_id)
        async for each in client.metadata.list_streams(prefix or "")
        if not each.name.startswith(INTERNAL_NAME_START)
    ]
    if not listed:
        raise StreamNotFound(f"no stream has a name that starts with {prefix!r}: `pdctl stream list` shows the names")
    return listed


def tier_location(tier_url: str) -> str:
    """Return the URL below which the objects are, without a trailing slash; of a tier with several stores, that of the first.

    It identifies the tier of a table. Raises ConfigInvalid.

    >>> tier_location("s3://my-bucket/logs?region=eu-central-1"), tier_location("file:///var/lib/tier")
    ('s3://my-bucket/logs', 'file:///var/lib/tier')
    """
    place = store_location(parse_tier(tier_url)[0].url)
    return place if "://" in place else f"file://{place}"


async def known_tier_url(client: Client, tier_url: str | None) -> str:
    """Return the URL of the tier: the one that is given, or the cluster's. Raises PreconditionFailed."""
    url = tier_url or await client.metadata.tier_url()
    if not url:
        raise PreconditionFailed("this cluster has no tier: give the placement drivers a tier_url")
    return url


async def live_objects(client: Client, source: TableSource, tier_url: str) -> list[LiveObject]:
    """Return the live objects of a source, of a topic those of all its shards.

    Raises StreamNotFound, TopicNotFound (it was deleted meanwhile), Unavailable.
    """
    pd = client.metadata.pd
    if source.kind == "stream":
        return objects_of(await fetch_manifest(pd, CALL_TIMEOUT_S, stream_id=source.number), None, tier_url)
    listed = await TopicCalls(pd).shards(by_id(source.number), pb.SHARD_SELECTION_ALL)
    name = str(TopicName(listed.topic.namespace, listed.topic.name))
    limit = asyncio.Semaphore(_CALLS_AT_ONCE)

    async def of_shard(shard_id: int, stream_id: int) -> list[LiveObject]:
        shard = ManifestShard(name, source.number, shard_id)
        try:
            async with limit:
                found = await fetch_manifest(pd, CALL_TIMEOUT_S, stream_id=stream_id, shard=shard)
        except StreamNotFound:  # the shard ended, and all its records were trimmed
            return []
        return objects_of(found, shard_id, tier_url)

    parts = await asyncio.gather(*(of_shard(each.shard_id, each.stream_id) for each in listed.shards))
    return [each for part in parts for each in part]


def objects_of(manifest: StreamManifest, shard_id: int | None, tier_url: str) -> list[LiveObject]:
    """Return the objects of a manifest, each with the URL at which it is."""
    stores = parse_tier(tier_url)
    locations = {each: tier_location(each.url) for each in stores}
    return [
        LiveObject(
            f"{locations[store_of_key(stores, each.key)]}/{each.key}",
            shard_id,
            each.start_offset,
            each.end_offset,
            each.size_bytes,
            max(0, manifest.trim_offset - each.start_offset),
        )
        for each in manifest.objects
    ]


def table_name(source: TableSource) -> str:
    """Return the name of the table of a source, which needs no quotes in SQL.

    >>> table_name(TableSource("topic", "shop/new-orders", 9)), table_name(TableSource("stream", "air.flights", 7))
    ('new_orders', 'air_flights')
    """
    short = parse_topic_name(source.name).name if source.kind == "topic" else source.name
    return short.replace(".", "_").replace("-", "_")


def namespace_name(source: TableSource, given: Sequence[str]) -> tuple[str, ...]:
    """Return the namespace of the table: the one that is given, a topic's own, or `rangelog`."""
    if given:
        return tuple(given)
    if source.kind == "topic":
        return (parse_topic_name(source.name).namespace.replace(".", "_").replace("-", "_"),)
    return ("rangelog",)
