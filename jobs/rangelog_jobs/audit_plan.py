"""The plan of an audit: what the placement driver says of a stream, checked, and divided into the work of Spark's tasks.

What holds: the pieces of a stream are in order and cover [start, end) of what was readable when it was planned. A piece lies in
one range, and within one object or none; tasks begin and end with blocks of digests, or with the stream.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from rangelog import Client
from rangelog.ranges import StreamView, confirmed_end
from rangelog_core.limits import MIB
from rangelog_jobs.block_digests import BLOCK_RECORDS
from rangelog_proto.v1 import common_pb2

HOT, COLD, BOTH = "hot", "cold", "both"
OBJECTS_PER_CALL = 500
TASK_BLOCKS = 64
TASK_BYTES = 128 * MIB
_RECORD_BYTES_GUESS = 1_024.0


@dataclass(frozen=True)
class Finding:
    """Something wrong with the records [start, end) of a stream. `key`: of the object, if it is one's.

    Kinds: "gap", "repeat" (offsets); "no_object" and "overlap" (the listing); "missing", "damaged" (an object); "differs" (hot
    and tiered copies); "unreadable".
    """

    kind: str
    start: int
    end: int
    text: str
    key: str = ""


@dataclass(frozen=True)
class AuditPiece:
    """Records [start, end) that are in the same copies: "hot", "cold" or "both". `key`: the object that has them."""

    start: int
    end: int
    copies: str
    key: str = ""


@dataclass(frozen=True)
class AuditedObject:
    """A committed object and what the placement driver says of it."""

    key: str
    start: int
    end: int
    size_bytes: int
    digest: str


@dataclass
class StreamPlan:
    """The audit of one stream, and the findings that its listing already shows. `label`: its name for people."""

    name: str
    stream_id: int
    start: int
    end: int
    pieces: list[AuditPiece] = field(default_factory=list)
    objects: list[AuditedObject] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    label: str = ""

    def tasks(self) -> list[dict[str, Any]]:
        """Return the work on this stream, as plain values: parts of the records, and objects."""
        known = {"stream": self.name, "stream_id": self.stream_id}
        stored = sum(each.end - each.start for each in self.objects)
        record_bytes = sum(each.size_bytes for each in self.objects) / stored if stored else _RECORD_BYTES_GUESS
        blocks = max(1, min(TASK_BLOCKS, int(TASK_BYTES / max(1.0, record_bytes) / BLOCK_RECORDS)))
        step = blocks * BLOCK_RECORDS
        work = []
        low = self.start
        while low < self.end:
            high = min(self.end, (low // step + 1) * step)
            pieces = [asdict(each) for each in cut_pieces(self.pieces, low, high)]
            work.append(known | {"kind": "records", "start": low, "end": high, "pieces": pieces})
            low = high
        return work + [known | {"kind": "object"} | asdict(each) for each in self.objects]


async def plan_stream(client: Client, name: str, label: str = "") -> StreamPlan:
    """Return the plan of a stream. `label`: what to call it in place of its name. Raises StreamNotFound, Unavailable."""
    view = StreamView(client.metadata, name, connections=client.connections)
    end = (await confirmed_end(view, client.connections)).offset
    stream = view.stream
    plan = StreamPlan(name, stream.stream_id, min(stream.trim_offset, end), end, label=label or name)
    await view.refresh(plan.start)
    objects = await client.metadata.all_objects(stream.stream_id, plan.start)
    plan.objects = [
        AuditedObject(each.key, each.start_offset, each.end_offset, each.size_bytes, each.digest) for each in objects
    ]
    plan.pieces, plan.findings = pieces_of(plan.start, end, view.ranges, plan.objects)
    return plan


def pieces_of(
    start: int, end: int, ranges: Sequence[common_pb2.Range], objects: Sequence[AuditedObject]
) -> tuple[list[AuditPiece], list[Finding]]:
    """Return the pieces of [start, end), and what is wrong with the listing of ranges and objects."""
    pieces: list[AuditPiece] = []
    findings: list[Finding] = []
    position = start
    for source in ranges:
        sealed = source.state == common_pb2.RANGE_STATE_SEALED
        low, high = source.start_offset, min(end, source.end_offset) if sealed else end
        if low > position:
            findings.append(Finding("gap", position, min(low, end), f"no range has offsets {position} to {low - 1}"))
            position = low
        if low < position and position > start:
            findings.append(
                Finding("repeat", low, position, f"range {source.index} begins at {low}, before {position}")
            )
        if high <= position:
            continue
        tiered = max(position, min(high, source.tiered_end_offset)) if sealed else position
        cold, wrong = _cold_pieces(position, tiered, COLD if source.hot_dropped else BOTH, objects)
        pieces += cold
        findings += wrong
        if tiered < high:
            if source.hot_dropped:
                findings.append(
                    Finding(
                        "gap", tiered, high, f"range {source.index} has neither replicas nor objects from {tiered} on"
                    )
                )
            else:
                pieces.append(AuditPiece(tiered, high, HOT))
        position = high
    if position < end:
        findings.append(Finding("gap", position, end, f"no range has offsets {position} to {end - 1}"))
    return pieces, findings


def cut_pieces(pieces: Sequence[AuditPiece], low: int, high: int) -> list[AuditPiece]:
    """Return the pieces within [low, high)."""
    cut = [replace(each, start=max(each.start, low), end=min(each.end, high)) for each in pieces]
    return [each for each in cut if each.start < each.end]


def _cold_pieces(
    low: int, high: int, copies: str, objects: Sequence[AuditedObject]
) -> tuple[list[AuditPiece], list[Finding]]:
    """Return the pieces of a part that is listed as tiered, one for each object."""
    pieces: list[AuditPiece] = []
    findings: list[Finding] = []
    position = low
    for each in objects:
        if each.end <= low or each.start >= high:
            continue
        first, last = max(each.start, low), min(each.end, high)
        if first > position:
            findings.append(_no_object(position, first))
            pieces += [AuditPiece(position, first, HOT)] if copies == BOTH else []
        if first < position:
            findings.append(Finding("overlap", first, min(last, position), "two objects have these offsets", each.key))
        if last > position:
            pieces.append(AuditPiece(max(first, position), last, copies, each.key))
            position = last
    if position < high:
        findings.append(_no_object(position, high))
        pieces += [AuditPiece(position, high, HOT)] if copies == BOTH else []
    return pieces, findings


def _no_object(low: int, high: int) -> Finding:
    return Finding("no_object", low, high, f"offsets {low} to {high - 1} are listed as tiered, and no object has them")
