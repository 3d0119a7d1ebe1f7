"""The calls on topics with the client's own types: requests made of values, pages put together.

Commands carry a request id made once per call, so the transport may retry them; every call has a deadline.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import NamedTuple

from rangelog._metadata import CALL_TIMEOUT_S, new_request_id
from rangelog._topics.messages import key_range_message, shard_info
from rangelog._topics.values import ShardInfo
from rangelog_core.errors import Unavailable
from rangelog_core.key_ranges import KeyRange
from rangelog_core.net.pages import pages_by_token
from rangelog_core.net.pd_client import PdClient
from rangelog_core.topic_names import TopicName
from rangelog_proto.v1 import topic_pb2 as pb

_LISTINGS_MAX = 10


class ListedShards(NamedTuple):
    """Shards of one map version, and the topic as it is then."""

    topic: pb.Topic
    shards: list[ShardInfo]


def by_name(name: TopicName) -> pb.TopicReference:
    """Return a reference to a topic by its name."""
    return pb.TopicReference(namespace=name.namespace, name=name.name)


def by_id(topic_id: int) -> pb.TopicReference:
    """Return a reference to a topic by its id."""
    return pb.TopicReference(topic_id=topic_id)


class TopicCalls:
    """Typed calls. All raise the error in the reply, Unavailable or RequestTimeout.

    A command without a reply that may have been carried out raises OutcomeUnknown.
    """

    def __init__(self, pd: PdClient) -> None:
        self._client = pd

    # ---- namespaces

    async def create_namespace(self, name: str, timeout_s: float) -> None:
        """Create a namespace."""
        request = pb.CreateNamespaceRequest(request_id=new_request_id(), name=name)
        await self._client.call(request, pb.CreateNamespaceResponse, timeout_s=timeout_s)

    async def delete_namespace(self, name: str, timeout_s: float) -> None:
        """Delete an empty namespace."""
        request = pb.DeleteNamespaceRequest(request_id=new_request_id(), name=name)
        await self._client.call(request, pb.DeleteNamespaceResponse, timeout_s=timeout_s)

    async def namespaces(self, prefix: str, after: str) -> AsyncIterator[str]:
        """Yield the names of the namespaces that come after a name, in order."""
        request = pb.ListNamespacesRequest(prefix=prefix, page_token=after)
        async for page in pages_by_token(self._client, request, pb.ListNamespacesResponse, CALL_TIMEOUT_S):
            for each in page.namespaces:
                yield each.name

    # ---- topics

    async def create(
        self,
        name: TopicName,
        config: pb.TopicConfig,
        tags: Mapping[str, str],
        shards: int | Sequence[KeyRange],
        timeout_s: float,
    ) -> pb.Topic:
        """Create a topic with so many equal shards, or with shards of these key ranges."""
        request = pb.CreateTopicRequest(
            request_id=new_request_id(),
            namespace=name.namespace,
            name=name.name,
            config=config,
            tags=tags,
            shard_count=shards if isinstance(shards, int) else 0,
            key_ranges=() if isinstance(shards, int) else [key_range_message(each) for each in shards],
        )
        return (await self._client.call(request, pb.CreateTopicResponse, timeout_s=timeout_s)).topic

    async def describe(
        self, topic: pb.TopicReference, timeout_s: float = CALL_TIMEOUT_S
    ) -> tuple[pb.Topic, pb.ScalePlan | None]:
        """Return a topic, and its plan while it is scaled."""
        response = await self._client.call(
            pb.DescribeTopicRequest(topic=topic), pb.DescribeTopicResponse, timeout_s=timeout_s
        )
        return response.topic, response.scale if response.HasField("scale") else None

    async def topics(self, namespace: str, prefix: str, tags: Mapping[str, str], after: str) -> AsyncIterator[pb.Topic]:
        """Yield the topics that come after a full name, by namespace and name."""
        request = pb.ListTopicsRequest(namespace=namespace, prefix=prefix, tags=tags, page_token=after)
        async for page in pages_by_token(self._client, request, pb.ListTopicsResponse, CALL_TIMEOUT_S):
            for each in page.topics:
                yield each

    async def update(self, request: pb.UpdateTopicRequest, timeout_s: float) -> pb.Topic:
        """Change configuration and tags."""
        request.request_id = new_request_id()
        return (await self._client.call(request, pb.UpdateTopicResponse, timeout_s=timeout_s)).topic

    async def truncate(self, topic_id: int, offsets: Mapping[int, int], timeout_s: float) -> pb.Topic:
        """Trim a topic up to a cut."""
        request = pb.TruncateTopicRequest(
            request_id=new_request_id(),
            topic=by_id(topic_id),
            cut=[pb.ShardPosition(shard_id=each, offset=offset) for each, offset in offsets.items()],
        )
        return (await self._client.call(request, pb.TruncateTopicResponse, timeout_s=timeout_s)).topic

    async def seal(self, topic: pb.TopicReference, expected_version: int, timeout_s: float) -> pb.Topic:
        """Start to seal a topic."""
        request = pb.SealTopicRequest(request_id=new_request_id(), topic=topic, expected_version=expected_version)
        return (await self._client.call(request, pb.SealTopicResponse, timeout_s=timeout_s)).topic

    async def delete(
        self, topic: pb.TopicReference, *, force: bool, expected_version: int, timeout_s: float
    ) -> pb.Topic:
        """Start to delete a topic."""
        request = pb.DeleteTopicRequest(
            request_id=new_request_id(), topic=topic, force=force, expected_version=expected_version
        )
        return (await self._client.call(request, pb.DeleteTopicResponse, timeout_s=timeout_s)).topic

    # ---- shards

    async def shards(
        self, topic: pb.TopicReference, selection: pb.ShardSelection, since_map_version: int = 0
    ) -> ListedShards:
        """Return shards of one map version: a listing whose pages are of several versions begins anew."""
        for _ in range(_LISTINGS_MAX):
            found: list[ShardInfo] = []
            request = pb.ListShardsRequest(topic=topic, selection=selection, since_map_version=since_map_version)
            first: pb.Topic | None = None
            while True:
                page = await self._client.call(request, pb.ListShardsResponse, timeout_s=CALL_TIMEOUT_S)
                first = first or page.topic
                if page.topic.map_version != first.map_version or page.topic.topic_id != first.topic_id:
                    break
                found += [shard_info(each) for each in page.shards]
                request.page_token = page.next_page_token
                if not request.page_token:
                    return ListedShards(page.topic, found)
        raise Unavailable("the shards of the topic change faster than they can be listed: try again")

    async def start_scale(
        self,
        topic: pb.Topic,
        parents: Sequence[int],
        key_ranges: Sequence[KeyRange],
        timeout_s: float,
    ) -> pb.Topic:
        """Store the plan of a scale at the placement driver, for the map version of `topic`."""
        request = pb.StartScaleRequest(
            request_id=new_request_id(),
            topic=by_id(topic.topic_id),
            map_version=topic.map_version,
            parents=parents,
            key_ranges=[key_range_message(each) for each in key_ranges],
        )
        return (await self._client.call(request, pb.StartScaleResponse, timeout_s=timeout_s)).topic

    async def cancel_scale(self, topic_id: int, scale_id: int, timeout_s: float) -> pb.Topic:
        """Drop the plan of a scale."""
        request = pb.CancelScaleRequest(request_id=new_request_id(), topic_id=topic_id, scale_id=scale_id)
        return (await self._client.call(request, pb.CancelScaleResponse, timeout_s=timeout_s)).topic
