"""Makes the plan of a restore from what a bucket has. A core without I/O: `needed` says which objects have to be read before.

What holds: see `plan`. A stream whose name a later one has was deleted. One that the snapshot has with objects, and that has no
manifest in a bucket with manifests of others, was deleted or wholly trimmed: it is restored, and named as doubtful; if its
objects are gone as well, without records.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise

from rangelog_core.ids import AUDIT_STREAM_NAME, is_internal_name, shard_of_stream_name
from rangelog_core.object_keys import parse_object_key
from rangelog_proto.v1 import common_pb2, cursor_pb2, topic_pb2
from rangelog_tier.restore import topics as of_topics
from rangelog_tier.restore.coverage import ListedObjects, ObjectCoverage, TieredPiece, cover, listed
from rangelog_tier.restore.known import DescribedObject, KnownBucket
from rangelog_tier.restore.plan import LostSpan, RestoreOptions, RestorePlan
from rangelog_tier.restore.rows import beyond, empty_row, object_rows, range_rows, stream_row

ID_MAX = 1 << 56
"""No cluster gives out so many: a foreign file has such a key."""


def needed(bucket: KnownBucket) -> list[str]:
    """Return the keys of the objects to read before a plan is made: those that only a manifest has, and those that may go on
    from what is known."""
    found: list[str] = []
    by_stream = _keys_by_stream(bucket.sizes)
    for stream_id in _stream_ids(bucket):
        known = _listed(bucket, stream_id)
        names = {each.key for each in known.pieces}
        found += [each.key for each in known.pieces if each.row is None and each.key in bucket.sizes]
        end = cover(known, bucket.sizes, ()).end
        buried = _tombstones(bucket, stream_id)
        found += [
            each.key
            for each in by_stream.get(stream_id, ())
            if each.key not in names and each.key not in buried and each.end > end
        ]
    return found


def make_plan(
    bucket: KnownBucket, described: Mapping[str, DescribedObject], options: RestoreOptions | None = None
) -> RestorePlan:
    """Make the plan. `described`: those objects of `needed` that could be read; the others do not count."""
    return _Planner(bucket, described, options or RestoreOptions()).plan()


@dataclass(slots=True)
class _Decided:
    """The rows that are restored of one stream."""

    name: str
    before: common_pb2.Stream | None
    listed: ListedObjects
    coverage: ObjectCoverage


class _Planner:
    def __init__(self, bucket: KnownBucket, described: Mapping[str, DescribedObject], options: RestoreOptions) -> None:
        self._bucket = bucket
        self._rows = bucket.rows
        self._described = described
        self._options = options
        self._plan = RestorePlan(left_out=dict(bucket.rows.left_out))
        unread = {key for key in needed(bucket) if key not in described}
        self._sizes = {key: size for key, size in bucket.sizes.items() if key not in unread}
        self._by_stream = _keys_by_stream(self._sizes)
        self._streams: dict[int, common_pb2.Stream] = {}
        self._emptied: dict[int, None] = {}
        """Doubtful streams whose objects are gone."""

    def plan(self) -> RestorePlan:
        """Make the plan. For one call."""
        decided = self._decide()
        gone = self._gone(decided)
        live = {stream_id for stream_id, each in decided.items() if each.listed.pieces or stream_id in self._emptied}
        topics = of_topics.kept_topics(self._rows, gone, live)
        of_kept = {each.stream_id: each for topic_id in topics for each in self._rows.shards.get(topic_id, {}).values()}
        for stream_id, each in sorted(decided.items()):
            is_shard = shard_of_stream_name(each.name) is not None
            if stream_id in of_kept:
                shard = of_kept[stream_id]
                self._put_stream(stream_id, each, table=of_topics.is_table(topics[shard.topic_id]))
            elif is_shard or stream_id in gone:
                self._plan.deleted.append(each.name)
            else:
                self._put_stream(stream_id, each, table=False)
        self._put_topics(topics)
        self._put_cursors()
        self._put_ids()
        self._list_lost_logs()
        self._list_rest()
        return self._plan

    # ---- what becomes of each stream

    def _decide(self) -> dict[int, _Decided]:
        decided = {}
        for stream_id in _stream_ids(self._bucket):
            before = self._rows.streams.get(stream_id)
            known = _listed(self._bucket, stream_id)
            names = {each.key for each in known.pieces}
            others = [
                self._unlisted(each)
                for each in self._by_stream.get(stream_id, ())
                if each.key not in names and each.key in self._described
            ]
            if self._is_doubtful(stream_id, known) and not any(each.key in self._bucket.sizes for each in known.pieces):
                known = ListedObjects(known.pieces[-1].end, (), known.repack_count, known.revision)
                self._emptied[stream_id] = None
            coverage = cover(known, self._sizes, others, trim_to_after_hole=self._options.trim_to_after_hole)
            name = before.name if before is not None else self._bucket.manifests[stream_id].stream
            decided[stream_id] = _Decided(name, before, known, coverage)
        return decided

    def _unlisted(self, piece: TieredPiece) -> TieredPiece:
        found = self._described[piece.key].found
        return TieredPiece(piece.key, piece.place, found.size_bytes, found.digest)

    def _is_doubtful(self, stream_id: int, known: ListedObjects) -> bool:
        """Whether a stream that had live objects has no manifest any more, although others have."""
        manifests = self._bucket.manifests
        return bool(known.pieces and manifests) and stream_id not in manifests

    def _gone(self, decided: Mapping[int, _Decided]) -> set[int]:
        """Return the streams that were deleted, or that are left out as doubtful."""
        gone = set()
        latest = {each.name: stream_id for stream_id, each in sorted(decided.items())}
        for stream_id, each in decided.items():
            if latest[each.name] != stream_id:
                gone.add(stream_id)
            elif stream_id in self._emptied or self._is_doubtful(stream_id, each.listed):
                self._plan.doubtful.append(each.name)
                if self._options.skip_doubtful:
                    gone.add(stream_id)
        return gone

    # ---- rows

    def _put_stream(self, stream_id: int, each: _Decided, *, table: bool) -> None:
        plan = self._plan
        if table and each.before is not None:
            self._streams[stream_id] = row = empty_row(each.before)
            plan.streams.append(row)
            self._list_lost(stream_id, each, "table", [])
            return
        objects = object_rows(each.coverage.chosen, self._described, self._rows.header.time_ms)
        manifest = self._bucket.manifests.get(stream_id)
        row = stream_row(stream_id, each.name, each.before, each.listed, each.coverage, objects, manifest)
        self._streams[stream_id] = row
        plan.streams.append(row)
        plan.ranges += range_rows(row, objects, self._rows.ranges.get(stream_id, {}))
        plan.objects += objects
        plan.missing += [piece.key for piece in each.coverage.missing]
        if each.coverage.behind_hole or each.coverage.before_hole:
            plan.holes.append(each.name)
        if each.before is None:
            plan.without_config.append(each.name)
        kind = "stream" if shard_of_stream_name(each.name) is None else "shard"
        whole = (*each.coverage.before_hole, *each.coverage.chosen, *each.coverage.behind_hole)
        self._list_lost(stream_id, each, kind, whole)

    def _put_topics(self, topics: Mapping[int, topic_pb2.Topic]) -> None:
        plan, rows = self._plan, self._rows
        plan.namespaces = list(rows.namespaces)
        plan.topics = [of_topics.topic_row(each) for each in topics.values()]
        for topic_id, topic in topics.items():
            shards = rows.shards.get(topic_id, {})
            ends = {each.shard_id: self._streams[each.stream_id].next_offset for each in shards.values()}
            table = of_topics.is_table(topic)
            plan.shards += [
                of_topics.shard_row(shards[each], self._streams[shards[each].stream_id], table=table)
                for each in sorted(shards)
            ]
            work = of_topics.work_row(rows.work.get(topic_id))
            plan.topic_work += [work] if work is not None else []
            cuts = sorted((each for each in rows.cuts if each.topic_id == topic_id), key=lambda cut: cut.number)
            plan.retention_cuts += [of_topics.cut_row(each, ends) for each in cuts]

    def _put_cursors(self) -> None:
        """Put the cursors of restored streams, none beyond its stream's end."""
        for each in self._rows.cursors:
            stream = self._streams.get(each.stream_id)
            if stream is None or is_internal_name(stream.name):
                continue
            row = cursor_pb2.Cursor()
            row.CopyFrom(each)
            if row.offset > stream.next_offset:
                row.offset = stream.next_offset
                self._plan.moved_cursors.append(f"{row.name} of {stream.name}, from {each.offset} to {row.offset}")
            self._plan.cursors.append(row)

    def _put_ids(self) -> None:
        header, manifests = self._rows.header, self._bucket.manifests
        places = [each.place for pieces in _keys_by_stream(self._bucket.sizes).values() for each in pieces]
        topic_ids = [each.shard.topic_id for each in manifests.values() if each.shard is not None]
        last_stream = max([header.next_stream_id, *manifests, *(each.stream_id for each in places)])
        self._plan.next_stream_id = beyond(last_stream)
        self._plan.next_object_id = beyond(max([header.next_object_id, *(each.object_id for each in places)]))
        self._plan.next_cursor_version = beyond(header.next_cursor_version)
        self._plan.next_topic_id = beyond(max([header.next_topic_id, *topic_ids]))

    # ---- what a person should know

    def _list_lost(self, stream_id: int, each: _Decided, kind: str, whole: Iterable[TieredPiece]) -> None:
        """List the spans that no object has, from the trim offset on; the last one up to where the stream is known to end."""
        last = _last_range(self._rows.ranges.get(stream_id, {}))
        was_open = each.before is None or (last is not None and last.state == common_pb2.RANGE_STATE_OPEN)
        known_end = max([piece.end for piece in each.listed.pieces], default=0)
        if each.before is not None:
            known_end = max(known_end, each.before.next_offset, last.floor_offset if last is not None else 0)
        start = max(each.listed.trim_offset, 0)
        spans = [(start, start)] + [(max(piece.start, start), piece.end) for piece in whole]
        known_end = max([known_end, *(end for _, end in spans)])
        holes = [(end, begin) for (_, end), (begin, _) in pairwise(spans) if begin > end]
        self._plan.lost += [LostSpan(each.name, stream_id, kind, begin, end, was_open=False) for begin, end in holes]
        if known_end > spans[-1][1] or was_open:
            self._plan.lost.append(LostSpan(each.name, stream_id, kind, spans[-1][1], known_end, was_open))

    def _list_lost_logs(self) -> None:
        """List the journals, the side logs and the audit log, none of which is restored."""
        for stream in self._rows.streams.values():
            if not is_internal_name(stream.name) or shard_of_stream_name(stream.name) is not None:
                continue
            last = _last_range(self._rows.ranges.get(stream.stream_id, {}))
            was_open = last is not None and last.state == common_pb2.RANGE_STATE_OPEN
            if was_open or stream.next_offset > stream.trim_offset:
                of_others = "audit-log" if stream.name == AUDIT_STREAM_NAME else "journal"
                kind = "side-log" if stream.name.endswith("-side") else of_others
                lost = LostSpan(stream.name, stream.stream_id, kind, stream.trim_offset, stream.next_offset, was_open)
                self._plan.lost.append(lost)

    def _list_rest(self) -> None:
        plan = self._plan
        kept = {each.key for each in plan.objects}
        plan.orphans = {key: size for key, size in self._bucket.sizes.items() if key not in kept}
        known = {(each.topic_id, each.shard_id) for each in plan.shards}
        for stream_id, manifest in sorted(self._bucket.manifests.items()):
            shard = manifest.shard
            if shard is not None and (shard.topic_id, shard.shard_id) not in known:
                plan.unattached.append(f"{shard.topic} shard {shard.shard_id}, stream {stream_id}")


