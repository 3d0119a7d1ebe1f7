"""Reads rows in order of keys, from one partition or from all.

What holds: each page of a partition is of one moment; later pages are of later moments. A row that is there during the whole
scan is returned once, as it was at some moment of the scan.
"""

from __future__ import annotations

import heapq
from collections.abc import AsyncIterator, Sequence

from rangelog._table.partition_calls import PartitionCalls
from rangelog_proto.v1 import table_pb2
from rangelog_proto.v1 import table_service_pb2 as pb

PAGE_ROWS = 1_000


class _Cursor:
    """The place of a scan in one partition."""

    def __init__(self, calls: PartitionCalls, start: bytes, end: bytes | None, page_rows: int, stale: bool) -> None:
        self._calls = calls
        self._request = pb.ScanTableRequest(start=start, end=end or b"", limit=page_rows, stale=stale)
        self._rows: Sequence[table_pb2.TableRow] = ()
        self._next = 0
        self._is_last = False

    async def row(self, timeout_s: float) -> table_pb2.TableRow | None:
        """Return the next row; None: there is none."""
        while self._next == len(self._rows):
            if self._is_last:
                return None
            page = await self._calls.scan(self._request, timeout_s)
            self._rows, self._next = page.rows, 0
            self._request.start = page.next_key
            self._is_last = not page.next_key
        self._next += 1
        return self._rows[self._next - 1]


async def scanned(
    partitions: Sequence[PartitionCalls],
    start: bytes,
    end: bytes | None,
    *,
    limit: int | None,
    stale: bool,
    timeout_s: float,
) -> AsyncIterator[table_pb2.TableRow]:
    """Yield the rows from `start` on, before `end`, in order of keys. `timeout_s`: of each page."""
    page_rows = PAGE_ROWS if limit is None else min(limit, PAGE_ROWS)
    if not page_rows:
        return
    cursors = [_Cursor(each, start, end, page_rows, stale) for each in partitions]
    heap: list[tuple[bytes, int, table_pb2.TableRow]] = []
    for number, cursor in enumerate(cursors):
        row = await cursor.row(timeout_s)
        if row is not None:
            heap.append((row.key, number, row))
    heapq.heapify(heap)
    count = 0
    while heap:
        _, number, row = heap[0]
        yield row
        count += 1
        if count == limit:
            return
        following = await cursors[number].row(timeout_s)
        if following is None:
            heapq.heappop(heap)
        else:
            heapq.heapreplace(heap, (following.key, number, following))
