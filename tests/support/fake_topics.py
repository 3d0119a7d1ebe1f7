"""A FakeCluster with topics: the calls on topics over its streams, under the rules of the placement driver.

There is no owner of a shard: `shard_streams` does what one does. Everything that the placement driver refuses in addition is
tested with the placement driver.
"""

from __future__ import annotations

from typing import Any

from rangelog import Client
from rangelog.testing import FakeClock, FakeCluster
from rangelog.testing.cluster import _FakeClient
from rangelog.testing.connections import FakeConnections, FakePdClient, Switches
from rangelog.testing.placement_driver import FakePlacementDriver
from rangelog_core.errors import (
    NamespaceExists,
    NamespaceNotFound,
    OffsetOutOfRange,
    StaleMapVersion,
    TopicExists,
    TopicNotFound,
    TopicStateForbids,
    Unavailable,
)
from rangelog_core.ids import shard_stream_name
from rangelog_core.key_ranges import (
    KEY_SPACE,
    KeyRange,
    check_tiling,
    equal_key_ranges,
    key_range_from_bytes,
    overlapping,
)
from rangelog_core.name_errors import no_namespace
from rangelog_core.net.routes import route_of
from rangelog_core.stream_defaults import with_defaults
from rangelog_proto.v1 import common_pb2, pd_pb2
from rangelog_proto.v1 import topic_pb2 as pb

ACTIVE, SCALING, SEALING, SEALED = (
    pb.TOPIC_STATE_ACTIVE,
    pb.TOPIC_STATE_SCALING,
    pb.TOPIC_STATE_SEALING,
    pb.TOPIC_STATE_SEALED,
)


