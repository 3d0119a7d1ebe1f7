"""Compares the records read back from a topic with the flights. Pure: records in, counts out.

What holds: a topic is right if every flight is there once, unaltered, at the place that its ack named, and if of each
carrier the flights of one producer come in the order in which it sent them, over the topic's scales.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Sequence

from rangelog_demo.ack_log import LoggedAck
from rangelog_demo.flights import Flight


class TopicComparison:
    """Feed it every record in the order it was read. Flight i was sent by producer i mod `producers`."""

    def __init__(self, flights: Sequence[Flight], acks: Iterable[LoggedAck], producers: int) -> None:
        self._flights = flights
        self._producers = producers
        self._index_of = {flight.value: index for index, flight in enumerate(flights)}
        self._shards, self._offsets = array("q", [-1]) * len(flights), array("q", [-1]) * len(flights)
        for ack in acks:
            if ack.offset is not None:
                self._shards[ack.flight], self._offsets[ack.flight] = ack.shard, ack.offset
        self._seen = bytearray(len(flights))
        self._last: dict[tuple[bytes, int], int] = {}
        self.read = 0
        self.duplicated = 0
        self.misordered = 0
        self.altered = 0
        self.misplaced = 0
        """Flights whose ack named another place than the one where they are, or that were never acked."""
        self.shard_records: Counter[int] = Counter()

    def add(self, shard_id: int, offset: int, timestamp_ms: int, key: bytes | None, value: bytes) -> None:
        """One record as it was read."""
        self.read += 1
        self.shard_records[shard_id] += 1
        index = self._index_of.get(value)
        if index is None:
            self.altered += 1
            return
        flight = self._flights[index]
        if (flight.timestamp_ms, flight.key) != (timestamp_ms, key):
            self.altered += 1
        if self._seen[index]:
            self.duplicated += 1
            return
        self._seen[index] = 1
        if (self._shards[index], self._offsets[index]) != (shard_id, offset):
            self.misplaced += 1
        sent_by = flight.key, index % self._producers
        if index < self._last.get(sent_by, -1):
            self.misordered += 1
        self._last[sent_by] = max(index, self._last.get(sent_by, -1))

    @property
    def lost(self) -> int:
        """Flights that never came."""
        return len(self._flights) - sum(self._seen)

    @property
    def ok(self) -> bool:
        """Every flight once, unaltered, where it was acked, in order, and nothing else."""
        wrong = self.lost or self.duplicated or self.misordered or self.altered or self.misplaced
        return self.read == len(self._flights) and not wrong
