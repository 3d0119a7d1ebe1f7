"""The owners of a topic's shards and the placement driver: takeovers, snapshots, the end of parents, children.

A batch may arrive at its shard at any time, again and again, or never; so nothing is said here of messages.
"""

from __future__ import annotations

from collections.abc import Iterator

from tests.model.topic_state import (
    ANCESTORS,
    CANNOT_OPEN,
    CURRENT,
    LEVEL,
    PARENTS,
    ROOT,
    SHARD,
    SHARDS,
    Batch,
    Held,
    Shard,
    State,
    Topic,
    with_item,
)

TAKE, HELD, MISSING, STALE, AWAY = "next", "held", "gap", "fenced", "forgotten"
Step = tuple[str, State]


class Owners:
    """The steps of owners and of the placement driver."""

    def __init__(self, instance: Topic) -> None:
        self.instance = instance
        self.wrong = instance.wrong

    # ---- the table of producers

    def entries(self, shard: Shard) -> tuple[Held, ...]:
        """Return the present owner's table."""
        if shard.table is not None:
            return shard.table
        return tuple(Held(batch, offset) for offset, batch in enumerate(shard.log + shard.tail))

    def floor(self, shards: tuple[Shard, ...], at: int, producer: int) -> int:
        """Return the highest epoch of a producer in the logs of a shard's ancestors."""
        ancestors = ANCESTORS[at]
        if self.wrong == "epochs-not-inherited":
            ancestors = ()
        elif self.wrong == "epochs-of-one-parent":
            ancestors = PARENTS[at][:1]
        elif self.wrong == "epochs-not-passed-on":
            ancestors = PARENTS[at]
        epochs = [
            self.epoch(batch) for each in ancestors for batch in shards[each].readable if self.of(batch) == producer
        ]
        return max(epochs, default=0)

    def of(self, batch: Batch) -> int:
        """Return a batch's producer."""
        return self.instance.producer_of(batch.who)

    def epoch(self, batch: Batch) -> int:
        """Return a batch's epoch."""
        return self.instance.epoch_of(batch.who)

    def standing(self, shards: tuple[Shard, ...], at: int, batch: Batch) -> tuple[str, int, int]:
        """Return what a batch is to the owner of a shard: (standing, its offset, the shard that holds it)."""
        rows, producer = self.entries(shards[at]), self.of(batch)
        if self.wrong != "no-epoch-check":
            newest = max((self.epoch(row.batch) for row in rows if self.of(row.batch) == producer), default=0)
            if self.epoch(batch) < max(newest, self.floor(shards, at, producer)):
                return STALE, -1, at
        mine = [(row.batch.sequence, row.offset, at) for row in rows if row.batch.who == batch.who]
        if shards[at].forgotten >> batch.who & 1:
            mine = [row for row in mine if row[1] >= len(shards[at].log)]  # those in flight are not in the table yet
            if not mine or batch.sequence < mine[0][0]:
                return STALE, -1, at
        if self.wrong == "sequences-inherited":
            above = [(other, row) for other in ANCESTORS[at] for row in enumerate(shards[other].readable)]
            mine = [(row[1].sequence, row[0], other) for other, row in above if row[1].who == batch.who] + mine
        following = max(row[0] for row in mine) + 1 if mine else 0
        window = 1 if self.wrong == "short-table" else self.instance.window
        for sequence, offset, where in mine[-window:]:
            if sequence == batch.sequence:
                return HELD, offset, where
        if batch.sequence < following:
            return AWAY, -1, at
        anywhere = self.wrong == "gap-accepted" or (self.wrong == "starts-anywhere" and not mine)
        return (TAKE if batch.sequence == following or anywhere else MISSING), -1, at

    def taken(self, shard: Shard, batch: Batch) -> Shard:
        """Append a batch; it is in flight then."""
        table = shard.table
        if table is not None:
            table += (Held(batch, len(shard.log) + len(shard.tail)),)
        return shard._replace(tail=(*shard.tail, batch), table=table)

    # ---- steps

    def steps(self, state: State) -> Iterator[Step]:
        """Yield what owners and the placement driver can do."""
        for at in SHARDS:
            shard = state.shards[at]
            if LEVEL[at] > state.level and self.wrong != "child-early":
                continue
            for label, changed, ghost in self._owner(state, at, shard):
                shards = with_item(state.shards, at, changed)
                yield f"{SHARD[at]}: {label}", state._replace(shards=shards, ghost=state.ghost | ghost)
        yield from self._commit(state)

    def _owner(self, state: State, at: int, shard: Shard) -> Iterator[tuple[str, Shard, int]]:
        if shard.tail:
            first = shard.tail[0]
            known_gone = self.wrong == "expiry-breaks-the-fold" and shard.forgotten >> first.who & 1
            durable = shard._replace(log=(*shard.log, first), tail=shard.tail[1:])
            yield f"{first.who}/{first.sequence} is durable", durable, CANNOT_OPEN if known_gone else 0
        if self.wrong == "no-fence" and shard.former and shard.taking:
            first = shard.former[0]
            late = shard._replace(log=(*shard.log, first), former=shard.former[1:], table=self.entries(shard))
            yield f"{first.who}/{first.sequence} of the former owner is durable", late, 0
        live = LEVEL[at] == state.level
        if self.instance.snapshots and shard.taking and live:
            yield from self._snapshots(shard)
        if shard.taking and live and shard.ever_forgotten.bit_count() < self.instance.expiries:
            for who in dict.fromkeys(batch.who for batch in shard.log):
                if not shard.forgotten >> who & 1:
                    yield f"the table lets instance {who} expire", self._expired(shard, who), 0
        yield from self._takeover(state, at, shard, live=live)
        if live and shard.taking and shard.claim is None and state.level < self.instance.scales:
            for landed in range(len(shard.tail) + 1):
                log = shard.log + shard.tail[:landed]
                table = shard.table if shard.table is None else shard.table[: len(log)]
                closed = shard._replace(log=log, tail=(), taking=False, claim=(shard.epoch, len(log)), table=table)
                yield f"is closed at {len(log)}, {landed} in flight land", closed, 0
                if self.wrong == "end-unchecked" and log:
                    yield (
                        "is closed, with an end below its log's",
                        closed._replace(claim=(shard.epoch, len(log) - 1)),
                        0,
                    )
        if live and not shard.taking and shard.claim is not None and self.wrong == "goes-on":
            yield "its owner goes on under the same epoch", shard._replace(taking=True), 0

    def _expired(self, shard: Shard, who: int) -> Shard:
        gone = shard.forgotten | 1 << who
        if self.wrong == "expired-without-floor":
            table = tuple(row for row in self.entries(shard) if row.batch.who != who)
            return shard._replace(table=table, ever_forgotten=shard.ever_forgotten | 1 << who)
        return shard._replace(forgotten=gone, ever_forgotten=shard.ever_forgotten | gone)

    def _snapshots(self, shard: Shard) -> Iterator[tuple[str, Shard, int]]:
        """A former owner may write one late: any number of batches, with what it let expire or without."""
        if self.wrong in ("snapshot-ahead", "snapshot-behind"):
            if shard.tail:
                held, offset = len(shard.log) + len(shard.tail), len(shard.log)
                kept = (held, offset) if self.wrong == "snapshot-ahead" else (offset, held)
                yield f"a snapshot at {kept[1]} holds the batches below {kept[0]}", shard._replace(snapshot=kept), 0
            return
        for offset in range(1, len(shard.log) + 1):
            for gone in dict.fromkeys((0, shard.forgotten, shard.ever_forgotten)):
                if shard.snapshot != (offset, gone):
                    without = f", without instances {gone:b}" if gone else ""
                    yield f"a snapshot at {offset}{without}", shard._replace(snapshot=(offset, gone)), 0

    def _takeover(self, state: State, at: int, shard: Shard, *, live: bool) -> Iterator[tuple[str, Shard, int]]:
        reopens = self.wrong == "parent-reopened" and LEVEL[at] < state.level
        if not (live or reopens) or sum(each.epoch for each in state.shards) >= self.instance.takeovers:
            return
        for landed in range(len(shard.tail) + 1):
            log = shard.log if self.wrong == "no-fence" else shard.log + shard.tail[:landed]
            opened = shard._replace(log=log, tail=(), taking=True, epoch=shard.epoch + 1, table=None, forgotten=0)
            if self.wrong != "stale-end":
                opened = opened._replace(claim=None)
            if self.wrong == "asked-former-owner":
                opened = opened._replace(former=shard.log)
            elif self.wrong == "no-fence":
                opened = opened._replace(former=shard.former + shard.tail)
            for changed, ghost in self._tables(shard, opened):
                yield f"TAKEOVER, {landed} in flight land", changed, ghost

    def _tables(self, before: Shard, opened: Shard) -> Iterator[tuple[Shard, int]]:
        """Rebuild the table: from the snapshot and the log behind it, up to the end that the fence settled."""
        truth = tuple(Held(batch, offset) for offset, batch in enumerate(opened.log))
        if self.wrong == "no-table":
            yield opened._replace(table=()), 0
        elif self.wrong == "table-before-fence":
            yield opened._replace(table=truth[: len(before.log)]), 0
        elif before.snapshot is None:
            yield opened, 0
        elif self.wrong in ("snapshot-ahead", "snapshot-behind"):
            held, offset = before.snapshot
            batches = before.log + before.tail
            inside = tuple(Held(batch, number) for number, batch in enumerate(batches[:held]))
            table = inside + tuple(row for row in truth[offset:] if row.batch not in batches[:held])
            yield opened._replace(table=table), 0
        elif self.wrong == "trim-past-snapshot":
            for trimmed in range(before.snapshot[0], len(truth) + 1):
                yield opened._replace(table=truth[: before.snapshot[0]] + truth[trimmed:]), 0
        else:
            offset, gone = before.snapshot
            behind = {batch.who for batch in opened.log[offset:]}
            strict = self.wrong == "expiry-breaks-the-fold" and any(gone >> who & 1 for who in behind)
            yield opened._replace(forgotten=gone), CANNOT_OPEN if strict else 0

    def _commit(self, state: State) -> Iterator[Step]:
        """One command of the placement driver ends the parents and makes the children current."""
        if state.level >= self.instance.scales:
            return
        parents = CURRENT[state.level]
        for at in parents:
            claim = state.shards[at].claim
            if claim is None or (claim[0] != state.shards[at].epoch and self.wrong != "stale-end"):
                return
        shards = list(state.shards)
        for at in parents:
            claim = shards[at].claim
            assert claim is not None
            taking = shards[at].taking and self.wrong in ("stale-end", "goes-on")
            shards[at] = shards[at]._replace(end=claim[1], claim=None, taking=False, snapshot=None)
            if taking:
                shards[at] = shards[at]._replace(tail=())
        for at in CURRENT[state.level + 1]:
            shards[at] = shards[at]._replace(taking=True)
        yield (
            f"the placement driver commits the map of level {state.level + 1}",
            state._replace(level=state.level + 1, shards=tuple(shards)),
        )

    def is_final(self, state: State, at: int) -> bool:
        """Whether the end of a shard is committed."""
        return LEVEL[at] < state.level


assert ROOT == 0, "the root is the first shard"
