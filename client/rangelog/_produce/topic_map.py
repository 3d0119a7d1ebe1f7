"""The shards of a topic as the placement driver lists them, kept for a producer's core.

What holds: a map that is handed on is of one version: a listing during which the version changes begins anew. After the first
listing only shards that became current or ended since are asked for. Ended shards are kept while the core may need them as
ancestors.
"""

from __future__ import annotations

from collections.abc import Sequence

from rangelog._produce.core import MappedShard
from rangelog_core.batch import CODEC_NONE, CODEC_ZSTD
from rangelog_core.errors import ProtocolViolation, TopicNotFound, Unavailable
from rangelog_core.ids import check_name
from rangelog_core.key_ranges import key_range_from_bytes
from rangelog_core.limits import SHARD_PAGE_SIZE_MAX
from rangelog_core.name_errors import deleted_topic
from rangelog_core.net.pd_client import PdClient
from rangelog_proto.v1 import common_pb2
from rangelog_proto.v1 import topic_pb2 as pb

CALL_TIMEOUT_S = 5.0
DEFAULT_NAMESPACE = "default"
_LISTINGS_MAX = 5


def topic_reference(name: str) -> pb.TopicReference:
    """Return the reference of "namespace/name", or of a bare name in the namespace "default". Raises InvalidArgument."""
    namespace, slash, rest = name.partition("/")
    if not slash:
        namespace, rest = DEFAULT_NAMESPACE, name
    return pb.TopicReference(namespace=check_name("namespace", namespace), name=check_name("topic", rest))


class TopicMap:
    """The shard map of one topic."""

    def __init__(self, topics: PdClient, reference: pb.TopicReference) -> None:
        self._topics = topics
        self._reference = reference
        self.name = f"{reference.namespace}/{reference.name}"
        self._shards: dict[int, MappedShard] = {}
        self.version = 0
        self.topic = pb.Topic()
        self.codec = CODEC_NONE
        """Of batches, as the topic's configuration had it at `load`."""

    @property
    def shards(self) -> Sequence[MappedShard]:
        """All that are kept."""
        return list(self._shards.values())

    async def load(self, timeout_s: float) -> None:
        """List the current shards; from here on the topic's id counts, not its name. Raises TopicNotFound, Unavailable."""
        shards = await self._list(pb.SHARD_SELECTION_CURRENT, timeout_s)
        self._reference = pb.TopicReference(topic_id=self.topic.topic_id)
        if self.topic.config.stream.compression == common_pb2.COMPRESSION_ZSTD:
            self.codec = CODEC_ZSTD
        self._take(shards)

    async def refresh(self, *, keep_ended: bool) -> bool:
        """List what changed; return whether anything did. Raises TopicNotFound, Unavailable.

        `keep_ended`: shards that had ended before may be ancestors of current ones that the core still asks for.
        """
        before = self.version
        try:
            changed = await self._list(pb.SHARD_SELECTION_CHANGED, CALL_TIMEOUT_S)
        except TopicNotFound as error:
            raise deleted_topic(self.name) from error
        if self.topic.map_version <= before:
            return False
        if not keep_ended:
            self._shards = {shard_id: shard for shard_id, shard in self._shards.items() if not shard.ended}
        self._take(changed)
        return True

    def _take(self, shards: Sequence[pb.Shard]) -> None:
        for shard in shards:
            low, high = key_range_from_bytes(shard.key_range.low, shard.key_range.high)
            self._shards[shard.shard_id] = MappedShard(
                shard.shard_id, low, high, shard.ended_version != 0, tuple(shard.predecessors)
            )
        self.version = self.topic.map_version

    async def _list(self, selection: pb.ShardSelection, timeout_s: float) -> list[pb.Shard]:
        """Return the selected shards of one map version, which `topic` has then."""
        for _ in range(_LISTINGS_MAX):
            shards: list[pb.Shard] = []
            request = pb.ListShardsRequest(
                topic=self._reference,
                selection=selection,
                since_map_version=self.version,
                page_size=SHARD_PAGE_SIZE_MAX,
            )
            version = None
            while True:
                response = await self._topics.call(request, pb.ListShardsResponse, timeout_s=timeout_s)
                if not response.topic.topic_id:
                    raise ProtocolViolation("a listing of shards names no topic")
                if version is None:
                    version = response.topic.map_version
                if response.topic.map_version != version:
                    break
                shards += response.shards
                if not response.next_page_token:
                    self.topic = response.topic
                    return shards
                request.page_token = response.next_page_token
        raise Unavailable("the topic's shards changed while they were listed; try again")
