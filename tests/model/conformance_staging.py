"""Walks through the model of staging, taken in step by the product's coordinator on its journal and by its shards' cores."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from random import Random

from rangelog_broker.shards.producer_table import Standing
from rangelog_broker.shards.staging import TransactionKey
from rangelog_broker.transactions import coordinator as product
from rangelog_broker.transactions.coordinator import TransactionCoordinator
from rangelog_core.batch import encode_batch
from rangelog_core.batch_extension import MergedFrom, Producer, Tag, encode_extension, encode_producer
from rangelog_core.key_hash import key_position
from rangelog_core.key_ranges import KEY_SPACE_END, KeyRange
from rangelog_proto.v1 import topic_pb2, transaction_pb2
from tests.model import staging_state as m
from tests.model.conformance_journal import JournalSide
from tests.model.conformance_staging_shard import Ended, LogEntry, ShardSide, records_of
from tests.model.conformance_walks import Step
from tests.model.staging_model import StagingModel

TOPIC_ID = 1
MIDDLE = KEY_SPACE_END // 2
WEIGHTS = {"expires": 0.1, "TAKEOVER": 0.4, "a later instance": 0.2, "are current": 0.2}
"""How likely a step with this word is beside the others."""
STATES = {
    m.OPEN: product.OPEN,
    m.WAITING: product.WAITING,
    m.COMMITTING: product.COMMITTING,
    m.COMMITTED: product.COMMITTED,
    m.ABORTED: product.ABORTED,
}
_SHARD = "(A|left|right|joined)"
STEPS: dict[str, str] = {
    r"T(\d) begins": "_begin",
    r"the coordinator has the request to commit T(\d)": "_commit",
    r"T(\d) expires": "_expire",
    r"a later instance begins, with epoch 2": "_init",
    rf"T(\d) is merged at {_SHARD}": "_note",
    rf"T\d\([\d,]+\) is sent to {_SHARD}": "_sent",
    rf"{_SHARD} stages batch (\d) of T(\d)": "_stage",
    rf"a batch is in the side log of {_SHARD}": "_side_landed",
    rf"a batch is in the log of {_SHARD}": "_landed",
    rf"{_SHARD} takes an ordinary batch": "_ordinary",
    rf"{_SHARD} merges T(\d) of {_SHARD}, (\d) batches": "_merge",
    rf"TAKEOVER of {_SHARD} begins, (\d) of its log land": "_fence",
    rf"TAKEOVER of {_SHARD} is done, (\d) of its side log land": "_take_over",
    rf"{_SHARD} drops T(\d)": "_drop",
    rf"the side log of {_SHARD} is trimmed": "_trim",
    r".* are current, .* in flight land": "_scale",
    r"T\d\([\d,]+\) is known to be staged": "_found",
    r"T\d\([\d,]+\) is known not to be staged": "_not_found",
}


def _key_of(side: int) -> bytes:
    """Return a key of the lower or the upper half of the key space."""
    return next(key for key in (b"%d" % each for each in range(100)) if (key_position(key) >= MIDDLE) == bool(side))


KEYS = (_key_of(0), _key_of(1))


class StagingWalk:
    """The product's side of one walk."""

    def __init__(self, program: m.Program, seed: int) -> None:
        self.program = program
        self.model = StagingModel(program)
        self.taken = dict.fromkeys(STEPS, 0)
        self._random = Random(seed)
        self.journal = JournalSide(TransactionCoordinator, Random(seed))
        self.producer_ids = {of: self._first(of) for of in dict.fromkeys(row.of for row in program.transactions)}
        rows = {at: _row(at) for at in m.SHARDS}
        self._ended = Ended(rows)
        self.shards = [ShardSide(rows[at], self._ended) for at in m.SHARDS]
        self._before: m.State
        self._after: m.State

    # ---- Product

    def start(self) -> m.State:
        """The model's first state."""
        return self.program.initial()

    def steps(self, state: m.State) -> Iterator[Step]:
        """What the model can do."""
        return self.model.successors(state)

    def fold(self, state: m.State) -> m.State:
        """States are as they are."""
        return state

    def narrowed(self, state: m.State, offered: Sequence[Step]) -> Sequence[Step]:
        """All of it."""
        return offered

    def take(self, label: str, before: m.State, after: m.State) -> bool:
        """Do as the label says."""
        self._before, self._after = before, after
        matches = ((pattern, re.fullmatch(pattern, label)) for pattern in STEPS)
        pattern, match = next(((pattern, match) for pattern, match in matches if match is not None), ("", None))
        assert match is not None, "the product has no such step"
        words = (m.SHARD.index(word) if word in m.SHARD else int(word) for word in match.groups())
        done = getattr(self, STEPS[pattern])(*words)
        self.taken[pattern] += done is not False
        return done is not False

    def compare(self, state: m.State, random: Random) -> None:
        """Assert that coordinator and shards stand where the model does."""
        for each, modelled in enumerate(state.coordinator.states):
            view = self.journal.machine.view(self._name(each))
            forgotten = modelled == m.NOT_BEGUN or state.coordinator.forgotten >> each & 1
            assert view.state == (product.UNKNOWN if forgotten else STATES[modelled]), f"T{each + 1} is {view.state}"
        for at, shard in enumerate(state.shards):
            if not shard.begun:
                continue
            self._compare_log(at, shard)
            self._compare_numbers(at, shard)
            if not shard.ended:
                self._compare_staged(at, shard)

    def _compare_log(self, at: int, shard: m.Shard) -> None:
        side = self.shards[at]
        assert side.entries() == [self._entry(each) for each in (*shard.log, *shard.landing)]
        assert side.acked == len(shard.log)
        if shard.phase == m.STEADY and not shard.ended:
            for each in range(len(self.program.transactions)):
                for origin in m.SHARDS:
                    expected = self.model.shards.next_sequence(shard.log, each, origin)
                    assert side.owner.state.merges.next_sequence(self._key(each), origin) == expected

    def _compare_numbers(self, at: int, shard: m.Shard) -> None:
        for instance, (of, epoch) in enumerate(self.program.instances):
            following = self.model.shards._next(shard, instance)
            producer = Producer(self.producer_ids[of], epoch, following)
            fenced = self.model.shards._is_fenced(shard, instance)
            staging = self.shards[at].staging
            assert staging.offer(producer) is (Standing.FENCED if fenced else Standing.NEXT)
            if not fenced:
                assert staging.offer(producer._replace(sequence=following + 1)) is Standing.GAP
            if following and not fenced:
                assert staging.offer(producer._replace(sequence=following - 1)) is Standing.HELD

    def _compare_staged(self, at: int, shard: m.Shard) -> None:
        for each in range(len(self.program.transactions)):
            if not shard.dropped >> each & 1:
                found = [
                    (one.sequence, records_of(one.data)) for one in self.shards[at].staging.batches(self._key(each))
                ]
                assert found == [(one.sequence, one.records) for one in shard.staged if one.transaction == each]

    # ---- steps of the coordinator

    def _begin(self, number: int) -> None:
        self._do(begin=transaction_pb2.TransactionBegin(name=self._name(number - 1)))

    def _commit(self, number: int) -> None:
        listed = self._after.coordinator.participants[number - 1]
        participants = [
            transaction_pb2.Participant(topic_id=TOPIC_ID, shard_id=at) for at in m.SHARDS if listed >> at & 1
        ]
        commit = transaction_pb2.TransactionCommit(name=self._name(number - 1), participants=participants)
        self._do(commit=commit)

    def _expire(self, number: int) -> None:
        self._do(expire=transaction_pb2.TransactionExpire(name=self._name(number - 1)))

    def _note(self, number: int, at: int) -> None:
        """Each shard that is asked answers that it is merged: nothing is left to append, by what is acked."""
        for target in _targets(self._before, at):
            assert self.shards[target].left(self._key(number - 1), at) == 0, f"{m.SHARD[target]} has not merged it"
        participant = transaction_pb2.Participant(topic_id=TOPIC_ID, shard_id=at)
        self._do(merged=transaction_pb2.TransactionMerged(name=self._name(number - 1), participant=participant))

    def _init(self) -> None:
        self._first(0)

    def _first(self, of: int) -> int:
        init = transaction_pb2.TransactionInit(transactional_id=f"id-{of}", timeout_ms=1_000)
        return int(self._do(init=init).producer_id)

    def _do(self, **action: object) -> transaction_pb2.TransactionResult:
        command = transaction_pb2.TransactionCommand(**action)  # type: ignore[arg-type]
        return transaction_pb2.TransactionResult.FromString(self.journal.apply(command.SerializeToString()))

    def _name(self, each: int) -> transaction_pb2.TransactionName:
        of, epoch, number = self.program.transactions[each]
        return transaction_pb2.TransactionName(
            transactional_id=f"id-{of}", epoch=epoch, number=number, producer_id=self.producer_ids[of]
        )

    # ---- steps of shards

    def _sent(self, at: int) -> None:
        """The batch is in the model's state."""

    def _stage(self, at: int, sequence: int, number: int) -> None:
        entry = self._after.shards[at].staging[-1]
        of, epoch, _ = self.program.transactions[number - 1]
        producer = Producer(self.producer_ids[of], epoch, sequence)
        data = self._batch(producer, entry.records)
        self.shards[at].stage(f"id-{of}", self._key(number - 1).number, producer, data)

    def _side_landed(self, at: int) -> None:
        entry = self._before.shards[at].staging[0]
        self.shards[at].side_landed(self._key(entry.transaction), entry.sequence)
        self._perhaps_snapshot(at)

    def _landed(self, at: int) -> None:
        self.shards[at].landed()
        self._perhaps_snapshot(at)

    def _perhaps_snapshot(self, at: int) -> None:
        if self._random.random() < 0.3 and self._after.shards[at].phase == m.STEADY:
            self.shards[at].snapshot()

    def _ordinary(self, at: int) -> None:
        self.shards[at].ordinary()

    def _merge(self, at: int, number: int, origin: int, batches: int) -> None:
        assert self.shards[at].merge(self._key(number - 1), origin) == batches

    def _fence(self, at: int, landed: int) -> None:
        self.shards[at].fence_log(landed)

    def _take_over(self, at: int, landed: int) -> None:
        self.shards[at].fence_side(landed)
        self.shards[at].take_over()

    def _drop(self, at: int, number: int) -> None:
        """By the coordinator's word, or because all of it is merged."""
        if self.journal.machine.view(self._name(number - 1)).state not in (
            product.ABORTED,
            product.COMMITTED,
            product.UNKNOWN,
        ):
            assert self.shards[at].left(self._key(number - 1), at) == 0, "it is not decided, and not merged"
        self.shards[at].staging.drop(self._key(number - 1))

    def _trim(self, at: int) -> bool:
        return self.shards[at].trim(self._key(self._before.shards[at].staged[0].transaction))

    def _scale(self) -> None:
        for at in m.SHARDS:
            before, after = self._before.shards[at], self._after.shards[at]
            if after.ended and not before.ended:
                self.shards[at].fence_log(len(after.log) - len(before.log))
                self.shards[at].fence_side(sum(after.numbers) - sum(before.numbers))
                self.shards[at].end()

    def _found(self) -> None:
        sent = next(old for old, new in zip(self._before.sent, self._after.sent, strict=True) if old != new)
        assert self._standing(sent) in (Standing.HELD, Standing.FENCED), "an earlier instance may have its answer late"

    def _not_found(self) -> None:
        gone = [sent for sent in self._before.sent if sent not in self._after.sent]
        assert self._standing(gone[0]) in (Standing.NEXT, Standing.GAP, Standing.FENCED)

    # ---- inside

    def _standing(self, sent: m.Sent) -> Standing:
        of, epoch, _ = self.program.transactions[sent.transaction]
        return self.shards[sent.shard].staging.offer(Producer(self.producer_ids[of], epoch, sent.sequence))

    def _key(self, each: int) -> TransactionKey:
        row = self.program.transactions[each]
        return TransactionKey(self.producer_ids[row.of], row.number)

    def _batch(self, producer: Producer, records: Sequence[int]) -> bytes:
        return encode_batch(
            stream_id=0,
            range_index=0,
            epoch=0,
            base_offset=0,
            timestamps_ms=[5] * len(records),
            values=[b"%d" % each for each in records],
            keys=[KEYS[self.model.promises.keys[each]] for each in records],
            extension=encode_extension({Tag.PRODUCER: encode_producer(producer)}),
        )

    def _entry(self, entry: m.Entry) -> LogEntry:
        if entry is None:
            return None, ()
        key = self._key(entry.transaction)
        return MergedFrom(*key, entry.origin, entry.sequence, entry.follow), entry.records


def _targets(state: m.State, origin: int) -> set[int]:
    """Return the shards that are asked to merge what a shard has staged."""
    if not state.shards[origin].ended:
        return {origin}
    return {
        target
        for each in m.SHARDS
        if origin in m.PREDECESSORS[each] and state.shards[each].begun
        for target in _targets(state, each)
    }


def _row(at: int) -> topic_pb2.Shard:
    low = MIDDLE if at == m.RIGHT else 0
    high = MIDDLE if at == m.LEFT else KEY_SPACE_END
    low_bytes, high_bytes = KeyRange(low, high).to_bytes()
    keys = topic_pb2.KeyRange(low=low_bytes, high=high_bytes)
    return topic_pb2.Shard(topic_id=TOPIC_ID, shard_id=at, key_range=keys, predecessors=m.PREDECESSORS[at])
