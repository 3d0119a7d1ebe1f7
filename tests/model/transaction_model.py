"""Transactions that are staged at side logs, then merged: every order, delay, loss and repetition of messages.

What a state is and what must hold: transaction_state.py; the coordinator and a group's position: transaction_coordinator.py;
owners, with the rules that they follow: transaction_owners.py
and transaction_merges.py. The cases: transaction_cases.py.
"""

from __future__ import annotations

from collections.abc import Iterator

from tests.model.transaction_coordinator import Coordinators, Groups, Step
from tests.model.transaction_owners import Owners
from tests.model.transaction_state import Promises, Staging, State


class TransactionModel:
    """The successors of a state."""

    def __init__(self, instance: Staging) -> None:
        self.promises = Promises(instance)
        self.coordinators = Coordinators(instance, self.promises)
        self.owners = Owners(instance, self.promises, self.coordinators)
        self.coordinators.is_merged = self.owners.merges.is_merged
        self.groups = Groups(instance, self.promises, self.coordinators) if instance.group else None

    def successors(self, state: State) -> Iterator[Step]:
        """Every step that can be taken from here."""
        yield from self.coordinators.steps(state)
        yield from self.owners.steps(state)
        if self.groups is not None:
            yield from self.groups.steps(state)
