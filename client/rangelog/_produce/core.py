"""A producer of a topic, as a core: which shard each record goes to, under which number, and what becomes of it at a scale.

What holds (the rules are those that the exhaustive model of topics finds necessary):

* Sequences count the batches of this (producer, epoch) for one shard, from 0. A sequence is never given to another batch, and a
  batch is sent again under its own number until it has an outcome.
* No batch is `WINDOW` or more ahead of the oldest one of its shard without an outcome: that is what an owner remembers.
* An ack is the only outcome while a shard is current. A refusal says nothing about what was written. Of a shard that has ended
  the batches without an outcome are asked for, the oldest first: what it holds is acked, what it does not hold goes back to the
  queue, at its old place.
* A record is numbered for a shard only when nothing is in doubt on any ancestor of that shard. So records of one key are in
  the log in the order in which they were appended, over splits and merges.
* A producer with an id of its own has dated epochs, each shard's by itself: nothing of an earlier epoch may be in doubt there
  when a later one begins. It begins a later one by itself where it was idle for long, since the owner may have forgotten it,
  and where an owner asks for one.
* The map that the producer knows never goes back. Acks are per record, since a batch may be divided by a split.
* A record that no current shard takes any more (it was for one shard only, or the topic is sealed) is refused once it is
  certain that it is in no log.

Events are the methods; each may add effects, which `effects()` hands out once, in order.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import NamedTuple

from rangelog_core.errors import InvalidArgument, RangelogError, ShardEnded, TopicStateForbids
from rangelog_core.name_errors import no_shard, sealed_topic

WINDOW = 5
EPOCH_MINUTES = 720
"""So old a dated epoch may be when nothing of it is in doubt: half of what brokers let pass before they forget it."""


class MappedShard(NamedTuple):
    """A shard of the topic as the placement driver lists it: keys from `low` to below `high`."""

    shard_id: int
    low: int
    high: int
    ended: bool
    predecessors: tuple[int, ...]


Queued = tuple[int, int, int, int | None]
"""A record: its order among all records of the producer, the position of its key, its size in bytes, the only shard it is for.

