"""Follows the changes of a table's rows, from one partition or from all.

What holds: of each row the last change is returned, and all others may be; those of a partition come in order of versions.
A watch from the position of an earlier one goes on where that ended: each change that it did not return is returned, or has
been replaced by one that is. Two pages for each partition are in memory at most.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import suppress

from rangelog._table.partition_calls import PartitionCalls
from rangelog._table.values import TableChange
from rangelog_core.errors import InvalidArgument, RangelogError
from rangelog_core.table_keys import split_row_key
from rangelog_proto.v1 import table_service_pb2 as pb

WAIT_MS = 2_500
"""Below the time limit of one try at a broker."""


class TableWatch:
    """The changes of a table, as an asynchronous iterator that does not end. Make it with `Table.watch`.

    Iterate one at a time; breaking off and iterating again goes on.

    Example:
        ```python
        watch = table.watch()
        async for change in watch:
            print(change.key, change.value)
            save(watch.position())  # table.watch(since=…) goes on from there
        ```
    """

    def __init__(
        self,
        partitions: Sequence[PartitionCalls],
        start: bytes,
        end: bytes | None,
        since: Mapping[int, int],
        timeout_s: float,
        explain: Callable[[RangelogError], Awaitable[None]],
    ) -> None:
        """`explain`: raises a better error, where there is one."""
        self._explain = explain
        self._partitions = {each.partition: each for each in partitions}
        self._start, self._end = start, end
        self._timeout_s = timeout_s
        self._position = {number: since[number] for number in sorted(self._partitions) if number in since}
        if len(self._position) != len(self._partitions):
            raise InvalidArgument("the position of a watch names a version for each partition that is watched")

    def position(self) -> dict[int, int]:
        """Return partition → version: all changes up to there were returned, or replaced by later ones."""
        return dict(self._position)

    def __aiter__(self) -> AsyncIterator[TableChange]:
        return self.changes()

    async def changes(self) -> AsyncIterator[TableChange]:
        """Yield the changes. Raises OffsetTrimmed (scan the table again), TopicNotFound, Unavailable, RequestTimeout."""
        pages: asyncio.Queue[tuple[int, pb.WatchTableResponse] | RangelogError] = asyncio.Queue(1)
        tasks = [asyncio.create_task(self._follow(number, pages)) for number in self._partitions]
        try:
            while True:
                page = await pages.get()
                if isinstance(page, RangelogError):
                    await self._explain(page)
                    raise page
                number, response = page
                for place, change in enumerate(response.changes):
                    following = response.changes[place + 1] if place + 1 < len(response.changes) else None
                    if following is None:
                        self._position[number] = response.version
                    elif following.version > change.version:
                        self._position[number] = change.version
                    yield _change(number, change)
                self._position[number] = response.version
        finally:
            for task in tasks:
                task.cancel()
            with suppress(asyncio.CancelledError):
                await asyncio.wait(tasks)

    async def _follow(
        self, number: int, pages: asyncio.Queue[tuple[int, pb.WatchTableResponse] | RangelogError]
    ) -> None:
        calls, since = self._partitions[number], self._position[number]
        while True:
            request = pb.WatchTableRequest(
                since_version=since, start=self._start, end=self._end or b"", wait_ms=WAIT_MS
            )
            try:
                response = await calls.watch(request, self._timeout_s)
            except RangelogError as error:
                await pages.put(error)
                return
            if response.version > since:
                since = response.version
                await pages.put((number, response))


def _change(partition: int, change: pb.TableRowChange) -> TableChange:
    key, family = split_row_key(change.key)
    return TableChange(key, change.value if change.HasField("value") else None, change.version, family, partition)
