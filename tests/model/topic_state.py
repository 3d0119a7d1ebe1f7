"""What the model of a topic knows in one state, and what must hold in every state (T1 to T4).

The topic has one shard, ROOT, which covers two keys; it is split into LOW and HIGH, one key each, which are merged into
JOINED. A shard's log is atomic and has epochs (the floor below; its own safety is in seal_model.py): a takeover fences, and
of the batches in flight some first ones land, the others never. Offsets count batches.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

ROOT, LOW, HIGH, JOINED = range(4)
SHARD = ("root", "low", "high", "joined")
LEVEL = (0, 1, 1, 2)
"""The level of the map in which a shard is current: 0 before the split, 1 before the merge, 2 after it."""
CURRENT = ((ROOT,), (LOW, HIGH), (JOINED,))
PARENTS = ((), (ROOT,), (ROOT,), (LOW, HIGH))
ANCESTORS = ((), (ROOT,), (ROOT,), (ROOT, LOW, HIGH))
CHILDREN = ((LOW, HIGH), (JOINED,), (JOINED,), ())
ROUTE = ((ROOT, ROOT), (LOW, HIGH), (JOINED, JOINED))
"""The current shard of a key, by level and key."""
CHAIN = (
    ((ROOT,), (ROOT,)),
    ((ROOT, LOW), (ROOT, HIGH)),
    ((ROOT, LOW, JOINED), (ROOT, HIGH, JOINED)),
)
"""The shards that a reader of one key goes through, by level and key."""
SHARDS = range(4)

NOT_STARTED, RUNNING, FENCED = range(3)
WRONG_ACK, CANNOT_OPEN = 1, 2
GHOSTS = {WRONG_ACK: "WRONG-ACK", CANNOT_OPEN: "CANNOT-OPEN"}
"""What a step alone can show, by its bit in `State.ghost`."""


class Batch(NamedTuple):
    """A batch in a shard's log or on its way there: its instance of a producer, its number, its records."""

    who: int
    sequence: int
    records: tuple[int, ...]


class Sent(NamedTuple):
    """A batch that a producer numbered for a shard."""

    shard: int
    sequence: int
    records: tuple[int, ...]


class Held(NamedTuple):
    """A row of an owner's table where that is not simply the fold of the log and of what is in flight."""

    batch: Batch
    offset: int


class Shard(NamedTuple):
    """A shard. `log`: durable batches; `tail`: those in flight."""

    log: tuple[Batch, ...] = ()
    tail: tuple[Batch, ...] = ()
    taking: bool = False
    epoch: int = 0
    claim: tuple[int, int] | None = None  # (epoch, end) on its way to the placement driver
    end: int = -1  # at the placement driver
    forgotten: int = 0  # instances that the present owner's table has let expire
    ever_forgotten: int = 0  # ... that any owner's has
    snapshot: tuple[int, int] | None = None  # (batches below it, instances expired in it)
    table: tuple[Held, ...] | None = None  # of the wrong choices
    former: tuple[Batch, ...] = ()  # of the wrong choices: what a former owner has

    @property
    def readable(self) -> tuple[Batch, ...]:
        """What is durable, up to the end where there is one."""
        return self.log if self.end < 0 else self.log[: self.end]


class Producer(NamedTuple):
    """An instance of a producer. `queue`: records without a number; `late`: given up, and still on their way."""

    status: int
    level: int = 0  # of the map that it knows
    queue: tuple[int, ...] = ()
    following: tuple[int, ...] = (0, 0, 0, 0)  # the next sequence of each shard
    unresolved: tuple[Sent, ...] = ()
    acked: int = 0
    failed: int = 0  # records that the caller was told are not written
    late: tuple[Sent, ...] = ()


class State(NamedTuple):
    """`level`: of the placement driver's map."""

    level: int
    shards: tuple[Shard, ...]
    producers: tuple[Producer, ...]
    ghost: int = 0


T = TypeVar("T")


def with_item(items: tuple[T, ...], at: int, item: T) -> tuple[T, ...]:
    """Return the tuple with one item changed."""
    return (*items[:at], item, *items[at + 1 :])


