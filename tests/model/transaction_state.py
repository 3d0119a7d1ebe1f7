"""What the model of transactions knows in one state, and what must hold in every state (T5, T1).

Shards A and B; a split ends A and begins LEFT and RIGHT, one key each, which a merge ends for JOINED; a join ends A and B and
begins LEFT. A shard has two streams: its log, which holds records only, and its side log, which holds what is staged and
which transactions are finished. Each is a single-writer stream: a fence settles which of the entries in flight land, some
first ones, and the others never do.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

A, B, LEFT, RIGHT, JOINED = range(5)
SHARD = ("A", "B", "left", "right", "joined")
SHARDS = range(5)
SCALES: dict[str, tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]] = {
    "": (),
    "split": (((A,), (LEFT, RIGHT)),),
    "join": (((A, B), (LEFT,)),),
    "split and merge": (((A,), (LEFT, RIGHT)), ((LEFT, RIGHT), (JOINED,))),
}
"""Which shards each step ends, and which it begins."""
GROUP = 5
"""The group's journal, as a participant."""

NOT_BEGUN, OPEN, WAITING, COMMITTING, COMMITTED, ABORTED = range(6)
STATES = ("not begun", "open", "waiting", "committing", "committed", "aborted")
STEADY, LOG_FENCED, SIDE_FENCED = range(3)
"""Of a takeover: nothing, or one of the two streams is fenced. The next owner acts when both are."""


class Transaction(NamedTuple):
    """Its transactional id, the epoch of the instance that began it, its number."""

    of: int
    epoch: int
    number: int


class Staged(NamedTuple):
    """An entry of a side log: records of a transaction, one batch."""

    transaction: int
    records: tuple[int, ...]


class Finished(NamedTuple):
    """An entry of a side log: nothing of this transaction, or of an earlier one of its id, is to be merged or staged."""

    transaction: int


class Merged(NamedTuple):
    """A batch in a log: part `index` of the run of a transaction that `origin` staged; `follow` parts of the run follow."""

    transaction: int
    origin: int
    records: tuple[int, ...]
    index: int
    follow: int


ORDINARY = None
"""A batch in a log that is of no transaction."""

Entry = Merged | None


class Shard(NamedTuple):
    """A shard: log and side log, durable and in flight."""

    log: tuple[Entry, ...] = ()
    landing: tuple[Entry, ...] = ()
    staged: tuple[Staged, ...] = ()
    staging: tuple[Staged | Finished, ...] = ()
    finished: int = 0  # transactions with an entry in the side log
    phase: int = STEADY
    ended: bool = False
    begun: bool = False
    takeovers: int = 0  # that may come
    ordinary: int = 0  # batches that may come
    known: int = 0  # of the wrong choices: records that the owner remembers to have merged
    busy: tuple[int, int] | None = None  # of the wrong choices: the run that the owner remembers to be in
    unread: int = 0  # of the wrong choices: staged records that the owner has not read
    former: int = -1  # of the wrong choices: records that a former owner knew to be staged; -1: there was none


class Coordinator(NamedTuple):
    """The machine on the coordinator's journal; `forgotten`: what it would answer "unknown" of, though it was begun."""

    states: tuple[int, ...]
    epochs: tuple[int, ...]
    participants: tuple[int, ...]
    merged: tuple[int, ...]
    forgotten: int = 0


class Positions(NamedTuple):
    """One position of a group, on its journal. `read`: what the next member was given, -1: nothing yet."""

    offset: int = 0
    staged: int = 0
    finished: int = 0
    generation: int = 1
    read: int = -1


class State(NamedTuple):
    """`acked`: records that the producer knows to be staged. `early`, `stale`: of the wrong choices."""

    coordinator: Coordinator
    shards: tuple[Shard, ...]
    acked: int = 0
    positions: Positions = Positions()
    early: int = 0  # orders to commit that were sent before their entry was acked
    stale: Coordinator | None = None  # what a deposed coordinator knows


T = TypeVar("T")


def with_item(items: tuple[T, ...], at: int, item: T) -> tuple[T, ...]:
    """Return the tuple with one item changed."""
    return (*items[:at], item, *items[at + 1 :])


def with_shard(state: State, at: int, shard: Shard) -> State:
    """Return the state with one shard changed."""
    return state._replace(shards=with_item(state.shards, at, shard))


def in_words(entry: Staged | Finished) -> str:
    """Return an entry of a side log, for a label."""
    if isinstance(entry, Finished):
        return f"T{entry.transaction + 1} finished"
    return f"T{entry.transaction + 1}({','.join(map(str, entry.records))})"


def bits(records: Iterable[int]) -> int:
    """Return a set as bits."""
    found = 0
    for record in records:
        found |= 1 << record
    return found


FIRST, SECOND = Transaction(0, 1, 1), Transaction(0, 1, 2)
NEXT_INSTANCE = Transaction(0, 2, 2)
OTHER_ID = Transaction(1, 1, 1)


