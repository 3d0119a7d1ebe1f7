"""The owners of shards: what they stage, merge and drop. The rules of `broker/rangelog_broker/shards/staging.py`, as a spec.

The state of an owner is the fold of the shard's two streams, each read after its own fence, up to the end that it settled:

* Of the side log, which has entries `Staged(transaction, sequence, batch)` and `Finished(transaction)`. A transaction is named
  by (producer id of its transactional id, epoch, number). `staged`: the batches of each transaction that is not finished, by
  sequence, which counts the batches of (transaction, shard) from 0. `floor`: the highest finished number of each producer id.
* Of the log. `held`: for each producer id the highest number that is merged here, and of that one the parts (staging shard,
  staged sequence, slice of the batch) that are there. `run`: of the last batch, if parts of its run follow. Both include what
  is in flight; an answer waits until it is durable. A merged batch carries (producer id, epoch, number, staging shard, staged
  sequence, index in its run, how many parts of the run follow).

Events, and what is done:

1. stage(transaction, sequence, batch). A number at or below the floor is refused as finished. One that is staged is acked when
   it is durable. One that is not the next sequence is refused as a gap. Else it is appended to the side log, and acked when
   durable. Once the shard has ended it is appended only if something of the transaction is staged here, in flight included.
   Else the answer is "not here": given when nothing of the transaction is in flight, with a proof, begun after the question,
   that the epoch of the side log still holds. By that answer alone the producer stages at the successors.
2. commit(transaction), abort(transaction): orders of the coordinator, or its answers. They come late, repeated, of a deposed
   coordinator: they only repeat what is decided, so no epoch of a coordinator is checked. Nothing is dropped for another
   reason: its age, a later epoch, a later number. "Unknown" is an abort if the read that found it began after the question.
3. A committed transaction is merged in the order of its sequences. While the shard is current, into its own log. Once it has
   ended, each batch goes down the graph of shards: what the log of an ended shard holds is merged; what it does not hold goes
   to the successors, divided by key; the first current shard on the way is where it belongs. The parts for one log are a run.
4. merge(part): from the own side log or from the owner of another one. A number below the highest merged one of its producer
   id is there, and so is what is held: acked when durable. A part whose index is not the count of parts of its run that are
   there is refused: it is sent again behind those before it. While the log is inside another run, it waits. Else it is
   appended.
5. An ordinary batch waits while the log ends inside a run, after a takeover too: the staging owner sends the rest of the run.
6. finish(transaction): `Finished` is appended to the side log when all parts are acked as durable by the logs that they went
   to, or when the transaction is to be dropped; in both cases when no lower number of the producer id is staged here. When it
   is durable, what was staged is gone. The merge is reported to the coordinator when all parts are acked, or later.
7. takeover: fence log and side log, in either order; read each after its fence; act after both. A shard that has ended keeps
   its side log, and an owner of it, until nothing is staged there; then only its side log is fenced.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from tests.model.transaction_coordinator import Coordinators, Step
from tests.model.transaction_merges import Merges
from tests.model.transaction_state import (
    ABORTED,
    COMMITTING,
    LOG_FENCED,
    NOT_BEGUN,
    ORDINARY,
    SCALES,
    SHARD,
    SIDE_FENCED,
    STEADY,
    Finished,
    Promises,
    Shard,
    Staged,
    Staging,
    State,
    bits,
    in_words,
    with_shard,
)


class Owners:
    """The steps of owners, and of batches on their way to them."""

    def __init__(self, instance: Staging, promises: Promises, coordinators: Coordinators) -> None:
        self.instance = instance
        self.promises = promises
        self.coordinators = coordinators
        self.merges = Merges(instance, promises, coordinators)
        self.wrong = instance.wrong
        self.records = instance.records
        self.chains = [instance.chain(home, key) for _, home, keys in instance.batches for key in keys]
        self.rows = instance.transactions

    def steps(self, state: State) -> Iterator[Step]:
        """Yield what owners can do."""
        for batch in range(len(self.records)):
            yield from self._stage(state, batch)
        for at, shard in enumerate(state.shards):
            if not shard.begun:
                continue
            yield from self._acks(state, at, shard)
            for label, changed in self._own(state, at, shard):
                yield f"{SHARD[at]}: {label}", with_shard(state, at, changed)
            for transaction in range(len(self.rows)):
                yield from self.merges.steps(state, at, transaction)
        yield from self._scale(state)

    # ---- staging

    def _stage(self, state: State, batch: int) -> Iterator[Step]:
        """A staged batch arrives: once, again, late; at the shard by the first map, or at a successor."""
        transaction, home, _ = self.instance.batches[batch]
        if state.coordinator.states[transaction] == NOT_BEGUN and self.wrong != "begin-after-stage":
            return
        yield from self._staged_from(state, batch, home, self.records[batch])

    def _staged_from(self, state: State, batch: int, at: int, records: tuple[int, ...]) -> Iterator[Step]:
        """A shard takes a batch, or its producer is sent on to the successors."""
        shard, transaction = state.shards[at], self.instance.batches[batch][0]
        if not shard.ended or self._is_here(shard, transaction):
            yield from self._staged_at(state, batch, at, records)
        if shard.ended and self._is_refused(state, shard, transaction, records):
            children: dict[int, tuple[int, ...]] = {}
            for record in records:
                chain = self.chains[record]
                child = chain[chain.index(at) + 1]
                children[child] = (*children.get(child, ()), record)
            for child, part in children.items():
                yield from self._staged_from(state, batch, child, part)

    def _is_here(self, shard: Shard, transaction: int) -> bool:
        """Whether an ended shard goes on staging a transaction, or has finished it."""
        staged = [each for each in (*shard.staged, *shard.staging) if each.transaction == transaction]
        return bool(staged) or self.promises.is_finished(shard, transaction)

    def _is_refused(self, state: State, shard: Shard, transaction: int, records: tuple[int, ...]) -> bool:
        """Whether the producer may have heard of an ended shard that a transaction is not here."""
        if state.acked & bits(records):
            return False
        pending = (*shard.staged, *shard.staging)
        if self.wrong == "staged-at-the-successor":
            return not any(isinstance(each, Staged) and each.records == records for each in pending)
        if self.wrong == "not-here-in-flight":
            durable = any(each.transaction == transaction for each in shard.staged)
            return not durable and not self.promises.is_finished(shard, transaction)
        by_deposed = self.wrong == "not-here-by-deposed" and shard.former >= 0
        if by_deposed and not shard.former & self.promises.all[transaction]:
            return True
        return shard.phase == STEADY and not self._is_here(shard, transaction)

    def _staged_at(self, state: State, batch: int, at: int, records: tuple[int, ...]) -> Iterator[Step]:
        shard, transaction = state.shards[at], self.instance.batches[batch][0]
        if shard.phase == SIDE_FENCED or (self.promises.is_finished(shard, transaction) and self.wrong != "no-floor"):
            return
        entry = Staged(transaction, records)
        pending = (*shard.staged, *shard.staging)
        if entry in pending:
            return
        before = [each for each in range(batch) if self.instance.batches[each][:2] == self.instance.batches[batch][:2]]
        for each in before:
            part = tuple(record for record in self.records[each] if at in self.chains[record])
            if self.wrong == "staged-at-the-successor" and at != self.instance.batches[each][1]:
                continue
            if part and not any(part == found.records for found in pending if isinstance(found, Staged)):
                return  # a gap
        if self.wrong == "drop-older":
            older = [
                each for each in shard.staged
                if self.rows[each.transaction].of == self.rows[transaction].of
                and self.rows[each.transaction].number < self.rows[transaction].number
            ]  # fmt: skip
            shard = shard._replace(staged=tuple(each for each in shard.staged if each not in older))
        changed = shard._replace(staging=(*shard.staging, entry))
        if self.wrong == "side-read-first" and shard.phase == LOG_FENCED:
            changed = changed._replace(unread=changed.unread | bits(records))
        yield f"{SHARD[at]} stages {in_words(entry)}", with_shard(state, at, changed)
        if self.wrong == "staged-ack-in-flight" and bits(records) & ~state.acked:
            acked = with_shard(state, at, changed)._replace(acked=state.acked | bits(records))
            yield f"{SHARD[at]} stages {in_words(entry)}, and acks it at once", acked

    def _acks(self, state: State, at: int, shard: Shard) -> Iterator[Step]:
        for entry in shard.staged:
            if bits(entry.records) & ~state.acked:
                yield (
                    f"the producer has {SHARD[at]}'s ack of {in_words(entry)}",
                    state._replace(acked=state.acked | bits(entry.records)),
                )

    # ---- the two streams of a shard

    def _own(self, state: State, at: int, shard: Shard) -> Iterator[tuple[str, Shard]]:
        if shard.landing:
            yield "a batch of the log is durable", _landed(shard, 1, keep=True)
        if shard.staging:
            yield f"{in_words(shard.staging[0])} is durable in the side log", self._side_landed(shard, 1, keep=True)
        if shard.ordinary and not shard.ended and shard.phase != LOG_FENCED and self.merges.run(shard) is None:
            yield (
                "appends an ordinary batch",
                shard._replace(landing=(*shard.landing, ORDINARY), ordinary=shard.ordinary - 1),
            )
        for transaction in range(len(self.rows)):
            if self._may_finish(state, at, shard, transaction):
                entry = Finished(transaction)
                yield f"finishes T{transaction + 1}", shard._replace(staging=(*shard.staging, entry))
        yield from self._takeover(shard)

    def _takeover(self, shard: Shard) -> Iterator[tuple[str, Shard]]:
        if shard.phase == STEADY and shard.takeovers:
            spent = shard._replace(takeovers=shard.takeovers - 1)
            if self.wrong == "side-read-first":
                spent = spent._replace(
                    unread=bits(r for each in shard.staging if isinstance(each, Staged) for r in each.records)
                )
            if not shard.ended:
                for landed in range(len(shard.landing) + 1):
                    fenced = _landed(spent, landed, keep=False)
                    if self.wrong == "fence-log-only":
                        unread = bits(r for each in shard.staging if isinstance(each, Staged) for r in each.records)
                        yield (
                            f"TAKEOVER by a fence of the log only, {landed} land",
                            self._taken_over(fenced)._replace(unread=unread),
                        )
                    else:
                        yield f"TAKEOVER begins with the log, {landed} land", fenced._replace(phase=LOG_FENCED)
            if self.wrong != "fence-log-only":
                for landed in range(len(shard.staging) + 1):
                    fenced = self._side_landed(spent, landed, keep=False)
                    if self.wrong == "not-here-by-deposed":
                        fenced = fenced._replace(former=bits(r for each in shard.staged for r in each.records))
                    begun = self._taken_over(fenced) if shard.ended else fenced._replace(phase=SIDE_FENCED)
                    yield f"TAKEOVER begins with the side log, {landed} land", begun
        elif shard.phase == LOG_FENCED:
            for landed in range(len(shard.staging) + 1):
                fenced = self._side_landed(shard, landed, keep=False)
                yield f"TAKEOVER is done, {landed} of the side log land", self._taken_over(fenced)
        elif shard.phase == SIDE_FENCED:
            for landed in range(len(shard.landing) + 1):
                yield (
                    f"TAKEOVER is done, {landed} of the log land",
                    self._taken_over(_landed(shard, landed, keep=False)),
                )

    @staticmethod
    def _taken_over(shard: Shard) -> Shard:
        return shard._replace(phase=STEADY, known=0, busy=None)

    def _side_landed(self, shard: Shard, count: int, *, keep: bool) -> Shard:
        """The first entries in flight are durable; `keep`: the others stay in flight."""
        for entry in shard.staging[:count]:
            if isinstance(entry, Finished):
                staged = tuple(each for each in shard.staged if each.transaction != entry.transaction)
                shard = shard._replace(staged=staged, finished=shard.finished | 1 << entry.transaction)
            else:
                shard = shard._replace(staged=(*shard.staged, entry))
        return shard._replace(staging=shard.staging[count:] if keep else ())

    # ---- the end of a transaction here

    def _may_finish(self, state: State, at: int, shard: Shard, transaction: int) -> bool:
        """Whether nothing is left to do here of a transaction that is staged here."""
        staged = self.merges.staged_of(shard, transaction)
        if not staged or Finished(transaction) in shard.staging or shard.phase == SIDE_FENCED:
            return False
        row = self.rows[transaction]
        older = [
            each for each in (*shard.staged, *shard.staging)
            if self.rows[each.transaction].of == row.of and self.rows[each.transaction].number < row.number
        ]  # fmt: skip
        if older and self.wrong != "floor-over-older":
            return False
        orders = self.coordinators.orders(state, transaction)
        if ABORTED in orders or self.coordinators.is_unknown(state, transaction) or self.wrong == "dropped-for-age":
            return True
        if COMMITTING not in orders:
            return False
        if self.wrong == "finished-when-ordered":
            return True
        in_flight = self.wrong == "finished-in-flight"
        return self.merges.is_merged(state, at, transaction, in_flight=in_flight)

    # ---- the scale

    def _scale(self, state: State) -> Iterator[Step]:
        """One entry of the placement driver ends the parents, at any moment of a merge, and begins the children."""
        for ended, begun in SCALES[self.instance.scale]:
            if all(state.shards[at].begun for at in begun):
                continue
            if any(state.shards[at].phase == LOG_FENCED for at in ended):
                return
            endings = [range(len(state.shards[at].landing) + 1) for at in ended]
            for landed in product(*endings):
                shards = list(state.shards)
                for at, count in zip(ended, landed, strict=True):
                    shards[at] = self._ended(_landed(shards[at], count, keep=False))
                for at in begun:
                    shards[at] = shards[at]._replace(begun=True)
                yield (
                    f"{', '.join(SHARD[at] for at in begun)} are current, {landed} in flight land",
                    state._replace(shards=tuple(shards)),
                )
            return

    def _ended(self, shard: Shard) -> Shard:
        if shard.phase == SIDE_FENCED:
            shard = self._taken_over(shard)
        if self.wrong == "side-log-ends":
            shard = shard._replace(staged=(), staging=())
        return shard._replace(ended=True)


def _landed(shard: Shard, count: int, *, keep: bool) -> Shard:
    """The first batches in flight are durable; `keep`: the others stay in flight."""
    return shard._replace(log=shard.log + shard.landing[:count], landing=shard.landing[count:] if keep else ())
