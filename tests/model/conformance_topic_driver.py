"""A topic at the placement driver's state machine: its streams opened, sealed and ended as owners ask for it."""

from __future__ import annotations

from typing import Any, TypeVar

from google.protobuf.message import Message

from rangelog._produce.core import MappedShard
from rangelog_core.key_ranges import KEY_SPACE_END, KeyRange
from rangelog_pd.state.machine import Machine, response_of
from rangelog_pd.state.shards import encode_key_range
from rangelog_pd.state.topic_tables import key_range_of
from rangelog_pd.state.versions import FEATURE_LEVEL
from rangelog_proto.v1 import common_pb2, pd_pb2, pd_state_pb2, topic_pb2
from tests.model.topic_state import CURRENT

HALF = KEY_SPACE_END // 2
TOPIC_ID = 1
PLANS = (
    (KeyRange(0, HALF), KeyRange(HALF, KEY_SPACE_END)),
    (KeyRange(0, KEY_SPACE_END),),
)
"""The key ranges that follow at each scale, by the level before it."""

_T = TypeVar("_T", bound=Message)


class TopicDriver:
    """One topic of one shard, whose stream is open; the ids of shards are the model's."""

    def __init__(self) -> None:
        self.machine = Machine()
        self._applied = 0
        for server in ("s1", "s2"):
            self.do(
                pd_pb2.RegisterServerResponse,
                register_server=pd_pb2.RegisterServerRequest(server=server, incarnation=1, boot=1, data_address="a:1"),
            )
        self.do(pd_pb2.CreateStreamResponse, set_cluster_version=pd_state_pb2.SetClusterVersion(version=FEATURE_LEVEL))
        self.do(topic_pb2.CreateNamespaceResponse, create_namespace=topic_pb2.CreateNamespaceRequest(name="ns"))
        stream = common_pb2.StreamConfig(replicas=2, acks=2)
        request = topic_pb2.CreateTopicRequest(
            namespace="ns", name="t", config=topic_pb2.TopicConfig(stream=stream), shard_count=1
        )
        self.do(topic_pb2.CreateTopicResponse, create_topic=request)

    def do(self, response: type[_T], **action: Any) -> _T:
        """Apply one command; return its response or raise its error."""
        command = pd_state_pb2.Command(version=FEATURE_LEVEL, now_ms=1_000_000, **action)
        self._applied += 1
        result = self.machine.apply(self._applied, command.SerializeToString())
        self.machine.state.validate()
        return response.FromString(response_of(result))

    # ---- what owners ask for

    def open(self, shard_id: int, end_offset: int) -> None:
        """Fence the former owner, end what it left open, begin a range. Raises StreamSealed."""
        name = self.stream(shard_id).name
        self.do(pd_pb2.OpenWriterResponse, open_writer=pd_pb2.OpenWriterRequest(name=name))
        last = self.machine.state.ranges.of(self.stream(shard_id).stream_id).last()
        if last is not None and last.state == common_pb2.RANGE_STATE_OPEN:
            self.seal(shard_id, self.stream(shard_id).epoch, end_offset)
        self.begin_range(shard_id, end_offset)

    def begin_range(self, shard_id: int, start_offset: int) -> None:
        """Begin a range under the present epoch. Raises StreamSealed."""
        stream = self.stream(shard_id)
        request = pd_pb2.CreateRangeRequest(stream_id=stream.stream_id, epoch=stream.epoch, start_offset=start_offset)
        placed = pd_state_pb2.PlacedCreateRange(request=request, replicas=_members())
        self.do(pd_pb2.CreateRangeResponse, create_range=placed)

    def seal(self, shard_id: int, epoch: int, end_offset: int, *, create_next: bool = False) -> None:
        """End the last range. Raises WriterFenced, StreamSealed."""
        stream = self.stream(shard_id)
        last = self.machine.state.ranges.of(stream.stream_id).last()
        request = pd_pb2.SealRangeRequest(
            stream_id=stream.stream_id,
            range_index=last.index,
            epoch=epoch,
            end_offset=end_offset,
            create_next=create_next,
        )
        placed = pd_state_pb2.PlacedSealRange(request=request, replicas=_members() if create_next else [])
        self.do(pd_pb2.SealRangeResponse, seal_range=placed)

    # ---- the scale

    def start_scale(self, level: int) -> None:
        """Plan the next scale, unless it is planned. Raises StaleMapVersion, ShardEnded, TopicStateForbids."""
        if self.topic.state == topic_pb2.TOPIC_STATE_SCALING:
            return
        request = topic_pb2.StartScaleRequest(
            topic=topic_pb2.TopicReference(topic_id=TOPIC_ID),
            map_version=level + 1,
            parents=CURRENT[level],
            key_ranges=[encode_key_range(each) for each in PLANS[level]],
        )
        self.do(topic_pb2.StartScaleResponse, start_scale=request)

    def cancel_scale(self) -> None:
        """Drop the plan. Raises TopicStateForbids."""
        request = topic_pb2.CancelScaleRequest(topic_id=TOPIC_ID, scale_id=self.topic.scale_id)
        self.do(topic_pb2.CancelScaleResponse, cancel_scale=request)

    def end_of(self, shard_id: int, epoch: int, end_offset: int) -> topic_pb2.ShardEnd:
        """The end of a shard as an owner of that epoch claims it."""
        stream = self.stream(shard_id)
        last = self.machine.state.ranges.of(stream.stream_id).last()
        return topic_pb2.ShardEnd(
            shard_id=shard_id,
            stream_id=stream.stream_id,
            epoch=epoch,
            last_range_index=last.index if last is not None else None,
            end_offset=end_offset,
        )

    def commit_scale(self, ends: list[topic_pb2.ShardEnd]) -> None:
        """End the parents, begin the children. Raises WriterFenced, PreconditionFailed, TopicStateForbids."""
        request = topic_pb2.CommitScaleRequest(topic_id=TOPIC_ID, scale_id=self.topic.scale_id, ends=ends)
        self.do(topic_pb2.CommitScaleResponse, commit_scale=request)

    # ---- what there is

    @property
    def topic(self) -> topic_pb2.Topic:
        """As it is."""
        return self.machine.state.topics.topics[TOPIC_ID]

    def shard(self, shard_id: int) -> topic_pb2.Shard:
        """Return a shard. Raises KeyError: there is none yet."""
        return self.machine.state.topics.shards[TOPIC_ID, shard_id]

    def stream(self, shard_id: int) -> common_pb2.Stream:
        """Return a shard's stream."""
        return self.machine.state.streams[self.shard(shard_id).stream_id]

    def current(self) -> list[int]:
        """Return the current shards, by key."""
        return [shard_id for _, shard_id in self.machine.state.topics.maps.of(TOPIC_ID).current]

    def mapped(self) -> list[MappedShard]:
        """Return all shards as a producer has them."""
        rows = [self.shard(shard_id) for shard_id in range(self.topic.next_shard_id)]
        return [
            MappedShard(
                row.shard_id,
                key_range_of(row).low,
                key_range_of(row).high,
                bool(row.ended_version),
                tuple(row.predecessors),
            )
            for row in rows
        ]


def _members() -> list[common_pb2.Replica]:
    return [common_pb2.Replica(server=server, incarnation=1) for server in ("s1", "s2")]
