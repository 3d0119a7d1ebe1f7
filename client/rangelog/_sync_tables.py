"""The blocking forms of tables, for `rangelog.sync`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from rangelog._loop_thread import LoopThread
from rangelog._metadata import CALL_TIMEOUT_S
from rangelog._table import table as asynchronous
from rangelog._table import watch
from rangelog._table.table import TIMEOUT_S
from rangelog._table.tables import NO_TAGS, PARTITIONS_DEFAULT
from rangelog._table.tables import Tables as AsyncTables
from rangelog._table.values import TableChange, TableCheck, TableDelete, TableInfo, TablePut, TableRow


class Tables:
    """The tables of a cluster: `client.tables`. Arguments, results and errors are those of `rangelog.Tables`."""

    def __init__(self, loop: LoopThread, tables: AsyncTables) -> None:
        self._loop = loop
        self._tables = tables

    def create(
        self,
        name: str,
        *,
        partitions: int = PARTITIONS_DEFAULT,
        replicas: int = 3,
        acks: int | None = None,
        tags: Mapping[str, str] = NO_TAGS,
        timeout_s: float = CALL_TIMEOUT_S,
    ) -> TableInfo:
        """Create a table. Raises TopicExists, NamespaceNotFound, OutcomeUnknown."""
        creating = self._tables.create(
            name, partitions=partitions, replicas=replicas, acks=acks, tags=tags, timeout_s=timeout_s
        )
        return self._loop.run(creating)

    def describe(self, name: str, *, timeout_s: float = CALL_TIMEOUT_S) -> TableInfo:
        """Return a table. Raises TopicNotFound, TopicKindForbids."""
        return self._loop.run(self._tables.describe(name, timeout_s=timeout_s), reads=True)

    def list(self, *, namespace: str = "", prefix: str = "", after: str = "") -> Iterator[TableInfo]:
        """Yield tables by namespace and name."""
        return self._loop.iterate(self._tables.list(namespace=namespace, prefix=prefix, after=after))

    def delete(self, name: str, *, timeout_s: float = CALL_TIMEOUT_S) -> None:
        """Delete a table with all its rows. Raises TopicNotFound, TopicKindForbids, OutcomeUnknown."""
        self._loop.run(self._tables.delete(name, timeout_s=timeout_s))


class TableWatch:
    """The changes of a table, as an iterator that does not end. Make it with `Table.watch`."""

    def __init__(self, loop: LoopThread, changes: watch.TableWatch) -> None:
        self._loop = loop
        self._changes = changes

    def __iter__(self) -> Iterator[TableChange]:
        return self._loop.iterate(self._changes.changes())

    def position(self) -> dict[int, int]:
        """Return partition → version: all changes up to there were returned, or replaced by later ones."""
        return self._changes.position()


class Table:
    """The rows of one table. Arguments, results and errors are those of `rangelog.Table`. Safe to use from several threads."""

    def __init__(self, loop: LoopThread, table: asynchronous.Table) -> None:
        self._loop = loop
        self._table = table

    @property
    def name(self) -> str:
        """The name."""
        return self._table.name

    def get(
        self, key: bytes, *, family: bytes | None = None, stale: bool = False, timeout_s: float = TIMEOUT_S
    ) -> TableRow | None:
        """Return a row; None: it is not there."""
        return self._loop.run(self._table.get(key, family=family, stale=stale, timeout_s=timeout_s), reads=True)

    def get_many(
        self,
        keys: Sequence[bytes],
        *,
        family: bytes | None = None,
        stale: bool = False,
        timeout_s: float = TIMEOUT_S,
    ) -> list[TableRow | None]:
        """Return rows in the order of their keys; None: it is not there."""
        return self._loop.run(self._table.get_many(keys, family=family, stale=stale, timeout_s=timeout_s), reads=True)

    def scan(
        self,
        *,
        prefix: bytes = b"",
        start: bytes = b"",
        end: bytes | None = None,
        family: bytes | None = None,
        limit: int | None = None,
        stale: bool = False,
        timeout_s: float = TIMEOUT_S,
    ) -> Iterator[TableRow]:
        """Yield rows in order of keys: those without a family, or those of one."""
        rows = self._table.scan(
            prefix=prefix, start=start, end=end, family=family, limit=limit, stale=stale, timeout_s=timeout_s
        )
        return self._loop.iterate(rows)

    def scan_all(
        self, *, limit: int | None = None, stale: bool = False, timeout_s: float = TIMEOUT_S
    ) -> Iterator[TableRow]:
        """Yield all rows: those without a family first, then family by family."""
        return self._loop.iterate(self._table.scan_all(limit=limit, stale=stale, timeout_s=timeout_s))

    def put(self, key: bytes, value: bytes, *, family: bytes | None = None, timeout_s: float = TIMEOUT_S) -> int:
        """Set a row, whether it is there or not; return its new version."""
        return self._loop.run(self._table.put(key, value, family=family, timeout_s=timeout_s))

    def put_if_absent(
        self, key: bytes, value: bytes, *, family: bytes | None = None, timeout_s: float = TIMEOUT_S
    ) -> int:
        """Set a row that is not there; return its version. Raises PreconditionFailed."""
        return self._loop.run(self._table.put_if_absent(key, value, family=family, timeout_s=timeout_s))

    def put_if_version(
        self, key: bytes, value: bytes, version: int, *, family: bytes | None = None, timeout_s: float = TIMEOUT_S
    ) -> int:
        """Set a row that is there in this version; return its new version. Raises PreconditionFailed."""
        return self._loop.run(self._table.put_if_version(key, value, version, family=family, timeout_s=timeout_s))

    def delete(
        self,
        key: bytes,
        *,
        if_version: int | None = None,
        family: bytes | None = None,
        timeout_s: float = TIMEOUT_S,
    ) -> bool:
        """Remove a row; return whether it was there. Raises PreconditionFailed."""
        return self._loop.run(self._table.delete(key, if_version=if_version, family=family, timeout_s=timeout_s))

    def update(
        self,
        writes: Sequence[TablePut | TableDelete | TableCheck],
        *,
        family: bytes | None = None,
        timeout_s: float = TIMEOUT_S,
    ) -> int:
        """Make several changes at once, or none. Raises PreconditionFailed, StorageFull, SessionExpired."""
        return self._loop.run(self._table.update(writes, family=family, timeout_s=timeout_s))

    def position(self) -> dict[int, int]:
        """Return partition → present version, for a watch of what comes after."""
        return self._loop.run(self._table.position(), reads=True)

    def watch(
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
        """Return a watch: an iterator of the changes of rows that does not end."""
        watching = self._table.watch(
            prefix=prefix,
            start=start,
            end=end,
            family=family,
            all_families=all_families,
            since=since,
            timeout_s=timeout_s,
        )
        return TableWatch(self._loop, self._loop.run(watching, reads=True))
