"""Calls on the partitions of tables whose journals this broker owns.

What holds:
- A command is applied once, however often it comes: it has a number in a session of the partition's journal.
- A read is linearizable unless the caller asks for a stale one. All rows of one response are of one moment.
- What waits is bounded; a request is checked before anything is proposed. A journal that has ended is NotOwner: the caller
  finds the next owner and calls again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, Protocol, TypeVar
from weakref import WeakKeyDictionary

from rangelog_broker.journal.journal import Journal
from rangelog_broker.journal.sessions import Result
from rangelog_broker.tables.machine import (
    Row,
    RowChange,
    TablePartition,
    check_command,
    check_key,
)
from rangelog_core.errors import InvalidArgument, NotOwner, Overloaded, RangelogError
from rangelog_core.limits import (
    MIB,
    TABLE_COMMAND_BYTES_MAX,
    TABLE_COMMANDS_BYTES_MAX,
    TABLE_COMMANDS_MAX,
    TABLE_KEYS_MAX,
    TABLE_PAGE_ROWS_MAX,
)
from rangelog_proto.v1 import table_pb2
from rangelog_proto.v1 import table_service_pb2 as pb
from rangelog_proto.v1.table_service_pb2_grpc import TablesServicer

WAIT_MS_MAX = 3_000
"""Of a watch; below the time limit of one try of a caller."""
CALLS_MAX = 20_000
"""Calls that wait for acks or for changes."""
ACK_TIMEOUT_S = 10.0
ROWS_BYTES_MAX = 2 * MIB
"""Of the rows of one response of Get; it has at least one."""

TableJournal = Journal[TablePartition]
_T = TypeVar("_T")


class TableJournals(Protocol):
    """The journals of the partitions that this broker owns."""

    def find(self, topic_id: int, shard_id: int) -> TableJournal:
        """Return the open journal of a partition. Raises NotOwner."""


class TablesService(TablesServicer):
    """All calls on tables, on a broker's port. Errors are mapped by the server's interceptor."""

    def __init__(self, journals: TableJournals) -> None:
        self._journals = journals
        self._calls = 0
        self._changes: WeakKeyDictionary[TableJournal, _Changed] = WeakKeyDictionary()

    def close(self) -> None:
        """See KindService: calls end with their journals."""

    async def OpenSession(self, request: pb.OpenTableSessionRequest, context: Any) -> pb.OpenTableSessionResponse:
        """Open a session. Raises NotOwner, Overloaded, RequestTimeout."""
        journal = self._journals.find(request.topic_id, request.shard_id)
        with self._call(journal):
            return pb.OpenTableSessionResponse(session=await journal.open_session(timeout_s=ACK_TIMEOUT_S))

    async def Get(self, request: pb.GetRowsRequest, context: Any) -> pb.GetRowsResponse:
        """Return the rows of the first keys, as many as fit. Raises NotOwner, InvalidArgument, Overloaded, RequestTimeout."""
        if not 1 <= len(request.keys) <= TABLE_KEYS_MAX:
            raise InvalidArgument(f"{len(request.keys)} keys; 1 to {TABLE_KEYS_MAX} are allowed")
        keys = list(request.keys)
        for key in keys:
            check_key(key)
        version, rows = await self._read(request, lambda table: (table.version, _rows_of(table, keys)))
        found = [table_pb2.TableRow(value=row.value, version=row.version) if row else _NO_ROW for row in rows]
        return pb.GetRowsResponse(rows=found, version=version)

    async def Apply(self, request: pb.ApplyTableRequest, context: Any) -> pb.ApplyTableResponse:
        """Apply commands, each once; refusals of single ones are in the outcomes.

        Raises NotOwner, InvalidArgument, Overloaded, RequestTimeout: repeat all of them.
        """
        commands = _checked(request)
        journal = self._journals.find(request.topic_id, request.shard_id)
        with self._call(journal):
            results = await journal.propose_all(
                request.session, commands, settled=request.settled, timeout_s=ACK_TIMEOUT_S
            )
        return pb.ApplyTableResponse(outcomes=[_outcome(result) for result in results])

    async def Scan(self, request: pb.ScanTableRequest, context: Any) -> pb.ScanTableResponse:
        """Return a page of rows in order of keys. Raises NotOwner, InvalidArgument, Overloaded, RequestTimeout."""
        start, end, limit = request.start, request.end or None, _limit(request.limit)
        page = await self._read(request, lambda table: table.scan(start, end, limit))
        return pb.ScanTableResponse(
            rows=[table_pb2.TableRow(key=key, value=row.value, version=row.version) for key, row in page.rows],
            next_key=page.next_key or b"",
            version=page.version,
        )

    async def Watch(self, request: pb.WatchTableRequest, context: Any) -> pb.WatchTableResponse:
        """Return changes, or wait for one up to a time. Raises NotOwner, OffsetTrimmed, InvalidArgument, Overloaded.

        What is applied is acked, so a broker that has lost the partition unawares returns only changes that hold.
        """
        start, end, limit = request.start, request.end or None, _limit(request.limit)
        if request.wait_ms > WAIT_MS_MAX:
            raise InvalidArgument(f"a watch waits up to {WAIT_MS_MAX} ms, not {request.wait_ms}")
        journal = self._journals.find(request.topic_id, request.shard_id)
        changed = self._changed(journal)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + request.wait_ms / 1_000
        since = request.since_version
        with self._call(journal):
            while True:
                look = partial(TablePartition.changes_since, version=since, limit=limit, start=start, end=end)
                page = journal.read_stale(look)
                if page.changes or loop.time() >= deadline:
                    return pb.WatchTableResponse(changes=[_change(each) for each in page.changes], version=page.version)
                since = page.version
                if since >= journal.read_stale(lambda table: table.version):
                    with suppress(TimeoutError):
                        async with asyncio.timeout_at(deadline):
                            await changed.wait()

    # ---- inside

    async def _read(self, request: Any, look: Callable[[TablePartition], _T]) -> _T:
        journal = self._journals.find(request.topic_id, request.shard_id)
        with self._call(journal):
            if request.stale:
                return journal.read_stale(look)
            return await journal.read(look, timeout_s=ACK_TIMEOUT_S)

    @contextmanager
    def _call(self, journal: TableJournal) -> Iterator[None]:
        """Count what waits; raise NotOwner for whatever is asked of a journal that has ended."""
        if self._calls >= CALLS_MAX:
            raise Overloaded(f"{CALLS_MAX} calls on tables wait for acks or changes, the limit of a broker")
        self._calls += 1
        try:
            yield
        except RangelogError as error:
            if journal.closed is None:
                raise
            raise NotOwner(f"this broker has lost the partition ({error.message})", outcome_unknown=True) from error
        finally:
            self._calls -= 1

    def _changed(self, journal: TableJournal) -> _Changed:
        found = self._changes.get(journal)
        if found is None:
            found = self._changes[journal] = _Changed()
            journal.on_change = found.note
        return found


class _Changed:
    """Wakes all who wait for the next change of a journal."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def note(self) -> None:
        self._event.set()
        self._event = asyncio.Event()

    async def wait(self) -> None:
        await self._event.wait()