def bits(records: Iterable[int]) -> int:
    """Return a set of records as bits."""
    found = 0
    for record in records:
        found |= 1 << record
    return found


@dataclass(frozen=True, slots=True)
class Topic:
    """One small instance. `sends`: for each instance of a producer (producer, epoch, the keys of its records in order).

    `window`: batches that a table remembers, and that a producer may be ahead of its oldest one without an outcome.
    """

    sends: tuple[tuple[int, int, tuple[int, ...]], ...] = ((0, 1, (0, 1, 0)),)
    scales: int = 0
    takeovers: int = 0
    window: int = 2
    batch_records: int = 2
    snapshots: bool = False
    expiries: int = 0
    wrong: str = ""

    def producer_of(self, who: int) -> int:
        """Return the producer of an instance."""
        return self.sends[who][0]

    def epoch_of(self, who: int) -> int:
        """Return the epoch of an instance."""
        return self.sends[who][1]

    def initial(self) -> State:
        """The topic has its first shard; the first instance of each producer runs."""
        producers: list[Producer] = []
        first = 0
        for _, epoch, keys in self.sends:
            records = tuple(range(first, first + len(keys)))
            producers.append(Producer(RUNNING if epoch == 1 else NOT_STARTED, queue=records))
            first += len(keys)
        taking = [each == ROOT or self.wrong == "child-early" for each in SHARDS]
        return State(0, tuple(Shard(taking=each) for each in taking), tuple(producers))


class Promises:
    """What must hold, for one instance; what is found of the same logs is remembered."""

    def __init__(self, instance: Topic) -> None:
        self.instance = instance
        self.keys = [key for _, _, keys in instance.sends for key in keys]
        self.owners = [producer for producer, _, keys in instance.sends for _ in keys]
        self._read: dict[Any, tuple[str, int, int]] = {}
        firsts = [sum(len(keys) for _, _, keys in instance.sends[:who]) for who in range(len(instance.sends))]
        self._all = [
            bits(range(first, first + len(keys))) for first, (_, _, keys) in zip(firsts, instance.sends, strict=True)
        ]
        self._latest = [
            who
            for who in range(len(instance.sends))
            if not any(self._replaces(other, who) for other in range(len(instance.sends)))
        ]

    def _replaces(self, other: int, who: int) -> bool:
        instance = self.instance
        same = instance.producer_of(other) == instance.producer_of(who)
        return same and instance.epoch_of(other) > instance.epoch_of(who)

    def invariant(self, state: State) -> str:
        """Name what is broken, or nothing."""
        at = state.level, state.shards
        found = self._read.get(at)
        if found is None:
            found = self._read[at] = self._found(state)
        broken, durable, in_flight = found
        if broken:
            return broken
        for producer in state.producers:
            if producer.acked & ~(durable | in_flight):
                return "ACKED-LOST"
            if producer.failed & durable:
                return "FALSE-FAILURE"
        return next((name for bit, name in GHOSTS.items() if state.ghost & bit), "")

    def _found(self, state: State) -> tuple[str, int, int]:
        """Read the topic along the graph of its shards: what is broken, the records there, and those in flight."""
        durable = in_flight = 0
        broken = ""
        level = 2 if self.instance.wrong == "child-early" else state.level
        for key in (0, 1):
            seen: list[int] = []
            for each in CHAIN[level][key]:
                shard = state.shards[each]
                for batch in shard.readable:
                    seen += [record for record in batch.records if self.keys[record] == key]
                if shard.taking:
                    for batch in shard.tail:
                        in_flight |= bits(batch.records)
            found = bits(seen)
            durable |= found
            if found.bit_count() < len(seen):
                broken = "DUPLICATED"
            for producer in dict.fromkeys(self.owners):
                mine = [record for record in seen if self.owners[record] == producer]
                if not broken and mine != sorted(mine):
                    broken = "MISORDERED"
        return broken, durable, in_flight

    def goal(self, state: State) -> bool:
        """All records of the latest instance of each producer are acked; an instance that never starts may be the latest."""
        return all(state.producers[who].acked == self._all[who] for who in self._latest)
