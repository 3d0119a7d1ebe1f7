"""The work of an audit in Spark's workers: reads a part of a stream from each tier, or an object, and says what is wrong.

What holds: each copy of a record is read once. Records that are gone because they were trimmed, or because their hot copy was
dropped after they were tiered, are no finding; no other record is left out without one.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from rangelog.spark.reading import ArrowReader
from rangelog_core.errors import Corruption, ObjectNotFound, OffsetTrimmed, RangelogError, StreamNotFound
from rangelog_jobs.audit_plan import BOTH, HOT, AuditPiece, Finding
from rangelog_jobs.block_digests import Block, BlockDigests
from rangelog_jobs.cluster import ClusterAddress
from rangelog_jobs.stores import store_of
from rangelog_proto.v1 import common_pb2
from rangelog_tier.storing import prove_pieces

COPY_TIMEOUT_S = 20.0
"""How long a copy that cannot be read is tried again."""


def run_audit_task(cluster: ClusterAddress, task: dict[str, Any]) -> dict[str, Any]:
    """Do one task of `StreamPlan.tasks`; return plain values: findings, and of records their blocks."""
    if task["kind"] == "object":
        findings = _check_object(cluster, task)
        return {"kind": "object", "findings": [asdict(each) for each in findings], "size_bytes": task["size_bytes"]}
    return _Part(cluster, task).run()


class _Gone(Exception):
    """The part was trimmed, or its stream deleted, while it was audited."""


class _Part:
    """The records [start, end) of one stream."""

    def __init__(self, cluster: ClusterAddress, task: dict[str, Any]) -> None:
        self._cluster = cluster
        self._name, self._stream_id = task["stream"], task["stream_id"]
        self._pieces = [AuditPiece(**each) for each in task["pieces"]]
        self._main = BlockDigests(task["start"])
        self._is_whole = True
        self._end = task["end"]
        self._findings: list[Finding] = []
        self._compared = self._read = self._size_bytes = 0

    def run(self) -> dict[str, Any]:
        """Read all pieces."""
        gone = False
        try:
            for piece in self._pieces:
                if self._main.position != piece.start:
                    self._is_whole = False
                    self._main = BlockDigests(piece.start)
                self._both(piece) if piece.copies == BOTH else self._one(piece)
        except _Gone:
            gone = True
        whole = self._is_whole and self._main.position == self._end
        return {
            "kind": "records",
            "findings": [asdict(each) for each in self._findings],
            "blocks": [(each.start, each.end, each.digest) for each in self._main.end()] if whole else [],
            "compared": self._compared,
            "read": self._read,
            "size_bytes": self._size_bytes,
            "gone": gone,
        }

    # ---- pieces

    def _one(self, piece: AuditPiece) -> None:
        """A piece with one kind of copy; a hot one may have moved to the tier since the plan."""
        preference = "hot_first" if piece.copies == HOT else "cold_only"
        error = self._feed(piece, preference, None)
        if error is not None:
            self._unreadable(piece, piece.copies, error)

    def _both(self, piece: AuditPiece) -> None:
        """A piece with both copies: they are the same, record for record."""
        hot, cold = BlockDigests(piece.start), BlockDigests(piece.start)
        cold_error = self._read_into(piece, "cold_only", cold)
        hot_error = self._feed(piece, "hot_only", hot)
        if hot_error is not None:
            if self._was_dropped(piece):
                hot_error = None
            else:
                self._unreadable(piece, HOT, hot_error)
            if self._main.position < piece.end:  # the copy that is left serves for the digest
                rest = AuditPiece(self._main.position, piece.end, piece.copies, piece.key)
                cold_error = self._feed(rest, "cold_only", None) or cold_error
        if cold_error is not None:
            self._unreadable(piece, "cold", cold_error)
        elif hot.position == cold.position == piece.end:
            self._compared += piece.end - piece.start
            for one, other in zip(hot.end(), cold.end(), strict=True):
                if one.digest != other.digest:
                    self._findings.append(self._difference(piece, one))

    def _feed(self, piece: AuditPiece, preference: str, beside: BlockDigests | None) -> RangelogError | None:
        """Read a piece into the digest of the stream, and into another one; return the error that ended it."""
        return self._read_into(piece, preference, self._main, beside, counts=True)

    def _read_into(
        self,
        piece: AuditPiece,
        preference: str,
        target: BlockDigests,
        beside: BlockDigests | None = None,
        *,
        counts: bool = False,
    ) -> RangelogError | None:
        position = piece.start
        try:
            for table in self._tables(preference, piece.start, piece.end):
                offsets = table.column("offset")
                if not _is_dense(offsets, position):
                    self._findings.append(_not_dense(offsets, position, preference, piece.key))
                    self._is_whole = False
                position += table.num_rows
                target.add(table)
                if beside is not None:
                    beside.add(table)
                if counts:
                    self._read += table.num_rows
                    self._size_bytes += _payload_bytes(table)
        except (OffsetTrimmed, StreamNotFound) as error:
            raise _Gone from error
        except RangelogError as error:
            return error
        if position < piece.end:
            self._is_whole = False
            text = f"the {preference} reader ended at {position}, before {piece.end}"
            self._findings.append(Finding("gap", position, piece.end, text, piece.key))
        return None

    def _tables(self, preference: str, start: int, end: int) -> Any:
        client = self._cluster.client()
        inside = client.asynchronous
        reader = ArrowReader(
            inside.metadata,
            inside.connections,
            inside.cold_reader(),
            inside.watches,
            self._name,
            start=start,
            end=end,
            follow=False,
            read_preference=preference,
            timeout_s=COPY_TIMEOUT_S,
            resolved=True,
            stream_id=self._stream_id,
        )
        for chunk in client.iterate(reader.chunks()):
            yield from chunk

    # ---- what is wrong

    def _unreadable(self, piece: AuditPiece, copy: str, error: RangelogError) -> None:
        self._is_whole = self._is_whole and self._main.position == piece.end
        text = f"the {'hot' if copy == HOT else 'tiered'} copy cannot be read: {error.message or error}"
        self._findings.append(Finding("unreadable", piece.start, piece.end, text, piece.key if copy != HOT else ""))

    def _was_dropped(self, piece: AuditPiece) -> bool:
        """Whether the hot copies of a piece went away as they should, since the plan."""
        client = self._cluster.client()
        try:
            _, ranges = client.run(
                client.asynchronous.metadata.ranges(self._name, piece.start, stream_id=self._stream_id)
            )
        except StreamNotFound as error:
            raise _Gone from error
        return bool(ranges) and ranges[0].hot_dropped and ranges[0].tiered_end_offset >= piece.end

    def _difference(self, piece: AuditPiece, block: Block) -> Finding:
        """Find the first record of a block that differs."""
        hot = pa.Table.from_batches(list(self._tables("hot_only", block.start, block.end)))
        cold = pa.Table.from_batches(list(self._tables("cold_only", block.start, block.end)))
        for row in range(min(hot.num_rows, cold.num_rows)):
            one, other = hot.slice(row, 1).to_pylist()[0], cold.slice(row, 1).to_pylist()[0]
            unlike = [name for name in one if one[name] != other[name]]
            if unlike:
                text = f"hot and tiered copy differ at offset {block.start + row}: {', '.join(unlike)}"
                return Finding("differs", block.start + row, block.end, text, piece.key)
        text = f"hot and tiered copies differ within offsets {block.start} to {block.end - 1}, and not when read again"
        return Finding("differs", block.start, block.end, text, piece.key)


def _is_dense(offsets: pa.Array, first: int) -> bool:
    if not len(offsets) or offsets[0].as_py() != first:
        return False
    steps = pc.min_max(pc.pairwise_diff(offsets))
    return len(offsets) == 1 or steps["min"].as_py() == steps["max"].as_py() == 1


def _not_dense(offsets: pa.Array, first: int, preference: str, key: str) -> Finding:
    expected = first
    for offset in offsets.to_pylist():
        if offset != expected:
            kind = "gap" if offset > expected else "repeat"
            low, high = sorted((expected, offset))
            return Finding(kind, low, high, f"{preference}: offset {offset} comes in place of {expected}", key)
        expected += 1
    return Finding("gap", first, first, f"{preference}: a chunk without records", key)


def _payload_bytes(table: pa.RecordBatch) -> int:
    sizes = [pc.sum(pc.binary_length(table.column(name))).as_py() or 0 for name in ("key", "value")]
    return int(sum(sizes))


# ---- objects


def _check_object(cluster: ClusterAddress, task: dict[str, Any]) -> list[Finding]:
    """Compare an object's bytes with what is listed."""
    listed = common_pb2.Object(key=task["key"], size_bytes=task["size_bytes"], digest=task["digest"])
    kind, text = "missing", "the object is not there"
    try:
        for _ in prove_pieces(store_of(cluster), listed):
            pass
    except Corruption as error:
        return [Finding("damaged", task["start"], task["end"], error.message, listed.key)]
    except ObjectNotFound:
        pass
    except RangelogError as error:
        kind, text = "unreadable", f"the object cannot be read: {error.message or error}"
    else:
        return []
    return _unless_gone(cluster, task, Finding(kind, task["start"], task["end"], text, listed.key))


def _unless_gone(cluster: ClusterAddress, task: dict[str, Any], finding: Finding) -> list[Finding]:
    """The finding, unless the object is not listed any more: it was trimmed."""
    client = cluster.client()
    listed = client.run(client.asynchronous.metadata.objects(task["stream_id"], task["start"], page_size=1))
    return [finding] if any(each.key == task["key"] for each in listed) else []
