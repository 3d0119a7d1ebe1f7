"""The batches of a replica, for the control plane's operators: where one lies, and the checksums of all of them.

What holds: a page is bounded in batches and, where batches are read, in bytes; reads bypass the caches, run on one thread for
all callers and never block the event loop. Damage that such a read finds quarantines the replica, as a scrub does.
"""

from __future__ import annotations

import asyncio
import functools
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from rangelog_core.errors import Corruption, RangelogError
from rangelog_core.limits import MIB, OFFSET_MAX
from rangelog_proto.v1 import range_server_pb2 as pb
from rangelog_server.ranges.hosted_replica import HostedReplica
from rangelog_server.ranges.read_faults import ReadFault
from rangelog_server.ranges.reading import ReadPlan, Wanted, make_plan, read_batches
from rangelog_server.ranges.replica import DiskTrust
from rangelog_server.ranges.report import report_of
from rangelog_server.ranges.store import Store
from rangelog_server.wal.entry import split_lsn

BATCHES_PAGE_MAX = 4_096
READ_PAGE_BYTES = 8 * MIB
"""Bytes of batches that one call reads, or one batch."""
_MOVED_TRIES = 5
"""Times that batches may be moved during a read of them before the call gives up."""


def locate_batch(hosted: HostedReplica, offset: int, *, last: bool) -> pb.LocateBatchResponse:
    """Return the batch that holds an offset, or the last one, and who writes."""
    core = hosted.core
    response = pb.LocateBatchResponse(replica=report_of(hosted))
    writing = hosted.connected_writer()
    if writing is not None:
        response.writer_connected, response.writer = True, writing.client
    number = core.batch_count - 1 if last else core.batch_number(offset)
    if number < 0 or core.trust is DiskTrust.QUARANTINED:
        return response
    base, end = core.batch_span(number)
    if base >= core.durable_offset:
        return response  # accepted and not flushed: nobody may count on it
    sequence, position = split_lsn(hosted.places[number])
    stamps = hosted.max_timestamps_ms  # the highest so far: that of the batch, unless an earlier one is later
    response.batch.CopyFrom(
        pb.BatchPlace(
            base_offset=base,
            count=end - base,
            length_bytes=hosted.lengths[number],
            crc=core.batch_checksum(number),
            timestamp_ms_min=hosted.min_timestamps_ms[number],
            timestamp_ms_max=stamps[number],
            log_file=sequence,
            log_position=position,
        )
    )
    return response


def disk_room(directory: Path) -> tuple[int, int]:
    """Return the free and the total bytes of a directory's file system; zeros where it does not say."""
    try:
        disk = os.statvfs(directory)
    except OSError:
        return 0, 0
    return disk.f_bavail * disk.f_frsize, disk.f_blocks * disk.f_frsize


class BatchLists:
    """Lists the batches of replicas, read from the disk where that is asked for. `close` it."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="verify")

    def close(self) -> None:
        """End the thread; idempotent."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def page(self, request: pb.ListBatchesRequest) -> pb.ListBatchesResponse:
        """Return one page. Raises RangeNotFound, RangeDropped, Corruption (the log was damaged), Unavailable."""
        for _ in range(_MOVED_TRIES - 1):
            response = await self._try(request)
            if response is not None:
                return response
        response = await self._try(request)
        if response is None:
            hosted = self._store.find(request.stream_id, request.range_index)
            response = pb.ListBatchesResponse(
                replica=report_of(hosted),
                problem="its batches are moved all the time",
                problem_offset=request.from_offset,
            )
        return response

    async def _try(self, request: pb.ListBatchesRequest) -> pb.ListBatchesResponse | None:
        """Return one page; None: batches were moved while they were read."""
        hosted = self._store.find(request.stream_id, request.range_index)
        core = hosted.core
        first = core.batch_number(request.from_offset)
        if first < 0:
            return pb.ListBatchesResponse(replica=report_of(hosted))
        last = self._page_end(hosted, first, request)
        sums = [_sum(hosted, number) for number in range(first, last)]
        if not request.read or first == last:
            return pb.ListBatchesResponse(replica=report_of(hosted), batches=sums)
        plan = make_plan(hosted, first, last)
        read_bytes = sum(each.length for each in plan.wanted)
        loop = asyncio.get_running_loop()
        if await self._read(plan.stream_id, plan.range_index, plan.wanted) is None:
            return pb.ListBatchesResponse(replica=report_of(hosted), batches=sums, read_bytes=read_bytes)
        for number, wanted in enumerate(plan.wanted):  # find the batch that fails
            error = await self._read(plan.stream_id, plan.range_index, [wanted])
            if error is None:
                continue
            if self._store.read_failed(
                hosted, error, loop.time(), ReadPlan(plan.stream_id, plan.range_index, [wanted])
            ):
                return None
            return pb.ListBatchesResponse(
                replica=report_of(hosted),
                batches=sums[:number],
                problem=error.message if isinstance(error, Corruption | ReadFault) else f"not read: {error.message}",
                problem_offset=wanted.base_offset,
                read_bytes=sum(each.length for each in plan.wanted[:number]),
            )
        return (
            None
            if hosted.dropped
            else pb.ListBatchesResponse(replica=report_of(hosted), batches=sums, read_bytes=read_bytes)
        )

    async def _read(self, stream_id: int, range_index: int, wanted: list[Wanted]) -> RangelogError | None:
        """Read and check batches on the thread; return what failed."""
        read = functools.partial(
            read_batches, self._store.wal, ReadPlan(stream_id, range_index, wanted), from_disk=True
        )
        try:
            await asyncio.get_running_loop().run_in_executor(self._thread, read)
        except RangelogError as error:
            return error
        return None

    def _page_end(self, hosted: HostedReplica, first: int, request: pb.ListBatchesRequest) -> int:
        core = hosted.core
        size = min(request.page_size or BATCHES_PAGE_MAX, BATCHES_PAGE_MAX)
        last, read_bytes = first, 0
        while last < min(core.batch_count, first + size):
            base, end = core.batch_span(last)
            read_bytes += hosted.lengths[last]
            if base >= (request.end_offset or OFFSET_MAX) or end > core.durable_offset:
                break
            if request.read and read_bytes > READ_PAGE_BYTES and last > first:
                break
            last += 1
        return last


def _sum(hosted: HostedReplica, number: int) -> pb.BatchSum:
    base, end = hosted.core.batch_span(number)
    return pb.BatchSum(
        base_offset=base,
        count=end - base,
        crc=hosted.core.batch_checksum(number),
        length_bytes=hosted.lengths[number],
    )
