"""The model of transactions says what the coordinator does: random walks, taken by it and by its journal in step."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from rangelog_broker.journal.owner import Owner
from rangelog_broker.transactions import coordinator
from rangelog_broker.transactions.coordinator import TransactionalId, TransactionCoordinator
from rangelog_proto.v1 import transaction_pb2
from tests.model.case import Case
from tests.model.conformance_transaction import WEIGHTS, TransactionWalk
from tests.model.conformance_walks import OutOfStep, follow, walk
from tests.model.transaction_cases import BOTH, ONE_EACH, TRANSACTION
from tests.model.transaction_state import FIRST, NEXT_INSTANCE, OTHER_ID, SECOND, A, B, Staging, Transaction

WALKS = 60
"""Of each instance. A walk takes some 10 ms; thousands more were taken while this was written."""

THIRD = Transaction(0, 1, 3)
AFTER_RESTART = Transaction(0, 2, 3)
STAGINGS = [
    Staging(BOTH, (FIRST, SECOND), takeovers=(1,)),
    Staging((*BOTH, (0, B, (0,)), (1, B, (1,)), (2, A, (0,))), (FIRST, SECOND, THIRD), takeovers=(1,), scale="join"),
    Staging((*BOTH, (0, B, (0,)), (2, B, (0,))), (FIRST, NEXT_INSTANCE, AFTER_RESTART), takeovers=(1, 1)),
    Staging((*BOTH, (2, A, (0,))), (FIRST, NEXT_INSTANCE, OTHER_ID), scale="split"),
    Staging(ONE_EACH, (FIRST, OTHER_ID), group=True),
]

DECIDED_BY_THE_PRODUCT = ("abort-wins", "commit-after-abort", "forgotten-unmerged", "no-order")
"""Wrong choices that a step of the coordinator would make; the others are about owners and groups."""


def transaction_walk(instance: Staging, seed: int) -> TransactionWalk:
    """Take a random walk through the model of transactions."""
    walked = TransactionWalk(instance, seed)
    walk(walked, seed, WEIGHTS, steps=150)
    return walked


def test_the_coordinator_walks_with_the_transaction_model() -> None:
    """It stands where the model does, over takeovers and snapshots of its journal, and refuses what the model lacks."""
    taken: Counter[str] = Counter()
    for instance in STAGINGS:
        for seed in range(WALKS):
            walked = transaction_walk(instance, seed)
            taken.update(walked.taken)
            taken.update(refused=walked.refused, takeovers=walked.journal.takeovers, snapshots=walked.journal.snapshots)
    assert all(taken.values()), taken
    assert taken["refused"] > 500


@pytest.mark.parametrize(
    "case", [case for case in TRANSACTION if case.name in DECIDED_BY_THE_PRODUCT], ids=lambda case: case.name
)
def test_the_coordinator_does_not_go_the_way_of_a_wrong_choice(case: Case) -> None:
    """Led along the way by which the model found it, the coordinator falls out of step before the end."""
    assert isinstance(case.instance, Staging)
    with pytest.raises(OutOfStep):
        follow(TransactionWalk(case.instance, 0), case.search().path)


def _decide_all(of: TransactionalId) -> None:
    for transaction in of.transactions:
        if transaction.state == coordinator.WAITING:
            transaction.state = coordinator.COMMITTING if transaction.participants else coordinator.COMMITTED


def _abort_whatever(of: TransactionalId, name: transaction_pb2.TransactionName) -> None:
    found = coordinator._find(of, name)
    if found is not None:
        found.state = coordinator.ABORTED


def _begin_and_forget(of: TransactionalId, name: transaction_pb2.TransactionName) -> None:
    of.transactions = [each for each in of.transactions if each.state == coordinator.WAITING]
    _begin(of, name)


def _merged_by_one(
    of: TransactionalId, name: transaction_pb2.TransactionName, participant: transaction_pb2.Participant
) -> None:
    found = coordinator._find(of, name)
    if found is not None and found.state == coordinator.COMMITTING:
        found.state = coordinator.COMMITTED
        coordinator._decide(of)


def _commit_whatever(
    of: TransactionalId, name: transaction_pb2.TransactionName, commit: transaction_pb2.TransactionCommit
) -> None:
    found = coordinator._find(of, name)
    if found is not None and found.state == coordinator.ABORTED:
        found.state = coordinator.OPEN
    _commit(of, name, commit)


def _apply_at_once(self: Owner[Any], entry: Any) -> Any:
    proposed = _append(self, entry)
    if hasattr(entry, "session"):
        self.fold.machine.apply(entry.command, 0)
    return proposed


_begin, _commit, _append = TransactionCoordinator._begin, TransactionCoordinator._commit, Owner._append


@pytest.mark.parametrize(
    ("target", "name", "broken"),
    [
        (coordinator, "_decide", _decide_all),
        (TransactionCoordinator, "_abort_open", staticmethod(_abort_whatever)),
        (TransactionCoordinator, "_begin", staticmethod(_begin_and_forget)),
        (TransactionCoordinator, "_merged", staticmethod(_merged_by_one)),
        (TransactionCoordinator, "_commit", staticmethod(_commit_whatever)),
        (TransactionCoordinator, "_check_epoch", staticmethod(lambda of, name: None)),
        (Owner, "_append", _apply_at_once),
    ],
    ids=[
        "no-order", "abort-wins", "forgotten-unmerged", "merged-by-one", "commit-after-abort", "no-epoch-check",
        "applied-when-proposed",
    ],
)  # fmt: skip
def test_a_coordinator_that_is_changed_falls_out_of_step(
    monkeypatch: pytest.MonkeyPatch, target: Any, name: str, broken: Any
) -> None:
    """Walks are worth something only if a rule that is left out in the product shows."""
    monkeypatch.setattr(target, name, broken)
    with pytest.raises(OutOfStep):
        for seed in range(WALKS):
            for instance in STAGINGS:
                transaction_walk(instance, seed)
