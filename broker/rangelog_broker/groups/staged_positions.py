"""Positions that transactions are about to commit in one group: they count once the transaction is committed. Pure.

What holds (source: the exhaustive model of transactions):
- Whether a member may commit a position is checked as it is staged. The coordinator's word then applies it unconditionally,
  whoever has the shard by now; it moves forward only, as each position does.
- A shard with a staged position is handed to nobody until that is decided: who gets it begins behind it, or before it.
- Nothing staged is dropped but by the coordinator's word.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from rangelog_broker.groups.checkpoints import ShardKey
from rangelog_broker.shards.staging import TransactionKey
from rangelog_core.errors import Overloaded

TRANSACTIONS_MAX = 1_000
"""Transactions that have staged positions, of one group."""


class StagedPosition(NamedTuple):
    """What is committed with the transaction."""

    offset: int
    metadata: bytes


@dataclass(slots=True)
class StagedTransaction:
    """The positions of one transaction."""

    transactional_id: str
    positions: dict[ShardKey, StagedPosition]


class StagedPositions:
    """See the module."""

    def __init__(self, transactions: Mapping[TransactionKey, StagedTransaction] | None = None) -> None:
        self._transactions = dict(transactions or {})

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StagedPositions) and self._transactions == other._transactions

    __hash__ = None  # type: ignore[assignment]

    def __len__(self) -> int:
        return len(self._transactions)

    def __iter__(self) -> Iterator[tuple[TransactionKey, StagedTransaction]]:
        return iter(self._transactions.items())

    @property
    def rows(self) -> int:
        """The number of positions."""
        return sum(len(each.positions) for each in self._transactions.values())

    def add(self, place: TransactionKey, transactional_id: str, positions: Mapping[ShardKey, StagedPosition]) -> None:
        """Stage positions; those of one shard that the transaction staged before are replaced. Raises Overloaded."""
        staged = self._transactions.get(place)
        if staged is None:
            if len(self._transactions) >= TRANSACTIONS_MAX:
                raise Overloaded(f"{TRANSACTIONS_MAX} transactions have staged positions in the group, its limit")
            staged = self._transactions[place] = StagedTransaction(transactional_id, {})
        staged.positions |= positions

    def take(self, place: TransactionKey) -> Mapping[ShardKey, StagedPosition]:
        """Remove what a transaction has staged, and return it; nothing, where that is done."""
        staged = self._transactions.pop(place, None)
        return staged.positions if staged is not None else {}

    def shards(self) -> set[ShardKey]:
        """Return the shards that have a staged position."""
        return {key for each in self._transactions.values() for key in each.positions}

    def forget(self, topic_id: int) -> None:
        """Drop the positions of a topic that the group reads no more; the transactions stay until they are decided."""
        for each in self._transactions.values():
            each.positions = {key: position for key, position in each.positions.items() if key.topic_id != topic_id}

    def copy(self) -> StagedPositions:
        """Return a copy that later commands do not change."""
        return StagedPositions(
            {
                place: StagedTransaction(each.transactional_id, dict(each.positions))
                for place, each in self._transactions.items()
            }
        )


def positions_of(pairs: Iterable[tuple[ShardKey, int, bytes]]) -> dict[ShardKey, StagedPosition]:
    """Return positions by shard.

    >>> positions_of([(ShardKey(1, 0), 5, b"")])[ShardKey(1, 0)].offset
    5
    """
    return {key: StagedPosition(offset, metadata) for key, offset, metadata in pairs}
