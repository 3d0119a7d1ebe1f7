"""The knowledge of a cluster that is gone: the rows of a snapshot, manifests, the objects in the bucket.

What holds: rows that a restore has no use for are counted, not dropped in silence.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from google.protobuf.message import DecodeError

from rangelog_core.errors import Corruption
from rangelog_core.manifest import StreamManifest
from rangelog_core.state_sections import sections
from rangelog_proto.v1 import common_pb2, cursor_pb2, pd_state_pb2, tier_pb2, topic_pb2

_KINDS = {
    pd_state_pb2.SECTION_KIND_STREAMS: "streams",
    pd_state_pb2.SECTION_KIND_RANGES: "ranges",
    pd_state_pb2.SECTION_KIND_OBJECTS: "objects",
    pd_state_pb2.SECTION_KIND_NAMESPACES: "namespaces",
    pd_state_pb2.SECTION_KIND_TOPICS: "topics",
    pd_state_pb2.SECTION_KIND_SHARDS: "shards",
    pd_state_pb2.SECTION_KIND_TOPIC_WORK: "topic_work",
    pd_state_pb2.SECTION_KIND_RETENTION_CUTS: "retention_cuts",
    pd_state_pb2.SECTION_KIND_CURSORS: "cursors",
    pd_state_pb2.SECTION_KIND_TIER_STORES: "tier_stores",
}
_OF_NO_USE = (
    pd_state_pb2.SECTION_KIND_SERVERS,
    pd_state_pb2.SECTION_KIND_BROKERS,
    pd_state_pb2.SECTION_KIND_ASSIGNMENTS,
    pd_state_pb2.SECTION_KIND_RESULTS,
    pd_state_pb2.SECTION_KIND_CONSUMED_CUTS,
)
"""They belong to the servers that are gone; groups report anew what they have consumed."""


@dataclass(slots=True)
class SavedRows:
    """The rows of a snapshot, those that a restore can use."""

    header: pd_state_pb2.SnapshotHeader = field(default_factory=pd_state_pb2.SnapshotHeader)
    streams: dict[int, common_pb2.Stream] = field(default_factory=dict)
    ranges: dict[int, dict[int, common_pb2.Range]] = field(default_factory=dict)
    """By stream, then by index."""
    objects: dict[int, list[common_pb2.Object]] = field(default_factory=dict)
    """By stream, of any state."""
    namespaces: list[topic_pb2.Namespace] = field(default_factory=list)
    topics: dict[int, topic_pb2.Topic] = field(default_factory=dict)
    shards: dict[int, dict[int, topic_pb2.Shard]] = field(default_factory=dict)
    """By topic, then by id."""
    work: dict[int, topic_pb2.TopicWork] = field(default_factory=dict)
    cuts: list[topic_pb2.RetentionCut] = field(default_factory=list)
    cursors: list[cursor_pb2.Cursor] = field(default_factory=list)
    tier_stores: list[tier_pb2.TierStore] = field(default_factory=list)
    """Those that the tier got after its first one."""
    left_out: dict[str, int] = field(default_factory=dict)
    """Sections of kinds that no restore knows, with the number of their bytes."""


def snapshot_rows(state: bytes) -> SavedRows:
    """Return the rows of a state in sections. Raises Corruption."""
    found = SavedRows()
    lists: dict[str, list[Any]] = {name: [] for name in _KINDS.values()}
    try:
        for section in sections(state):
            if section.kind == pd_state_pb2.SECTION_KIND_HEADER:
                found.header = pd_state_pb2.SnapshotHeader.FromString(section.rows)
            elif section.kind in _KINDS:
                name = _KINDS[section.kind]
                lists[name] += getattr(pd_state_pb2.SnapshotRows.FromString(section.rows), name)
            elif section.kind not in _OF_NO_USE:
                kind = _kind_name(section.kind)
                found.left_out[kind] = found.left_out.get(kind, 0) + len(section.rows)
    except DecodeError as error:
        raise Corruption("the rows of the snapshot cannot be read") from error
    _sort_in(found, lists)
    return found


def _sort_in(found: SavedRows, lists: dict[str, list[Any]]) -> None:
    for stream in lists["streams"]:
        found.streams[stream.stream_id] = stream
    for each in lists["ranges"]:
        found.ranges.setdefault(each.stream_id, {})[each.index] = each
    for each in lists["objects"]:
        found.objects.setdefault(each.stream_id, []).append(each)
    found.namespaces = lists["namespaces"]
    for topic in lists["topics"]:
        found.topics[topic.topic_id] = topic
    for shard in lists["shards"]:
        found.shards.setdefault(shard.topic_id, {})[shard.shard_id] = shard
    for each in lists["topic_work"]:
        found.work[each.topic_id] = each
    found.cuts = lists["retention_cuts"]
    found.cursors = lists["cursors"]
    found.tier_stores = sorted(lists["tier_stores"], key=lambda each: each.first_object_id)
    for topic_id, shards in found.shards.items():
        if topic_id not in found.topics or any(each.stream_id not in found.streams for each in shards.values()):
            raise Corruption(f"the snapshot has a shard of topic {topic_id} but not its topic and stream")


def _kind_name(kind: int) -> str:
    known = pd_state_pb2.SectionKind.values()
    name = pd_state_pb2.SectionKind.Name(kind) if kind in known else f"kind {kind}"  # type: ignore[arg-type]
    return name.removeprefix("SECTION_KIND_").lower()


@dataclass(frozen=True, slots=True)
class KnownBucket:
    """The contents of a bucket that are of one cluster."""

    rows: SavedRows
    manifests: Mapping[int, StreamManifest]
    """By stream."""
    sizes: Mapping[str, int]
    """Of each object in the bucket, by key."""


@dataclass(frozen=True, slots=True)
class DescribedObject:
    """An object by its own words: it was read, and is whole as far as its checksums show."""

    found: common_pb2.Object
    stream: str
    """The name of its stream."""
