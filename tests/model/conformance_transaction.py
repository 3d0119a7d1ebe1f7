"""Walks through the model of transactions, taken in step by the product's coordinator on its journal.

Owners of shards and groups are the model's; what they hear of the coordinator is what the product answers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from random import Random

from rangelog_broker.transactions import coordinator as product
from rangelog_broker.transactions.coordinator import TransactionCoordinator
from rangelog_core.errors import PreconditionFailed, ProducerFenced, RangelogError, TransactionNotFound
from rangelog_proto.v1 import transaction_pb2
from tests.model import transaction_state as m
from tests.model.conformance_journal import JournalSide
from tests.model.conformance_walks import Step
from tests.model.transaction_model import TransactionModel

WEIGHTS = {"expires": 0.15, "TAKEOVER": 0.3, "a later instance": 0.2, "are current": 0.3}
"""How likely a step with this word is beside the others: else most transactions are aborted at once."""

STEPS: dict[str, str] = {
    r"T(\d) begins": "_begin",
    r"the coordinator has the request to commit T(\d)": "_commit",
    r"T(\d) expires": "_expire",
    r"T(\d) is merged at (\d)": "_merge",
    r"a later instance begins, with epoch 2": "_init",
}
"""The labels of the coordinator's steps, and the method of `TransactionWalk` that takes each."""

STATES = {
    m.OPEN: product.OPEN,
    m.WAITING: product.WAITING,
    m.COMMITTING: product.COMMITTING,
    m.COMMITTED: product.COMMITTED,
    m.ABORTED: product.ABORTED,
}
TOPIC_ID = 1