class FakeTopics:
    """One method for each call that the client makes, by the name of the RPC."""

    def __init__(self, driver: FakePlacementDriver) -> None:
        self._driver = driver
        self.namespaces: dict[str, pb.Namespace] = {}
        self.topics: dict[int, pb.Topic] = {}
        self.shards: dict[int, dict[int, pb.Shard]] = {}
        self.plans: dict[int, pb.ScalePlan] = {}
        self.page_size = 2
        self._next_id = 1

    # ---- namespaces and topics

    def CreateNamespace(self, request: pb.CreateNamespaceRequest) -> pb.CreateNamespaceResponse:
        if request.name in self.namespaces:
            raise NamespaceExists
        self.namespaces[request.name] = pb.Namespace(name=request.name)
        return pb.CreateNamespaceResponse(namespace=self.namespaces[request.name])

    def DeleteNamespace(self, request: pb.DeleteNamespaceRequest) -> pb.DeleteNamespaceResponse:
        if request.name not in self.namespaces:
            raise NamespaceNotFound
        return pb.DeleteNamespaceResponse(namespace=self.namespaces.pop(request.name))

    def ListNamespaces(self, request: pb.ListNamespacesRequest) -> pb.ListNamespacesResponse:
        names = sorted(
            name for name in self.namespaces if name.startswith(request.prefix) and name > request.page_token
        )
        page, token = names[: self.page_size], names[self.page_size - 1] if len(names) > self.page_size else ""
        return pb.ListNamespacesResponse(namespaces=[self.namespaces[name] for name in page], next_page_token=token)

    def CreateTopic(self, request: pb.CreateTopicRequest) -> pb.CreateTopicResponse:
        if request.namespace not in self.namespaces:
            raise no_namespace(request.namespace)
        if any((each.namespace, each.name) == (request.namespace, request.name) for each in self.topics.values()):
            raise TopicExists
        topic = pb.Topic(
            topic_id=self._next_id,
            namespace=request.namespace,
            name=request.name,
            config=request.config,
            tags=request.tags,
            state=ACTIVE,
            map_version=1,
            version=1,
        )
        topic.config.stream.CopyFrom(with_defaults(request.config.stream))
        topic.config.scaling.factor = topic.config.scaling.factor or 2
        topic.config.scaling.shards_min = topic.config.scaling.shards_min or 1
        self._next_id += 1
        self.topics[topic.topic_id], self.shards[topic.topic_id] = topic, {}
        sent = [key_range_from_bytes(each.low, each.high) for each in request.key_ranges]
        for each in check_tiling(sent, [KEY_SPACE]) if sent else equal_key_ranges(request.shard_count or 1):
            self._begin(topic, each, ())
        return pb.CreateTopicResponse(topic=topic)

    def DescribeTopic(self, request: pb.DescribeTopicRequest) -> pb.DescribeTopicResponse:
        topic = self._topic(request.topic)
        return pb.DescribeTopicResponse(topic=topic, scale=self.plans.get(topic.topic_id))

    def ListTopics(self, request: pb.ListTopicsRequest) -> pb.ListTopicsResponse:
        found = {
            f"{each.namespace}/{each.name}": each
            for each in self.topics.values()
            if request.namespace in ("", each.namespace)
            and each.name.startswith(request.prefix)
            and all(each.tags.get(tag) == request.tags[tag] for tag in request.tags)
        }
        names = sorted(name for name in found if name > request.page_token)
        token = names[self.page_size - 1] if len(names) > self.page_size else ""
        return pb.ListTopicsResponse(topics=[found[name] for name in names[: self.page_size]], next_page_token=token)

    def UpdateTopic(self, request: pb.UpdateTopicRequest) -> pb.UpdateTopicResponse:
        topic = self._topic(request.topic)
        for name in request.fields:
            if name in ("scaling", "retention"):
                getattr(topic.config, name).CopyFrom(getattr(request.config, name))
            else:
                field = name.removeprefix("stream.")
                setattr(topic.config.stream, field, getattr(request.config.stream, field))
        topic.tags.update(request.set_tags)
        for tag in request.remove_tags:
            topic.tags.pop(tag, None)
        topic.version += 1
        return pb.UpdateTopicResponse(topic=topic)

    def TruncateTopic(self, request: pb.TruncateTopicRequest) -> pb.TruncateTopicResponse:
        topic = self._topic(request.topic)
        shards = self.shards[topic.topic_id]
        to_trim = {each.shard_id: each.offset for each in request.cut}
        pending = list(to_trim)
        for shard_id in pending:
            for before in shards[shard_id].predecessors:
                to_trim[before] = shards[before].end_offset
                pending.append(before)
        for shard_id, offset in to_trim.items():
            next_offset = self._driver._streams[shards[shard_id].stream_id].next_offset
            if offset > next_offset:
                raise OffsetOutOfRange(
                    f"the sealed ranges of shard {shard_id} end at {next_offset}", offset=next_offset
                )
        for shard_id, offset in to_trim.items():
            shard = shards[shard_id]
            self._driver.TrimStream(pd_pb2.TrimStreamRequest(stream_id=shard.stream_id, trim_offset=offset))
            shard.truncated = bool(shard.ended_version) and offset == shard.end_offset
        return pb.TruncateTopicResponse(topic=topic)

    def SealTopic(self, request: pb.SealTopicRequest) -> pb.SealTopicResponse:
        topic = self._topic(request.topic)
        if topic.state != ACTIVE:
            raise TopicStateForbids
        topic.state = SEALING
        return pb.SealTopicResponse(topic=topic)

    def DeleteTopic(self, request: pb.DeleteTopicRequest) -> pb.DeleteTopicResponse:
        topic = self._topic(request.topic)
        if topic.state != SEALED and not request.force:
            raise TopicStateForbids
        for shard_id in self.shards.pop(topic.topic_id):
            self._driver.DeleteStream(pd_pb2.DeleteStreamRequest(name=shard_stream_name(topic.topic_id, shard_id)))
        return pb.DeleteTopicResponse(topic=self.topics.pop(topic.topic_id))

    # ---- shards

    def ListShards(self, request: pb.ListShardsRequest) -> pb.ListShardsResponse:
        topic = self._topic(request.topic)
        shards = list(self.shards[topic.topic_id].values())
        if request.selection == pb.SHARD_SELECTION_CHANGED:
            shards = [each for each in shards if _changed(each) > request.since_map_version]
        elif request.selection != pb.SHARD_SELECTION_ALL:
            shards = sorted((each for each in shards if not each.ended_version), key=lambda each: each.key_range.low)
        first = int(request.page_token or 0)
        after = first + self.page_size
        return pb.ListShardsResponse(
            topic=topic, shards=shards[first:after], next_page_token=str(after) if after < len(shards) else ""
        )

    def StartScale(self, request: pb.StartScaleRequest) -> pb.StartScaleResponse:
        topic = self._topic(request.topic)
        if topic.state != ACTIVE:
            raise TopicStateForbids
        if request.map_version != topic.map_version:
            raise StaleMapVersion
        topic.scale_id += 1
        topic.state = SCALING
        self.plans[topic.topic_id] = pb.ScalePlan(
            scale_id=topic.scale_id, parents=sorted(request.parents), key_ranges=request.key_ranges
        )
        return pb.StartScaleResponse(topic=topic)

    def CancelScale(self, request: pb.CancelScaleRequest) -> pb.CancelScaleResponse:
        topic = self.topics[request.topic_id]
        if self.plans.pop(topic.topic_id, None) is None:
            raise TopicStateForbids
        topic.state = ACTIVE
        return pb.CancelScaleResponse(topic=topic)

    def CommitScale(self, request: pb.CommitScaleRequest) -> pb.CommitScaleResponse:
        topic = self.topics[request.topic_id]
        plan = self.plans.pop(topic.topic_id)
        shards = self.shards[topic.topic_id]
        topic.map_version += 1
        parents = sorted((shards[each] for each in plan.parents), key=lambda each: each.key_range.low)
        key_ranges = [key_range_from_bytes(each.low, each.high) for each in plan.key_ranges]
        covers = [key_range_from_bytes(each.key_range.low, each.key_range.high) for each in parents]
        predecessors: list[list[int]] = [[] for _ in key_ranges]
        for old, new in overlapping(covers, key_ranges):
            predecessors[new].append(parents[old].shard_id)
            parents[old].successors.append(topic.next_shard_id + new)
        for end in request.ends:
            self._end(topic, end)
        for key_range, before in zip(key_ranges, predecessors, strict=True):
            self._begin(topic, key_range, sorted(before))
        topic.state, topic.committed_scale_id = ACTIVE, plan.scale_id
        return pb.CommitScaleResponse(topic=topic)

    def EndShard(self, request: pb.EndShardRequest) -> pb.EndShardResponse:
        topic = self.topics[request.topic_id]
        topic.map_version += 1
        self._end(topic, request.end)
        topic.state = SEALING if topic.current_shard_count else SEALED
        return pb.EndShardResponse(topic=topic)

    # ---- inside

    def _topic(self, reference: pb.TopicReference) -> pb.Topic:
        for topic in self.topics.values():
            if topic.topic_id == reference.topic_id or (
                not reference.topic_id and (topic.namespace, topic.name) == (reference.namespace, reference.name)
            ):
                return topic
        raise TopicNotFound

    def _begin(self, topic: pb.Topic, key_range: KeyRange, predecessors: Any) -> None:
        low, high = key_range.to_bytes()
        driver = self._driver
        stream = common_pb2.Stream(
            stream_id=driver._next_stream_id,
            name=shard_stream_name(topic.topic_id, topic.next_shard_id),
            config=topic.config.stream,
            version=1,
        )
        driver._next_stream_id += 1
        driver._streams[stream.stream_id], driver._ids[stream.name] = stream, stream.stream_id
        driver._ranges[stream.stream_id] = {}
        self.shards[topic.topic_id][topic.next_shard_id] = pb.Shard(
            topic_id=topic.topic_id,
            shard_id=topic.next_shard_id,
            key_range=pb.KeyRange(low=low, high=high),
            stream_id=stream.stream_id,
            created_version=topic.map_version,
            predecessors=predecessors,
        )
        topic.next_shard_id += 1
        topic.current_shard_count += 1

    def _end(self, topic: pb.Topic, end: pb.ShardEnd) -> None:
        shard = self.shards[topic.topic_id][end.shard_id]
        shard.ended_version, shard.end_offset = topic.map_version, end.end_offset
        topic.current_shard_count -= 1


