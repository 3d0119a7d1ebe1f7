"""The offset axis of a drawing: at which share of its width an offset is. Pure.

What holds: the axis is monotone, continuous within a range, begins at 0 % and ends at 100 %; each range has a width that can be
seen and tapped, however few records it has, and no range, however many offsets it has, takes that from another. Within a range
the axis is linear. A lost range counts as one without records: it may have 2^41 offsets that were never given out.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

WIDTH = 100.0
SHARE_MIN = 2.0
"""Of one range, in percent, unless there are too many for that."""
RESERVED_MAX = 60.0
"""What the least widths of all ranges take together at most, in percent."""
UNKNOWN_SHARE = 0.1
"""What an open range whose end is not known counts as, of the records of all others."""


@dataclass(frozen=True, slots=True)
class Axis:
    """Bounds of ranges, and the place of each: `places[i]` is that of the offset `bounds[i]`."""

    bounds: tuple[int, ...]
    places: tuple[float, ...]

    def at(self, offset: int) -> float:
        """Return the place of an offset in percent; one outside is at the nearer end."""
        if not self.bounds or offset < self.bounds[0]:
            return 0.0
        if offset >= self.bounds[-1]:
            return WIDTH
        number = bisect_right(self.bounds, offset) - 1
        low, high = self.bounds[number], self.bounds[number + 1]
        begin, end = self.places[number], self.places[number + 1]
        return begin + (end - begin) * ((offset - low) / (high - low))

    def span(self, start: int, end: int) -> tuple[float, float]:
        """Return where [start, end) begins, and how wide it is, in percent."""
        begin = self.at(start)
        return begin, max(0.0, self.at(end) - begin)


@dataclass(frozen=True, slots=True)
class Extent:
    """Where one range is drawn: its place and width in percent, and the offsets that it is drawn to have."""

    place: float
    width: float
    start: int
    end: int
    end_known: bool


def extents_of(ranges: Sequence[dict[str, Any]], end_offset: int | None) -> tuple[Axis, list[Extent]]:
    """Return the axis of ranges in order, as range_view has them, and where each is drawn.

    `end_offset`: one past the last acked record of the open range; None: it is not known.
    """
    lengths = [_length(each, end_offset) for each in ranges]
    known = sum(length for length in lengths if length is not None)
    counted = [length if length is not None else max(1.0, known * UNKNOWN_SHARE) for length in lengths]
    least = min(SHARE_MIN, RESERVED_MAX / len(ranges)) if ranges else 0.0
    total, left = sum(counted), WIDTH - least * len(ranges)
    widths = [least + (left * each / total if total else left / len(ranges)) for each in counted]
    extents: list[Extent] = []
    bounds: list[int] = []
    places: list[float] = []
    place = 0.0
    for each, length, width in zip(ranges, lengths, widths, strict=True):
        start = each["start_offset"]
        end = _end(each, end_offset)
        extents.append(Extent(place, width, start, end, length is not None))
        if bounds and start == bounds[-1]:  # behind an empty range, to which no offset belongs
            places[-1] = place
        else:
            bounds.append(start)
            places.append(place)
        place += width
    if extents:
        bounds, places = _closed(bounds, places, extents[-1])
    return Axis(tuple(bounds), tuple(places)), extents


def _closed(bounds: list[int], places: list[float], last: Extent) -> tuple[list[int], list[float]]:
    end = max(last.end, bounds[-1] + 1)
    return [*bounds, end], [*places, WIDTH]


def _end(found: dict[str, Any], end_offset: int | None) -> int:
    if found["end_offset"] is not None:
        return int(found["end_offset"])
    return max(int(found["start_offset"]), end_offset if end_offset is not None else 0)


def _length(found: dict[str, Any], end_offset: int | None) -> float | None:
    """Return how many records count for the width of a range; None: it is open, and its end is unknown."""
    if found["lost"]:
        return 0.0
    if found["end_offset"] is None and end_offset is None:
        return None
    return float(_end(found, end_offset) - found["start_offset"])