class TransactionWalk:
    """The product's side of one walk."""

    def __init__(self, instance: m.Staging, seed: int) -> None:
        self.instance = instance
        self.model = TransactionModel(instance)
        self.journal = JournalSide(TransactionCoordinator, Random(seed))
        self.taken = dict.fromkeys(STEPS, 0)
        self.refused = 0  # what the product was asked though the model does not offer it
        self._after: m.State
        self.producer_ids = {of: self._first(of) for of in dict.fromkeys(row.of for row in instance.transactions)}

    # ---- Product

    def start(self) -> m.State:
        """The model's first state."""
        return self.instance.initial()

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
        """Do as the label says, where it is a step of the coordinator."""
        self._after = after
        for pattern, method in STEPS.items():
            match = re.fullmatch(pattern, label)
            if match is not None:
                getattr(self, method)(*(int(word) for word in match.groups()))
                self.taken[pattern] += 1
        return True

    def compare(self, state: m.State, random: Random) -> None:
        """Assert that the coordinator stands where the model does."""
        found = state.coordinator
        unfinished = []
        for each, modelled in enumerate(found.states):
            view = self.journal.machine.view(self.name(each))
            if modelled == m.NOT_BEGUN or found.forgotten >> each & 1:
                assert view.state == product.UNKNOWN, f"T{each + 1} is {view.state}"
                continue
            assert view.state == STATES[modelled], f"T{each + 1} is {view.state}, not {m.STATES[modelled]}"
            left = found.participants[each] & ~found.merged[each] if modelled == m.COMMITTING else 0
            assert list(view.to_merge) == [participant(at) for at in _members(left)]
            if modelled not in (m.COMMITTED, m.ABORTED):
                unfinished.append(
                    (self._id(self.instance.transactions[each].of), self.instance.transactions[each].number)
                )
        assert sorted((of, each.number) for of, each in self.journal.machine.unfinished()) == sorted(unfinished)
        if random.random() < 0.3:
            self._refuse(state)

    # ---- steps

    def _begin(self, number: int) -> None:
        self._do(begin=transaction_pb2.TransactionBegin(name=self.name(number - 1)))

    def _commit(self, number: int) -> None:
        participants = self._after.coordinator.participants[number - 1]
        self._do(commit=self._request(number - 1, participants))

    def _request(self, transaction: int, participants: int) -> transaction_pb2.TransactionCommit:
        listed = [participant(at) for at in _members(participants)]
        return transaction_pb2.TransactionCommit(name=self.name(transaction), participants=listed)

    def _expire(self, number: int) -> None:
        self._do(expire=transaction_pb2.TransactionExpire(name=self.name(number - 1)))

    def _merge(self, number: int, at: int) -> None:
        self._do(merged=transaction_pb2.TransactionMerged(name=self.name(number - 1), participant=participant(at)))

    def _init(self) -> None:
        self._first(0)

    def _first(self, of: int) -> int:
        """Begin an instance of an id; return its producer id."""
        init = transaction_pb2.TransactionInit(transactional_id=self._id(of), timeout_ms=1_000)
        return int(self._do(init=init).producer_id)

    def _do(self, **action: object) -> transaction_pb2.TransactionResult:
        command = transaction_pb2.TransactionCommand(**action)  # type: ignore[arg-type]
        return transaction_pb2.TransactionResult.FromString(self.journal.apply(command.SerializeToString()))

    def name(self, transaction: int) -> transaction_pb2.TransactionName:
        """Return the name of a transaction."""
        of, epoch, number = self.instance.transactions[transaction]
        return transaction_pb2.TransactionName(
            transactional_id=self._id(of), epoch=epoch, number=number, producer_id=self.producer_ids[of]
        )

    @staticmethod
    def _id(of: int) -> str:
        return f"id-{of}"

    # ---- what the model does not offer

    def _refuse(self, state: m.State) -> None:
        """Late requests: of an earlier instance, of what is decided, of what has not begun."""
        found = state.coordinator
        for each, modelled in enumerate(found.states):
            row = self.instance.transactions[each]
            current = found.epochs[row.of] == row.epoch
            begun = modelled != m.NOT_BEGUN
            commit = self._request(each, found.participants[each] or 1)
            if begun and not current:
                self._must_refuse(lambda c=commit: self._do(commit=c), ProducerFenced)
                self._must_refuse(lambda n=each + 1: self._begin(n), ProducerFenced)
            elif current and (not begun or found.forgotten >> each & 1):
                self._must_refuse(lambda c=commit: self._do(commit=c), TransactionNotFound)
                if begun or not self.model.coordinators._may_begin(state, each):
                    self._must_refuse_begin(state, each)
            elif current and modelled == m.ABORTED:
                self._must_refuse(lambda c=commit: self._do(commit=c), PreconditionFailed)
            elif current and modelled != m.OPEN:
                abort = transaction_pb2.TransactionAbort(name=self.name(each))
                self._must_refuse(lambda a=abort: self._do(abort=a), PreconditionFailed)
                self._do(commit=self._request(each, 0))  # a repeat, which changes nothing
                self._expire(each + 1)  # too late
            if begun and modelled != m.COMMITTING:
                self._merge(each + 1, m.A)  # a report that comes late

    def _must_refuse_begin(self, state: m.State, transaction: int) -> None:
        """A begin that comes late, or before the one before it is decided; a group may allow what its member waits for."""
        if not self.instance.group:
            self._must_refuse(lambda: self._begin(transaction + 1), PreconditionFailed)

    def _must_refuse(self, ask: Callable[[], object], *reasons: type[RangelogError]) -> None:
        try:
            ask()
        except RangelogError as error:
            if not isinstance(error, reasons):
                raise AssertionError(f"refused for another reason: {error!r}") from error
            self.refused += 1
        else:
            raise AssertionError("the product took what the model does not offer")


def participant(at: int) -> transaction_pb2.Participant:
    """Return a shard, or the group."""
    if at == m.GROUP:
        return transaction_pb2.Participant(group="g")
    return transaction_pb2.Participant(topic_id=TOPIC_ID, shard_id=at)


def _members(found: int) -> list[int]:
    return [at for at in range(m.GROUP + 1) if found >> at & 1]
