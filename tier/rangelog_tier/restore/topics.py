"""The topics of a restore: their rows as the snapshot has them, fitted to where the streams of their shards end now.

What holds: the shard graph is that of the snapshot, which is consistent; each shard ends, or goes on, where its stream does. A
scale or truncation that was in progress is given up: either can be started again. Shards that were made later are not in it.
"""

from __future__ import annotations

from collections.abc import Container, Mapping

from rangelog_proto.v1 import common_pb2, topic_pb2
from rangelog_tier.restore.known import SavedRows
from rangelog_tier.restore.rows import beyond


def is_table(topic: topic_pb2.Topic) -> bool:
    """Whether the shards are partitions of a table: their logs are never tiered."""
    return topic.config.kind == topic_pb2.TOPIC_KIND_TABLE


def kept_topics(rows: SavedRows, gone: Container[int], live: Container[int]) -> dict[int, topic_pb2.Topic]:
    """Return the topics that are restored. `gone`: streams that are not; `live`: streams that had objects.

    A topic is dropped when none of its tiered shards survives.
    """
    kept = {}
    for topic_id, topic in rows.topics.items():
        with_objects = [each.stream_id for each in rows.shards.get(topic_id, {}).values() if each.stream_id in live]
        deleted = bool(with_objects) and all(each in gone for each in with_objects)
        if topic.state != topic_pb2.TOPIC_STATE_DELETING and not deleted:
            kept[topic_id] = topic
    return kept


def topic_row(before: topic_pb2.Topic) -> topic_pb2.Topic:
    """Return a topic at rest."""
    row = topic_pb2.Topic()
    row.CopyFrom(before)
    row.map_version, row.version = beyond(row.map_version), beyond(row.version)
    if row.state in (topic_pb2.TOPIC_STATE_SCALING, topic_pb2.TOPIC_STATE_TRUNCATING):
        at_rest = topic_pb2.TOPIC_STATE_ACTIVE if row.current_shard_count else topic_pb2.TOPIC_STATE_SEALED
        row.state = at_rest
    return row


def shard_row(before: topic_pb2.Shard, stream: common_pb2.Stream, *, table: bool) -> topic_pb2.Shard:
    """Return a shard whose stream was cut. `table`: its log begins empty, which its owner need not know."""
    row = topic_pb2.Shard()
    row.CopyFrom(before)
    if row.ended_version:
        row.end_offset = stream.next_offset
        row.truncated = row.truncated and stream.trim_offset == row.end_offset
    if not table:
        row.restored_offset = stream.next_offset
    return row


def work_row(before: topic_pb2.TopicWork | None) -> topic_pb2.TopicWork | None:
    """Return what is left to do for a topic at rest: its shards' streams may not have its configuration yet."""
    if before is None or not before.HasField("configure_from"):
        return None
    return topic_pb2.TopicWork(
        topic_id=before.topic_id,
        configure_from=before.configure_from,
        configure_since_ms=before.configure_since_ms,
    )


def cut_row(before: topic_pb2.RetentionCut, ends: Mapping[int, int]) -> topic_pb2.RetentionCut:
    """Return a cut that lies behind no shard's end. `ends`: by shard."""
    row = topic_pb2.RetentionCut()
    row.CopyFrom(before)
    row.offsets[:] = [min(offset, ends[shard_id]) for shard_id, offset in zip(row.shard_ids, row.offsets, strict=True)]
    return row
