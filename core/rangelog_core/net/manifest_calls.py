"""The manifest of a stream from the placement driver.

What holds: the manifest has every object that was committed when the first call was answered and is live when the last one is,
and none that is not live then. A commit between the two may be missing; after a repack between them all is asked for again.
"""

from __future__ import annotations

import time

from rangelog_core.errors import Unavailable
from rangelog_core.ids import shard_of_stream_name
from rangelog_core.limits import OBJECT_PAGE_SIZE_MAX
from rangelog_core.manifest import ManifestObject, ManifestShard, StreamManifest
from rangelog_core.net.pages import object_pages
from rangelog_core.net.pd_client import PdClient
from rangelog_core.topic_names import TopicName
from rangelog_proto.v1 import common_pb2, pd_pb2, topic_pb2

TRIES_MAX = 5


async def fetch_manifest(
    pd: PdClient,
    timeout_s: float,
    *,
    name: str = "",
    stream_id: int = 0,
    shard: ManifestShard | None = None,
) -> StreamManifest:
    """Return the manifest of a stream by name or by id. The topic of a shard's stream is looked up, unless `shard` is given.

    Raises StreamNotFound, TopicNotFound (the topic is deleted meanwhile), Unavailable.
    """
    begun = await _describe(pd, timeout_s, name=name, stream_id=stream_id)
    for _ in range(TRIES_MAX):
        found = await _committed(pd, timeout_s, begun)
        if shard is None:
            shard = await _shard(pd, timeout_s, begun.name)
        now = await _describe(pd, timeout_s, stream_id=begun.stream_id)
        if now.repack_count == begun.repack_count:
            break
        begun = now
    else:
        raise Unavailable(f"the objects of stream {begun.name!r} are being repacked")
    return StreamManifest(
        stream=now.name,
        stream_id=now.stream_id,
        shard=shard,
        trim_offset=now.trim_offset,
        written_ms=time.time_ns() // 1_000_000,
        objects=tuple(each for each in found if each.end_offset > now.trim_offset),
        repack_count=now.repack_count,
    )


def manifest_name(found: StreamManifest) -> str:
    """Return the name of a stream in the key of its manifest: of a shard's, namespace/topic/shard id."""
    return found.stream if found.shard is None else f"{found.shard.topic}/{found.shard.shard_id}"


async def _describe(pd: PdClient, timeout_s: float, *, name: str = "", stream_id: int = 0) -> common_pb2.Stream:
    request = pd_pb2.ListRangesRequest(name=name, stream_id=stream_id, last_only=True, page_size=1)
    response = await pd.call(request, pd_pb2.ListRangesResponse, timeout_s=timeout_s)
    if not response.HasField("stream"):
        raise Unavailable("the placement driver lists the ranges without their stream: upgrade it")
    return response.stream


async def _committed(pd: PdClient, timeout_s: float, stream: common_pb2.Stream) -> list[ManifestObject]:
    """Return the committed objects that end beyond the trim offset, by start offset."""
    request = pd_pb2.ListObjectsRequest(
        stream_id=stream.stream_id,
        from_offset=stream.trim_offset,
        page_size=OBJECT_PAGE_SIZE_MAX,
        state=common_pb2.OBJECT_STATE_COMMITTED,
    )
    found: list[ManifestObject] = []
    async for objects in object_pages(pd, request, timeout_s):
        found += map(_object, objects)  # page by page: a server's event loop is not held up by many
    return found


async def _shard(pd: PdClient, timeout_s: float, stream_name: str) -> ManifestShard | None:
    ids = shard_of_stream_name(stream_name)
    if ids is None:
        return None
    topic_id, shard_id = ids
    request = topic_pb2.DescribeTopicRequest(topic=topic_pb2.TopicReference(topic_id=topic_id))
    topic = (await pd.call(request, topic_pb2.DescribeTopicResponse, timeout_s=timeout_s)).topic
    return ManifestShard(str(TopicName(topic.namespace, topic.name)), topic_id, shard_id)


def _object(found: common_pb2.Object) -> ManifestObject:
    return ManifestObject(
        key=found.key,
        start_offset=found.start_offset,
        end_offset=found.end_offset,
        record_count=found.end_offset - found.start_offset,
        size_bytes=found.size_bytes,
        digest=found.digest,
        timestamp_ms_min=found.timestamp_ms_min,
        timestamp_ms_max=found.timestamp_ms_max,
        committed_ms=found.committed_ms,
        encryption_key_id=found.encryption_key_id,
    )
