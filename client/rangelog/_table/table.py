"""One table: reads, conditional changes, scans and watches of its rows."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from rangelog._arguments import checked_arguments
from rangelog._table.partitions import Partition, Partitions
from rangelog._table.scan import scanned
from rangelog._table.values import TableCheck, TableDelete, TablePut, TableRow, checked_row_key
from rangelog._table.watch import TableWatch
from rangelog_core.errors import InvalidArgument, RangelogError, TopicNotFound
from rangelog_core.limits import TABLE_COMMAND_BYTES_MAX, TABLE_KEYS_MAX, TABLE_WRITES_MAX
from rangelog_core.table_keys import key_prefix, prefix_end, split_row_key
from rangelog_proto.v1 import table_pb2
from rangelog_proto.v1 import table_service_pb2 as pb

TIMEOUT_S = 30.0
_T = TypeVar("_T")


@checked_arguments
class Table:
    """The rows of one table. Make it with `client.table(name)`; it needs no closing.

    A key is bytes. A row may belong to a *family*: the rows of one family are in one partition, so that an update changes
    several of them at once. A row without a family is found by its key alone.

    Reads are linearizable: they see every change that was acked before they began. With `stale=True` they cost the cluster
    nothing and see a state that was the newest a moment ago, or longer ago where the owner of the partition just changed.

    Versions rise with each change of a partition. A change has an effect once, also where its call had to be repeated.

    Every method may raise TopicNotFound, TopicKindForbids (it is no table), InvalidArgument, Unavailable, RequestTimeout and
    Overloaded. For changes `outcome_unknown` of an error states whether the change may have been made. Times are in seconds.

    Example:
        ```python
        table = client.table("counts")
        row = await table.get(b"UA")
        if row is None:
            await table.put_if_absent(b"UA", b"1")
        else:
            await table.put_if_version(b"UA", b"2", row.version)  # PreconditionFailed: somebody else was first
        ```
    """

    def __init__(
        self,
        name: str,
        find: Callable[[str], Awaitable[Partitions]],
        explain: Callable[[Partitions, RangelogError], Awaitable[None]],
    ) -> None:
        """`find`: returns a table's partitions. `explain`: raises a better error, where there is one."""
        self.name = name
        self._find = find
        self._explain = explain
        self._found: Partitions | None = None

    # ---- reads

    async def get(
        self, key: bytes, *, family: bytes | None = None, stale: bool = False, timeout_s: float = TIMEOUT_S
    ) -> TableRow | None:
        """Return a row; None: it is not there."""
        wanted = checked_row_key(key, family)
        partitions = await self._partitions()
        partition = partitions.of(key, family)
        lookups = partition.stale if stale else partition.newest
        row = await self._explained(lookups.get(wanted, timeout_s))
        return TableRow(key, row.value, row.version, family) if row.version else None

    async def get_many(
        self,
        keys: Sequence[bytes],
        *,
        family: bytes | None = None,
        stale: bool = False,
        timeout_s: float = TIMEOUT_S,
    ) -> list[TableRow | None]:
        """Return rows in the order of their keys; None: it is not there.

        Up to 1,000 rows of one family, of 2 MiB together, are read at one moment; all others one after the other.
        """
        wanted = [checked_row_key(key, family) for key in keys]
        partitions = await self._partitions()
        places: dict[Partition, list[int]] = {}
        for place, key in enumerate(keys):
            places.setdefault(partitions.of(key, family), []).append(place)
        found: list[TableRow | None] = [None] * len(wanted)

        async def read(partition: Partition, left: list[int]) -> None:
            while left:
                request = pb.GetRowsRequest(keys=[wanted[place] for place in left[:TABLE_KEYS_MAX]], stale=stale)
                rows = (await partition.calls.get(request, timeout_s)).rows
                for place, row in zip(left, rows, strict=False):
                    found[place] = TableRow(keys[place], row.value, row.version, family) if row.version else None
                left = left[len(rows) :]

        await self._explained(_together([read(*each) for each in places.items()]))
        return found

    async def scan(
        self,
        *,
        prefix: bytes = b"",
        start: bytes = b"",
        end: bytes | None = None,
        family: bytes | None = None,
        limit: int | None = None,
        stale: bool = False,
        timeout_s: float = TIMEOUT_S,
    ) -> AsyncIterator[TableRow]:
        """Yield rows in order of keys: those without a family, or those of one.

        A row that is there during the whole scan is returned once; what changes meanwhile may be seen or not. About 1,000
        rows or half a MiB of each partition are read at one moment.

        Args:
            prefix: Only keys that start with it.
            start: Only keys from here on.
            end: Only keys before here; None: no such bound.
            family: The family; None: rows without a family.
            limit: At most so many rows; None: all.
            stale: Read without the proof that a page is the newest state.
            timeout_s: Limit of each page in seconds.
        """
        low, high = _bounds(family, prefix, start, end)
        async for row in self._scan(low, high, family, limit, stale, timeout_s):
            yield row

    async def scan_all(
        self, *, limit: int | None = None, stale: bool = False, timeout_s: float = TIMEOUT_S
    ) -> AsyncIterator[TableRow]:
        """Yield all rows: those without a family first, then family by family. As `scan` in all else."""
        async for row in self._scan(b"", None, None, limit, stale, timeout_s):
            yield row

    async def _scan(
        self, low: bytes, high: bytes | None, family: bytes | None, limit: int | None, stale: bool, timeout_s: float
    ) -> AsyncIterator[TableRow]:
        if limit is not None and limit < 0:
            raise InvalidArgument(f"the limit of a scan cannot be {limit}")
        partitions = await self._partitions()
        chosen = [partitions.of(b"", family)] if family is not None else partitions.all()
        rows = scanned([each.calls for each in chosen], low, high, limit=limit, stale=stale, timeout_s=timeout_s)
        try:
            async for row in rows:
                key, its_family = split_row_key(row.key)
                yield TableRow(key, row.value, row.version, its_family)
        except RangelogError as error:
            await self._better(partitions, error)
            raise

    # ---- changes

    async def put(self, key: bytes, value: bytes, *, family: bytes | None = None, timeout_s: float = TIMEOUT_S) -> int:
        """Set a row, whether it is there or not; return its new version."""
        return await self.update([TablePut(key, value)], family=family, timeout_s=timeout_s)

    async def put_if_absent(
        self, key: bytes, value: bytes, *, family: bytes | None = None, timeout_s: float = TIMEOUT_S
    ) -> int:
        """Set a row that is not there; return its version. Raises PreconditionFailed: it is there."""
        return await self.update([TablePut(key, value, if_absent=True)], family=family, timeout_s=timeout_s)

    async def put_if_version(
        self, key: bytes, value: bytes, version: int, *, family: bytes | None = None, timeout_s: float = TIMEOUT_S
    ) -> int:
        """Set a row that is there in this version; return its new version. Raises PreconditionFailed: it is not."""
        return await self.update([TablePut(key, value, if_version=version)], family=family, timeout_s=timeout_s)

    async def delete(
        self,
        key: bytes,
        *,
        if_version: int | None = None,
        family: bytes | None = None,
        timeout_s: float = TIMEOUT_S,
    ) -> bool:
        """Remove a row; return whether it was there.

        Raises:
            PreconditionFailed: `if_version` is given, and the row is not there in this version.
        """
        return (await self._apply([TableDelete(key, if_version)], family, timeout_s)).changed

    async def update(
        self,
        writes: Sequence[TablePut | TableDelete | TableCheck],
        *,
        family: bytes | None = None,
        timeout_s: float = TIMEOUT_S,
    ) -> int:
        """Make several changes at once, or none: return the version of the rows that were set.

        Args:
            writes: TablePut, TableDelete and TableCheck, each of another key; up to 1,000, of 1 MiB together.
            family: The family of all the keys. Without one an update has one key.
            timeout_s: Limit in seconds.

        Raises:
            PreconditionFailed: A condition does not hold, so nothing was changed.
            StorageFull: The partition is full: remove rows.
            SessionExpired: The client stood still for so long that the outcome is not known any more.

        Example:
            ```python
            await table.update([TablePut(b"a", b"90", if_version=4), TablePut(b"b", b"110", if_version=7)], family=b"accounts")
            ```
        """
        return (await self._apply(writes, family, timeout_s)).version

    # ---- watches

    async def position(self) -> dict[int, int]:
        """Return partition → present version, for a watch of what comes after. For all rows and families."""
        partitions = await self._partitions()
        return await self._position(partitions.all())

    async def watch(
        self,
        *,
        prefix: bytes = b"",
        start: bytes = b"",
        end: bytes | None = None,
        family: bytes | None = None,
        all_families: bool = False,
        since: Mapping[int, int] | None = None,
        timeout_s: float = TIMEOUT_S,
    ) -> TableWatch:
        """Return a watch: an asynchronous iterator of the changes of rows that does not end.

        Of each row the last change is returned; a change that a later one has replaced may be left out. About the last
        100,000 changes of a partition are known: a watch from an older position raises OffsetTrimmed.

        To hold a copy of a table, take its `position`, then scan it, then apply a watch from that position.

        Args:
            prefix: Only keys that start with it.
            start: Only keys from here on.
            end: Only keys before here; None: no such bound.
            family: Only the keys of this family; None: keys without a family.
            all_families: All keys of the table. Then no other choice is given.
            since: Changes after this position: from `position`, or of an earlier watch. None: from now on.
            timeout_s: How long to retry while no owner of a partition answers, in seconds.
        """
        if all_families:
            if prefix or start or end is not None or family is not None:
                raise InvalidArgument("a watch of all families has no bounds")
            low, high = b"", None
        else:
            low, high = _bounds(family, prefix, start, end)
        partitions = await self._partitions()
        chosen = [partitions.of(b"", family)] if family is not None else partitions.all()
        position = since if since is not None else await self._position(chosen)
        explain = partial(self._better, partitions)
        return TableWatch([each.calls for each in chosen], low, high, position, timeout_s, explain)

    # ---- inside

    async def _partitions(self) -> Partitions:
        if self._found is None:
            self._found = await self._find(self.name)
        return self._found

    async def _position(self, partitions: Sequence[Partition]) -> dict[int, int]:
        async def version(partition: Partition) -> tuple[int, int]:
            request = pb.ScanTableRequest(limit=1)
            return partition.calls.partition, (await partition.calls.scan(request, TIMEOUT_S)).version

        return dict(await self._explained(_together([version(each) for each in partitions])))

    async def _apply(
        self, writes: Sequence[TablePut | TableDelete | TableCheck], family: bytes | None, timeout_s: float
    ) -> table_pb2.TableResult:
        if not 1 <= len(writes) <= TABLE_WRITES_MAX:
            raise InvalidArgument(f"an update has 1 to {TABLE_WRITES_MAX} writes, not {len(writes)}")
        for write in writes:
            if not isinstance(write, TablePut | TableDelete | TableCheck):
                raise InvalidArgument(f"an update has TablePut, TableDelete and TableCheck, not {write!r}")
        if len(writes) > 1 and family is None:
            raise InvalidArgument("an update of several keys names their family")
        if len({write.key for write in writes}) < len(writes):
            raise InvalidArgument("an update names a key twice")
        message = table_pb2.TableCommand(writes=[write.message(family) for write in writes])
        if message.ByteSize() > TABLE_COMMAND_BYTES_MAX:
            raise InvalidArgument(f"an update of {message.ByteSize()} bytes; the limit is {TABLE_COMMAND_BYTES_MAX}")
        partition = (await self._partitions()).of(writes[0].key, family)
        return await self._explained(partition.sender.apply(message, timeout_s))

    async def _explained(self, work: Awaitable[_T]) -> _T:
        partitions = await self._partitions()
        try:
            return await work
        except RangelogError as error:
            await self._better(partitions, error)
            raise

    async def _better(self, partitions: Partitions, error: RangelogError) -> None:
        """Raise a better error, where there is one. After the deletion of the table its name may be another's."""
        try:
            await self._explain(partitions, error)
        except TopicNotFound:
            self._found = None
            raise


def _bounds(family: bytes | None, prefix: Any, start: Any, end: Any) -> tuple[bytes, bytes | None]:
    """Return the row keys between which the keys lie. Raises InvalidArgument."""
    for bound in (prefix, start, end, family):
        if bound is not None and not isinstance(bound, bytes):
            raise InvalidArgument(f"keys and their bounds are bytes, not {type(bound).__name__}")
    before = key_prefix(family)
    low = max(before + prefix, before + start)
    behind = prefix_end(before + prefix)
    if end is not None and (behind is None or before + end < behind):
        behind = before + end
    return low, behind


async def _together(work: Sequence[Awaitable[_T]]) -> list[_T]:
    """Await all; the first error cancels the rest."""
    tasks = [asyncio.ensure_future(each) for each in work]
    try:
        return [await task for task in tasks]
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
