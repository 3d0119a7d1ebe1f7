"""The coordinator of transactions, and the programs that ask it and stage.

The journal is one linearizable machine: what it has decided is known from the entry's ack on. A request that could once be
sent may arrive at any later time, again and again, or never. A coordinator that dies needs no step: the next one knows the
same, and an order may be repeated anyway.
"""

from __future__ import annotations

from collections.abc import Iterator

from tests.model.staging_state import (
    ABORTED,
    COMMITTED,
    COMMITTING,
    FINISHED,
    KEYS,
    NOT_BEGUN,
    OPEN,
    PREDECESSORS,
    SHARD,
    SHARDS,
    WAITING,
    Coordinator,
    Program,
    Promises,
    Sent,
    State,
    Step,
    with_item,
)


class Requests:
    """The steps of programs and of the coordinator; the merges are among those of shards."""

    def __init__(self, program: Program, promises: Promises) -> None:
        self.promises = promises
        self.rows = program.transactions
        self.instance_of = program.instance_of
        self.instances = program.instances
        self.expires = program.expires
        self.wrong = program.wrong
        self.records = tuple(
            tuple(record for record, of in enumerate(promises.of) if of == each) for each in range(len(self.rows))
        )

    def steps(self, state: State) -> Iterator[Step]:
        """Every step that can be taken from here."""
        yield from self._inits(state)
        for each in range(len(self.rows)):
            yield from self._begin(state, each)
            yield from self._commit(state, each)
            yield from self._expire(state, each)
            yield from self._number(state, each)
        yield from self._answers(state)

    # ---- the coordinator

    def _inits(self, state: State) -> Iterator[Step]:
        found = state.coordinator
        for of, epoch in self.instances:
            states = found.states
            members = [each for each in self.promises.members(of) if self.rows[each].epoch < epoch]
            if epoch != found.epochs[of] + 1 or any(states[each] == NOT_BEGUN for each in members):
                continue  # numbers count what has begun
            for each in self.promises.members(of):
                if states[each] == OPEN:
                    states = with_item(states, each, ABORTED)
            changed = found._replace(states=states, epochs=with_item(found.epochs, of, epoch))
            yield f"a later instance begins, with epoch {epoch}", state._replace(coordinator=changed)

    def _begin(self, state: State, each: int) -> Iterator[Step]:
        found, row = state.coordinator, self.rows[each]
        if found.states[each] != NOT_BEGUN or row.epoch != found.epochs[row.of]:
            return
        earlier = [other for other in self.promises.members(row.of) if self.rows[other].number < row.number]
        if any(found.states[other] in (OPEN, WAITING) for other in earlier):
            return
        same = [other for other in earlier if self.rows[other].epoch == row.epoch]
        if any(found.states[other] == NOT_BEGUN or not self._is_staged(state, other) for other in same):
            return  # the program finishes one before the next
        forgotten = found.forgotten
        for other in earlier:
            if found.states[other] in FINISHED or self.wrong == "forgotten-unmerged":
                forgotten |= 1 << other
        changed = found._replace(states=with_item(found.states, each, OPEN), forgotten=forgotten)
        yield f"T{each + 1} begins", state._replace(coordinator=changed)

    def _commit(self, state: State, each: int) -> Iterator[Step]:
        found, row = state.coordinator, self.rows[each]
        committable = (OPEN, ABORTED) if self.wrong == "commit-after-abort" else (OPEN,)
        if found.states[each] not in committable or row.epoch != found.epochs[row.of]:
            return
        if found.forgotten >> each & 1:
            return
        if not self._is_staged(state, each) and self.wrong != "commit-unflushed":
            return
        participants = 0
        for sent in state.sent:
            left_out = self.wrong == "participants-current" and state.shards[sent.shard].ended
            if sent.transaction == each and sent.acked and not left_out:
                participants |= 1 << sent.shard
        changed = found._replace(
            states=with_item(found.states, each, WAITING),
            participants=with_item(found.participants, each, participants),
        )
        label = f"the coordinator has the request to commit T{each + 1}"
        yield label, state._replace(coordinator=self.decided(changed, row.of))

    def decided(self, found: Coordinator, of: int) -> Coordinator:
        """Commit the one that waits, if all before it are finished."""
        for each in self.promises.members(of):
            if found.states[each] == WAITING:
                state = COMMITTING if found.participants[each] else COMMITTED
                found = found._replace(states=with_item(found.states, each, state))
            unfinished = found.states[each] not in (NOT_BEGUN, *FINISHED) and not found.forgotten >> each & 1
            if unfinished and self.wrong != "no-order":
                return found
        return found

    def _expire(self, state: State, each: int) -> Iterator[Step]:
        found = state.coordinator
        decided = self.wrong == "abort-wins" and found.states[each] == COMMITTING
        if (found.states[each] == OPEN and self.expires) or decided:
            changed = found._replace(states=with_item(found.states, each, ABORTED))
            yield f"T{each + 1} expires", state._replace(coordinator=changed)

    def merged(self, state: State, each: int, origin: int) -> State:
        """Note that what a shard has staged of a transaction is merged."""
        found = state.coordinator
        found = found._replace(merged=with_item(found.merged, each, found.merged[each] | 1 << origin))
        if not found.participants[each] & ~found.merged[each]:
            found = found._replace(states=with_item(found.states, each, COMMITTED))
            found = self.decided(found, self.rows[each].of)
        return state._replace(coordinator=found)

    # ---- the programs

    def _is_staged(self, state: State, each: int) -> bool:
        """Whether the program knows of each record of a transaction that it is staged."""
        acked = {record for sent in state.sent if sent.transaction == each and sent.acked for record in sent.records}
        return len(acked) == len(self.records[each])

    def _number(self, state: State, each: int) -> Iterator[Step]:
        """The program numbers a batch for a shard: what it sends then may arrive."""
        row, states = self.rows[each], state.coordinator.states
        instance = self.instance_of[each]
        if states[each] == NOT_BEGUN and not (
            self.wrong == "begin-after-stage" and row.epoch == state.coordinator.epochs[row.of]
        ):
            return
        placed = {record for sent in state.sent if sent.transaction == each for record in sent.records}
        left = [record for record in self.records[each] if record not in placed]
        if not left:
            return
        in_doubt = {
            sent.shard for sent in state.sent if not sent.acked and self.instance_of[sent.transaction] == instance
        }
        for at in SHARDS:
            shard = state.shards[at]
            mine = [record for record in left if self.promises.keys[record] in KEYS[at]]
            if not mine or not shard.begun or shard.ended or (in_doubt & _ancestors(at)):
                continue
            batch = self.promises.batch_of[mine[0]]
            records = tuple(record for record in mine if self.promises.batch_of[record] == batch)
            sequence = sum(
                sent.shard == at
                and self.instance_of[sent.transaction] == instance
                and (sent.transaction == each or self.wrong != "numbers-per-transaction")
                for sent in state.sent
            )
            sent = Sent(each, at, sequence, records)
            yield f"T{each + 1}({_words(records)}) is sent to {SHARD[at]}", state._replace(sent=(*state.sent, sent))

    def _answers(self, state: State) -> Iterator[Step]:
        """A batch in doubt has an outcome: it is staged, or it is not at a shard that has ended."""
        asked: set[tuple[int, int]] = set()
        for place, sent in enumerate(state.sent):
            if sent.acked:
                continue
            shard, instance = state.shards[sent.shard], self.instance_of[sent.transaction]
            label = f"T{sent.transaction + 1}({_words(sent.records)})"
            lane = instance, sent.shard
            first, asked = lane not in asked, asked | {lane}
            in_flight = self.wrong == "staged-ack-in-flight" and any(
                each.transaction == sent.transaction and each.sequence == sent.sequence for each in shard.staging
            )
            if shard.ended and self.wrong == "no-question" and first:
                yield f"{label} goes to the successors", _without(state, place)
            elif sent.sequence < shard.numbers[instance] or in_flight:
                acked = sent._replace(acked=True)
                yield f"{label} is known to be staged", state._replace(sent=with_item(state.sent, place, acked))
            elif shard.ended and first:
                yield f"{label} is known not to be staged", _without(state, place)


def _without(state: State, place: int) -> State:
    return state._replace(sent=state.sent[:place] + state.sent[place + 1 :])


def _words(records: tuple[int, ...]) -> str:
    return ",".join(map(str, records))


def _ancestors(at: int) -> set[int]:
    found = set(PREDECESSORS[at])
    for each in PREDECESSORS[at]:
        found |= _ancestors(each)
    return found
