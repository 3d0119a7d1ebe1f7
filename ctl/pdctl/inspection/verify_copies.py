"""Asks each copy of a range for the checksums of its batches, and compares. compare_sums.py judges.

What holds: each replica is asked itself; a shallow question is answered from the headers that its server keeps, a deep one
after the server has read each batch from its disk. Copies with other batch borders are fetched and compared record by record.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from pdctl.inspection.calls import Servers
from pdctl.inspection.compare_sums import (
    BEHIND,
    DIFFERS,
    MISSING,
    UNREACHABLE,
    Sum,
    SumComparison,
    Verdict,
)
from pdctl.inspection.pace import ReadPace
from rangelog_core.batch import decode_records
from rangelog_core.errors import Corruption, ProtocolViolation, RangeDropped, RangelogError, RangeNotFound
from rangelog_core.limits import MIB
from rangelog_proto.v1 import common_pb2, pd_pb2, range_server_pb2

if TYPE_CHECKING:
    from rangelog import Client
    from rangelog_core.record import Record

PAGE_SIZE = 2_048
SUM_BYTES = 32
FETCH_BYTES = 4 * MIB
PAGE_TIMEOUT_S = 30.0
"""A page of a deep verification is read from a disk that others use."""


class CopyVerifier:
    """Verifies the copies of ranges, one range after the other."""

    def __init__(self, client: Client, servers: Servers, pace: ReadPace, *, deep: bool) -> None:
        self._client = client
        self._servers = servers
        self._pace = pace
        self._deep = deep

    async def verify(self, of: common_pb2.Range, start: int, end: int) -> dict[str, Verdict]:
        """Return what was found of each member's copy of [start, end)."""
        replicas = {each.server: each for each in of.replicas}
        comparison = SumComparison(list(replicas), start, end)
        while wanted := comparison.wanted():
            for name, position in wanted:
                await self._page(comparison, of, replicas[name], position, end)
        verdicts = comparison.verdicts()
        for name, right, offset in comparison.by_records:
            verdicts[name] = await self._by_records(of, replicas[name], replicas[right], offset, end)
        return verdicts

    async def _page(
        self, comparison: SumComparison, of: common_pb2.Range, replica: common_pb2.Replica, position: int, end: int
    ) -> None:
        name = replica.server
        request = range_server_pb2.ListBatchesRequest(
            stream_id=of.stream_id,
            range_index=of.index,
            from_offset=position,
            end_offset=end,
            page_size=PAGE_SIZE,
            read=self._deep,
        )
        told = await self._servers.ask(
            name, replica.incarnation, lambda peer: peer.list_batches(request, timeout_s=PAGE_TIMEOUT_S)
        )
        if isinstance(told, RangelogError):
            comparison.fail(name, *_failed(told, position))
            return
        await self._pace.spend(told.read_bytes or SUM_BYTES * len(told.batches))
        if told.problem:  # before the state: the read that found the damage has changed it
            if told.batches:
                comparison.page(name, _sums(told))
            comparison.fail(name, DIFFERS, told.problem_offset, told.problem)
            return
        problem = _state_problem(of, told.replica)
        if problem is not None:
            comparison.fail(name, *problem)
        elif of.state == common_pb2.RANGE_STATE_OPEN and not told.batches:
            comparison.fail(name, BEHIND, position, f"it holds nothing from {position} on yet")
        else:
            comparison.page(name, _sums(told))

    async def _by_records(
        self, of: common_pb2.Range, replica: common_pb2.Replica, right: common_pb2.Replica, offset: int, end: int
    ) -> Verdict:
        """Compare two copies record by record. Equal records in other batches are the same records."""
        ours = self._records(of, replica, offset, end)
        theirs = self._records(of, right, offset, end)
        position = offset
        try:
            async for record in theirs:
                other = await anext(ours, None)
                if other is None:
                    return Verdict(MISSING, position, f"it holds no record {position}")
                if record != other:
                    return Verdict(DIFFERS, position, f"another record than on {right.server}")
                position += 1
        except RangelogError as error:
            return Verdict(*_failed(error, position))
        return Verdict(why=f"other batches than on {right.server} from {offset} on, with the same records")

    async def _records(
        self, of: common_pb2.Range, replica: common_pb2.Replica, start: int, end: int
    ) -> AsyncIterator[Record]:
        position = start
        while position < end:
            batches = await self.fetch(of, replica, position, end)
            for data in batches:
                for record in decode_records(data, position, end):
                    position = record.offset + 1
                    yield record

    async def fetch(self, of: common_pb2.Range, replica: common_pb2.Replica, position: int, end: int) -> list[bytes]:
        """Return checked batches of a copy from the one with `position` on. Raises RangelogError."""
        from rangelog_core.net.data_connection import replica_id
        from rangelog_core.net.replica_client import ReplicaClient, range_key

        identity = replica_id(replica.server, replica.incarnation)
        connection = await self._client.connections.get(identity, replica.data_address)
        answer = await ReplicaClient(connection, range_key(of)).fetch(
            position, bytes_max=FETCH_BYTES, known_end_offset=end if of.state == common_pb2.RANGE_STATE_SEALED else 0
        )
        batches = [each.data for each in answer.batches.before(end)]
        if not batches:
            raise RangeNotFound(f"{replica.server} holds no record {position}")
        await self._pace.spend(sum(len(each) for each in batches))
        return batches


def _sums(told: range_server_pb2.ListBatchesResponse) -> list[Sum]:
    return [Sum(each.base_offset, each.base_offset + each.count, each.crc) for each in told.batches]


def _failed(error: RangelogError, position: int) -> tuple[str, int | None, str]:
    if isinstance(error, RangeNotFound | RangeDropped):
        return MISSING, position, error.message
    if isinstance(error, Corruption | ProtocolViolation):
        return DIFFERS, position, error.message
    return UNREACHABLE, None, error.message


def _state_problem(of: common_pb2.Range, report: pd_pb2.ReplicaReport) -> tuple[str, int | None, str] | None:
    """Return what a copy's own state says against it."""
    if report.state == pd_pb2.REPLICA_STATE_QUARANTINED:
        return DIFFERS, of.start_offset, f"it is damaged: {report.problem}"
    if report.start_offset != of.start_offset:
        return DIFFERS, of.start_offset, f"it starts at {report.start_offset}, not {of.start_offset}"
    if of.state != common_pb2.RANGE_STATE_SEALED:
        return None
    if report.state == pd_pb2.REPLICA_STATE_SEALED and report.durable_offset != of.end_offset:
        offset = min(report.durable_offset, of.end_offset)
        return DIFFERS, offset, f"it is sealed at {report.durable_offset}, not {of.end_offset}"
    return None
