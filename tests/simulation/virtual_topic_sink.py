"""Spark's sink into a topic, beside producers and programs: each micro-batch is a transaction that happens once (T5).

The topic's judge looks at its records as at those of any transactional program.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from rangelog import Client
from rangelog._sink.committer import SinkCommitter
from rangelog._sink.decision import ControlLog, Decision
from rangelog._sink.target import Note
from rangelog._sink.topic_target import TopicTarget
from tests.simulation.virtual_sink import DyingCommitter, Mortality, Query, Row, note_copied
from tests.simulation.virtual_transactions import KEYS, Noted, Transactions

if TYPE_CHECKING:
    from tests.simulation.virtual_clients import Clients


EVERY, _AT = 5, 4


def has_sink(seed: int) -> bool:
    """Whether a seed that has a topic has a sink into it. Not drawn: that would change all other seeds."""
    return seed // 24 % EVERY == _AT


class _Target(TopicTarget):
    """Counts what it finds, and dies before a transaction and after it."""

    mortality: Mortality

    async def copied(self, decided: Decision, log: ControlLog) -> int:
        copied = await super().copied(decided, log)
        note_copied(self.mortality.clients, decided, copied)
        return copied

    async def append(self, copied: int, batches: AsyncIterator[bytes], note: Note) -> None:
        async def dying(key: bytes, value: bytes) -> None:
            await note(key, value)
            await self.mortality.may_die()

        await super().append(copied, batches, dying)
        await self.mortality.may_die()


class ToTopic(Query):
    """A query whose micro-batches have a record for some keys each."""

    driver_s = 6.0

    def __init__(self, clients: Clients, transactions: Transactions, topic_id: int) -> None:
        super().__init__(clients, "sink")
        self._transactions = transactions
        self._topic_id = topic_id
        self._noted: list[Noted] = []

    def committer(self, client: Client) -> SinkCommitter:
        """See Query."""
        target = _Target(client, self._transactions.topic, self._topic_id, "of-sink-control")
        made = DyingCommitter(client, "of-sink-control", target)
        made.mortality = target.mortality = Mortality(self.clients)
        return made

    def make_groups(self, number: int) -> list[list[Row]]:
        """See Query."""
        noted = Noted("of-sink-control")
        self._noted.append(noted)
        self._transactions.noted.append(noted)
        for each in range(self._chance.randrange(1, KEYS + 1)):
            key = b"x-%d" % each
            noted.records.append((key, b"sink %s %d" % (key, number)))
        return [[record] for record in noted.records]

    def committed(self, number: int, committer: SinkCommitter, *, appended: bool) -> None:
        """See Query."""
        self._noted[number].outcome = True
