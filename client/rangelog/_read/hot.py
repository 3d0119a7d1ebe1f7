"""Hot reads: whole, checked batches of one range from any of its replicas."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from typing import Any

from rangelog._read.pushed_fetch import PushedFetch
from rangelog.protocol.proof import Told
from rangelog_core.batch import Columns, open_columns
from rangelog_core.checked_batches import CheckedBatch
from rangelog_core.errors import (
    OffsetOutOfRange,
    RangeDropped,
    RangelogError,
    RangeNotFound,
    RightMissing,
    Unavailable,
    UnsupportedVersion,
)
from rangelog_core.ids import ReplicaId
from rangelog_core.net.data_connection import DataConnection, DataConnections, replica_id
from rangelog_core.net.replica_client import ReplicaClient, range_key
from rangelog_proto.v1 import common_pb2

_NOTHING_YET_POLL_MS = 100
"""How often a range without replicas is looked at where no server waits for the first append: those of an earlier version."""


@dataclass(frozen=True, slots=True)
class Fetched:
    """Consecutive checked batches; the first holds the requested offset. `sealed_end_offset`: None if the replica knows none.

    `durable_offset`: the end of the replica's records, readable or not. `no_replica`: nothing was appended to the range so far.
    """

    batches: Sequence[CheckedBatch]
    end_offset: int
    sealed_end_offset: int | None
    durable_offset: int = 0
    no_replica: bool = False

    def open_known(self) -> tuple[list[Columns], int]:
        """Open the batches up to the first of an unknown version; return them and their end offset.

        Raises ProtocolViolation; UnsupportedVersion when the first batch is of an unknown version.
        """
        opened: list[Columns] = []
        for header, data, fields in self.batches:
            try:
                opened.append(open_columns(header, data, fields))
            except UnsupportedVersion:
                if not opened:
                    raise
                return opened, header.base_offset
        return opened, self.end_offset


class HotRange:
    """Reads one range from one of its replicas, and from the next one after a failure."""

    def __init__(self, connections: DataConnections, source: common_pb2.Range, *, turn: int = 0) -> None:
        """`turn`: the number of replicas to skip at first."""
        self.source = source
        self._key = range_key(source)
        self._connections = connections
        alive = common_pb2.SERVER_HEALTH_ALIVE
        ordered = sorted(source.replicas, key=lambda replica: replica.health != alive)
        self._replicas = [(replica_id(each.server, each.incarnation), each.data_address) for each in ordered]
        self._current = turn
        self.problem = ""  # the last error of a replica when all were asked
        self.final: RangelogError | None = None  # that error, if another try would not help: versions, a right
        self._pushed: PushedFetch | None = None

    def next_replica(self) -> None:
        """Continue with the next replica, since the current one is behind."""
        self.close()
        self._current += 1

    def close(self) -> None:
        """End the pushed fetch. Idempotent; a later `fetch` starts a new one."""
        pushed, self._pushed = self._pushed, None
        if pushed is not None:
            pushed.close()

    async def fetch(self, offset: int, *, wait_ms: int, known_end_offset: int, end_offset: int = 0) -> Fetched:
        """Fetch from `offset` on; the result is empty when no record becomes readable within `wait_ms`.

        The fetch is pushed: the replica continues to send, up to `end_offset` if it is not 0. A later call with the same
        arguments, at the offset where this one ended, returns the batches that have arrived meanwhile.

        Raises Unavailable with the last reason when every replica failed, OffsetOutOfRange, UnsupportedVersion.
        """
        last: RangelogError = Unavailable(f"range {self.source.stream_id}/{self.source.index} has no hot replica")
        nothing_yet = False
        for _ in range(len(self._replicas)):
            replica, address = self._replicas[self._current % len(self._replicas)]
            try:
                connection = await self._connections.get(replica, self._connections.addresses.get(replica, address))
                pushed = self._pushed_fetch(connection, offset, (wait_ms, known_end_offset, end_offset))
                answer = await pushed.next()
                checked = answer.batches
                return Fetched(checked.batches, checked.end_offset, answer.sealed_end_offset, answer.durable_offset)
            except OffsetOutOfRange as error:
                last = error  # other replicas may be further
            except RangeNotFound as error:
                last = error
                never_held = not isinstance(error, RangeDropped)
                nothing_yet = never_held and known_end_offset <= offset == self.source.start_offset
            except RangelogError as error:
                last = error
            self.next_replica()
        if nothing_yet:  # the first append creates the replicas: none exists yet
            return Fetched((), offset, None, no_replica=True)
        if isinstance(last, OffsetOutOfRange | UnsupportedVersion | RightMissing):
            raise last
        raise Unavailable(
            f"no replica of range {self.source.stream_id}/{self.source.index} can be read ({last.message}); "
            "see `pdctl server list`"
        ) from last

    async def wait_for_replica(self, wait_ms: int) -> None:
        """After a fetch found no replica: return once a server has one, or after the wait.

        One server waits at a time, the next call's is the next one: one that is behind holds the reader up for one wait.
        """
        loop = asyncio.get_running_loop()
        over_s = loop.time() + wait_ms / 1000
        for _ in self._replicas:
            replica, address = self._replicas[self._current % len(self._replicas)]
            try:
                await (await self._client(replica, address)).wait_for_replica(wait_ms)
                return
            except RangeNotFound:
                self.next_replica()
                break
            except RangelogError:
                self.next_replica()
        await asyncio.sleep(max(0.0, min(over_s - loop.time(), _NOTHING_YET_POLL_MS / 1000)))

    def _pushed_fetch(self, connection: DataConnection, offset: int, wanted: tuple[int, int, int]) -> PushedFetch:
        pushed = self._pushed
        if (
            pushed is None
            or pushed.over
            or (pushed.connection, pushed.position, pushed.wanted) != (connection, offset, wanted)
        ):
            self.close()
            wait_ms, known_end_offset, end_offset = wanted
            pushed = self._pushed = PushedFetch(
                connection,
                self._key,
                offset,
                wait_ms=wait_ms,
                known_end_offset=known_end_offset,
                end_offset=end_offset,
                budget=self._connections.fetches,
            )
        return pushed

    async def ask_all(self) -> list[Told]:
        """Return the offsets of every replica that answers. Raises RangeDropped where the range is no longer open."""
        told = await asyncio.gather(*(self._ask(replica, address) for replica, address in self._replicas))
        return [each for each in told if each is not None]

    def wait_confirmed(self, confirm_offset: int, wait_ms: int) -> list[Coroutine[Any, Any, Told | None]]:
        """Ask every replica to reply once its confirm offset has reached an offset, or after the wait.

        A replica whose confirm offset is lower requests it from the writer, if the writer is connected.
        """
        return [
            self._ask(replica, address, confirm_wanted_offset=confirm_offset, wait_ms=wait_ms)
            for replica, address in self._replicas
        ]

    async def _ask(
        self, replica: ReplicaId, address: str, *, confirm_wanted_offset: int = 0, wait_ms: int = 0
    ) -> Told | None:
        start = self.source.start_offset
        try:
            client = await self._client(replica, address)
            answer = await client.fetch(
                start, bytes_max=0, confirm_wanted_offset=confirm_wanted_offset, wait_ms=wait_ms
            )
        except RangeDropped:
            raise
        except RangeNotFound:  # the first append creates the replica: until then it holds no record
            return Told(replica, start, start)
        except RangelogError as error:
            self.problem = error.message
            if isinstance(error, UnsupportedVersion | RightMissing):
                self.final = error
            return None
        return Told(replica, answer.durable_offset, answer.confirm_offset, answer.sealed_end_offset, answer.doubtful)

    async def lookup_timestamp(self, timestamp_ms: int, known_end_offset: int) -> int | None:
        """Return the offset from which to look for the first record at or after a time; None: it is not below the known end.

        Only a replica that holds all records below the known end can prove that there is none.

        Raises Unavailable when no replica could answer, UnsupportedVersion.
        """
        last: RangelogError = Unavailable("there is no hot replica")
        for replica, address in self._replicas:
            try:
                client = await self._client(replica, address)
                answer = await client.lookup_timestamp(timestamp_ms, known_end_offset)
            except RangelogError as error:
                last = error
                continue
            if answer.offset is not None:
                return answer.offset
            if answer.readable_end_offset >= known_end_offset:
                return None
            last = Unavailable(f"{replica.server} is behind: it has {answer.readable_end_offset} of {known_end_offset}")
        if isinstance(last, UnsupportedVersion | RightMissing):
            raise last
        raise Unavailable(f"no replica of range {self.source.index} can answer: {last.message}") from last

    async def time_span(self, low_ms: int, before_ms: int, end_offset: int) -> tuple[int, int]:
        """Return offsets [start, end) of the range, below an end that is known, outside of which no record has such a time.

        Raises Unavailable when no replica that has all of it answers.
        """
        last: RangelogError = Unavailable("there is no hot replica")
        for replica, address in self._replicas:
            try:
                client = await self._client(replica, address)
                answer = await client.lookup_timestamp(low_ms, end_offset, before_ms=before_ms)
            except RangelogError as error:
                last = error
                continue
            if answer.readable_end_offset >= end_offset:
                start = end_offset if answer.offset is None else max(self.source.start_offset, answer.offset)
                until = end_offset if answer.until_offset is None else answer.until_offset
                return min(start, end_offset), min(until, end_offset)
            last = Unavailable(f"{replica.server} is behind: it has {answer.readable_end_offset} of {end_offset}")
        if isinstance(last, RightMissing):
            raise last
        raise Unavailable(f"no replica of range {self.source.index} can answer: {last.message}") from last

    async def record_bytes(self, offset: int, end_offset: int) -> float | None:
        """Return the bytes of a record as stored, by the batch at an offset below a known end; None: no replica answers."""
        for replica, address in self._replicas:
            try:
                client = await self._client(replica, address)
                answer = await client.fetch(offset, bytes_max=1, known_end_offset=end_offset)
            except RangelogError:
                continue
            if answer.batches.batches:
                header = answer.batches.batches[0].header
                return header.length / header.count
        return None

    async def _client(self, replica: ReplicaId, address: str) -> ReplicaClient:
        address = self._connections.addresses.get(replica, address)
        return ReplicaClient(await self._connections.get(replica, address), self._key)
