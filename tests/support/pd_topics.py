"""Topics for tests of the placement driver: short calls on its state machine, and key ranges in quarters of the key space."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rangelog_core.key_ranges import KEY_SPACE_END, KeyRange
from rangelog_pd.state.cuts import positions
from rangelog_pd.state.shards import encode_key_range
from rangelog_pd.state.versions import LEVEL_TOPICS
from rangelog_proto.v1 import common_pb2, pd_pb2, pd_state_pb2, topic_pb2

SIXTEENTH = KEY_SPACE_END // 16


def part(low: int, high: int) -> topic_pb2.KeyRange:
    """The keys from one sixteenth of the key space to another one."""
    return encode_key_range(KeyRange(low * SIXTEENTH, high * SIXTEENTH))


class TopicCalls:
    """Commands on topics of namespace `ns`, by topic id; `pd` is the fixture of a leader in memory."""

    def __init__(self, pd: Any) -> None:
        self.pd = pd
        pd.do(pd_pb2.CreateStreamResponse, set_cluster_version=pd_state_pb2.SetClusterVersion(version=LEVEL_TOPICS))
        self.create_namespace("ns")

    def create_namespace(self, name: str) -> None:
        request = topic_pb2.CreateNamespaceRequest(name=name)
        self.pd.do(topic_pb2.CreateNamespaceResponse, create_namespace=request)

    def create(self, name: str = "t", shards: int = 0, request_id: str = "", **fields: Any) -> topic_pb2.Topic:
        request = topic_pb2.CreateTopicRequest(namespace="ns", name=name, shard_count=shards, **fields)
        return self.pd.do(topic_pb2.CreateTopicResponse, request_id, create_topic=request).topic

    def update(self, topic_id: int, *fields: str, config: topic_pb2.TopicConfig | None = None, **more: Any) -> Any:
        request = topic_pb2.UpdateTopicRequest(topic=refer(topic_id), config=config, fields=fields, **more)
        return self.pd.do(topic_pb2.UpdateTopicResponse, update_topic=request).topic

    def seal(self, topic_id: int) -> topic_pb2.Topic:
        request = topic_pb2.SealTopicRequest(topic=refer(topic_id))
        return self.pd.do(topic_pb2.SealTopicResponse, seal_topic=request).topic

    def end(self, topic_id: int, shard_id: int, **changes: Any) -> topic_pb2.Topic:
        request = topic_pb2.EndShardRequest(topic_id=topic_id, end=self.end_of(topic_id, shard_id, **changes))
        return self.pd.do(topic_pb2.EndShardResponse, end_shard=request).topic

    def delete(self, topic_id: int, *, force: bool = False) -> topic_pb2.Topic:
        request = topic_pb2.DeleteTopicRequest(topic=refer(topic_id), force=force)
        return self.pd.do(topic_pb2.DeleteTopicResponse, delete_topic=request).topic

    def truncate(self, topic_id: int, cut: Mapping[int, int], *, covered: bool = True) -> topic_pb2.Topic:
        """Truncate; `covered`: snapshots have all producers of all shards."""
        request = topic_pb2.TruncateTopicRequest(topic=refer(topic_id), cut=positions(cut))
        if not covered:
            return self.pd.do(topic_pb2.TruncateTopicResponse, truncate_topic=request).topic
        retain = pd_state_pb2.RetainTopic(request=request, covered=positions(self.everything(topic_id)))
        return self.pd.do(topic_pb2.TruncateTopicResponse, retain_topic=retain).topic

    def start_scale(
        self, topic_id: int, parents: Sequence[int], *key_ranges: topic_pb2.KeyRange, map_version: int = 0
    ) -> topic_pb2.Topic:
        request = topic_pb2.StartScaleRequest(
            topic=refer(topic_id),
            map_version=map_version or self.topic(topic_id).map_version,
            parents=parents,
            key_ranges=key_ranges,
        )
        return self.pd.do(topic_pb2.StartScaleResponse, start_scale=request).topic

    def cancel_scale(self, topic_id: int, scale_id: int) -> topic_pb2.Topic:
        request = topic_pb2.CancelScaleRequest(topic_id=topic_id, scale_id=scale_id)
        return self.pd.do(topic_pb2.CancelScaleResponse, cancel_scale=request).topic

    def commit_scale(
        self, topic_id: int, ends: Sequence[topic_pb2.ShardEnd] | None = None, scale_id: int = 0, request_id: str = ""
    ) -> topic_pb2.Topic:
        """Commit the plan of a topic, with the true ends of its parents unless `ends` are given."""
        if ends is None:
            ends = [self.end_of(topic_id, each) for each in self.pd.state.topics.work_of(topic_id).scale.parents]
        request = topic_pb2.CommitScaleRequest(
            topic_id=topic_id, scale_id=scale_id or self.topic(topic_id).scale_id, ends=ends
        )
        return self.pd.do(topic_pb2.CommitScaleResponse, request_id, commit_scale=request).topic

    def scale(self, topic_id: int, parents: Sequence[int], *key_ranges: topic_pb2.KeyRange) -> topic_pb2.Topic:
        """Start and commit."""
        self.start_scale(topic_id, parents, *key_ranges)
        return self.commit_scale(topic_id)

    def go_on(self, topic_id: int, covered: Mapping[int, int] | None = None) -> None:
        """`covered`: how far snapshots reach; unless it is given, over all."""
        reach = covered if covered is not None else self.everything(topic_id)
        command = pd_state_pb2.ContinueTopic(topic_id=topic_id, covered=positions(reach))
        self.pd.do(pd_pb2.CreateStreamResponse, continue_topic=command)

    def everything(self, topic_id: int) -> dict[int, int]:
        """Beyond the end of each shard."""
        return dict.fromkeys(self.pd.state.topics.maps.of(topic_id).ids, 1 << 62)

    # ---- what an owner does, on servers rs1 to rs3

    def write(self, topic_id: int, shard_id: int, count: int) -> None:
        """Open the shard's stream and seal a range of `count` records."""
        self.open(topic_id, shard_id)
        stream = self.stream(topic_id, shard_id)
        last = self.pd.state.ranges.of(stream.stream_id).last()
        self.pd.seal(stream.stream_id, last.index, stream.epoch, last.start_offset + count)

    def open(self, topic_id: int, shard_id: int) -> common_pb2.Range:
        """Open the shard's stream with a new range."""
        stream = self.pd.open_writer(self.stream(topic_id, shard_id).name).stream
        return self.pd.create_range(stream.stream_id, stream.epoch, stream.next_offset, "rs1", "rs2", "rs3")

    # ---- what there is

    def topic(self, topic_id: int) -> topic_pb2.Topic:
        return self.pd.state.topics.topics[topic_id]

    def shard(self, topic_id: int, shard_id: int) -> topic_pb2.Shard:
        return self.pd.state.topics.shards[topic_id, shard_id]

    def stream(self, topic_id: int, shard_id: int) -> common_pb2.Stream:
        return self.pd.state.streams[self.shard(topic_id, shard_id).stream_id]

    def current(self, topic_id: int) -> list[int]:
        return [shard_id for _, shard_id in self.pd.state.topics.maps.of(topic_id).current]

    def end_of(self, topic_id: int, shard_id: int, /, **changes: Any) -> topic_pb2.ShardEnd:
        """The end of a shard as it is, with some fields changed."""
        shard = self.shard(topic_id, shard_id)
        return topic_pb2.ShardEnd(**(true_end(self.pd.state, shard) | changes))


def true_end(state: Any, shard: topic_pb2.Shard) -> dict[str, Any]:
    """The fields of a ShardEnd that names what the state has."""
    stream = state.streams[shard.stream_id]
    last = state.ranges.of(shard.stream_id).last()
    fields = {
        "shard_id": shard.shard_id,
        "stream_id": shard.stream_id,
        "epoch": stream.epoch,
        "end_offset": stream.next_offset,
    }
    return fields | ({"last_range_index": last.index} if last is not None else {})


def refer(topic_id: int) -> topic_pb2.TopicReference:
    """A topic by id."""
    return topic_pb2.TopicReference(topic_id=topic_id)
