"""The journals that this broker owns and has open: those of coordinators, and one for each partition of a table."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

from rangelog import Client
from rangelog.errors import NotOwner, PreconditionFailed, RangelogError
from rangelog_broker.hosting.assignments import OwnedKey
from rangelog_broker.journal.joint_machine import JointMachine
from rangelog_broker.journal.journal import Journal
from rangelog_broker.journal.part import JournalPart
from rangelog_broker.kind import MachineKind
from rangelog_broker.kinds import KINDS, coordinator_machine
from rangelog_broker.tables.machine import TablePartition
from rangelog_core.ids import shard_stream_name
from rangelog_core.net.pd_client import PdClient
from rangelog_proto.v1 import topic_pb2

CALL_TIMEOUT_S = 15.0


class Coordinator(NamedTuple):
    """A coordinator journal and its parts, by the numbers of their kinds."""

    journal: Journal[JointMachine]
    parts: Mapping[int, JournalPart[Any]]


class OwnedJournals:
    """For one event loop."""

    def __init__(self, client: Client, topics: PdClient) -> None:
        self._client = client
        self._topics = topics
        self._coordinators: dict[int, Coordinator] = {}
        self.on_coordinator: Callable[[int], object] = lambda number: None
        """Called with the number of a coordinator journal that was opened."""
        self._tables: dict[OwnedKey, Journal[TablePartition]] = {}
        self.broker_version = 0
        """As it was last heard of."""

    def heard_version(self, broker_version: int) -> None:
        """Make the journals follow the broker version: all that are open, and each that is opened."""
        if broker_version <= self.broker_version:
            return
        self.broker_version = broker_version
        for coordinator in self._coordinators.values():
            coordinator.journal.raise_level(broker_version)
        for table in self._tables.values():
            table.raise_level(broker_version)

    @property
    def open_count(self) -> int:
        """Journals that are open here, those of tables among them."""
        return len(self._coordinators) + len(self._tables)

    def coordinator(self, number: int) -> Coordinator:
        """Return a coordinator journal. Raises NotOwner."""
        found = self._coordinators.get(number)
        if found is None or found.journal.closed is not None:
            raise NotOwner(f"coordinator journal {number} is not open at this broker")
        return found

    def table(self, topic_id: int, shard_id: int) -> Journal[TablePartition]:
        """Return the journal of a table's partition. Raises NotOwner."""
        found = self._tables.get((topic_id, shard_id))
        if found is None or found.closed is not None:
            raise NotOwner(f"partition {shard_id} of table {topic_id} is not open at this broker")
        return found

    async def open_coordinator(self, key: OwnedKey) -> Awaitable[None]:
        """Open a coordinator journal; return what waits until it is closed. Raises as Journal.open."""
        request = topic_pb2.EnsureLogRequest(request_id=uuid.uuid4().hex, shard_id=key[1])
        ensured = await self._topics.call(request, topic_pb2.EnsureLogResponse, timeout_s=CALL_TIMEOUT_S)
        journal = await Journal.open(self._client, ensured.stream.name, partial(coordinator_machine, key[1]))
        journal.raise_level(self.broker_version)
        made = Coordinator(journal, {kind.number: JournalPart(journal, kind.number) for kind in KINDS if kind.number})
        self._coordinators[key[1]] = made
        self.on_coordinator(key[1])
        return _until_closed(journal, self._coordinators, key[1], made)

    async def open_table(self, key: OwnedKey) -> Awaitable[None]:
        """Open the journal of a table's partition; return what waits until it is closed. Raises as Journal.open."""
        journal = await Journal.open(self._client, shard_stream_name(*key), TablePartition)
        journal.raise_level(self.broker_version)
        self._tables[key] = journal
        return _until_closed(journal, self._tables, key, journal)


async def _until_closed(journal: Journal[Any], held: dict[Any, Any], key: object, value: object) -> None:
    closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def note_closed(_: RangelogError) -> None:
        if not closed.done():
            closed.set_result(None)

    journal.on_closed = note_closed
    try:
        if journal.closed is None:
            await closed
    finally:
        if held.get(key) is value:
            del held[key]
        await journal.close()


class KindJournals(NamedTuple):
    """See kind.Journals."""

    journals: OwnedJournals
    kind: MachineKind

    def find(self, *key: int) -> Any:
        """See Journals. Raises PreconditionFailed where an earlier broker does not know the kind."""
        if self.journals.broker_version < self.kind.level:
            raise PreconditionFailed(
                f"{self.kind.service} needs broker version {self.kind.level}: upgrade all brokers first"
            )
        if self.kind.number:
            return self.journals.coordinator(*key).parts[self.kind.number]
        return self.journals.table(*key)
