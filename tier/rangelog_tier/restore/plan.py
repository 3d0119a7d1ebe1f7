"""The plan of a restore: the rows of an empty cluster, and what is lost. `planning` makes it.

What holds:

* Each restored stream ends where its records cease to be in the tier without a hole; its ranges are sealed, wholly in the tier,
  on no server. Records behind the end are listed as lost.
* Ids are kept, since keys contain them. All numbers that writers compare or that keys contain (epochs, range indexes, ids, map
  versions) go on beyond every one that the former cluster can have given out after its snapshot: at the next multiple of 2^20.
* Nothing that is known to be trimmed or deleted comes back. Records whose deletion was not recorded before the end may come
  back: a stream that was deleted within the deletion grace, whose manifest is gone and whose objects are there, is restored,
  and named.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field

from google.protobuf.message import Message

from rangelog_proto.v1 import common_pb2, cursor_pb2, topic_pb2

KINDS = ("namespaces", "topics", "streams", "ranges", "objects", "shards", "topic_work", "retention_cuts", "cursors")
"""The kinds of rows, in the order in which they are put."""


@dataclass(frozen=True, slots=True)
class RestoreOptions:
    """The choices of a user."""

    trim_to_after_hole: bool = False
    """A stream with a hole keeps what is behind the last one, instead of what is before the first one."""
    skip_doubtful: bool = False
    """Streams whose manifest is gone are left out."""


@dataclass(frozen=True, slots=True)
class LostSpan:
    """Records that no object has."""

    stream: str
    stream_id: int
    kind: str
    start_offset: int
    end_offset: int
    """As far as it is known."""
    was_open: bool
    """There may have been more."""

    @property
    def records(self) -> int:
        """The records that are known to be lost."""
        return self.end_offset - self.start_offset


@dataclass(slots=True)
class RestorePlan:
    """The rows in the order in which they are put, and what a person should know."""

    namespaces: list[topic_pb2.Namespace] = field(default_factory=list)
    topics: list[topic_pb2.Topic] = field(default_factory=list)
    streams: list[common_pb2.Stream] = field(default_factory=list)
    ranges: list[common_pb2.Range] = field(default_factory=list)
    objects: list[common_pb2.Object] = field(default_factory=list)
    shards: list[topic_pb2.Shard] = field(default_factory=list)
    topic_work: list[topic_pb2.TopicWork] = field(default_factory=list)
    retention_cuts: list[topic_pb2.RetentionCut] = field(default_factory=list)
    cursors: list[cursor_pb2.Cursor] = field(default_factory=list)
    next_stream_id: int = 1
    next_object_id: int = 1
    next_topic_id: int = 1
    next_cursor_version: int = 1
    lost: list[LostSpan] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    """Objects that were committed and are not in the bucket, or damaged."""
    holes: list[str] = field(default_factory=list)
    """Streams that are cut at a hole, by name."""
    doubtful: list[str] = field(default_factory=list)
    """Streams that may have been deleted, by name."""
    deleted: list[str] = field(default_factory=list)
    moved_cursors: list[str] = field(default_factory=list)
    """Cursors that were behind the end of their stream, and are at its end now."""
    without_config: list[str] = field(default_factory=list)
    """Streams that no snapshot has: they get the defaults."""
    unattached: list[str] = field(default_factory=list)
    """Shards that no snapshot has: their objects stay where they are, their topic is restored without them."""
    orphans: dict[str, int] = field(default_factory=dict)
    """Objects in the bucket that the restored cluster does not know, with their sizes."""
    left_out: dict[str, int] = field(default_factory=dict)

    def rows(self) -> Iterator[tuple[str, Message]]:
        """Yield all rows in order, each with the name of its kind."""
        for kind in KINDS:
            for row in getattr(self, kind):
                yield kind, row

    @property
    def row_count(self) -> int:
        """The number of all rows."""
        return sum(len(getattr(self, kind)) for kind in KINDS)

    @property
    def record_count(self) -> int:
        """The records that are restored."""
        return sum(each.next_offset - each.trim_offset for each in self.streams)

    def plan_id(self) -> str:
        """Return the digest of all that the plan puts."""
        numbers = (self.next_stream_id, self.next_object_id, self.next_topic_id, self.next_cursor_version)
        digest = hashlib.sha256(f"{numbers}".encode())
        for kind, row in self.rows():
            data = row.SerializeToString(deterministic=True)
            digest.update(f" {kind} {len(data)} ".encode() + data)
        return digest.hexdigest()
