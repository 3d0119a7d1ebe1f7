"""Which objects of a stream are put into one: pure, for all packers.

What holds:

* No object is in two repacks, and one of more than half of the target is never repacked for others.
* At least half of a repack's bytes come from others than its largest part, so each repack of a record doubles its object: that
  happens log2(target / first size) times at most, whatever order objects come in and however often somebody looks.
* An object is written again for its trimmed rows alone only once their share exceeds a fraction, which ends with the object, or
  shrinks it by that fraction: that, too, happens a logarithmic number of times.

Example:
    ```python
    chosen = choose(units, RepackRules(target_bytes=256 * MIB), time_ms)
    ```
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from rangelog_core.limits import MIB, REPACKED_OBJECTS_MAX, REPACKED_RANGES_MAX
from rangelog_proto.v1 import common_pb2

TARGET_BYTES_DEFAULT = 256 * MIB
TARGET_BYTES_MIN, TARGET_BYTES_MAX = 64 * 1024, 2_048 * MIB
MIN_AGE_MS_DEFAULT = 3_600_000
TRIMMED_FRACTION_DEFAULT = 0.5
COUNT_MIN = 8
"""So many parts are joined as soon as they are there; fewer wait for others until they are old."""


@dataclass(frozen=True, slots=True)
class RepackRules:
    """When neighbours are joined, and when an object is written again for its trimmed rows."""

    target_bytes: int = TARGET_BYTES_DEFAULT
    """The largest object to make by joining; 0: nothing is repacked."""
    min_age_ms: int = MIN_AGE_MS_DEFAULT
    """The age from which a few neighbours are joined that are not COUNT_MIN."""
    trimmed_fraction: float = TRIMMED_FRACTION_DEFAULT
    """The share of an object's records that are trimmed, above which it is written again without them."""


@dataclass(frozen=True, slots=True)
class RepackUnit:
    """The unit of a repack: the objects of one range, or the one object of several ranges. `range_count`: of them."""

    objects: Sequence[common_pb2.Object]
    range_count: int
    size_bytes: int
    """Of the rows that are not trimmed, by estimate."""
    trimmed_share: float = 0.0

    @classmethod
    def of(cls, objects: Sequence[common_pb2.Object], range_count: int = 1, trim_offset: int = 0) -> RepackUnit:
        """Measure some objects, in order of offset.

        Example:
            >>> half = RepackUnit.of([common_pb2.Object(start_offset=10, end_offset=30, size_bytes=80)], trim_offset=20)
            >>> half.size_bytes, half.trimmed_share
            (40, 0.5)
        """
        size = live = count = 0
        for each in objects:
            left = max(0, each.end_offset - max(each.start_offset, trim_offset))
            size += each.size_bytes * left // (each.end_offset - each.start_offset)
            live += left
            count += each.end_offset - each.start_offset
        return cls(objects, range_count, size, 1.0 - live / count)

    @property
    def start_offset(self) -> int:
        """The first offset."""
        return self.objects[0].start_offset

    @property
    def end_offset(self) -> int:
        """The offset after the last."""
        return self.objects[-1].end_offset

    @property
    def committed_ms(self) -> int:
        """When the youngest of the objects was committed, in cluster time."""
        return max(each.committed_ms for each in self.objects)

    def is_small(self, target_bytes: int) -> bool:
        """Whether it may be joined with others."""
        return 2 * self.size_bytes <= target_bytes and len(self.objects) <= REPACKED_OBJECTS_MAX


@dataclass(frozen=True, slots=True)
class Chosen:
    """The repacks to do now, and when to look again at what is too young for it; None: not before something changes."""

    repacks: list[list[RepackUnit]]
    due_ms: int | None = None


def choose(units: Iterable[RepackUnit], rules: RepackRules, time_ms: int) -> Chosen:
    """Return what is to be repacked of some units in order of offset. `time_ms`: cluster time."""
    units = list(units)
    found: list[list[RepackUnit]] = []
    due_ms: int | None = None
    for some in joinable(units, rules.target_bytes):
        old_ms = max(each.committed_ms for each in some) + rules.min_age_ms
        is_large = 2 * sum(each.size_bytes for each in some) > rules.target_bytes
        if is_large or len(some) >= COUNT_MIN or old_ms <= time_ms:
            found.append(some)
        else:
            due_ms = old_ms if due_ms is None else min(due_ms, old_ms)
    first = units[0] if units else None
    is_trimmed = first is not None and rules.trimmed_fraction < first.trimmed_share < 1.0
    if first is not None and is_trimmed and not any(some[0] is first for some in found):
        found.insert(0, [first])
    return Chosen(found, due_ms)


def joinable(units: Iterable[RepackUnit], target_bytes: int) -> Iterator[list[RepackUnit]]:
    """Yield the neighbours among some units that may become one object of up to `target_bytes`, balanced."""
    run: list[RepackUnit] = []
    for unit in units:
        small = unit.is_small(target_bytes)
        if run and not (small and _fits(run, unit, target_bytes)):
            yield from _balanced(run)
            run = []
        if small:
            run.append(unit)
    yield from _balanced(run)


def _fits(run: Sequence[RepackUnit], unit: RepackUnit, target_bytes: int) -> bool:
    """Whether a unit follows a run, and can be part of the same repack."""
    return (
        run[-1].end_offset == unit.start_offset
        and sum(each.size_bytes for each in run) + unit.size_bytes <= target_bytes
        and sum(len(each.objects) for each in run) + len(unit.objects) <= REPACKED_OBJECTS_MAX
        and sum(each.range_count for each in run) + unit.range_count <= REPACKED_RANGES_MAX
    )


def _balanced(run: list[RepackUnit]) -> Iterator[list[RepackUnit]]:
    """Yield the parts of a run of which no unit has more than half; a larger one is left alone, and divides the run."""
    left = [run]
    while left:
        some = left.pop()
        if sum(len(each.objects) for each in some) < 2:
            continue
        sizes = [each.size_bytes for each in some]
        largest = sizes.index(max(sizes))
        if 2 * sizes[largest] <= sum(sizes) or len(some) == 1:
            yield some
        else:
            left += [some[largest + 1 :], some[:largest]]
