"""Calls on topics, over the connections of a PdClient, with its retries and deadlines.

Example: `await TopicClient(pd).describe_topic(DescribeTopicRequest(topic=reference), timeout_s=5)`.
"""

from __future__ import annotations

from rangelog_core.net.pd_client import PdClient
from rangelog_proto.v1 import topic_pb2 as pb
from rangelog_proto.v1.topic_pb2_grpc import TopicsStub


class TopicClient:
    """The calls of the placement driver's service for topics. Close the PdClient, not this."""

    def __init__(self, pd: PdClient) -> None:
        self._pd = pd

    async def create_namespace(
        self, request: pb.CreateNamespaceRequest, *, timeout_s: float
    ) -> pb.CreateNamespaceResponse:
        """Create a namespace."""
        return await self._pd.call_service(TopicsStub, lambda stub: stub.CreateNamespace, request, timeout_s)

    async def delete_namespace(
        self, request: pb.DeleteNamespaceRequest, *, timeout_s: float
    ) -> pb.DeleteNamespaceResponse:
        """Delete an empty namespace."""
        return await self._pd.call_service(TopicsStub, lambda stub: stub.DeleteNamespace, request, timeout_s)

    async def list_namespaces(
        self, request: pb.ListNamespacesRequest, *, timeout_s: float
    ) -> pb.ListNamespacesResponse:
        """List the namespaces by page."""
        return await self._pd.call_service(TopicsStub, lambda stub: stub.ListNamespaces, request, timeout_s)

    async def create_topic(self, request: pb.CreateTopicRequest, *, timeout_s: float) -> pb.CreateTopicResponse:
        """Create a topic with its shards."""
        return await self._pd.call_service(TopicsStub, lambda stub: stub.CreateTopic, request, timeout_s)

    async def describe_topic(self, request: pb.DescribeTopicRequest, *, timeout_s: float) -> pb.DescribeTopicResponse:
        """Describe a topic, with its plan while it is scaled."""
        return await self._pd.call_service(TopicsStub, lambda stub: stub.DescribeTopic, request, timeout_s)

    async def list_topics(self, request: pb.ListTopicsRequest, *, timeout_s: float) -> pb.ListTopicsResponse:
        """List topics by page, by namespace, prefix and tags."""
        return await self._pd.call_service(TopicsStub, lambda stub: stub.ListTopics, request, timeout_s)

    async def update_topic(self, request: pb.UpdateTopicRequest, *, timeout_s: float) -> pb.UpdateTopicResponse:
        """Change a topic's configuration and tags."""
        return await self._pd.call_service(TopicsStub, lambda stub: stub.UpdateTopic, request, timeout_s)

    async def truncate_topic(self, request: pb.TruncateTopicRequest, *, timeout_s: float) -> pb.TruncateTopicResponse:
        """Trim a topic up to a cut."""
        return await self._pd.call_service(TopicsStub, lambda stub: stub.TruncateTopic, request, timeout_s)

    async def seal_topic(self, request: pb.SealTopicRequest, *, timeout_s: float) -> pb.SealTopicResponse:
        """Start to seal a topic: its shards are ended one by one."""
        return await self._pd.call_service(TopicsStub, lambda stub: stub.SealTopic, request, timeout_s)

    async def delete_topic(self, request: pb.DeleteTopicRequest, *, timeout_s: float) -> pb.DeleteTopicResponse:
        """Start to delete a topic."""
        return await self._pd.call_service(TopicsStub, lambda stub: stub.DeleteTopic, request, timeout_s)

    async def list_shards(self, request: pb.ListShardsRequest, *, timeout_s: float) -> pb.ListShardsResponse:
        """List a topic's shards by page: the current ones, all, or those that changed."""
        return await self._pd.call_service(TopicsStub, lambda stub: stub.ListShards, request, timeout_s)

    async def start_scale(self, request: pb.StartScaleRequest, *, timeout_s: float) -> pb.StartScaleResponse:
        """Have the placement driver keep the plan of a scale."""
        return await self._pd.call_service(TopicsStub, lambda stub: stub.StartScale, request, timeout_s)

    async def cancel_scale(self, request: pb.CancelScaleRequest, *, timeout_s: float) -> pb.CancelScaleResponse:
        """Drop the plan of a scale."""
        return await self._pd.call_service(TopicsStub, lambda stub: stub.CancelScale, request, timeout_s)

    async def commit_scale(self, request: pb.CommitScaleRequest, *, timeout_s: float) -> pb.CommitScaleResponse:
        """End the parents of a scale and make its children current, if all have ended as named."""
        return await self._pd.call_service(TopicsStub, lambda stub: stub.CommitScale, request, timeout_s)

    async def ensure_log(self, request: pb.EnsureLogRequest, *, timeout_s: float) -> pb.EnsureLogResponse:
        """Create the side log of a shard, or the stream of a coordinator journal, unless it exists."""
        return await self._pd.call_service(TopicsStub, lambda stub: stub.EnsureLog, request, timeout_s)

    async def end_shard(self, request: pb.EndShardRequest, *, timeout_s: float) -> pb.EndShardResponse:
        """End a shard of a topic that is being sealed, if it has ended as named."""
        return await self._pd.call_service(TopicsStub, lambda stub: stub.EndShard, request, timeout_s)

    async def report_consumed(
        self, request: pb.ReportConsumedRequest, *, timeout_s: float
    ) -> pb.ReportConsumedResponse:
        """Report where a group stands, which subscribes it for retention; or unsubscribe it."""
        return await self._pd.call_service(TopicsStub, lambda stub: stub.ReportConsumed, request, timeout_s)