class TopicPdClient(FakePdClient):
    """Calls the fake topics, too."""

    def __init__(self, driver: FakePlacementDriver, topics: FakeTopics, switches: Switches) -> None:
        super().__init__(driver, switches)
        self._topics = topics

    async def call(self, request: Any, response: Any, *, timeout_s: float, **_: Any) -> Any:
        route = route_of(type(request))
        if not route.service.endswith(".Topics"):
            return await super().call(request, response, timeout_s=timeout_s)
        if self._closed or self._switches.no_placement_driver:
            raise Unavailable("no placement driver answers")
        with self._switches.lock:
            answer = getattr(self._topics, route.name)(request)
            return type(answer).FromString(answer.SerializeToString())  # shares nothing with the state


class TopicCluster(FakeCluster):
    """A FakeCluster with topics."""

    def __init__(self, *, clock: FakeClock | None = None) -> None:
        super().__init__(clock=clock)
        self.topics = FakeTopics(self._driver)

    def client(self) -> Client:
        """As FakeCluster."""
        connections = FakeConnections(self._server, self._switches)
        self._connections.add(connections)
        return _FakeClient(TopicPdClient(self._driver, self.topics, self._switches), connections, self.clock)


def _changed(shard: pb.Shard) -> int:
    return max(shard.created_version, shard.ended_version)