def _listed(bucket: KnownBucket, stream_id: int) -> ListedObjects:
    stream, manifest = bucket.rows.streams.get(stream_id), bucket.manifests.get(stream_id)
    return listed(stream, bucket.rows.objects.get(stream_id, ()), manifest)


def _stream_ids(bucket: KnownBucket) -> list[int]:
    """Return the streams that may be restored: those of the snapshot but for logs of brokers, and those that only a manifest
    has, unless they are shards."""
    found = [
        stream_id
        for stream_id, stream in bucket.rows.streams.items()
        if not is_internal_name(stream.name) or shard_of_stream_name(stream.name) is not None
    ]
    new = [
        stream_id
        for stream_id, manifest in bucket.manifests.items()
        if stream_id not in bucket.rows.streams and manifest.shard is None and not is_internal_name(manifest.stream)
    ]
    return sorted([*found, *new])


def _keys_by_stream(sizes: Mapping[str, int]) -> dict[int, list[TieredPiece]]:
    """Return the objects in the bucket by stream; other files are not among them."""
    found: dict[int, list[TieredPiece]] = {}
    for key, size in sizes.items():
        place = parse_object_key(key)
        if place is not None and max(place.stream_id, place.object_id) < ID_MAX:
            found.setdefault(place.stream_id, []).append(TieredPiece(key, place, size, ""))
    return found


def _tombstones(bucket: KnownBucket, stream_id: int) -> set[str]:
    rows = bucket.rows.objects.get(stream_id, ())
    return {each.key for each in rows if each.state == common_pb2.OBJECT_STATE_DELETED}


def _last_range(ranges: Mapping[int, common_pb2.Range]) -> common_pb2.Range | None:
    return ranges[max(ranges)] if ranges else None
