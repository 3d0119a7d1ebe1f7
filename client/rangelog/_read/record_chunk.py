"""A chunk of consecutive records over the batches that hold them: the object of a record is made when it is accessed.

What holds: every byte is checked when the chunk is made, so no access fails later; a record costs nothing until its access.
"""

from __future__ import annotations

from abc import abstractmethod
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import overload

from rangelog_core.batch import Columns, check_record_headers, clip, iterate_records
from rangelog_core.errors import InternalError
from rangelog_core.record import Record


class Chunk(Sequence[Record]):
    """A sequence of consecutive records that are made one by one; it behaves as a list of them does."""

    __slots__ = ()

    @abstractmethod
    def _one(self, place: int) -> Record:
        """Return the record at a valid index."""

    @overload
    def __getitem__(self, index: int) -> Record: ...

    @overload
    def __getitem__(self, index: slice) -> list[Record]: ...

    def __getitem__(self, index: int | slice) -> Record | list[Record]:
        places = range(len(self))[index]  # refuses the indexes that a list refuses, with its error
        if isinstance(places, range):
            return [self._one(place) for place in places]
        return self._one(places)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Chunk | list) and len(self) == len(other) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]  # as a list

    def __repr__(self) -> str:
        if not len(self):
            return "<no records>"
        return f"<records {self[0].offset} to {self[-1].offset}>"


class RecordChunk(Chunk):
    """Records in offset order without a gap. Iterate over it; indexing is meant for single records."""

    __slots__ = ("_ends", "_parts")

    def __init__(self, batches: Iterable[Columns], start: int, end: int | None) -> None:
        """Make a chunk of the records in [start, end) of opened batches. Raises ProtocolViolation."""
        self._parts: list[tuple[Columns, int, int]] = []
        self._ends: list[int] = []  # the number of records up to the end of each part
        count = 0
        for columns in batches:
            low, high = clip(columns.header, start, end)
            if low < high:
                check_record_headers(columns, low, high)
                count += high - low
                self._parts.append((columns, low, high))
                self._ends.append(count)

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def __iter__(self) -> Iterator[Record]:
        return chain.from_iterable(iterate_records(*part) for part in self._parts)

    def _one(self, place: int) -> Record:
        number = bisect_right(self._ends, place)
        columns, low, high = self._parts[number]
        found = high - (self._ends[number] - place)
        if not low <= found < high:
            raise InternalError(f"record {place} of a chunk is sought at {found}, outside of [{low}, {high})")
        return next(iterate_records(columns, found, found + 1))
