"""Waits until a range server is drained, or until servers may go down.

What holds: the wait ends when the server has nothing left, when somebody has stopped the drain, or when its time is over; each
error states what is left, what keeps it there, and that the drain goes on where it does.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from pdctl.units import show_count
from rangelog_core.errors import PreconditionFailed, RequestTimeout, Unavailable

if TYPE_CHECKING:
    from rangelog_core.net.pd_client import PdClient
    from rangelog_proto.v1 import operations_pb2

POLL_S = 0.2
POLL_S_MAX = 2.0


def ranges_left(found: operations_pb2.DescribeDrainResponse) -> int:
    """Return how many ranges a server has left."""
    return found.open_count + found.sealed_count + found.copying_count


def is_over(found: operations_pb2.DescribeDrainResponse) -> bool:
    """Whether a server is drained."""
    return found.reported and not ranges_left(found)


async def wait_until_drained(
    pd: PdClient, name: str, timeout_s: float, wait_s: float, show: Callable[[str], None]
) -> operations_pb2.DescribeDrainResponse:
    """Return what a server has left once that is nothing; at once where `wait_s` is 0.

    `show` gets a line whenever it has changed. Raises RequestTimeout, PreconditionFailed (it is not drained any more),
    Unavailable.
    """
    from rangelog_proto.v1 import common_pb2, operations_pb2

    request = operations_pb2.DescribeDrainRequest(server=name, listed_max=1)
    if not wait_s:
        return await pd.call(
            operations_pb2.DescribeDrainRequest(server=name), operations_pb2.DescribeDrainResponse, timeout_s=timeout_s
        )
    start_s, pause_s, total, shown = time.monotonic(), POLL_S, 0, ""
    while True:
        try:
            found = await pd.call(request, operations_pb2.DescribeDrainResponse, timeout_s=timeout_s)
        except Unavailable as error:
            raise Unavailable(f"{error.message}: the drain of {name} goes on: {_what_to_do(name)}") from error
        if is_over(found):
            return found
        if found.server.mode != common_pb2.SERVER_MODE_DRAINING:
            raise PreconditionFailed(f"the drain of {name} was stopped: see `pdctl server show {name}`")
        total = max(total, ranges_left(found))
        line = progress_line(found, total)
        if line != shown:
            show(f"draining {name}: {line}")
            shown, pause_s = line, POLL_S
        waited_s = time.monotonic() - start_s
        if waited_s >= wait_s:
            raise RequestTimeout(f"{name} is not drained after {wait_s:g} s, {line}: it goes on: {_what_to_do(name)}")
        await asyncio.sleep(min(pause_s, max(0.0, wait_s - waited_s)))
        pause_s = min(POLL_S_MAX, pause_s * 2)


async def wait_until_safe(
    pd: PdClient, request: operations_pb2.CheckImpactRequest, timeout_s: float, wait_s: float
) -> operations_pb2.CheckImpactResponse:
    """Return the first answer that the servers may go down, else the last one within `wait_s`.

    A placement driver that does not answer counts as a no, so that a leader's death ends no wait. Raises Unavailable where
    none has answered at the end.
    """
    from rangelog_proto.v1 import operations_pb2

    end_s, pause_s = time.monotonic() + wait_s, POLL_S
    while True:
        left_s = end_s - time.monotonic()
        try:
            found = await pd.call(
                request,
                operations_pb2.CheckImpactResponse,
                timeout_s=min(timeout_s, left_s) if left_s > 0 else timeout_s,
            )
            if found.safe or time.monotonic() >= end_s:
                return found
        except Unavailable:
            if time.monotonic() >= end_s:
                raise
        await asyncio.sleep(min(pause_s, max(0.0, end_s - time.monotonic())))
        pause_s = min(POLL_S_MAX, pause_s * 2)


def progress_line(found: operations_pb2.DescribeDrainResponse, total: int) -> str:
    """12 of 40 ranges left (2 open, 8 being copied); 1 blocked: …"""
    if not found.reported:
        return "waiting for the server's report of what it holds"
    parts = [
        f"{count} {what}"
        for count, what in (
            (found.open_count, "open, until their writers leave them"),
            (found.sealed_count, "waiting"),
            (found.copying_count, "being copied"),
        )
        if count
    ]
    line = f"{ranges_left(found)} of {show_count(total, 'range')} left ({', '.join(parts)})"
    if found.blocked_count:
        first = found.blocked[0]
        line += (
            f"; {found.blocked_count} blocked, such as range {first.range_index} of {first.stream_name}: {first.reason}"
        )
    return line


def _what_to_do(name: str) -> str:
    return f"`pdctl server drain {name} --wait` waits again"
