"""A topic of shards on single-writer streams: produce, takeover, scale; every order, delay, loss and repetition of messages.

What a state is and what must hold: topic_state.py; owners and the placement driver: topic_owners.py; producers:
topic_producers.py. The cases: topic_cases.py.
"""

from __future__ import annotations

from collections.abc import Iterator

from tests.model.topic_owners import Owners, Step
from tests.model.topic_producers import Producers
from tests.model.topic_state import State, Topic


class TopicModel:
    """The successors of a state."""

    def __init__(self, instance: Topic) -> None:
        self.owners = Owners(instance)
        self.producers = Producers(instance, self.owners)

    def successors(self, state: State) -> Iterator[Step]:
        """Every step that can be taken from here."""
        yield from self.owners.steps(state)
        yield from self.producers.steps(state)