@dataclass(frozen=True, slots=True)
class Staging:
    """One small instance. `batches`: (transaction, shard, key of each record); a key is 0 or 1, LEFT has 0 and RIGHT 1.

    `group`: the transactions move a position of a group: the first as its present member, another one as the next.
    """

    batches: tuple[tuple[int, int, tuple[int, ...]], ...]
    transactions: tuple[Transaction, ...] = (FIRST,)
    takeovers: tuple[int, ...] = ()  # by shard
    ordinary: tuple[int, ...] = ()
    scale: str = ""  # of SCALES
    group: bool = False
    wrong: str = ""  # the choice under test, which may turn out to do no harm

    @property
    def keys(self) -> tuple[int, ...]:
        """The key of each record."""
        return tuple(key for _, _, keys in self.batches for key in keys)

    @property
    def records(self) -> tuple[tuple[int, ...], ...]:
        """The records of each batch."""
        found: list[tuple[int, ...]] = []
        first = 0
        for _, _, keys in self.batches:
            found.append(tuple(range(first, first + len(keys))))
            first += len(keys)
        return tuple(found)

    def chain(self, home: int, key: int) -> tuple[int, ...]:
        """Return the shards that a key of a shard goes through, by the graph."""
        found = [home]
        for ended, begun in SCALES[self.scale]:
            if found[-1] in ended:
                found.append(begun[key] if len(begun) > 1 else begun[0])
        return tuple(found)

    def initial(self) -> State:
        """Nothing is begun."""
        shards = tuple(
            Shard(begun=at in (A, B), takeovers=takeovers, ordinary=ordinary)
            for at, takeovers, ordinary in zip(SHARDS, _filled(self.takeovers), _filled(self.ordinary), strict=True)
        )
        none = (0,) * len(self.transactions)
        return State(Coordinator(none, (1, 1), none, none), shards)


def _filled(counts: tuple[int, ...]) -> tuple[int, ...]:
    return counts + (0,) * (len(SHARDS) - len(counts))


class Promises:
    """What must hold, for one instance."""

    def __init__(self, instance: Staging) -> None:
        self.instance = instance
        self.keys = instance.keys
        self.of = [
            transaction
            for (transaction, _, _), records in zip(instance.batches, instance.records, strict=True)
            for _ in records
        ]
        self.homes = [
            home for (_, home, _), records in zip(instance.batches, instance.records, strict=True) for _ in records
        ]
        self.chains = tuple(dict.fromkeys(instance.chain(home, key) for home in (A, B) for key in (0, 1)))
        self.all = [
            bits(record for record, of in enumerate(self.of) if of == transaction)
            for transaction in range(len(instance.transactions))
        ]

    def invariant(self, state: State) -> str:
        """Name what is broken, or nothing."""
        durable = landing = usable = 0
        for shard in state.shards:
            for entry in shard.log:
                if entry is not None:
                    here = bits(entry.records)
                    if durable & here:
                        return "TWICE"
                    durable |= here
            for entry in shard.landing:
                landing |= bits(entry.records) if entry is not None else 0
            for staged in shard.staged:
                if not self.is_finished(shard, staged.transaction):
                    usable |= bits(staged.records)
        for transaction, records in enumerate(self.all):
            committed = state.coordinator.states[transaction] in (COMMITTING, COMMITTED)
            if durable & records and not committed:
                return "GHOST"
            if committed and records & ~(durable | landing | usable):
                return "TORN" if durable & records else "LOST"
        return self._orders(state) or (self._group(state) if self.instance.group else "")

    def is_finished(self, shard: Shard, transaction: int) -> bool:
        """Whether a shard takes nothing more of a transaction: it is finished, or a later one of its id is."""
        rows = self.instance.transactions
        of, _, number = rows[transaction]
        return any(
            shard.finished >> other & 1 and row.of == of and row.number >= number for other, row in enumerate(rows)
        )

    def _orders(self, state: State) -> str:
        for shard in state.shards:
            runs = [entry and (entry.transaction, entry.origin) for entry in shard.log]
            starts = [
                run for place, run in enumerate(runs) if run is not None and (not place or runs[place - 1] != run)
            ]
            if len(dict.fromkeys(starts)) < len(starts):
                return "SCATTERED"
        for chain in self.chains:
            if not self._is_ordered(tuple(entry for at in chain for entry in state.shards[at].log)):
                return "MISORDERED"
        return ""

    def _is_ordered(self, log: tuple[Entry, ...]) -> bool:
        """Records of one id and key, sent to one shard, are in the order sent."""
        last: dict[tuple[int, int, int], tuple[int, int]] = {}
        for entry in log:
            for record in entry.records if entry is not None else ():
                transaction = self.instance.transactions[self.of[record]]
                line = transaction.of, self.homes[record], self.keys[record]
                place = transaction.number, record
                if last.get(line, place) > place:
                    return False
                last[line] = place
        return True

    def _group(self, state: State) -> str:
        positions, states = state.positions, state.coordinator.states
        inputs = [self.input(positions, each) for each, found in enumerate(states) if found in (COMMITTING, COMMITTED)]
        if len(dict.fromkeys(inputs)) < len(inputs):
            return "INPUT-TWICE"
        if positions.offset and positions.offset - 1 not in inputs:
            return "POSITION-AHEAD"
        for each, found in enumerate(states):
            done = found in (COMMITTING, COMMITTED) and positions.finished >> each & 1
            if done and positions.offset <= self.input(positions, each):
                return "POSITION-LOST"
        return ""

    @staticmethod
    def input(positions: Positions, transaction: int) -> int:
        """Return the input that a transaction consumes: the first one's is 0."""
        return positions.read if transaction else 0

    def goal(self, state: State) -> bool:
        """Nothing is left to decide, to merge or to drop."""
        if any(found not in (NOT_BEGUN, COMMITTED, ABORTED) for found in state.coordinator.states):
            return False
        if state.positions.staged & ~state.positions.finished:
            return False
        return not any(
            shard.landing or shard.staging or shard.staged or shard.phase != STEADY for shard in state.shards
        )

    def members(self, of: int) -> Iterator[int]:
        """Yield the transactions of an id, by number."""
        yield from (each for each, row in enumerate(self.instance.transactions) if row.of == of)
