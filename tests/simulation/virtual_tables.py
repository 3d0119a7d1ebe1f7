"""A table's partition under faults: brokers that take it from each other, clients in doubt, readers, followers (T7).

The client's code is the production code from the numbers of commands up; what carries its calls is the network of
virtual_journals. What everybody saw is judged at the end: linearizable per key, updates whole, and the copy of a follower.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rangelog._table.partitions import Partition
from rangelog_broker.journal.journal import Journal
from rangelog_broker.tables.machine import TablePartition
from rangelog_broker.tables.service import TablesService
from rangelog_core.errors import PreconditionFailed, RangelogError, RequestTimeout
from rangelog_core.net.owner_calls import OwnedKey
from rangelog_proto.v1 import table_pb2
from rangelog_proto.v1 import table_service_pb2 as pb
from tests.simulation import virtual_streams
from tests.simulation.virtual_journals import JournalLife, Journals
from tests.support.table_history import CONFLICT, UNKNOWN, Operation, check_table

if TYPE_CHECKING:
    from tests.simulation.virtual_clients import Clients

KEYS = [b"a", b"b"]
PAIR = [b"p", b"q"]
KINDS = ["put", "absent", "version", "version", "delete", "pair"]
CHANGERS, READERS = 2, 2
TASKS, STEPS = 2, 60
TIMEOUT_S = 20.0
PADDING = b"|" + b"." * 2_000
"""So that ranges are full soon, and the stream can be trimmed."""


class _Names:
    """Stands for a stub: a method of it is its name."""

    def __getattr__(self, name: str) -> str:
        return name


class _Host:
    """The journals of a broker that has one."""

    def __init__(self, journal: Journal[TablePartition]) -> None:
        self._journal = journal

    def find(self, topic_id: int, shard_id: int) -> Journal[TablePartition]:
        return self._journal


@dataclass
class VirtualTable(Journals):
    """One partition, its brokers and clients."""

    make_machine: Callable[[], Any] = TablePartition
    history: list[Operation] = field(default_factory=list)
    open_operations: dict[int, Operation] = field(default_factory=dict)
    """By start: operations without a result so far."""
    copy: dict[bytes, tuple[bytes, int]] = field(default_factory=dict)
    copy_version: int = 0
    known_version: int = 0
    """Of the partition: a read that begins now sees all changes up to it."""
    _clock: Any = field(default_factory=lambda: itertools.count(1))
    _services: dict[Journal[Any], TablesService] = field(default_factory=dict)

    # ---- calls, as OwnerCalls makes them

    async def call(
        self,
        key: OwnedKey,
        stub_type: type[Any],
        method: Callable[[Any], Any],
        request: Any,
        *,
        timeout_s: float,
        repeatable: bool,
    ) -> Any:
        """Call the owner until it answers, or the time is over."""
        deadline = self.clients.loop.time() + timeout_s
        kind = type(request)
        while self.clients.loop.time() < deadline and not self.clients.stopping:
            name = method(_Names())
            data = request.SerializeToString()

            def serve(journal: Journal[Any], name: str = name, data: bytes = data) -> Awaitable[Any]:
                service = self._services.setdefault(journal, TablesService(_Host(journal)))
                return getattr(service, name)(kind.FromString(data), None)  # type: ignore[no-any-return]

            try:
                response = await self._call(serve, former=0.5 if name == "Get" else 0.08)
            except RangelogError as error:
                if not error.retriable:
                    raise
                await asyncio.sleep(self.clients.chance.uniform(0.0, 0.1))
            else:
                return type(response).FromString(response.SerializeToString())
        raise RequestTimeout("no owner answered in time", outcome_unknown=False)

    # ---- clients

    async def change(self) -> None:
        """Change rows, with and without conditions, several at once."""
        partition = Partition(self, 1, 0)
        seen: dict[bytes, int] = {}

        async def steps() -> None:
            for _ in range(STEPS):
                if self.clients.stopping:
                    return
                await self._change_one(partition, seen)
                await asyncio.sleep(self.clients.chance.expovariate(1 / 0.05))

        await asyncio.gather(*(steps() for _ in range(TASKS)))
        await partition.close()

    async def _change_one(self, partition: Partition, seen: dict[bytes, int]) -> None:
        chance = self.clients.chance
        kind, key, start = chance.choice(KINDS), chance.choice(KEYS), next(self._clock)
        value = b"%d" % start
        if kind == "pair":
            writes = [table_pb2.TableWrite(key=each, value=value + PADDING) for each in PAIR]
            with contextlib.suppress(RangelogError):
                applied = await partition.sender.apply(table_pb2.TableCommand(writes=writes), TIMEOUT_S)
                self.known_version = max(self.known_version, applied.version)
            return
        condition: dict[str, Any] = {}
        write = table_pb2.TableWrite(key=key)
        if kind == "delete":
            write.remove = True
        else:
            write.value = value + PADDING
        if kind == "absent":
            write.condition.absent, condition = True, {"if_absent": True}
        elif kind == "version" and key in seen:
            write.condition.version, condition = seen[key], {"if_version": seen[key]}
        name = "delete" if kind == "delete" else "put"
        self.open_operations[start] = Operation(start, 0, name, key, UNKNOWN, value, **condition)
        result: object = UNKNOWN
        try:
            applied = await partition.sender.apply(table_pb2.TableCommand(writes=[write]), TIMEOUT_S)
        except PreconditionFailed:
            self.clients.cluster.note("a conditional change conflicted")
            result = CONFLICT
        except RangelogError as error:
            if not error.outcome_unknown:
                del self.open_operations[start]
                return
            self.clients.cluster.note("a change of a row has an unknown outcome")
        else:
            self.known_version = max(self.known_version, applied.version)
            result = applied.changed if name == "delete" else applied.version
            if name == "put":
                seen[key] = applied.version
        del self.open_operations[start]
        self.history.append(Operation(start, next(self._clock), name, key, result, value, **condition))

    async def look(self) -> None:
        """Read one row, or the two that are always changed together."""
        partition = Partition(self, 1, 0)
        chance = self.clients.chance
        for _ in range(TASKS * STEPS):
            if self.clients.stopping:
                break
            start, key, known = next(self._clock), chance.choice(KEYS), self.known_version
            with contextlib.suppress(RangelogError):
                if chance.random() < 0.6:
                    response = await partition.calls.get(pb.GetRowsRequest(keys=PAIR), TIMEOUT_S)
                    if response.version < known:
                        self.clients.cluster.fail(
                            f"a read saw version {response.version}, and {known} was known before"
                        )
                    self.known_version = max(self.known_version, response.version)
                    one, other = response.rows
                    if (one.value, one.version) != (other.value, other.version):
                        self.clients.cluster.fail(f"half an update was read: versions {one.version}, {other.version}")
                else:
                    row = await partition.newest.get(key, TIMEOUT_S)
                    result = (_unpadded(row.value), row.version) if row.version else None
                    self.history.append(Operation(start, next(self._clock), "get", key, result))
            await asyncio.sleep(chance.expovariate(1 / 0.05))
        await partition.close()

    async def follow(self) -> None:
        """Keep a copy of all rows by their changes."""
        partition = Partition(self, 1, 0)
        while not self.clients.stopping:
            request = pb.WatchTableRequest(since_version=self.copy_version, wait_ms=1_000, limit=2)
            with contextlib.suppress(RangelogError):
                response = await partition.calls.watch(request, TIMEOUT_S)
                for change in response.changes:
                    self.copy.pop(change.key, None)
                    if change.HasField("value"):
                        self.copy[change.key] = change.value, change.version
                    self.clients.cluster.note("a watch of a table was followed")
                self.copy_version = max(self.copy_version, response.version)
            if self.clients.chance.random() < 0.3:
                await asyncio.sleep(self.clients.chance.uniform(0.0, 1.0))
        await partition.close()

    # ---- the end

    async def _judge(self) -> None:
        journal = await self._final()
        machine: TablePartition = journal.machine
        rows = dict(machine.scan(b"", None, 1_000).rows)
        start = next(self._clock)
        for key in KEYS:
            row = rows.get(key)
            result = (_unpadded(row.value), row.version) if row is not None else None
            self.history.append(Operation(start, next(self._clock), "get", key, result))
        try:
            check_table([*self.history, *self.open_operations.values()])
        except AssertionError as error:
            self.clients.cluster.fail(f"a table: {error}")
        if self.copy_version > machine.version:
            self.clients.cluster.fail(f"a watch has version {self.copy_version}, the table {machine.version}")
        for change in machine.changes_since(self.copy_version, 10_000).changes:
            self.copy.pop(change.key, None)
            if change.row is not None:
                self.copy[change.key] = change.row.value, change.row.version
        if self.copy != {key: (row.value, row.version) for key, row in rows.items()}:
            self.clients.cluster.fail("the copy of a follower is not the table")
        self.clients.cluster.trace(f"table {machine.version} {len(self.history)}")
        await journal.close()


def _unpadded(value: bytes) -> bytes:
    return value.split(b"|")[0]


async def keep(clients: Clients, name: str) -> None:
    """Make a partition, its brokers and its clients."""
    made = await virtual_streams.create(clients, name)
    life = clients.cluster.lives[made.stream_id] = JournalLife(made.name, made.label, made.stream_id)
    table = VirtualTable(clients, life)
    for number in range(CHANGERS):
        clients.start(f"tc-{life.label}-{number}", table.change())
    for number in range(READERS):
        clients.start(f"tr-{life.label}-{number}", table.look())
    clients.start(f"tf-{life.label}", table.follow())
    await table.supervise()
