"""The rows of one restored stream: its own, its ranges, its objects. A core without I/O.

What holds: ranges tile the stream from its first object to its end, and each is wholly in the objects that are kept with it. An
object with the records of several ranges makes one range of them. A stream that ends behind no object has an empty range
there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby

from rangelog_core.manifest import StreamManifest
from rangelog_core.stream_defaults import with_defaults
from rangelog_proto.v1 import common_pb2
from rangelog_tier.restore.coverage import ListedObjects, ObjectCoverage, TieredPiece
from rangelog_tier.restore.known import DescribedObject

_STEP_BITS = 20
RANGE_AGE_MS = 3_600_000
"""Of a stream whose configuration nobody knows: its records get to the tier within an hour."""


def beyond(number: int) -> int:
    """Return a number above all that the former cluster can have given out since `number`: the next multiple of 2^20."""
    return ((number >> _STEP_BITS) + 1) << _STEP_BITS


def stream_row(
    stream_id: int,
    name: str,
    before: common_pb2.Stream | None,
    known: ListedObjects,
    coverage: ObjectCoverage,
    objects: Sequence[common_pb2.Object],
    manifest: StreamManifest | None,
) -> common_pb2.Stream:
    """Return the row of a stream that ends where its objects end. `before`: as the snapshot has it."""
    row = common_pb2.Stream(stream_id=stream_id, name=name)
    if before is not None:
        row.CopyFrom(before)
    else:
        row.config.CopyFrom(with_defaults(common_pb2.StreamConfig(tiered=True, range_age_ms_max=RANGE_AGE_MS)))
        row.created_ms = min((each.committed_ms for each in known.pieces), default=0)
    indexes = [each.place.range_index for each in (*known.pieces, *coverage.chosen)]
    row.epoch = beyond(max([row.epoch, *(each.epoch for each in objects)]))
    row.range_count = beyond(max([row.range_count, *indexes]))
    row.version = beyond(row.version)
    row.trim_offset, row.next_offset = coverage.trim_offset, coverage.end
    row.repack_count = known.repack_count
    if manifest is not None and not _is_that_of(manifest, coverage):
        count = (
            row.next_offset - row.trim_offset
        )  # the next manifest must be of a higher revision than the one in the bucket
        row.repack_count = max(row.repack_count, manifest.revision + 1 - 2 * row.trim_offset - count)
    return row


def _is_that_of(manifest: StreamManifest, coverage: ObjectCoverage) -> bool:
    keys = [each.key for each in coverage.chosen]
    return keys == [each.key for each in manifest.objects] and coverage.trim_offset == manifest.trim_offset


def empty_row(before: common_pb2.Stream) -> common_pb2.Stream:
    """Return the row of a stream that begins empty: the log of a table's partition, of which nothing is in the tier."""
    row = common_pb2.Stream()
    row.CopyFrom(before)
    row.epoch, row.version, row.range_count = beyond(row.epoch), beyond(row.version), beyond(row.range_count)
    row.trim_offset = row.next_offset = 0
    return row


def object_rows(
    chosen: Sequence[TieredPiece], described: Mapping[str, DescribedObject], committed_ms: int
) -> list[common_pb2.Object]:
    """Return the rows of the objects. `committed_ms`: of those without a recorded time."""
    found = []
    for piece in chosen:
        row = common_pb2.Object()
        row.CopyFrom(piece.row if piece.row is not None else described[piece.key].found)
        row.object_id, row.stream_id = piece.place.object_id, piece.place.stream_id
        row.range_index, row.key = piece.place.range_index, piece.key
        row.start_offset, row.end_offset = piece.start, piece.end
        row.size_bytes, row.digest = piece.size_bytes, piece.digest
        row.state = common_pb2.OBJECT_STATE_COMMITTED
        row.committed_ms = piece.committed_ms or row.committed_ms or committed_ms
        for name in ("server", "incarnation", "prepare_deadline_ms", "deleted_ms", "replaces", "tier_id"):
            row.ClearField(name)  # type: ignore[arg-type]
        found.append(row)
    return found


def range_rows(
    stream: common_pb2.Stream, objects: Sequence[common_pb2.Object], before: Mapping[int, common_pb2.Range]
) -> list[common_pb2.Range]:
    """Return the ranges of a restored stream. `before`: those of the snapshot, by index."""
    found = []
    for index, group in groupby(objects, key=lambda each: each.range_index):
        held = list(group)
        found.append(_range(stream, index, held[0].start_offset, held[-1].end_offset, held, before.get(index)))
    if not found and stream.next_offset:
        found.append(_range(stream, stream.range_count - 1, stream.next_offset, stream.next_offset, [], None))
    return found


def _range(
    stream: common_pb2.Stream,
    index: int,
    start: int,
    end: int,
    objects: Sequence[common_pb2.Object],
    before: common_pb2.Range | None,
) -> common_pb2.Range:
    latest_ms = max([each.committed_ms for each in objects] + [stream.created_ms, 1])
    row = common_pb2.Range(
        stream_id=stream.stream_id,
        index=index,
        epoch=objects[-1].epoch if objects else 0,
        start_offset=start,
        end_offset=end,
        state=common_pb2.RANGE_STATE_SEALED,
        acks=stream.config.acks,
        tiered_end_offset=end,
        created_ms=latest_ms,
        sealed_ms=latest_ms,
        hot_dropped=True,
        tiered_ms=latest_ms if objects else 0,
        durability=stream.config.durability,
    )
    if before is not None:
        row.acks, row.durability = before.acks, before.durability
        row.created_ms = before.created_ms or row.created_ms
        row.sealed_ms = before.sealed_ms or row.sealed_ms
        row.tiered_ms = before.tiered_ms or row.tiered_ms
    return row