A plain tuple: there are many, and one with names costs as much as all else about a record here."""


class SendBatch(NamedTuple):
    """Send this batch to the owner of its shard; `identity` says under which numbers."""

    shard_id: int
    sequence: int
    orders: Sequence[int]


class AskFor(NamedTuple):
    """Ask an ended shard whether it holds this batch; report `answered`."""

    shard_id: int
    sequence: int


class RecordsAcked(NamedTuple):
    """These records are acked, at consecutive offsets of a shard."""

    shard_id: int
    offset: int
    orders: Sequence[int]


class RecordsRefused(NamedTuple):
    """These records are in no log and will be in none."""

    error: RangelogError
    orders: list[int]


Effect = SendBatch | AskFor | RecordsAcked | RecordsRefused


class _Lane:
    """What was numbered for one shard and has no outcome, and what waits to be numbered."""

    __slots__ = (
        "asking",
        "connected",
        "ended",
        "epoch",
        "first",
        "held",
        "next_sequence",
        "paced",
        "queue",
        "sent_again",
        "shard_id",
        "unresolved",
    )

    def __init__(self, shard_id: int, epoch: int) -> None:
        self.shard_id = shard_id
        self.epoch = epoch
        self.first = 0  # the number of the batch that is sequence 0 of this epoch
        self.sent_again = 0  # batches before it may be in the log, whatever is refused
        self.next_sequence = 0
        self.unresolved: dict[int, list[Queued]] = {}  # by sequence, in order
        self.queue: deque[Queued] = deque()  # by order
        self.connected = False
        self.ended = False
        self.asking = False
        self.held = False  # over a quota: nothing is numbered
        self.paced = False  # since then: one batch after the other, whose ack tells what it owes

    @property
    def in_flight(self) -> int:
        """Batches from the oldest one without an outcome on: less than WINDOW before another one is numbered."""
        return self.next_sequence - next(iter(self.unresolved), self.next_sequence)


class ProducerCore:
    """See the module."""

    def __init__(
        self, *, batch_bytes_max: int, batch_records_max: int, epoch: int = 0, dated: bool = False, topic: str = ""
    ) -> None:
        """`epoch`: of the producer; where it is `dated`, now, in minutes. `topic`: its name, for errors."""
        self._topic = topic
        self.error: RangelogError | None = None
        self.epoch = epoch  # a dated one is to be kept up with the clock
        self.is_dated = dated
        self.batches_in_flight_max = WINDOW
        """Of one shard: fewer, where many others are in flight, make larger batches."""
        self._batch_bytes_max = batch_bytes_max
        self._batch_records_max = batch_records_max
        self._map_version = 0
        self._shards: dict[int, MappedShard] = {}
        self._lows: list[int] = []
        self._current: list[int] = []  # shard ids, in step with _lows
        self._current_lanes: list[_Lane | None] = []  # in step too
        self._gapless_end = 0  # positions below it all have a current shard
        self._appended: set[int] = set()  # shards with new records since the last flush
        self._wanted: set[int] = set()  # shards with something to send and no connection
        self._lanes: dict[int, _Lane] = {}
        self._doubtful: set[int] = set()  # ended shards with batches without an outcome
        self._unmapped: deque[Queued] = deque()  # before the first map
        self.next_order = 0  # that of the next record
        self._effects: list[Effect] = []

    # ---- the application

    def append(self, position: int, size_bytes: int, shard_id: int | None = None) -> int:
        """Take a record, with `shard_id` for that shard only, whatever its position; return its order.

        Raises the error that ended the producer, ShardEnded, ShardNotFound, InvalidArgument, or TopicStateForbids.
        """
        if self.error is not None:
            raise self.error
        order = self.next_order
        if shard_id is None and position < self._gapless_end:
            at = bisect_right(self._lows, position) - 1
            lane = self._current_lanes[at]
            if lane is None:
                lane = self._current_lanes[at] = self._lane(self._current[at])
        elif not self._map_version:
            self._unmapped.append((order, position, size_bytes, shard_id))
            self.next_order = order + 1
            return order
        else:
            if shard_id is not None and (not isinstance(shard_id, int) or isinstance(shard_id, bool)):
                raise InvalidArgument(f"shard must be the id of a shard, a whole number, not {shard_id!r}")
            to = self._place(position, shard_id)
            if isinstance(to, RangelogError):
                raise to
            lane = self._lane(to)
        if not lane.queue:  # what it waits for otherwise sends this record too
            self._appended.add(lane.shard_id)
        lane.queue.append((order, position, size_bytes, shard_id))
        self.next_order = order + 1
        return order

    def flush(self) -> None:
        """Number and send what may be sent: call it when the records of a turn are gathered."""
        appended, self._appended = self._appended, set()
        for shard_id in sorted(appended):
            self._pump(shard_id)

    def shard_of(self, position: int) -> int:
        """Return the current shard of a key's position, as far as the producer knows. Raises TopicStateForbids."""
        at = bisect_right(self._lows, position) - 1
        if at < 0 or position >= self._shards[self._current[at]].high:
            raise sealed_topic(self._topic)
        return self._current[at]

    @property
    def current(self) -> Sequence[MappedShard]:
        """The current shards as far as the producer knows, by key."""
        return [self._shards[shard_id] for shard_id in self._current]

    def is_current(self, shard_id: int) -> bool:
        """Whether a shard is current, as far as the producer knows."""
        shard = self._shards.get(shard_id)
        return shard is not None and not shard.ended

    def takes_more(self, shard_id: int) -> bool:
        """Whether nothing waits for this shard: a record that is appended to it is sent with the next flush."""
        lane = self._lanes.get(shard_id)
        return lane is None or (not lane.queue and lane.in_flight < self.batches_in_flight_max)

    def take_wanted(self) -> Sequence[int]:
        """Return the shards that have something to send and no connection, each once until it is disconnected again."""
        wanted, self._wanted = self._wanted, set()
        return sorted(wanted)

    @property
    def map_version(self) -> int:
        """The version of the map that the producer knows; 0: none yet."""
        return self._map_version

    def queued_for(self, shard_id: int) -> int:
        """Records of a shard that have no number yet."""
        lane = self._lanes.get(shard_id)
        return len(lane.queue) if lane is not None else 0

    @property
    def in_doubt(self) -> bool:
        """Whether an ended shard has batches without an outcome."""
        return bool(self._doubtful)

    def orders_at(self, shard_id: int) -> Sequence[int]:
        """Return the orders of a shard's records without an outcome, sorted."""
        lane = self._lanes.get(shard_id)
        return sorted(order for order, *_ in chain(lane.queue, *lane.unresolved.values())) if lane is not None else ()

    def waiting(self) -> Sequence[int]:
        """Return the orders of all records that have no number: they are in no log."""
        return [order for order, *_ in chain(self._unmapped, *(lane.queue for lane in self._lanes.values()))]

    @property
    def unresolved_count(self) -> int:
        """Batches without an outcome."""
        return sum(len(lane.unresolved) for lane in self._lanes.values())

    @property
    def queued_count(self) -> int:
        """Records that have no number yet."""
        return len(self._unmapped) + sum(len(lane.queue) for lane in self._lanes.values())

    # ---- the map

    def mapped(self, version: int, shards: Iterable[MappedShard]) -> None:
        """Take over the shards of a map version: all current ones and their ancestors. An earlier version is ignored."""
        if version <= self._map_version or self.error is not None:
            return
        self._map_version = version
        self._shards = {shard.shard_id: shard for shard in shards}
        current = sorted([(shard.low, shard.shard_id) for shard in self._shards.values() if not shard.ended])
        self._lows = [low for low, _ in current]
        self._current = [shard_id for _, shard_id in current]
        self._current_lanes = [None] * len(current)
        self._gapless_end = 0
        for shard_id in self._current:
            if self._shards[shard_id].low == self._gapless_end:
                self._gapless_end = self._shards[shard_id].high
        waiting: list[Queued] = list(self._unmapped)
        self._unmapped.clear()
        for shard_id, lane in self._lanes.items():
            shard = self._shards.get(shard_id)
            if not lane.ended and (shard is None or shard.ended):
                lane.ended = True
                waiting += lane.queue
                lane.queue.clear()
                if lane.unresolved:
                    self._doubtful.add(shard_id)
                    self._ask(shard_id, lane)
        self._requeue(waiting)
        self._forget_lanes()
        self._wanted.intersection_update(self._current)
        self._pump_all()

    def _requeue(self, records: list[Queued]) -> None:
        """Put records to where the map says, at their old places; refuse those that have no place any more."""
        touched: dict[int, list[Queued]] = {}
        refused: dict[type[RangelogError], RecordsRefused] = {}
        for record in records:
            to = self._place(record[1], record[3])
            if isinstance(to, RangelogError):
                refused.setdefault(type(to), RecordsRefused(to, [])).orders.append(record[0])
            else:
                touched.setdefault(to, []).append(record)
        for shard_id, back in touched.items():
            lane = self._lane(shard_id)
            lane.queue = deque(sorted((*lane.queue, *back)))
        self._effects += refused.values()

    def _place(self, position: int, only: int | None) -> int | RangelogError:
        """Return the current shard that a record is for, or why there is none."""
        if only is not None:
            shard = self._shards.get(only)
            if shard is not None and not shard.ended:
                return only
            if shard is None and only > max(self._shards, default=-1):
                return no_shard(self._topic, only)
            return ShardEnded(f"shard {only} has ended: send to its successors, or by key")
        try:
            return self.shard_of(position)
        except TopicStateForbids as error:
            return error

    # ---- owners

    def connected(self, shard_id: int) -> None:
        """There is a connection to the shard's owner: what has no outcome is sent again, in order."""
        lane = self._lane(shard_id)
        lane.connected = True
        self._wanted.discard(shard_id)
        if not lane.ended and self.error is None:
            self._send_again(shard_id, lane)
            self._pump(shard_id)

    def disconnected(self, shard_id: int) -> None:
        """The connection closed, or the broker no longer owns the shard."""
        lane = self._lanes.get(shard_id)
        if lane is not None:
            lane.connected = False
            if (lane.queue or lane.unresolved) and not lane.ended:
                self._wanted.add(shard_id)

    def acked(self, shard_id: int, sequence: int, offset: int) -> None:
        """A batch is in the log at this offset, whoever says it."""
        lane = self._lanes.get(shard_id)
        records = lane.unresolved.pop(sequence, None) if lane is not None else None
        if lane is None or records is None:
            return
        self._effects.append(RecordsAcked(shard_id, offset, [record[0] for record in records]))
        lane.paced = lane.held  # an ack that holds nothing off ends the pace
        if lane.ended:
            self._settled(shard_id, lane)
        else:
            self._pump(shard_id)

    def hold(self, shard_id: int) -> None:
        """Number nothing more for this shard until it is released: the producer is over a quota."""
        lane = self._lanes.get(shard_id)
        if lane is not None:
            lane.held = lane.paced = True

    def release(self, shard_id: int) -> None:
        """Nothing is owed any more."""
        lane = self._lanes.get(shard_id)
        if lane is not None and lane.held:
            lane.held = False
            if not lane.ended:
                self._pump(shard_id)

    def missing(self, shard_id: int, sequence: int) -> None:
        """The owner lacks batches before this one: all without an outcome are sent again, in order."""
        lane = self._lanes.get(shard_id)
        if lane is not None and lane.connected and not lane.ended and sequence in lane.unresolved:
            self._send_again(shard_id, lane)

    def begin_anew(self, shard_id: int, sequence: int, epoch: int) -> bool:
        """The owner takes this epoch and later ones: number under it what has no outcome; return whether that may be done.

        It may not where a batch was sent more than once, or an earlier one has no answer: the owner may have had it, and have
        forgotten it.
        """
        lane = self._lanes.get(shard_id)
        if lane is None or lane.ended or not self.is_dated or epoch <= lane.epoch:
            return False
        if sequence != next(iter(lane.unresolved), None) or sequence < lane.sent_again:
            return False
        lane.epoch, lane.first = epoch, sequence
        self._send(shard_id, lane)
        return True

    def identity(self, shard_id: int, sequence: int) -> tuple[int, int]:
        """Return the epoch of a batch without an outcome, and its sequence in that epoch."""
        lane = self._lane(shard_id)
        return lane.epoch, sequence - lane.first

    def answered(self, shard_id: int, sequence: int, offset: int | None) -> None:
        """An ended shard holds the batch at this offset, or (None) it does not and never will."""
        lane = self._lanes.get(shard_id)
        if lane is None or not lane.ended:
            return  # an ack was faster
        lane.asking = False
        records = lane.unresolved.pop(sequence, None)
        if records is not None and offset is None:
            self._requeue(records)
        elif records is not None:
            self._effects.append(RecordsAcked(shard_id, offset or 0, [record[0] for record in records]))
        self._settled(shard_id, lane)

    def not_answered(self, shard_id: int) -> None:
        """The question had no answer: it is asked again."""
        lane = self._lanes.get(shard_id)
        if lane is not None and lane.ended:
            lane.asking = False
            self._ask(shard_id, lane)

    def fenced(self, error: RangelogError) -> None:
        """A later instance of the producer exists, or a batch was refused for good: nothing is sent any more.

        What has no outcome never gets one: no later batch takes its number.
        """
        self.error = self.error or error
        self._wanted.clear()

    def effects(self) -> Sequence[Effect]:
        """Return the effects to perform now, in order; each effect once."""
        effects, self._effects = self._effects, []
        return effects

    # ---- inside

    def _lane(self, shard_id: int) -> _Lane:
        lane = self._lanes.get(shard_id)
        if lane is None:
            lane = self._lanes[shard_id] = _Lane(shard_id, self.epoch)
        return lane

    def _pump(self, shard_id: int) -> None:
        lane = self._lanes.get(shard_id)
        if lane is None or not lane.queue or lane.held or self.error is not None:
            return
        if not lane.connected:
            self._wanted.add(shard_id)
            return
        if self._doubtful and not self._doubtful.isdisjoint(self._ancestors(shard_id)):
            return
        if self.is_dated and not lane.unresolved and self.epoch - lane.epoch >= EPOCH_MINUTES:
            lane.epoch, lane.first = self.epoch, lane.next_sequence
        while lane.queue and lane.in_flight < (1 if lane.paced else self.batches_in_flight_max):
            records = self._next_batch(lane.queue)
            sequence = lane.next_sequence
            lane.next_sequence += 1
            lane.unresolved[sequence] = records
            self._effects.append(SendBatch(shard_id, sequence, [record[0] for record in records]))

    def _next_batch(self, queue: deque[Queued]) -> list[Queued]:
        records = [queue.popleft()]
        size_bytes = records[0][2]
        for record in islice(queue, self._batch_records_max - 1):
            size_bytes += record[2]
            if size_bytes > self._batch_bytes_max:
                break
            records.append(record)
        if len(records) == len(queue) + 1:
            queue.clear()
        else:
            for _ in range(len(records) - 1):
                queue.popleft()
        return records

    def _send_again(self, shard_id: int, lane: _Lane) -> None:
        if lane.unresolved:
            lane.sent_again = lane.next_sequence
        self._send(shard_id, lane)

    def _send(self, shard_id: int, lane: _Lane) -> None:
        for sequence, records in lane.unresolved.items():
            self._effects.append(SendBatch(shard_id, sequence, [record[0] for record in records]))

    def _ask(self, shard_id: int, lane: _Lane) -> None:
        if lane.unresolved and not lane.asking and self.error is None:
            lane.asking = True
            self._effects.append(AskFor(shard_id, next(iter(lane.unresolved))))

    def _settled(self, shard_id: int, lane: _Lane) -> None:
        """One batch of an ended shard has an outcome: ask for the next, or go on with its descendants."""
        if lane.unresolved:
            self._ask(shard_id, lane)
            return
        self._doubtful.discard(shard_id)
        self._forget_lanes()
        self._pump_all()

    def _pump_all(self) -> None:
        self._appended.clear()
        for shard_id in self._current:
            self._pump(shard_id)

    def _forget_lanes(self) -> None:
        self._lanes = {each: lane for each, lane in self._lanes.items() if not lane.ended or lane.unresolved}

    def _ancestors(self, shard_id: int) -> Iterator[int]:
        """Yield all ancestors of a shard."""
        pending, seen = [shard_id], {shard_id}
        while pending:
            shard = self._shards.get(pending.pop())
            new = [each for each in (shard.predecessors if shard is not None else ()) if each not in seen]
            seen.update(new)
            pending += new
            yield from new
