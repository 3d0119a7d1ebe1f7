"""The producers of a topic: numbering, acks, what becomes of what has no outcome at a scale.

A producer is slow where it can be: it numbers, asks and learns maps at any time. Its queue is in the order of its records.
"""

from __future__ import annotations

from collections.abc import Iterator

from tests.model.topic_owners import AWAY, HELD, MISSING, STALE, TAKE, Owners, Step
from tests.model.topic_state import (
    ANCESTORS,
    CHILDREN,
    CURRENT,
    FENCED,
    LEVEL,
    NOT_STARTED,
    PARENTS,
    ROUTE,
    RUNNING,
    SHARD,
    SHARDS,
    WRONG_ACK,
    Batch,
    Producer,
    Sent,
    Shard,
    State,
    Topic,
    bits,
    with_item,
)

KEEPS_LATE = frozenset({
    "asked-too-early", "no-question", "asked-former-owner", "parent-reopened", "gap-is-failure", "sequence-reused",
    "child-early", "closed-is-failure", "asked-of-the-child",
})  # fmt: skip
"""Wrong choices by which a batch that its producer has given up may still be taken; else only ended shards lack one."""


class Producers:
    """The steps of producers, and of the batches on their way."""

    def __init__(self, instance: Topic, owners: Owners) -> None:
        self.instance = instance
        self.owners = owners
        self.wrong = instance.wrong
        self.keys = [key for _, _, keys in instance.sends for key in keys]
        self._early = self.wrong in ("asked-too-early", "child-early")

    def steps(self, state: State) -> Iterator[Step]:
        """Yield what producers can do, and what can become of their batches."""
        for who, producer in enumerate(state.producers):
            name = f"{who}"
            if producer.status == NOT_STARTED:
                for level in range(state.level + 1):
                    yield (
                        f"{name} starts with the map of level {level}",
                        _with(state, who, producer._replace(status=RUNNING, level=level)),
                    )
            elif producer.status == RUNNING:
                for label, changed, ghost in self._own(state, who, producer):
                    yield f"{name} {label}", _with(state, who, changed, ghost)
        for at in SHARDS:
            if state.shards[at].taking:
                yield from self._arrivals(state, at)
            elif self.wrong == "closed-is-failure":
                yield from self._closed(state, at)

    # ---- the producer itself

    def _own(self, state: State, who: int, producer: Producer) -> Iterator[tuple[str, Producer, int]]:
        top = min(state.level + self._early, self.instance.scales)
        levels = range(top + 1) if self.wrong == "map-goes-back" else range(producer.level + 1, top + 1)
        for level in levels:
            if level != producer.level:
                yield f"learns the map of level {level}", _forget(producer._replace(level=level)), 0
        for at in CURRENT[producer.level]:
            yield from self._number(producer, at)
        asked: set[int] = set()
        for item in producer.unresolved:
            ended = LEVEL[item.shard] < producer.level
            if ended and (item.shard not in asked or self.wrong == "any-order"):
                asked.add(item.shard)
                yield from self._ask(state, who, producer, item)
            yield from self._durable(state, who, producer, item)
        if self.wrong == "sequence-reused":
            yield from self._reuse(producer)

    def _number(self, producer: Producer, at: int) -> Iterator[tuple[str, Producer, int]]:
        """Number records for a current shard: the first ones that wait for it."""
        mine = [record for record in producer.queue if ROUTE[producer.level][self.keys[record]] == at]
        if not mine or self._in_doubt(producer, at):
            return
        following = producer.following[at]
        numbers = [item.sequence for item in producer.unresolved if item.shard == at]
        ahead = len(numbers) if self.wrong == "unresolved-counted" else following - min(numbers, default=following)
        if ahead >= self.instance.window:
            return
        for count in range(1, min(self.instance.batch_records, len(mine)) + 1):
            item = Sent(at, following, tuple(mine[:count]))
            changed = producer._replace(
                queue=tuple(record for record in producer.queue if record not in item.records),
                following=with_item(producer.following, at, following + 1),
                unresolved=(*producer.unresolved, item),
            )
            yield f"numbers {_text(item)}", changed, 0

    def _in_doubt(self, producer: Producer, at: int) -> bool:
        if self.wrong == "new-overtakes":
            return False
        before = PARENTS[at] if self.wrong == "doubt-on-parents-only" else ANCESTORS[at]
        return any(item.shard in before for item in producer.unresolved)

    def _durable(self, state: State, who: int, producer: Producer, item: Sent) -> Iterator[tuple[str, Producer, int]]:
        """A durable batch may be acked by whoever knows that it is."""
        batch = Batch(who, item.sequence, item.records)
        log = state.shards[item.shard].readable
        if state.shards[item.shard].table is None and batch in log:
            yield f"has the ack of {_text(item)} at {log.index(batch)}", self._acked(producer, item), 0

    def _ask(self, state: State, who: int, producer: Producer, item: Sent) -> Iterator[tuple[str, Producer, int]]:
        """Ask an ended shard whether it holds a batch."""
        for answer in self._answers(state, who, producer, item):
            if answer == STALE:
                yield f"asks for {_text(item)}: fenced", producer._replace(status=FENCED), 0
            elif answer is None:
                back = (*producer.queue, *item.records)
                changed = producer._replace(
                    queue=back if self.wrong in ("requeued-last", "any-order") else tuple(sorted(back)),
                    unresolved=_without(producer.unresolved, item),
                    late=self._late(producer, item),
                )
                yield f"asks for {_text(item)}: it is not there", _forget(changed), 0
            else:
                right = self._is_at(state, who, item, item.shard, int(answer))
                yield (
                    f"asks for {_text(item)}: it is at {answer}",
                    self._acked(producer, item),
                    0 if right else WRONG_ACK,
                )

    def _answers(self, state: State, who: int, producer: Producer, item: Sent) -> list[int | str | None]:
        at, shard, batch = item.shard, state.shards[item.shard], Batch(who, item.sequence, item.records)
        final = self.owners.is_final(state, at)
        if self.wrong == "no-question":
            return [None]
        if not final and self.wrong not in ("asked-too-early", "map-goes-back"):
            return []
        descendant = ROUTE[producer.level][self.keys[item.records[0]]]
        opened = any(state.shards[each].epoch for each in CHILDREN[at])
        if (
            self.wrong == "asked-of-the-child"
            or (self.wrong == "parent-table-lost" and opened)
            or (self.wrong == "grandparent-table-lost" and at not in PARENTS[descendant])
        ):
            return [None]
        ended = shard._replace(log=shard.readable, tail=(), table=None, forgotten=0)
        if self.wrong == "asked-without-epoch":
            return [self._without_epoch(ended, batch)]
        standing, offset, _ = self.owners.standing(with_item(state.shards, at, ended), at, batch)
        answers: list[int | str | None] = [offset if standing == HELD else STALE if standing == STALE else None]
        if self.wrong == "asked-former-owner":
            known = [other for other in shard.former if other[:2] == batch[:2]]
            answers.append(shard.former.index(known[0]) if known else None)
        if shard.ever_forgotten >> who & 1 and self.wrong != "expired-without-floor":
            answers.append(STALE)
        return answers

    def _without_epoch(self, shard: Shard, batch: Batch) -> int | None:
        """What an ended shard answers when it takes the newest epoch's sequences for the asker's."""
        mine = [each for each in shard.log if self.owners.of(each) == self.owners.of(batch)]
        newest = max((self.owners.epoch(each) for each in mine), default=0)
        found = [each for each in mine if self.owners.epoch(each) == newest and each.sequence == batch.sequence]
        return shard.log.index(found[0]) if found else None

    def _reuse(self, producer: Producer) -> Iterator[tuple[str, Producer, int]]:
        """The first batch without an outcome is given up, and its sequence goes to the next."""
        for at in CURRENT[producer.level]:
            mine = [item for item in producer.unresolved if item.shard == at]
            if not mine:
                continue
            moved = tuple(
                item._replace(sequence=item.sequence - 1) if item.shard == at else item
                for item in producer.unresolved
                if item != mine[0]
            )
            following = with_item(producer.following, at, producer.following[at] - 1)
            changed = producer._replace(unresolved=moved, following=following, late=(*producer.late, mine[0]))
            yield f"gives up {_text(mine[0])}, and uses its sequence again", changed, 0

    def _late(self, producer: Producer, item: Sent) -> tuple[Sent, ...]:
        return (*producer.late, item) if self.wrong in KEEPS_LATE else producer.late

    def _acked(self, producer: Producer, item: Sent) -> Producer:
        changed = producer._replace(
            unresolved=_without(producer.unresolved, item), acked=producer.acked | bits(item.records)
        )
        return _forget(changed)

    def _is_at(self, state: State, who: int, item: Sent, at: int, offset: int) -> bool:
        """Whether an ack of this batch at this offset is true."""
        log = state.shards[at].log + state.shards[at].tail
        return at == item.shard and 0 <= offset < len(log) and log[offset] == (who, item.sequence, item.records)

    # ---- batches that arrive

    def _arrivals(self, state: State, at: int) -> Iterator[Step]:
        """Batches arrive at the owner of a shard: sent once, sent again, late."""
        shard = state.shards[at]
        for who, producer in enumerate(state.producers):
            for item in producer.unresolved:
                if item.shard == at:
                    yield from self._arrives(state, at, who, producer, item)
            for item in producer.late:
                if item.shard == at:
                    yield from self._copy(state, at, Batch(who, item.sequence, item.records))
        for batch in dict.fromkeys((*shard.log, *shard.tail)):
            yield from self._copy(state, at, batch)

    def _copy(self, state: State, at: int, batch: Batch) -> Iterator[Step]:
        """A late copy, whose sender does not wait for it."""
        if self.owners.standing(state.shards, at, batch)[0] == TAKE:
            shards = with_item(state.shards, at, self.owners.taken(state.shards[at], batch))
            yield f"{SHARD[at]} takes a late copy of {batch.who}/{batch.sequence}", state._replace(shards=shards)

    def _arrives(self, state: State, at: int, who: int, producer: Producer, item: Sent) -> Iterator[Step]:
        shard, batch = state.shards[at], Batch(who, item.sequence, item.records)
        standing, offset, where = self.owners.standing(state.shards, at, batch)
        if standing == TAKE:
            shards = with_item(state.shards, at, self.owners.taken(shard, batch))
            yield f"{SHARD[at]} takes {who}/{_text(item)}", state._replace(shards=shards)
        elif producer.status != RUNNING:
            return
        elif standing == HELD:
            durable = offset < len(state.shards[where].log)
            right = self._is_at(state, who, item, where, offset)
            told = shard.table is not None or shard.end >= 0 or not right  # else it is a step of _durable
            if (durable and told) or (not durable and self.wrong == "ack-in-flight"):
                yield (
                    f"{who} has an ack of {_text(item)} at {offset} of {SHARD[where]}",
                    _with(state, who, self._acked(producer, item), 0 if right else WRONG_ACK),
                )
            if durable and self.wrong == "duplicate-is-error":
                yield f"{who} is refused {_text(item)}, a duplicate", self._failed(state, who, producer, (item,))
        elif standing == AWAY:
            yield (
                f"{SHARD[at]} has forgotten the offset of {who}/{_text(item)}",
                _with(state, who, self._acked(producer, item), WRONG_ACK),
            )
        elif standing == STALE:
            if self.wrong == "fenced-is-failure":
                state = self._failed(state, who, producer, producer.unresolved)
            yield (
                f"{SHARD[at]} refuses {who}/{_text(item)}: fenced",
                _with(state, who, state.producers[who]._replace(status=FENCED)),
            )
        elif standing == MISSING and self.wrong == "gap-is-failure":
            yield f"{who} is refused {_text(item)}: out of order", self._failed(state, who, producer, (item,))

    def _closed(self, state: State, at: int) -> Iterator[Step]:
        for who, producer in enumerate(state.producers):
            for item in producer.unresolved if producer.status == RUNNING else ():
                if item.shard == at:
                    yield f"{who} is refused {_text(item)}: closed", self._failed(state, who, producer, (item,))

    def _failed(self, state: State, who: int, producer: Producer, items: tuple[Sent, ...]) -> State:
        """The caller is told that these are not written."""
        left = tuple(item for item in producer.unresolved if item not in items)
        failed = producer.failed | bits(record for item in items for record in item.records)
        return _with(state, who, producer._replace(unresolved=left, failed=failed, late=(*producer.late, *items)))


def _with(state: State, who: int, producer: Producer, ghost: int = 0) -> State:
    return state._replace(producers=with_item(state.producers, who, producer), ghost=state.ghost | ghost)


def _without(items: tuple[Sent, ...], item: Sent) -> tuple[Sent, ...]:
    return tuple(each for each in items if each != item)


def _forget(producer: Producer) -> Producer:
    """What was numbered for an ended shard is counted only while something of it has no outcome."""
    open_at = {item.shard for item in producer.unresolved}
    following = tuple(
        number if at in open_at or LEVEL[at] >= producer.level else 0 for at, number in enumerate(producer.following)
    )
    return producer._replace(following=following)


def _text(item: Sent) -> str:
    return f"{SHARD[item.shard]}:{item.sequence}({','.join(map(str, item.records))})"
