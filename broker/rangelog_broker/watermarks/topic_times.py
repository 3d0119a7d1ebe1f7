"""The event times of one topic: what producers promise, and the watermarks that follow from it. Pure.

A producer *notes* a time t with a position: its promise is that every record that it sends from now on has an event time of t
or later. All records that it sent before have an outcome, and those that are in the log lie before its position.

A watermark is (lower, upper, cut). A producer is *live* at a watermark if it had noted a time, and had neither ended nor been
silent for the expiry time. What a reader may believe:

- **Lower.** Each record of a producer that is live at the watermark, behind the cut, has an event time of `lower` or later.
  Proof: `lower` is the least of the times t that live producers noted last, and the cut lies behind the positions of all their
  notes. A record of such a producer behind the cut does not lie before the position of its last note, so it was sent after that
  note, hence has a time of its t or later, which is `lower` or later.
- **Upper.** No producer had noted a time above `upper` when the watermark was computed. So if producers send records in order
  of event times, and note no time below that of a record that they sent before, each record before the cut that was sent
  before its producer's last note has a time of `upper` or earlier. A record before the cut that was sent after that note may
  be later.
- **Monotone.** `lower`, `upper` and the cut never go back. A producer that is new, or comes back after its expiry, with a time
  below the last `lower` holds the next watermark until it has caught up or is silent; the last one stays what it was. What it
  sends meanwhile is *late*: the promise of that watermark is not about it.

Nothing is promised about producers that note no times.

The cut is kept as `reached`: of each shard the largest offset of all notes. A larger cut than need be is safe: it says less.
A note on a shard that has ended goes no further than its end, and its successors lie behind all of it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from rangelog_broker.watermarks.least_cut import ShardTree
from rangelog_core.errors import InvalidArgument, OffsetOutOfRange, Overloaded, ShardNotFound
from rangelog_core.limits import OFFSET_MAX, TOPIC_SHARDS_MAX
from rangelog_proto.v1 import group_pb2, watermark_pb2

PRODUCERS_MAX = 10_000
"""Of one topic that note times."""
WATERMARKS_MAX = 1_000
"""That are kept of one topic; the oldest go first."""
CUT_ROWS_MAX = 20_000
"""Of the cuts of these; one watermark is kept whatever its size."""
TIME_MS_MAX = (1 << 63) - 1


class KeptWatermark(NamedTuple):
    """See the module."""

    number: int
    lower_ms: int
    upper_ms: int
    cut: dict[int, int]


@dataclass(slots=True)
class NotedTime:
    """The last note of a producer. `ended`: it closed; the row stays for a while so that a delayed note changes nothing."""

    epoch: int
    number: int
    time_ms: int
    heard_ms: int
    ended: bool


@dataclass(slots=True)
class TopicTimes:
    """See the module."""

    map_version: int = 0
    noted: bool = False
    """Since the last computation."""
    next_number: int = 1
    shards: dict[int, group_pb2.GroupShardFacts] = field(default_factory=dict)
    producers: dict[int, NotedTime] = field(default_factory=dict)
    reached: dict[int, int] = field(default_factory=dict)
    watermarks: deque[KeptWatermark] = field(default_factory=deque)
    cut_rows: int = 0
    """Of all cuts."""

    # ---- commands

    def learn(self, map_version: int, shards: Iterable[group_pb2.GroupShardFacts]) -> None:
        """Take over the shards of a map version. Watermarks whose records are all trimmed go, but for the last of these."""
        if map_version <= self.map_version:
            return
        self.map_version = map_version
        self.shards = {each.shard_id: each for each in shards}
        while len(self.watermarks) > 1 and self._is_trimmed(self.watermarks[1]):
            self._drop_oldest()

    def note(self, note: watermark_pb2.TimeNote, now_ms: int) -> None:
        """Take a producer's promise. A repeat changes nothing.

        Raises InvalidArgument, ShardNotFound, OffsetOutOfRange, Overloaded.
        """
        self._check(note)
        known = self.producers.get(note.producer_id)
        time_ms = note.time_ms
        if known is None:
            if len(self.producers) >= PRODUCERS_MAX:
                raise Overloaded(f"{PRODUCERS_MAX} producers of this topic note times, the limit")
        elif known.epoch == note.producer_epoch:
            if note.number <= known.number:
                return
            if not known.ended:
                time_ms = max(time_ms, known.time_ms)
        elif known.epoch > note.producer_epoch:
            return
        self.producers[note.producer_id] = NotedTime(note.producer_epoch, note.number, time_ms, now_ms, False)
        for each in note.positions:
            if each.offset > self.reached.get(each.shard_id, 0):
                self.reached[each.shard_id] = each.offset
        self.noted = True

    def end(self, end: watermark_pb2.TimeNoteEnd, now_ms: int) -> None:
        """A producer is closed: it holds nothing back from now on. A repeat changes nothing."""
        known = self.producers.get(end.producer_id)
        if known is None:
            if len(self.producers) >= PRODUCERS_MAX:
                return
        elif (known.epoch, known.number) >= (end.producer_epoch, end.number):
            return
        self.producers[end.producer_id] = NotedTime(end.producer_epoch, end.number, 0, now_ms, True)
        self.noted = True

    def compute(self, expiry_ms: int, opened_ms: int, now_ms: int) -> None:
        """Forget silent producers, then make a watermark if there is a later one than the last."""
        for producer_id in [
            each for each, one in self.producers.items() if _is_silent(one, expiry_ms, opened_ms, now_ms)
        ]:
            del self.producers[producer_id]
        self.noted = False
        times = [one.time_ms for one in self.producers.values() if not one.ended]
        if not times or any(shard_id not in self.shards for shard_id in self.reached):
            return
        lower_ms, upper_ms = min(times), max(times)
        if self.watermarks:
            last = self.watermarks[-1]
            upper_ms = max(upper_ms, last.upper_ms)
            if lower_ms < last.lower_ms or (lower_ms, upper_ms) == (last.lower_ms, last.upper_ms):
                return
        self._keep(lower_ms, upper_ms)

    def has_silent(self, expiry_ms: int, opened_ms: int, now_ms: int) -> bool:
        """Whether a computation would forget a producer."""
        return any(_is_silent(one, expiry_ms, opened_ms, now_ms) for one in self.producers.values())

    def knows(self, positions: Iterable[watermark_pb2.NotedPosition]) -> bool:
        """Whether the shards of positions are known."""
        return bool(self.shards) and all(each.shard_id in self.shards for each in positions)

    @property
    def rows(self) -> int:
        """What counts in the limit of all topics."""
        return 1 + len(self.shards) + len(self.producers) + len(self.reached) + self.cut_rows

    # ---- inside

    def _check(self, note: watermark_pb2.TimeNote) -> None:
        if not note.number:
            raise InvalidArgument("a note of a time has no number")
        if len(note.positions) > TOPIC_SHARDS_MAX:
            raise InvalidArgument(f"a note of {len(note.positions)} positions; the limit is {TOPIC_SHARDS_MAX}")
        for each in note.positions:
            facts = self.shards.get(each.shard_id)
            if facts is None:
                raise ShardNotFound(f"the topic has no shard {each.shard_id}, which a note of a time names")
            if each.offset > (facts.end_offset if facts.ended else OFFSET_MAX):
                raise OffsetOutOfRange(
                    f"a note of a time names offset {each.offset}, beyond the end of shard {each.shard_id}"
                )

    def _keep(self, lower_ms: int, upper_ms: int) -> None:
        cut = ShardTree({each: facts.predecessors for each, facts in self.shards.items()}).least_cut(self.reached)
        self.reached = dict(cut)  # what is passed is in it, and where it stands at 0 too: it never goes back
        self.watermarks.append(KeptWatermark(self.next_number, lower_ms, upper_ms, cut))
        self.next_number += 1
        self.cut_rows += 1 + len(cut)
        while len(self.watermarks) > 1 and (len(self.watermarks) > WATERMARKS_MAX or self.cut_rows > CUT_ROWS_MAX):
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        self.cut_rows -= 1 + len(self.watermarks.popleft().cut)

    def _is_trimmed(self, watermark: KeptWatermark) -> bool:
        return all(
            (facts := self.shards.get(shard_id)) is not None and facts.start_offset >= offset > 0
            for shard_id, offset in watermark.cut.items()
        )


def _is_silent(one: NotedTime, expiry_ms: int, opened_ms: int, now_ms: int) -> bool:
    return now_ms - max(one.heard_ms, opened_ms) >= expiry_ms
