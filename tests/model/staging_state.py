"""What the model of the product's staging knows in one state, and what must hold in every state (T5, T1).

The model of transactions (transaction_model.py) is of the rules; this one is of the way that the product takes: staging ends
with its shard, a producer's batches carry its own sequences through all its transactions, a successor takes what an ended
shard has staged out of its side log, and the coordinator's owner orders each merge.

Shard A; a split ends it and begins LEFT and RIGHT, one key each, which a merge ends for JOINED. A shard has a log and a side
log, both single-writer streams: a fence settles which of the entries in flight land, some first ones, and the others never do.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

A, LEFT, RIGHT, JOINED = range(4)
SHARD = ("A", "left", "right", "joined")
SHARDS = range(4)
SCALES: dict[str, tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]] = {
    "": (),
    "split": (((A,), (LEFT, RIGHT)),),
    "split and merge": (((A,), (LEFT, RIGHT)), ((LEFT, RIGHT), (JOINED,))),
}
"""Which shards each step ends, and which it begins."""
PREDECESSORS: tuple[tuple[int, ...], ...] = ((), (A,), (A,), (LEFT, RIGHT))
KEYS: tuple[tuple[int, ...], ...] = ((0, 1), (0,), (1,), (0, 1))

NOT_BEGUN, OPEN, WAITING, COMMITTING, COMMITTED, ABORTED = range(6)
FINISHED = (COMMITTED, ABORTED)
STEADY, LOG_FENCED, SIDE_FENCED = range(3)
"""Of a takeover: nothing, or one of the two streams is fenced. The next owner acts when both are."""


class Transaction(NamedTuple):
    """Its transactional id, the epoch of the instance that began it, its number."""

    of: int
    epoch: int
    number: int


class Sent(NamedTuple):
    """A batch that a producer has numbered for a shard. Without an answer it is in doubt."""

    transaction: int
    shard: int
    sequence: int
    records: tuple[int, ...]
    acked: bool = False


class Staged(NamedTuple):
    """An entry of a side log."""

    transaction: int
    sequence: int
    records: tuple[int, ...]


class Merged(NamedTuple):
    """A batch in a log, of what `origin` has staged; `follow` batches of its run follow."""

    transaction: int
    origin: int
    sequence: int
    records: tuple[int, ...]
    follow: int


Entry = Merged | None
"""None: a batch that is of no transaction."""


class Shard(NamedTuple):
    """A shard: log and side log, durable and in flight, and what its owner holds in memory."""

    log: tuple[Entry, ...] = ()
    landing: tuple[Entry, ...] = ()
    staged: tuple[Staged, ...] = ()
    staging: tuple[Staged, ...] = ()
    numbers: tuple[int, ...] = ()  # by instance: the next sequence, as the side log and its snapshot have it
    dropped: int = 0  # transactions that the owner holds no more
    phase: int = STEADY
    ended: bool = False
    begun: bool = False
    takeovers: int = 0  # that may come
    ordinary: int = 0  # batches that may come
    trimmed: int = 0  # of the wrong choices: numbers that only trimmed entries had
    blind: bool = False  # of the wrong choices: the owner does not know what is merged
    seen: int = 0  # records of the side log at its fence, while the log's fence is to come
    unread: int = 0  # of the wrong choices: staged records that the owner has not read
    former: int = -1  # of the wrong choices: records that a deposed owner holds; -1: there is none


class Coordinator(NamedTuple):
    """The machine on the coordinator's journal. `epochs`: by transactional id."""

    states: tuple[int, ...]
    epochs: tuple[int, ...]
    participants: tuple[int, ...]
    merged: tuple[int, ...]
    forgotten: int = 0


class State(NamedTuple):
    """`sent`: in the order in which they were numbered."""

    coordinator: Coordinator
    shards: tuple[Shard, ...]
    sent: tuple[Sent, ...] = ()


Step = tuple[str, State]
T = TypeVar("T")


def with_item(items: tuple[T, ...], at: int, item: T) -> tuple[T, ...]:
    """Return the tuple with one item changed."""
    return (*items[:at], item, *items[at + 1 :])


def with_shard(state: State, at: int, shard: Shard) -> State:
    """Return the state with one shard changed."""
    return state._replace(shards=with_item(state.shards, at, shard))


def bits(records: Iterable[int]) -> int:
    """Return a set as bits."""
    found = 0
    for record in records:
        found |= 1 << record
    return found


def staged_bits(entries: Iterable[Staged]) -> int:
    """Return the records of entries of a side log, as bits."""
    return bits(record for entry in entries for record in entry.records)


FIRST, SECOND = Transaction(0, 1, 1), Transaction(0, 1, 2)
NEXT_INSTANCE = Transaction(0, 2, 2)
OTHER_ID = Transaction(1, 1, 1)
THIRD = Transaction(0, 1, 3)


