"""Compares the records that were read back with the expected ones. Pure: records in, counts out."""

from __future__ import annotations

from collections.abc import Sequence

from rangelog_demo.flights import Flight


class Comparison:
    """Feed it every record in the order it was read; flight i belongs at offset i."""

    def __init__(self, flights: Sequence[Flight]) -> None:
        self._flights = flights
        self._index_of = {flight.value: index for index, flight in enumerate(flights)}
        self._seen = bytearray(len(flights))
        self.read = 0
        self.duplicated = 0
        self.misordered = 0
        self.altered = 0

    def add(self, offset: int, timestamp_ms: int, key: bytes | None, value: bytes) -> None:
        """One record as it was read."""
        position = self.read
        self.read += 1
        index = self._index_of.get(value)
        if index is None:
            self.altered += 1
            return
        flight = self._flights[index]
        if (flight.timestamp_ms, flight.key) != (timestamp_ms, key):
            self.altered += 1
        if self._seen[index]:
            self.duplicated += 1
        elif offset != index or position != index:
            self.misordered += 1
        self._seen[index] = 1

    @property
    def lost(self) -> int:
        """Flights that never came."""
        return len(self._flights) - sum(self._seen)

    @property
    def ok(self) -> bool:
        """Every flight once, unaltered, at its offset, in order, and nothing else."""
        return self.read == len(self._flights) and not (self.lost or self.duplicated or self.misordered or self.altered)