_NO_ROW = table_pb2.TableRow()


def _limit(limit: int) -> int:
    if limit > TABLE_PAGE_ROWS_MAX:
        raise InvalidArgument(f"a page has up to {TABLE_PAGE_ROWS_MAX} rows, not {limit}")
    return limit or TABLE_PAGE_ROWS_MAX


def _rows_of(table: TablePartition, keys: list[bytes]) -> list[Row | None]:
    """Return the rows of the first keys, as many as fit."""
    rows: list[Row | None] = []
    size = 0
    for key in keys:
        row = table.get(key)
        size += len(row.value) if row is not None else 0
        if rows and size > ROWS_BYTES_MAX:
            break
        rows.append(row)
    return rows


def _checked(request: pb.ApplyTableRequest) -> list[tuple[int, bytes]]:
    """Return the commands by number. Raises InvalidArgument for what no state allows."""
    if not 1 <= len(request.commands) <= TABLE_COMMANDS_MAX:
        raise InvalidArgument(f"{len(request.commands)} commands; 1 to {TABLE_COMMANDS_MAX} are allowed")
    commands: list[tuple[int, bytes]] = []
    for each in request.commands:
        if each.sequence < request.settled:
            raise InvalidArgument(f"command {each.sequence} is settled already, as all below {request.settled}")
        check_command(each.command)
        command = each.command.SerializeToString()
        if len(command) > TABLE_COMMAND_BYTES_MAX:
            raise InvalidArgument(f"a command of {len(command)} bytes; the limit is {TABLE_COMMAND_BYTES_MAX}")
        commands.append((each.sequence, command))
    size = sum(len(command) for _, command in commands)
    if size > TABLE_COMMANDS_BYTES_MAX:
        raise InvalidArgument(f"the commands have {size} bytes; the limit is {TABLE_COMMANDS_BYTES_MAX}")
    return commands


def _outcome(result: Result) -> pb.TableOutcome:
    if result.error_code:
        return pb.TableOutcome(error_code=result.error_code, error_message=result.error_message)
    applied = table_pb2.TableResult.FromString(result.value)
    return pb.TableOutcome(version=applied.version, changed=applied.changed)


def _change(change: RowChange) -> pb.TableRowChange:
    value = change.row.value if change.row is not None else None
    return pb.TableRowChange(key=change.key, version=change.version, value=value)
