"""Which range and tier the next record is read from: a pure decision over the placement driver's list of ranges.

What holds: the chosen range covers the position; a hole between ranges is an error, never skipped; a position below the trim
offset is an error that names the start of the stream. Records that are lost for good are an error that names the first offset
behind them: they are never skipped without a word.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from rangelog_core.errors import Corruption, InvalidArgument, OffsetTrimmed, RecordsLost, Unavailable


class ReadPreference(Enum):
    """The tiers that a reader uses, and their order."""

    HOT_FIRST = "hot_first"
    COLD_FIRST = "cold_first"
    HOT_ONLY = "hot_only"
    COLD_ONLY = "cold_only"

    @classmethod
    def parse(cls, text: str) -> ReadPreference:
        """Return the preference of this name. Raises InvalidArgument, which lists the choices."""
        try:
            return cls(text)
        except ValueError:
            choices = ", ".join(each.value for each in cls)
            raise InvalidArgument(f"bad read_preference {text!r}: choose one of {choices}") from None


class Tier(Enum):
    """The tier that a range is read from."""

    HOT = "hot"
    COLD = "cold"


class RangeView(Protocol):
    """The fields of a range that this decision needs."""

    @property
    def index(self) -> int:
        """The number of the range in its stream."""

    @property
    def start_offset(self) -> int:
        """The first offset of the range."""

    @property
    def end_offset(self) -> int:
        """One past the last offset, when sealed."""

    @property
    def tiered_end_offset(self) -> int:
        """The end of the part that objects cover."""

    @property
    def hot_dropped(self) -> bool:
        """Whether the replicas are dropped."""

    @property
    def lost(self) -> bool:
        """Whether what is not in the tier is lost for good."""


@dataclass(frozen=True, slots=True)
class Located:
    """A range that covers the position; `sealed` ranges end at `end_offset`."""

    number: int
    sealed: bool


def trimmed(offset: int, first: int) -> OffsetTrimmed:
    """Return the error of an offset below the first one that is left, of a stream or of a shard."""
    return OffsetTrimmed(f"offset {offset} was trimmed; what is left starts at {first}", offset=first)


def locate(ranges: Sequence[RangeView], sealed: Sequence[bool], position: int, trim_offset: int) -> Located | None:
    """Return which of the ranges (in order) covers `position`, or None when all known ones end at or before it.

    Raises OffsetTrimmed, or Corruption when the ranges leave a hole there.
    """
    if position < trim_offset:
        raise trimmed(position, trim_offset)
    for number, each in enumerate(ranges):
        if sealed[number] and each.end_offset <= position:
            continue
        if each.start_offset > position:
            raise Corruption(f"no range covers offset {position}; the next one starts at {each.start_offset}")
        return Located(number, sealed[number])
    return None


def tiers_for(source: RangeView, *, sealed: bool, position: int, preference: ReadPreference) -> list[Tier]:
    """Return the tiers that hold `position` of this range, best first.

    Raises RecordsLost when no copy is left anywhere, Unavailable when the preference has none.
    """
    if source.lost and source.tiered_end_offset <= position:
        raise RecordsLost(
            f"the records from offset {position} to {source.end_offset} are lost, which an operator has accepted: "
            f"go on at {source.end_offset}, or trim up to it",
            offset=source.end_offset,
        )
    hot = not (source.hot_dropped or source.lost) and preference is not ReadPreference.COLD_ONLY
    cold = sealed and source.tiered_end_offset > position and preference is not ReadPreference.HOT_ONLY
    tiers = [tier for tier, there in ((Tier.HOT, hot), (Tier.COLD, cold)) if there]
    if preference is ReadPreference.COLD_FIRST:
        tiers.reverse()
    if not tiers:
        raise Unavailable(f"offset {position} is in no tier that read_preference={preference.value} allows")
    return tiers
