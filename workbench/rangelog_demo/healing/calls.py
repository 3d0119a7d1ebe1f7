"""The healing demo's calls of the placement drivers, and the pdctl commands whose output it shows."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from rangelog_core.errors import RangelogError, RequestTimeout
from rangelog_core.net.pages import goes_on
from rangelog_core.net.pd_client import PdClient
from rangelog_proto.v1 import common_pb2, pd_pb2, repair_pb2

CALL_TIMEOUT_S = 10.0
COMMAND_TIMEOUT_S = 90.0
_POLL_S = 0.1

_T = TypeVar("_T")


class HealingCalls:
    """The calls of one cluster. Bound to the running event loop; close it."""

    def __init__(self, pd_addresses: list[str], captured: list[tuple[str, str]]) -> None:
        self._pds = ",".join(pd_addresses)
        self._pd = PdClient(pd_addresses)
        self._captured = captured

    async def close(self) -> None:
        """Close the connections."""
        await self._pd.close()

    async def health(self, server: str) -> common_pb2.ServerHealth:
        """Return the health of a range server."""
        found = await self._pd.call(pd_pb2.ListServersRequest(), pd_pb2.ListServersResponse, timeout_s=CALL_TIMEOUT_S)
        return next(
            (each.health for each in found.servers if each.name == server), common_pb2.SERVER_HEALTH_UNSPECIFIED
        )

    async def alive_count(self) -> int:
        """Return how many range servers are alive."""
        found = await self._pd.call(pd_pb2.ListServersRequest(), pd_pb2.ListServersResponse, timeout_s=CALL_TIMEOUT_S)
        return sum(each.health == common_pb2.SERVER_HEALTH_ALIVE for each in found.servers)

    async def repairs(self) -> repair_pb2.ListRepairsResponse:
        """Return how far the repairs are."""
        request = repair_pb2.ListRepairsRequest(page_size=1)
        return await self._pd.call(request, repair_pb2.ListRepairsResponse, timeout_s=CALL_TIMEOUT_S)

    async def ranges(self, stream: str) -> list[common_pb2.Range]:
        """Return the ranges of a stream."""
        found: list[common_pb2.Range] = []
        while True:
            request = pd_pb2.ListRangesRequest(name=stream, from_index=found[-1].index + 1 if found else 0)
            page = await self._pd.call(request, pd_pb2.ListRangesResponse, timeout_s=CALL_TIMEOUT_S)
            found += page.ranges
            if not goes_on(page.more, page.ranges):
                return found

    async def cluster(self) -> pd_pb2.DescribeClusterResponse:
        """Return the cluster as its leader describes it."""
        return await self._pd.call(
            pd_pb2.DescribeClusterRequest(), pd_pb2.DescribeClusterResponse, timeout_s=CALL_TIMEOUT_S
        )

    async def pdctl(self, *arguments: str) -> tuple[int, str]:
        """Run pdctl as a user would; keep and return what it printed, and its exit code."""
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "pdctl", "--pd", self._pds, *arguments,
            stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        )  # fmt: skip
        try:
            output, _ = await asyncio.wait_for(process.communicate(), COMMAND_TIMEOUT_S)
        except BaseException:
            process.kill()
            await process.wait()
            raise
        text = output.decode()
        self._captured.append((f"pdctl {' '.join(arguments)}", text))
        return process.returncode or 0, text


def is_idle(found: repair_pb2.ListRepairsResponse) -> bool:
    """Whether no range lacks a copy."""
    return not (
        found.waiting_count or found.copying_count or found.blocked_count or found.orphaned_count or found.lost_count
    )


async def wait_for(holds: Callable[[], Awaitable[_T]], timeout_s: float, what: str) -> _T:
    """Wait until the condition gives something true, and return that. Raises RequestTimeout, which says what."""
    deadline_s = time.monotonic() + timeout_s
    while True:
        try:
            found = await holds()
        except RangelogError as error:
            if not error.retriable:
                raise
        else:
            if found:
                return found
        if time.monotonic() > deadline_s:
            raise RequestTimeout(f"{what} within {timeout_s:.0f} s")
        await asyncio.sleep(_POLL_S)
