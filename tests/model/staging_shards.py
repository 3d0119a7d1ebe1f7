"""Shards that stage and merge: their owners, takeovers, and the scale.

The rules: a run is appended in one piece, and one inside which a log ends is finished by the next owner before anything else;
what is staged at a shard that has ended is merged at the shards that follow, each taking the keys that are its own and that
no shard in between has merged; "merged" is answered of what is acked; a takeover fences the log, then the side log.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from tests.model.staging_requests import Requests
from tests.model.staging_state import (
    ABORTED,
    COMMITTED,
    COMMITTING,
    KEYS,
    LOG_FENCED,
    NOT_BEGUN,
    PREDECESSORS,
    SCALES,
    SHARD,
    SHARDS,
    SIDE_FENCED,
    STEADY,
    Entry,
    Merged,
    Program,
    Promises,
    Shard,
    Staged,
    State,
    Step,
    staged_bits,
    with_item,
    with_shard,
)

Part = tuple[int, tuple[int, ...]]
"""A staged batch, as far as a shard has to merge it: its sequence, its records."""


class Shards:
    """The steps of shards and of the orders that they get."""

    def __init__(self, program: Program, promises: Promises, requests: Requests) -> None:
        self.program = program
        self.promises = promises
        self.requests = requests
        self.rows = program.transactions
        self.instance_of = program.instance_of
        self.wrong = program.wrong

    def steps(self, state: State) -> Iterator[Step]:
        """Every step that can be taken from here."""
        for at in SHARDS:
            shard = state.shards[at]
            if not shard.begun or shard.ended:
                continue
            yield from self._stage(state, at, shard)
            yield from self._land(state, at, shard)
            yield from self._takeover(state, at, shard)
            if shard.phase == STEADY:
                yield from self._end(state, at, shard)
        yield from self._orders(state)
        yield from self._scale(state)

    # ---- staging

    def _stage(self, state: State, at: int, shard: Shard) -> Iterator[Step]:
        """A batch that was sent is the next one of its instance. An owner whose log is fenced may still stage."""
        if shard.phase == SIDE_FENCED and self.wrong != "side-log-first":
            return
        for sent in state.sent:
            instance = self.instance_of[sent.transaction]
            if sent.acked or sent.shard != at or sent.sequence != self._next(shard, instance):
                continue
            if self._is_fenced(shard, instance):
                continue
            entry = Staged(sent.transaction, sent.sequence, sent.records)
            yield (
                f"{SHARD[at]} stages batch {sent.sequence} of T{sent.transaction + 1}",
                with_shard(state, at, shard._replace(staging=(*shard.staging, entry))),
            )

    def _next(self, shard: Shard, instance: int) -> int:
        return shard.numbers[instance] + sum(self.instance_of[each.transaction] == instance for each in shard.staging)

    def _is_fenced(self, shard: Shard, instance: int) -> bool:
        of, epoch = self.program.instances[instance]
        return any(
            other_of == of and other_epoch > epoch and self._next(shard, other)
            for other, (other_of, other_epoch) in enumerate(self.program.instances)
        )

    def _land(self, state: State, at: int, shard: Shard) -> Iterator[Step]:
        if shard.landing and shard.phase != LOG_FENCED:
            label = f"a batch is in the log of {SHARD[at]}"
            yield label, with_shard(state, at, self.landed(shard, 1, keep=True))
        if shard.staging and (shard.phase != SIDE_FENCED or self.wrong == "side-log-first"):
            label = f"a batch is in the side log of {SHARD[at]}"
            yield label, with_shard(state, at, self.side_landed(shard, 1, keep=True))
        if shard.ordinary and shard.phase == STEADY:
            changed = shard._replace(landing=(*shard.landing, None), ordinary=shard.ordinary - 1)
            yield f"{SHARD[at]} takes an ordinary batch", with_shard(state, at, changed)

    @staticmethod
    def landed(shard: Shard, count: int, *, keep: bool) -> Shard:
        """Return the shard with the first batches in flight durable; `keep`: the others stay in flight."""
        return shard._replace(log=shard.log + shard.landing[:count], landing=shard.landing[count:] if keep else ())

    def side_landed(self, shard: Shard, count: int, *, keep: bool) -> Shard:
        """Return the shard with the first staged batches in flight durable; `keep`: the others stay in flight."""
        numbers = shard.numbers
        for entry in shard.staging[:count]:
            instance = self.instance_of[entry.transaction]
            numbers = with_item(numbers, instance, numbers[instance] + 1)
        staged = shard.staged + shard.staging[:count]
        return shard._replace(staged=staged, staging=shard.staging[count:] if keep else (), numbers=numbers)

    # ---- takeovers

    def _takeover(self, state: State, at: int, shard: Shard) -> Iterator[Step]:
        if shard.phase == STEADY and shard.takeovers:
            spent = shard._replace(takeovers=shard.takeovers - 1)
            if self.wrong == "side-log-first":
                for landed in range(len(shard.staging) + 1):
                    fenced = self.side_landed(spent, landed, keep=False)
                    fenced = fenced._replace(phase=SIDE_FENCED, seen=staged_bits(fenced.staged))
                    yield f"TAKEOVER of {SHARD[at]} begins with the side log", with_shard(state, at, fenced)
                return
            for landed in range(len(shard.landing) + 1):
                fenced = self.landed(spent, landed, keep=False)._replace(phase=LOG_FENCED)
                if self.wrong == "merged-by-deposed":
                    fenced = fenced._replace(former=staged_bits(shard.staged))
                if self.wrong == "side-read-first":
                    fenced = fenced._replace(seen=staged_bits(shard.staged))
                yield f"TAKEOVER of {SHARD[at]} begins, {landed} of its log land", with_shard(state, at, fenced)
        elif shard.phase == LOG_FENCED:
            for landed in range(len(shard.staging) + 1):
                fenced = self.side_landed(shard, landed, keep=False)
                if self.wrong == "side-read-first":
                    fenced = fenced._replace(unread=staged_bits(fenced.staged) & ~fenced.seen, seen=0)
                yield (
                    f"TAKEOVER of {SHARD[at]} is done, {landed} of its side log land",
                    self._taken_over(state, at, fenced),
                )
        elif shard.phase == SIDE_FENCED:
            for landed, side in product(range(len(shard.landing) + 1), range(len(shard.staging) + 1)):
                fenced = self.side_landed(self.landed(shard, landed, keep=False), side, keep=False)
                fenced = fenced._replace(unread=staged_bits(fenced.staged) & ~fenced.seen, seen=0)
                yield f"TAKEOVER of {SHARD[at]} is done, {landed} of its log land", self._taken_over(state, at, fenced)

    def _taken_over(self, state: State, at: int, shard: Shard) -> State:
        """The next owner finishes the run inside which the log ends, before anything else."""
        numbers = shard.numbers
        if self.wrong == "numbers-trimmed":
            numbers = tuple(
                max(
                    (each.sequence + 1 for each in shard.staged if self.instance_of[each.transaction] == instance),
                    default=0,
                )
                for instance in range(len(numbers))
            )
        blind = self.wrong == "merged-in-memory"
        shard = shard._replace(phase=STEADY, dropped=0, numbers=numbers, blind=blind)
        state = with_shard(state, at, shard)
        last = shard.log[-1] if shard.log else None
        if last is None or not last.follow or self.wrong == "run-unfinished":
            return state
        run = self.run(state, at, last.transaction, last.origin)
        return with_shard(state, at, shard._replace(landing=run))

    # ---- what is to be merged

    def next_sequence(self, log: tuple[Entry, ...], transaction: int, origin: int) -> int | None:
        """Return the first sequence of a run that a log lacks; None: all of the transaction is merged."""
        row = self.rows[transaction]
        following = 0
        for entry in log:
            if entry is None:
                continue
            other = self.rows[entry.transaction]
            if other.of == row.of and other.number > row.number:
                return None
            if entry.transaction == transaction and entry.origin == origin:
                following = entry.sequence + 1
        return following

    def run(self, state: State, at: int, transaction: int, origin: int) -> tuple[Merged, ...]:
        """Return what a shard has to append of what a shard has staged of a transaction."""
        shard = state.shards[at]
        following = 0 if shard.blind else self.next_sequence(shard.log, transaction, origin)
        if following is None:
            return ()
        parts = self._own(shard, transaction) if origin == at else self._pulled(state, at, transaction, origin)
        wanted = [part for part in parts if part[0] >= following]
        return tuple(
            Merged(transaction, origin, sequence, records, len(wanted) - place - 1)
            for place, (sequence, records) in enumerate(wanted)
        )

    def _own(self, shard: Shard, transaction: int) -> list[Part]:
        if shard.dropped >> transaction & 1:
            return []
        return [
            (each.sequence, each.records)
            for each in shard.staged
            if each.transaction == transaction and not staged_bits([each]) & shard.unread
        ]

    def _pulled(self, state: State, at: int, transaction: int, origin: int) -> list[Part]:
        """Return what an ended shard has staged for a shard's keys and no shard in between has merged."""
        ways = [] if self.wrong == "dedup-lost" else self._between(at, origin)
        if self.wrong == "ways-of-the-staging-shard":
            ways = [origin]
        merged = [(each, self.next_sequence(state.shards[each].log, transaction, origin)) for each in ways]
        parts: list[Part] = []
        for entry in state.shards[origin].staged:
            if entry.transaction != transaction:
                continue
            chosen = tuple(
                record
                for record in entry.records
                if self.promises.keys[record] in KEYS[at]
                and not any(
                    self.promises.keys[record] in KEYS[each] and (following is None or entry.sequence < following)
                    for each, following in merged
                )
            )
            if chosen:
                parts.append((entry.sequence, chosen))
        return parts

    def _between(self, at: int, origin: int) -> list[int]:
        found: list[int] = []
        for each in PREDECESSORS[at]:
            if each >= origin:
                found.append(each)
                found += [before for before in self._between(each, origin) if before not in found]
        return found

    # ---- orders

    def targets(self, state: State, origin: int) -> list[int]:
        """Return the shards that merge what a shard has staged: itself, or the current ones that follow it."""
        if not state.shards[origin].ended:
            return [origin]
        found: list[int] = []
        for each in SHARDS:
            if origin in PREDECESSORS[each] and state.shards[each].begun:
                found += [target for target in self.targets(state, each) if target not in found]
        return found

    def _orders(self, state: State) -> Iterator[Step]:
        found = state.coordinator
        for each in range(len(self.rows)):
            if found.states[each] != COMMITTING or found.forgotten >> each & 1:
                continue
            left = [at for at in SHARDS if (found.participants[each] & ~found.merged[each]) >> at & 1]
            for origin in left:
                ended_first = [at for at in left if state.shards[at].ended and at != origin]
                if state.shards[origin].ended:
                    ended_first = [at for at in ended_first if at < origin]
                if ended_first and self.wrong != "any-order":
                    continue
                targets = self.targets(state, origin)
                for target in targets:
                    yield from self._merge(state, target, each, origin)
                if self._is_merged(state, targets, each, origin):
                    label = f"T{each + 1} is merged at {SHARD[origin]}"
                    yield label, self.requests.merged(state, each, origin)

    def _merge(self, state: State, at: int, transaction: int, origin: int) -> Iterator[Step]:
        shard = state.shards[at]
        repeated = self._is_landing(shard, transaction, origin) and self.wrong != "appended-again"
        if shard.phase != STEADY or repeated:
            return
        run = self.run(state, at, transaction, origin)
        if self.wrong == "appended-again" and len(shard.landing) > len(run):
            return  # bounded
        if run:
            label = f"{SHARD[at]} merges T{transaction + 1} of {SHARD[origin]}, {len(run)} batches"
            yield label, with_shard(state, at, shard._replace(landing=shard.landing + run))

    @staticmethod
    def _is_landing(shard: Shard, transaction: int, origin: int) -> bool:
        return any(
            entry is not None and (entry.transaction, entry.origin) == (transaction, origin) for entry in shard.landing
        )

    def _is_merged(self, state: State, targets: list[int], transaction: int, origin: int) -> bool:
        """Whether each target answers that it has merged, as acked."""
        if self.wrong == "ended-is-merged" and state.shards[origin].ended:
            return True
        if self.wrong == "one-successor":
            targets = targets[:1]
        return all(self._answers_merged(state, at, transaction, origin) for at in targets)

    def _answers_merged(self, state: State, at: int, transaction: int, origin: int) -> bool:
        shard = state.shards[at]
        if shard.former >= 0 and origin == at:
            known = [each for each in shard.staged if each.transaction == transaction]
            if not staged_bits(known) & shard.former:
                return True  # the former owner holds nothing of it
        if shard.phase != STEADY:
            return False
        in_flight = self._is_landing(shard, transaction, origin)
        if in_flight:
            return self.wrong == "noted-in-flight"
        return not self.run(state, at, transaction, origin)

    # ---- the end of a transaction here

    def _end(self, state: State, at: int, shard: Shard) -> Iterator[Step]:
        """The owner holds a transaction no more; the side log is trimmed below what it holds."""
        for each in dict.fromkeys(entry.transaction for entry in (*shard.staged, *shard.staging)):
            if shard.dropped >> each & 1 or not self._may_drop(state, at, shard, each):
                continue
            changed = with_shard(state, at, shard._replace(dropped=shard.dropped | 1 << each))
            yield f"{SHARD[at]} drops T{each + 1}", changed
        if shard.staged and shard.dropped >> shard.staged[0].transaction & 1:
            yield (
                f"the side log of {SHARD[at]} is trimmed",
                with_shard(state, at, shard._replace(staged=shard.staged[1:])),
            )

    def _may_drop(self, state: State, at: int, shard: Shard, each: int) -> bool:
        found = state.coordinator
        if self.wrong in ("dropped-for-age", "unknown-unproved"):
            return self.wrong == "dropped-for-age" or found.states[each] in (NOT_BEGUN, COMMITTING)
        if found.states[each] in (ABORTED, COMMITTED, NOT_BEGUN) or found.forgotten >> each & 1:
            return True
        if self.wrong == "trimmed-unmerged":
            return found.states[each] == COMMITTING and self._is_landing(shard, each, at)
        if found.states[each] != COMMITTING or self._is_landing(shard, each, at):
            return False
        return any(entry.transaction == each for entry in shard.staged) and not self.run(state, at, each, at)

    # ---- the scale

    def _scale(self, state: State) -> Iterator[Step]:
        """One entry of the placement driver ends the parents, with their side logs, and begins the children."""
        for ended, begun in SCALES[self.program.scale]:
            if all(state.shards[at].begun for at in begun):
                continue
            if any(state.shards[at].phase != STEADY for at in ended):
                return
            endings = [
                product(range(len(state.shards[at].landing) + 1), range(len(state.shards[at].staging) + 1))
                for at in ended
            ]
            for landed in product(*endings):
                shards = list(state.shards)
                for at, (logged, staged) in zip(ended, landed, strict=True):
                    shard = self.side_landed(self.landed(shards[at], logged, keep=False), staged, keep=False)
                    if self.wrong == "side-log-ends":
                        shard = shard._replace(staged=())
                    shards[at] = shard._replace(ended=True, dropped=0, former=-1)
                for at in begun:
                    shards[at] = shards[at]._replace(begun=True)
                yield (
                    f"{' and '.join(SHARD[at] for at in begun)} are current, {landed} in flight land",
                    state._replace(shards=tuple(shards)),
                )
            return
