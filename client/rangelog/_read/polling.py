"""Hands the records of a reader out in lists, each with a limit of the wait.

What holds: a poll that times out or is cancelled loses nothing: the read goes on, and the next poll has what it brings. One
poll at a time; an error ends the polling, and every later poll raises it again.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Sequence
from contextlib import suppress
from typing import Self

from rangelog._read.deserializing import Deserialize
from rangelog_core.errors import InvalidArgument
from rangelog_core.record import Record

COUNT_MAX = 1_000_000


class Polling:
    """The polls of one reader."""

    def __init__(self, chunks: AsyncGenerator[Sequence[Record], None]) -> None:
        self._chunks = chunks
        self._rest: Sequence[Record] = ()
        self._taken = 0  # of the rest
        self._reading: asyncio.Task[Sequence[Record] | None] | None = None
        self._waits = False
        self.ended = False
        """There are no more records."""

    @property
    def next_offset(self) -> int | None:
        """The offset of the next record that is known; None: it has to be read first."""
        return self._rest[self._taken].offset if self._taken < len(self._rest) else None

    async def poll(self, count_max: int, timeout_s: float) -> Sequence[Record]:
        """Return up to `count_max` records; none if nothing came in time, or there are no more. Raises the reader's errors."""
        if type(count_max) is not int or not 0 < count_max <= COUNT_MAX:
            raise InvalidArgument(f"count_max is a whole number from 1 to {COUNT_MAX:,}, not {count_max!r}")
        if isinstance(timeout_s, bool) or not isinstance(timeout_s, int | float) or not 0 <= timeout_s < float("inf"):
            raise InvalidArgument(f"timeout_s is a number of seconds, not {timeout_s!r}")
        if self._waits:
            raise InvalidArgument("another poll of this reader is waiting: one at a time")
        if self._taken >= len(self._rest) and not self.ended:
            self._waits = True
            try:
                await self._read(timeout_s)
            finally:
                self._waits = False
        found = self._rest[self._taken : self._taken + count_max]
        self._taken += len(found)
        return found

    async def _read(self, timeout_s: float) -> None:
        if self._reading is None:
            self._reading = asyncio.ensure_future(self._next())
        await asyncio.wait((self._reading,), timeout=timeout_s)
        if not self._reading.done():
            return
        chunk = self._reading.result()  # an error stays there, for the next poll
        self._reading = None
        if chunk is None:
            self.ended = True
        else:
            self._rest, self._taken = chunk, 0

    async def _next(self) -> Sequence[Record] | None:
        return await anext(self._chunks, None)

    def take_back(self, count: int) -> None:
        """The next poll returns the last `count` records again."""
        self._taken -= count

    async def close(self) -> None:
        """End; idempotent. Later polls return nothing."""
        self.ended = True
        self._rest, self._taken = (), 0
        reading, self._reading = self._reading, None
        if reading is not None:
            reading.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await reading
        await self._chunks.aclose()


def _made_of(records: Sequence[Record], deserialize: Deserialize) -> tuple[list[Record], Exception | None]:
    """Return what is made of the records before the first one whose function raises, and what it raised."""
    made: list[Record] = []
    for record in records:
        try:
            made.append(deserialize(record))
        except Exception as error:
            return made, error
    return made, None


class Pollable(ABC):
    """A reader that may be polled in place of iterating."""

    _polling: Polling | None = None
    deserialize: Deserialize | None = None
    """What is made of each record, but not of `chunks`."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def poll(self, *, count_max: int = 500, timeout_s: float = 1.0) -> Sequence[Record]:
        """Return the next records, in place of iterating: as soon as there are some, up to `count_max` of them.

        A poll that is cancelled or finds nothing in time loses nothing. Close the reader afterwards, or use `async with`.

        Args:
            count_max: Up to 1,000,000.
            timeout_s: How long to wait for the first record, in seconds; 0: return what is there.

        Returns:
            Records in offset order; none if there was none in time, or if there are no more (`ended`).

        Raises:
            InvalidArgument: An argument is not valid, or another poll of this reader waits.
            RangelogError: The errors of `chunks`.

        Example:
            ```python
            async with client.reader("flights", follow=True) as reader:
                while not reader.ended:
                    handle(await reader.poll(timeout_s=0.5))
            ```
        """
        if self._polling is None:
            self._polling = Polling(self._to_poll())
        records = await self._polling.poll(count_max, timeout_s)
        if not records:
            return records
        if self.deserialize is None:
            self._polled(records)
            return records
        made, failure = _made_of(records, self.deserialize)
        handed_out = records[: len(made) or 1]  # one whose function raises counts, if it is the first
        self._polling.take_back(len(records) - len(handed_out))
        self._polled(handed_out)
        if failure is not None and not made:
            raise failure
        return made

    @property
    def ended(self) -> bool:
        """Whether `poll` has returned all records that this reader will have, or the reader is closed."""
        return self._polling is not None and self._polling.ended

    async def close(self) -> None:
        """End polling; idempotent. An iteration ends by itself."""
        if self._polling is not None:
            await self._polling.close()

    @abstractmethod
    def _to_poll(self) -> AsyncGenerator[Sequence[Record], None]:
        """Return what polls hand out."""

    @abstractmethod
    def _polled(self, records: Sequence[Record]) -> None:
        """Records were handed out by a poll."""
