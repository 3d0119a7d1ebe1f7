"""Lists all groups in order of names, though each journal has only those that hash to it.

What holds: no more is asked for than is taken, but for a page of each journal; each group is listed once.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from collections.abc import AsyncIterator

from rangelog._consume.group_calls import CALL_TIMEOUT_S, GroupCalls
from rangelog_core.net.owner_calls import JOURNALS
from rangelog_proto.v1 import group_service_pb2

PAGE_SIZE = 100
CALLS_AT_ONCE = 8


class _JournalPages:
    """The groups of one journal, a page at a time."""

    def __init__(self, calls: GroupCalls, journal: int, prefix: str, after: str) -> None:
        self._calls, self._journal, self._prefix = calls, journal, prefix
        self._token = after
        self._ended = False
        self.rows: deque[group_service_pb2.GroupSummary] = deque()

    async def fill(self) -> None:
        """Ask for the next page, where none is left of the one before."""
        while not self.rows and not self._ended:
            page = await self._calls.list_groups(self._journal, self._prefix, self._token, CALL_TIMEOUT_S, PAGE_SIZE)
            self.rows.extend(page.groups)
            self._token = page.next_page_token
            self._ended = not self._token


async def groups_by_name(calls: GroupCalls, prefix: str, after: str) -> AsyncIterator[group_service_pb2.GroupSummary]:
    """Yield the groups whose names start with `prefix` and come after the name `after`, in order of names."""
    room = asyncio.Semaphore(CALLS_AT_ONCE)
    pages = [_JournalPages(calls, journal, prefix, after) for journal in range(JOURNALS)]

    async def fill(each: _JournalPages) -> None:
        async with room:
            await each.fill()

    await asyncio.gather(*map(fill, pages))
    heads = [(each.rows[0].group, number) for number, each in enumerate(pages) if each.rows]
    heapq.heapify(heads)
    while heads:
        _, number = heads[0]
        page = pages[number]
        yield page.rows.popleft()
        await page.fill()
        if page.rows:
            heapq.heapreplace(heads, (page.rows[0].group, number))
        else:
            heapq.heappop(heads)
