"""The drawing of a stream: its ranges, replicas and objects as boxes on one offset axis. Pure: from views to places and texts.

What holds: each box has a text that says all that it shows, for people who do not see it. The part below the trim offset is
marked as trimmed. No more than LANES_MAX servers have a lane of their own; the others are counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from pdctl.units import show_bytes
from rangelog_page.axis import Axis, Extent, extents_of

LANES_MAX = 12
TICKS_MAX = 5


@dataclass(frozen=True, slots=True)
class Box:
    """One rectangle of a lane. `kind`: the name of its style; `tooltip`: its text."""

    key: str
    kind: str
    place: float
    width: float
    tooltip: str


@dataclass(frozen=True, slots=True)
class Lane:
    """One row of boxes. `note`: what is wrong with all of it, such as a dead server."""

    name: str
    boxes: Sequence[Box]
    note: str = ""


@dataclass(frozen=True, slots=True)
class Tick:
    """An offset that is written below the axis."""

    place: float
    offset: int
    anchor: str


@dataclass(frozen=True, slots=True)
class Drawing:
    """All that is drawn of a stream. `servers_left_out`: servers with replicas that have no lane."""

    lanes: Sequence[Lane]
    ticks: Sequence[Tick]
    trimmed_width: float
    servers_left_out: int = 0
    axis: Axis = field(default_factory=lambda: Axis((), ()))


def draw(
    ranges: Sequence[dict[str, Any]],
    objects: Sequence[dict[str, Any]],
    *,
    trim_offset: int,
    end_offset: int | None,
) -> Drawing:
    """Return the drawing of ranges in order, as range_view has them, and of the objects in them, as object_view has them."""
    if not ranges:
        return Drawing((), (), 0.0)
    axis, extents = extents_of(ranges, end_offset)
    pairs = list(zip(ranges, extents, strict=True))
    counted = Counter(replica["server"] for each in ranges for replica in each["replicas"])
    chosen = sorted(counted, key=lambda name: (-counted[name], name))[:LANES_MAX]
    lanes = [Lane("ranges", [_range_box(each, extent, trim_offset) for each, extent in pairs])]
    lanes += [_server_lane(name, pairs, trim_offset) for name in sorted(chosen)]
    lanes.append(Lane("tier", [_object_box(each, axis, trim_offset) for each in objects]))
    trimmed_width = axis.at(trim_offset) if trim_offset > ranges[0]["start_offset"] else 0.0
    return Drawing(lanes, _ticks(extents), trimmed_width, len(counted) - len(chosen), axis)


def _range_box(found: dict[str, Any], extent: Extent, trim_offset: int) -> Box:
    kind = "lost" if found["lost"] else found["state"]
    if found["end_offset"] is not None and found["end_offset"] <= trim_offset:
        kind = "trimmed"
    servers = ", ".join(f"{each['server']} ({each['health']})" for each in found["replicas"])
    parts = [
        f"range {found['index']}, {'lost' if found['lost'] else found['state']}",
        _offsets(extent),
        f"replicas on {servers}"
        if servers
        else "no replica: the hot copies are dropped"
        if found["hot_dropped"]
        else "",
        f"tiered up to {found['tiered_end_offset']}"
        if found["tiered_end_offset"] > found["start_offset"]
        else "not tiered",
        f"writer's epoch {found['epoch']}",
    ]
    return Box(f"range-{found['index']}", kind, extent.place, extent.width, "; ".join(each for each in parts if each))


def _server_lane(name: str, pairs: Sequence[tuple[dict[str, Any], Extent]], trim_offset: int) -> Lane:
    boxes, health = [], "alive"
    for found, extent in pairs:
        for replica in found["replicas"]:
            if replica["server"] != name:
                continue
            health = replica["health"]
            kind = "replica" if health == "alive" else f"replica-{health}"
            tooltip = [f"replica of range {found['index']} on {name}, which is {health}", _offsets(extent)]
            tooltip += [f"chosen: {replica['reason']}"] if replica["reason"] else []
            tooltip += [f"at {replica['data_address']}"] if replica["data_address"] else []
            boxes.append(Box(f"{name}-{found['index']}", kind, extent.place, extent.width, "; ".join(tooltip)))
    return Lane(name, boxes, "" if health == "alive" else health)


def _object_box(found: dict[str, Any], axis: Axis, trim_offset: int) -> Box:
    place, width = axis.span(found["start_offset"], found["end_offset"])
    tooltip = (
        f"object {found['object_id']}; offsets {found['start_offset']} to {found['end_offset']}; "
        f"{show_bytes(found['size_bytes'])}; key {found['key']}"
    )
    kind = "trimmed" if found["end_offset"] <= trim_offset else "object"
    return Box(f"object-{found['object_id']}", kind, place, width, tooltip)


def _offsets(extent: Extent) -> str:
    return f"offsets {extent.start} to {extent.end if extent.end_known else 'an end that is not known now'}"


def _ticks(extents: Sequence[Extent]) -> list[Tick]:
    """Return up to TICKS_MAX starts of ranges, and the end, far enough from each other to be read."""
    last = extents[-1]
    end = Tick(100.0, last.end, "end")
    found = [Tick(0.0, extents[0].start, "start")]
    room = 100.0 / TICKS_MAX
    for each in extents[1:]:
        if each.place - found[-1].place >= room and end.place - each.place >= room:
            found.append(Tick(each.place, each.start, "middle"))
    return [*found, *([end] if last.end_known and last.end != found[0].offset else [])]