@dataclass(frozen=True, slots=True)
class Program:
    """One small instance. `batches`: (transaction, key of each record); a split divides a batch that is not staged yet."""

    batches: tuple[tuple[int, tuple[int, ...]], ...]
    transactions: tuple[Transaction, ...] = (FIRST,)
    takeovers: tuple[int, ...] = ()  # by shard
    ordinary: tuple[int, ...] = ()
    scale: str = ""  # of SCALES
    expires: bool = True
    wrong: str = ""  # the choice under test

    @property
    def instances(self) -> tuple[tuple[int, int], ...]:
        """The (transactional id, epoch) pairs that stage."""
        return tuple(dict.fromkeys((row.of, row.epoch) for row in self.transactions))

    @property
    def instance_of(self) -> tuple[int, ...]:
        """By transaction: the place of its instance."""
        return tuple(self.instances.index((row.of, row.epoch)) for row in self.transactions)

    def initial(self) -> State:
        """Nothing is begun."""
        numbers = (0,) * len(self.instances)
        shards = tuple(
            Shard(numbers=numbers, begun=at == A, takeovers=takeovers, ordinary=ordinary)
            for at, takeovers, ordinary in zip(SHARDS, _filled(self.takeovers), _filled(self.ordinary), strict=True)
        )
        none = (0,) * len(self.transactions)
        return State(Coordinator(none, (1, 1), none, none), shards)


def _filled(counts: tuple[int, ...]) -> tuple[int, ...]:
    return counts + (0,) * (len(SHARDS) - len(counts))


class Promises:
    """What must hold, for one instance."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.rows = program.transactions
        self.keys = tuple(key for _, keys in program.batches for key in keys)
        self.of = tuple(transaction for transaction, keys in program.batches for _ in keys)
        self.batch_of = tuple(batch for batch, (_, keys) in enumerate(program.batches) for _ in keys)
        self.all = tuple(
            bits(record for record, of in enumerate(self.of) if of == each) for each in range(len(self.rows))
        )
        self._chains = (
            ((A, LEFT, JOINED), (A, RIGHT, JOINED))
            if program.scale == "split and merge"
            else ((A, LEFT), (A, RIGHT)) if program.scale else ((A,),)
        )  # fmt: skip

    def invariant(self, state: State) -> str:
        """Name what is broken, or nothing."""
        durable = landing = 0
        for shard in state.shards:
            for entry in shard.log:
                if entry is not None:
                    here = bits(entry.records)
                    if durable & here:
                        return "TWICE"
                    durable |= here
            for entry in shard.landing:
                landing |= bits(entry.records) if entry is not None else 0
        for transaction, records in enumerate(self.all):
            committed = state.coordinator.states[transaction] in (COMMITTING, COMMITTED)
            if durable & records and not committed:
                return "GHOST"
            if committed and records & ~(durable | landing | self._to_merge(state, transaction)):
                return "TORN" if durable & records else "LOST"
        return self._orders(state)

    @staticmethod
    def _to_merge(state: State, transaction: int) -> int:
        """Return the staged records of a commit that are still to be merged, as bits."""
        found = state.coordinator
        left = found.participants[transaction] & ~found.merged[transaction]
        if found.states[transaction] != COMMITTING or found.forgotten >> transaction & 1:
            return 0
        return staged_bits(
            each
            for at in SHARDS
            if left >> at & 1
            for each in state.shards[at].staged
            if each.transaction == transaction
        )

    def _orders(self, state: State) -> str:
        for shard in state.shards:
            runs = [entry and (entry.transaction, entry.origin) for entry in shard.log]
            starts = [
                run for place, run in enumerate(runs) if run is not None and (not place or runs[place - 1] != run)
            ]
            if len(dict.fromkeys(starts)) < len(starts):
                return "SCATTERED"
        for chain in self._chains:
            last: dict[tuple[int, int], tuple[int, int]] = {}
            for at in chain:
                for entry in state.shards[at].log:
                    for record in entry.records if entry is not None else ():
                        row = self.rows[self.of[record]]
                        line, place = (row.of, self.keys[record]), (row.number, record)
                        if last.get(line, place) > place:
                            return "MISORDERED"
                        last[line] = place
        return ""

    def goal(self, state: State) -> bool:
        """Nothing is left to decide, to merge or to drop."""
        states = state.coordinator.states
        if any(found not in (NOT_BEGUN, *FINISHED) for found in states):
            return False
        for each in range(len(states)):  # whoever may go on has done so
            if states[each] == NOT_BEGUN and state.coordinator.epochs[self.rows[each].of] <= self.rows[each].epoch:
                return False
        for shard in state.shards:
            if shard.landing or shard.staging or shard.phase != STEADY:
                return False
            if not shard.ended and any(not shard.dropped >> each.transaction & 1 for each in shard.staged):
                return False
        return True

    def members(self, of: int) -> Iterator[int]:
        """Yield the transactions of an id, by number."""
        yield from (each for each, row in enumerate(self.rows) if row.of == of)
