"""Which objects hold the records of one stream, and up to where they do without a hole. A core without I/O.

What holds: the objects that are chosen follow each other without gap or overlap from the trim offset on, and each is in the
bucket with the size that was committed. Of a snapshot and a manifest the one of the higher revision counts. An object that
neither has is taken only where it goes on from what is chosen.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass

from rangelog_core.manifest import ManifestObject, StreamManifest
from rangelog_core.object_keys import ObjectKey, parse_object_key
from rangelog_proto.v1 import common_pb2


@dataclass(frozen=True, slots=True)
class TieredPiece:
    """One object, as far as it is known: an unlisted one has no digest until it is read."""

    key: str
    place: ObjectKey
    size_bytes: int
    digest: str
    committed_ms: int = 0
    row: common_pb2.Object | None = None
    """As the snapshot has it."""

    @property
    def start(self) -> int:
        """The first offset."""
        return self.place.start_offset

    @property
    def end(self) -> int:
        """The offset behind the last one."""
        return self.place.end_offset


@dataclass(frozen=True, slots=True)
class ListedObjects:
    """The objects of one stream, by snapshot and manifest."""

    trim_offset: int
    pieces: tuple[TieredPiece, ...]
    repack_count: int
    revision: int
    """The higher one of the two."""


@dataclass(frozen=True, slots=True)
class ObjectCoverage:
    """The objects of a stream that a restore relies on."""

    trim_offset: int
    chosen: tuple[TieredPiece, ...]
    missing: tuple[TieredPiece, ...]
    """They were committed, and are not in the bucket, or of another size."""
    behind_hole: tuple[TieredPiece, ...]
    """They are whole, and lie behind the first hole."""
    before_hole: tuple[TieredPiece, ...] = ()
    """They are given up for those behind the last hole."""

    @property
    def end(self) -> int:
        """Where the stream ends: up to here its records are in the tier without a hole."""
        return max(self.trim_offset, self.chosen[-1].end) if self.chosen else self.trim_offset


def listed(
    stream: common_pb2.Stream | None, objects: Iterable[common_pb2.Object], manifest: StreamManifest | None
) -> ListedObjects:
    """Return what snapshot and manifest say together. An unreadable key in either is left out: it is no object of the tier."""
    of_snapshot = _of_snapshot(stream, objects)
    if manifest is None:
        return of_snapshot
    if stream is not None and of_snapshot.revision >= manifest.revision:
        return of_snapshot
    rows = {piece.key: piece for piece in of_snapshot.pieces}
    pieces = [rows.get(each.key) or _piece(each, manifest.stream_id) for each in manifest.objects]
    return ListedObjects(
        max(of_snapshot.trim_offset, manifest.trim_offset),
        tuple(each for each in pieces if each is not None),
        max(manifest.repack_count, of_snapshot.repack_count),
        manifest.revision,
    )


def _of_snapshot(stream: common_pb2.Stream | None, objects: Iterable[common_pb2.Object]) -> ListedObjects:
    if stream is None:
        return ListedObjects(0, (), 0, -1)
    live = [
        TieredPiece(each.key, place, each.size_bytes, each.digest, each.committed_ms, each)
        for each in sorted(objects, key=lambda one: one.start_offset)
        if each.state == common_pb2.OBJECT_STATE_COMMITTED and each.end_offset > stream.trim_offset
        if (place := parse_object_key(each.key)) is not None and place.stream_id == stream.stream_id
    ]
    count = sum(each.end - max(each.start, stream.trim_offset) for each in live)
    revision = 2 * stream.trim_offset + count + stream.repack_count
    return ListedObjects(stream.trim_offset, tuple(live), stream.repack_count, revision)


def _piece(each: ManifestObject, stream_id: int) -> TieredPiece | None:
    place = parse_object_key(each.key)
    told = (stream_id, each.start_offset, each.end_offset)
    if place is None or (place.stream_id, place.start_offset, place.end_offset) != told:
        return None
    return TieredPiece(each.key, place, each.size_bytes, each.digest, each.committed_ms)


def cover(
    known: ListedObjects, sizes: Mapping[str, int], others: Iterable[TieredPiece], *, trim_to_after_hole: bool = False
) -> ObjectCoverage:
    """Choose the objects of a stream. `sizes`: of the objects in the bucket. `others`: unlisted ones that were read."""
    there = [piece for piece in known.pieces if sizes.get(piece.key) == piece.size_bytes]
    missing = tuple(piece for piece in known.pieces if sizes.get(piece.key) != piece.size_bytes)
    others = sorted(others, key=lambda piece: (piece.start, piece.end, piece.place.object_id))
    runs = _runs(there, others, known.trim_offset)
    first = runs[0] if runs and runs[0][0].start <= known.trim_offset else []
    behind = tuple(piece for run in runs[1 if first else 0 :] for piece in run)
    if behind and trim_to_after_hole:
        last = runs[-1]
        before = tuple(piece for run in runs[:-1] for piece in run)
        return ObjectCoverage(last[0].start, tuple(last), missing, (), before)
    return ObjectCoverage(known.trim_offset, tuple(first), missing, behind)


def _runs(there: Sequence[TieredPiece], others: Sequence[TieredPiece], trim_offset: int) -> list[list[TieredPiece]]:
    """Return the objects in runs without a hole, each as long as unlisted objects can make it."""
    runs: list[list[TieredPiece]] = []
    ends = {piece.end for piece in there}
    position = trim_offset
    for piece in sorted(there, key=lambda one: one.start):
        _go_on(runs, others, position, piece.start, ends)
        position = runs[-1][-1].end if runs else trim_offset
        if piece.end <= position:
            continue  # an unlisted object has its records as well: one that took its place
        if runs and piece.start == position:
            runs[-1].append(piece)
        else:
            runs.append([piece])
        position = piece.end
    _go_on(runs, others, position, None, ends)
    return runs


def _go_on(
    runs: list[list[TieredPiece]], others: Sequence[TieredPiece], position: int, until: int | None, ends: Container[int]
) -> None:
    """Lengthen the last run over a hole at `position` by unlisted objects. `until`: where the next listed one starts."""
    while until is None or position < until:
        found = _filling(runs[-1] if runs else [], others, position, until, ends)
        if found is None:
            return
        if runs:
            runs[-1] = [piece for piece in runs[-1] if piece.end <= found.start] + [found]
        else:
            runs.append([found])
        position = found.end


def _filling(
    run: Sequence[TieredPiece], others: Sequence[TieredPiece], position: int, until: int | None, ends: Container[int]
) -> TieredPiece | None:
    """Return the unlisted object that fills the hole furthest: it starts there, or takes the place of whole chosen ones."""
    starts = {piece.start for piece in run} | {position}
    fitting = [
        piece
        for piece in others
        if piece.end > position and (until is None or piece.end <= until or piece.end in ends)
        if piece.start in starts or (not run and piece.start <= position)
    ]
    return max(fitting, key=lambda piece: (piece.end, piece.place.object_id), default=None)
