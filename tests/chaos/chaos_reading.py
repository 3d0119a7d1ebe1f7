"""The end of a run: writers flush, streams are sealed and tiered, and everything is read back twice, hot and tiered first."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import chaos_history as history
from chaos_cluster import System
from chaos_history import Identity

import rangelog
from rangelog_proto.v1 import pd_pb2

FLUSHED_WITHIN_S = 30.0
TIERED_WITHIN_S = 60.0
POLL_S = 0.2
_PAGE = 1_000


@dataclass
class ReadBack:
    """One stream as it was read at the end: identities by offset, from 0."""

    end: int
    hot_first: list[Identity] = field(default_factory=list)
    cold_first: list[Identity] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def read_everything(system: System) -> dict[str, ReadBack]:
    """Stop the writers, seal, wait until all is tiered, read. By stream. Raises what reading raises."""
    system.load.stop_writers(FLUSHED_WITHIN_S)
    running = [client.name for client in system.load.current.values() if client.pulse.state != history.DONE]
    found = asyncio.run(_read_all(system))
    for each in found.values():
        each.problems += [f"{name} could not flush what it had submitted" for name in running]
        running.clear()
    return found


async def _read_all(system: System) -> dict[str, ReadBack]:
    async with await rangelog.connect(system.cluster.connect_string) as client:
        found = {plan.name: ReadBack(await client.seal_stream(plan.name)) for plan in system.streams}
        for stream, back in found.items():
            back.problems += await _wait_tiered(system, stream)
            for preference, into in (("hot_first", back.hot_first), ("cold_first", back.cold_first)):
                async for chunk in client.reader(stream, read_preference=preference).chunks():
                    _take(chunk, into, back.problems)
            for into in (back.hot_first, back.cold_first):
                if len(into) != back.end:
                    back.problems.append(f"{stream} ends at {back.end}, but {len(into)} records were read")
    return found


def _take(chunk: Sequence[Any], into: list[Identity], problems: list[str]) -> None:
    for record in chunk:
        if record.offset != len(into):
            problems.append(f"offset {record.offset} was read where {len(into)} comes")
        try:
            into.append(history.identity_of(record.value))
        except ValueError:
            problems.append(f"the record at {record.offset} is damaged")
            into.append(("", 0, record.offset))


async def _wait_tiered(system: System, stream: str) -> list[str]:
    """Wait until objects cover the whole stream; what is not covered in time is a problem."""
    deadline = time.monotonic() + TIERED_WITHIN_S
    index = 0
    while True:
        page = await asyncio.to_thread(
            system.ask, "ListRanges", pd_pb2.ListRangesRequest(name=stream, from_index=index, page_size=_PAGE)
        )
        assert isinstance(page, pd_pb2.ListRangesResponse)
        missing = [each.index for each in page.ranges if each.tiered_end_offset < each.end_offset]
        index = missing[0] if missing else index + len(page.ranges)
        if not missing and not page.more:
            return []
        if missing and time.monotonic() > deadline:
            return [f"{stream}/{missing[0]} was not tiered within {TIERED_WITHIN_S:g} s"]
        if missing:
            await asyncio.sleep(POLL_S)
