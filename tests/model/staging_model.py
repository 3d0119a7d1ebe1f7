"""Transactions as the product stages and merges them: every order, delay, loss and repetition of messages.

What a state is and what must hold: staging_state.py; programs and the coordinator: staging_requests.py; shards and the orders
that they get: staging_shards.py. The cases: staging_cases.py.
"""

from __future__ import annotations

from collections.abc import Iterator

from tests.model.staging_requests import Requests
from tests.model.staging_shards import Shards
from tests.model.staging_state import Program, Promises, State, Step


class StagingModel:
    """The successors of a state."""

    def __init__(self, program: Program) -> None:
        self.promises = Promises(program)
        self.requests = Requests(program, self.promises)
        self.shards = Shards(program, self.promises, self.requests)

    def successors(self, state: State) -> Iterator[Step]:
        """Every step that can be taken from here."""
        yield from self.requests.steps(state)
        yield from self.shards.steps(state)
