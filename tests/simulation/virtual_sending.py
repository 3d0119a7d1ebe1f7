"""Clients that send to a topic and read it through the doors of whichever brokers (D1, D2).

A sender has one request at a time; some have a name, and go to several brokers, again and again. What an answer says of a
record is kept as an ack is; a record whose error has no unknown
outcome must be in no log, so it counts as never sent. Records of one key are in order for as long as no outcome was unknown.
A reader goes on from the position of its last answer, at any broker.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import grpc

from rangelog.errors import RangelogError
from rangelog_broker.shards.shard import OwnedShard
from rangelog_broker.shards.submission_window import SubmissionWindow
from rangelog_broker.verbs.read import Reads
from rangelog_broker.verbs.send import Sends
from tests.simulation.virtual_doors import call_door
from tests.simulation.virtual_topic_reading import TopicReading

if TYPE_CHECKING:
    from tests.simulation.virtual_cluster import VirtualCluster
    from tests.simulation.virtual_topics import Topics

KEYS = 12
CORNER_CASES = (
    "a record was acked through a door",
    "a record that was sent again under a name had its place",
    "a submission was repeated",
    "a submission was repeated while it was in flight",
    "a shard began with the submissions of another one",
    "an owner restored submissions",
    "a record of a door has an unknown outcome",
    "a record of a door is in no log",
    "a door's producer had ended, and another one sent",
    "a read through a door waited for a record",
)
RARE = (
    "a record of a door is in no log",
    "a door's producer had ended, and another one sent",
    "a submission was repeated while it was in flight",
    "a shard began with the submissions of another one",
    "an owner restored submissions",
)


@dataclass
class Sent:
    """One record."""

    producer: str
    key: bytes
    number: int
    value: bytes
    acked: tuple[int, int] | None = None
    """(shard, offset)."""
    sent_s: float = 0.0
    event_ms: int = 0


async def send_through_doors(topics: Topics, name: str) -> None:
    """Send requests of a few records, each to any broker."""
    clients, chance, note = topics.clients, topics.clients.chance, topics.clients.cluster.note
    life, numbers = 0, dict.fromkeys(range(KEYS), 0)
    while not clients.stopping:
        await asyncio.sleep(chance.expovariate(1 / 0.05))
        batch: list[Sent] = []
        for _ in range(chance.choice([1, 1, 3, 20])):
            key = chance.randrange(KEYS)
            producer = f"{name}.{life}"  # in its value as well: of another life's records the order is another matter
            value = b"%s %d %d" % (producer.encode(), key, numbers[key])
            one = Sent(producer, b"key-%d" % key, numbers[key], value)
            one.sent_s, one.event_ms = clients.loop.now, topics.watermarks.event_ms()
            numbers[key] += 1
            batch.append(one)
        topics.sent += batch
        given = [(one.value, one.key, one.event_ms) for one in batch]
        if chance.random() < 0.4:
            outcomes = await _send_once(topics, f"{name} {life} {len(topics.sent)}", given)
        else:
            outcomes = await _send(topics, "send", given)
        unknown = False
        for one, (first, second) in zip(batch, outcomes, strict=True):
            if not isinstance(first, str):
                one.acked = (first, second)
                note("a record was acked through a door")
            elif second:
                unknown = True
                note("a record of a door has an unknown outcome")
            else:
                topics.sent.remove(one)
                note("a record of a door is in no log")
        life += unknown


async def _send(topics: Topics, method: str, given: list[Any], timeout_s: float = 8.0, **options: str) -> list[Any]:
    """Send one request to any broker; return for each record its place, or its error and whether its outcome is unknown."""
    clients = topics.clients
    broker = clients.chance.choice(list(topics.brokers))
    try:
        found: list[Any] = await call_door(
            clients.cluster.network, broker, method, f"sim/{topics.name}", *given, timeout_s=timeout_s, **options
        )
        return found
    except RangelogError as error:
        clients.cluster.note(f"send through a door: {type(error).__name__}")
        return [(error.code, error.outcome_unknown)] * len(given)
    except grpc.RpcError:
        return [("UNAVAILABLE", True)] * len(given)


async def _send_once(topics: Topics, name: str, given: list[Any]) -> list[Any]:
    """Send one request under a name to several brokers, some of them at the same time, until all is in, or for a while.

    What one answer says to be in, at a place, others may not contradict: a record is there once.
    """
    clients, chance, note = topics.clients, topics.clients.chance, topics.clients.cluster.note
    known: list[Any] = [("", False)] * len(given)
    for _ in range(chance.choice([1, 3, 6])):
        tries = [_send(topics, "send_once", given, 2.0, name=name) for _ in range(chance.choice([1, 1, 2]))]
        for outcomes in await asyncio.gather(*tries):
            for at, (first, second) in enumerate(outcomes):
                earlier, unknown = known[at]
                if isinstance(earlier, str):
                    known[at] = (first, second or unknown) if isinstance(first, str) else (first, second)
                elif not isinstance(first, str):
                    note("a record that was sent again under a name had its place")
                    if (first, second) != known[at]:
                        clients.cluster.fail(
                            f"{given[at][0]!r} is at {known[at]}, and under its name at {(first, second)}"
                        )
        if not any(isinstance(first, str) for first, _ in known) and chance.random() < 0.5:
            break
        await asyncio.sleep(chance.expovariate(1 / 0.1))
    return known


@dataclass
class DoorReading(TopicReading):
    """The same reader, through doors."""

    async def _live(self) -> None:
        clients, chance = self.clients, self.clients.chance
        brokers = ["b1", "b2", "b3"]
        while True:
            self.read = dict(self._saved_read)
            start, wait_s = self._saved or "earliest", chance.choice([0.0, 0.0, 0.5])
            try:
                position, records = await call_door(
                    clients.cluster.network, chance.choice(brokers), "read", self.topic, start,
                    records_max=chance.choice([1, 7, 1_000]), wait_s=wait_s, timeout_s=40.0,
                )  # fmt: skip
                for place in records:
                    self._saw(*place)
                self._keep(position)
            except RangelogError as error:
                clients.cluster.note(f"read through a door: {type(error).__name__}")
            except grpc.RpcError:
                pass
            await asyncio.sleep(chance.expovariate(1 / 0.2))


def watch_sends(watch: Any, cluster: VirtualCluster) -> None:
    """Count the corner cases that the verbs alone know."""

    async def comes(self: Reads, inner: Any, *arguments: Any) -> bool:
        found: bool = await inner(self, *arguments)
        if found:
            cluster.note("a read through a door waited for a record")
        return found

    def drop(self: Sends, inner: Any, name: str, found: Any = None) -> None:
        if found is not None:
            cluster.note("a door's producer had ended, and another one sent")
        inner(self, name, found)

    def inherit(self: SubmissionWindow, inner: Any, other: SubmissionWindow) -> None:
        if len(other):
            cluster.note("a shard began with the submissions of another one")
        inner(self, other)

    async def restore(self: OwnedShard, inner: Any, first: Any) -> None:
        await inner(self, first)
        if len(self.state.submissions):
            cluster.note("an owner restored submissions")

    watch(SubmissionWindow, "inherit", inherit)
    watch(OwnedShard, "_restore", restore)
    watch(Reads, "_comes", comes)
    watch(Sends, "_drop", drop)
