"""How a committed transaction is merged: what goes to which log, what is there already, which run a log is in the middle of.

The rules are those of transaction_owners.py, 3 to 5.
"""

from __future__ import annotations

from collections.abc import Iterator

from tests.model.transaction_coordinator import Coordinators, Step
from tests.model.transaction_state import (
    COMMITTED,
    COMMITTING,
    LEFT,
    LOG_FENCED,
    SHARD,
    Merged,
    Promises,
    Shard,
    Staged,
    Staging,
    State,
    bits,
    in_words,
    with_shard,
)


class Merges:
    """The parts of committed transactions on their way to the logs that they belong to."""

    def __init__(self, instance: Staging, promises: Promises, coordinators: Coordinators) -> None:
        self.instance = instance
        self.promises = promises
        self.coordinators = coordinators
        self.wrong = instance.wrong
        self.records = instance.records
        self.chains = [instance.chain(home, key) for _, home, keys in instance.batches for key in keys]
        self.rows = instance.transactions

    def staged_of(self, shard: Shard, transaction: int) -> list[Staged]:
        """What an owner takes for the batches of a transaction."""
        found = []
        for entry in shard.staged:
            same = entry.transaction == transaction
            if self.wrong == "no-number":
                same = self.rows[entry.transaction][:2] == self.rows[transaction][:2]
            if same and not bits(entry.records) & shard.unread:
                found.append(entry)
        return found

    def parts(self, state: State, origin: int, transaction: int) -> dict[int, list[Staged]]:
        """Return what is to be in each log of what a shard has staged, in order: the run of each."""
        return self._runs(state, origin, self.staged_of(state.shards[origin], transaction))

    def _runs(self, state: State, origin: int, staged: list[Staged]) -> dict[int, list[Staged]]:
        found: dict[int, list[Staged]] = {}
        for entry in staged:
            for target, records in self._targets(state, origin, entry.records).items():
                found.setdefault(target, []).append(Staged(entry.transaction, records))
        return found

    def _targets(self, state: State, origin: int, records: tuple[int, ...]) -> dict[int, tuple[int, ...]]:
        """Follow records down the graph: what an ended shard holds is merged, the rest belongs to a current one."""
        found: dict[int, tuple[int, ...]] = {}
        for record in records:
            chain = self.chains[record]
            for at in chain[chain.index(origin) :]:
                shard = state.shards[at]
                if not shard.ended:
                    found[at] = (*found.get(at, ()), record)
                    break
                if _has(shard, origin, record) and self.wrong != "ended-shard-not-asked":
                    break
        return found

    def holds(self, state: State, target: int, origin: int, entry: Staged, *, in_flight: bool = True) -> bool:
        """Whether a log has a part, as staged by that shard."""
        shard, (transaction, records) = state.shards[target], entry
        if self.wrong == "held-until-reported" and state.coordinator.states[transaction] == COMMITTED:
            return False
        if self.wrong == "merged-in-memory":
            return bits(records) & ~shard.known == 0
        of, _, number = self.rows[transaction]
        for each in shard.log + shard.landing if in_flight else shard.log:
            if each is not None:
                row = self.rows[each.transaction]
                if (row.of == of and row.number > number) or (each.origin == origin and each.records == records):
                    return True
        return False

    def run(self, shard: Shard) -> tuple[int, int] | None:
        """Return the run that the log ends in the middle of: its transaction and staging shard."""
        if self.wrong == "no-runs":
            return None
        if self.wrong == "run-in-memory":
            return shard.busy
        log = shard.log + shard.landing
        last = log[-1] if log else None
        return (last.transaction, last.origin) if last is not None and last.follow else None

    def steps(self, state: State, origin: int, transaction: int) -> Iterator[Step]:
        """Parts of a committed transaction arrive at the logs that they belong to, in any order."""
        if COMMITTING not in self.coordinators.orders(state, transaction):
            return
        runs = self.parts(state, origin, transaction)
        if self.promises.is_finished(state.shards[origin], transaction):
            runs = self._runs(state, origin, self._were_staged(state, origin, transaction))
        for target, run in runs.items():
            shard = state.shards[target]
            if shard.phase == LOG_FENCED or shard.ended:
                continue
            busy = self.run(shard)
            if busy is not None and busy != (transaction, origin):
                continue
            there = sum(self.holds(state, target, origin, entry) for entry in run)
            for index, entry in enumerate(run):
                if self.holds(state, target, origin, entry):
                    continue
                if index == there or self.wrong == "parts-in-any-order":
                    merged = Merged(entry.transaction, origin, entry.records, index, len(run) - index - 1)
                    changed = shard._replace(
                        landing=(*shard.landing, merged),
                        known=shard.known | bits(entry.records) if self.wrong == "merged-in-memory" else 0,
                        busy=(transaction, origin) if merged.follow and self.wrong == "run-in-memory" else None,
                    )
                    yield (
                        f"{SHARD[target]} appends part {index} of T{transaction + 1} from {SHARD[origin]}: {in_words(entry)}",
                        with_shard(state, target, changed),
                    )

    def _were_staged(self, state: State, origin: int, transaction: int) -> list[Staged]:
        """What a former owner of the side log knows of a committed transaction, and may still send."""
        if not state.coordinator.participants[transaction] >> origin & 1 or origin >= LEFT:
            return []
        return [
            Staged(transaction, records)
            for (of, home, _), records in zip(self.instance.batches, self.records, strict=True)
            if (of, home) == (transaction, origin)
        ]

    def is_merged(self, state: State, at: int, transaction: int, *, in_flight: bool = False) -> bool:
        """Whether all parts of what a shard has staged of a transaction are in the logs that they belong to."""
        runs = self.parts(state, at, transaction)
        return all(
            self.holds(state, target, at, entry, in_flight=in_flight) for target, run in runs.items() for entry in run
        )


def _has(shard: Shard, origin: int, record: int) -> bool:
    return any(each is not None and each.origin == origin and record in each.records for each in shard.log)
