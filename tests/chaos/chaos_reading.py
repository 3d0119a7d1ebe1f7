"""The end of a run: writers flush, streams are sealed and tiered, and everything is read back twice, hot and tiered first."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field

import rangelog
from rangelog_core.errors import OffsetTrimmed
from rangelog_proto.v1 import pd_pb2
from tests.chaos import chaos_history
from tests.chaos.chaos_cluster import System
from tests.chaos.chaos_health import is_gone
from tests.support.history import Final
from tests.support.waiting import WaitRanOut, until

FLUSHED_WITHIN_S = 30.0
TIERED_WITHIN_S = 60.0
_PAGE = 1_000


@dataclass
class ReadBack:
    """One stream as it was read at the end."""

    end: int
    finals: list[Final] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def read_everything(system: System) -> dict[str, ReadBack]:
    """Stop the writers, seal, wait until all is tiered, read. By stream. Raises what reading raises."""
    system.load.stop_writers(FLUSHED_WITHIN_S)
    stuck = [client for client in system.load.current.values() if client.pulse.state != chaos_history.DONE]
    found = asyncio.run(_read_all(system))
    for client in stuck:
        found[client.stream].problems.append(f"{client.name} could not flush what it had submitted")
    return found


async def _read_all(system: System) -> dict[str, ReadBack]:
    async with await rangelog.connect(system.cluster.connect_string) as client:
        found = {plan.name: ReadBack(await client.seal_stream(plan.name)) for plan in system.streams}
        for stream, back in found.items():
            back.problems += await _wait_tiered(system, stream)
            for source, preference in (("hot", "hot_first"), ("tier", "cold_first")):
                finals, end = await read_back(client, stream, source, preference)
                back.finals += finals
                if end != back.end:
                    back.problems.append(f"{stream} ends at {back.end}, but {source} could be read up to {end}")
    return found


async def read_back(client: rangelog.Client, stream: str, source: str, preference: str) -> tuple[list[Final], int]:
    """One read of everything, and where it ended; begins anew where a retention trims meanwhile."""
    while True:
        reader = client.reader(stream, read_preference=preference)
        finals: list[Final] = []
        try:
            async for chunk in reader.chunks():
                found = tuple(chaos_history.identity_of(record.value) for record in chunk)
                finals.append(Final(stream, source, chunk[0].offset, found, time_s=time.monotonic()))
        except OffsetTrimmed:
            continue
        nothing = Final(stream, source, reader.position, (), time_s=time.monotonic())
        return finals or [nothing], reader.position


async def _wait_tiered(system: System, stream: str) -> list[str]:
    """Wait until objects cover the whole stream; what is not covered in time is a problem."""
    index = 0

    async def covered() -> bool:
        """Whether there is no range behind those that were looked at."""
        nonlocal index
        page = await asyncio.to_thread(
            system.ask, "ListRanges", pd_pb2.ListRangesRequest(name=stream, from_index=index, page_size=_PAGE)
        )
        assert isinstance(page, pd_pb2.ListRangesResponse)
        trimmed = page.stream.trim_offset
        missing = [
            each.index
            for each in page.ranges
            if each.tiered_end_offset < each.end_offset and not is_gone(each, trimmed)
        ]
        index = missing[0] if missing else index + len(page.ranges)
        return not missing and not page.more

    try:
        await until(covered, f"{stream} is not tiered", TIERED_WITHIN_S)
    except WaitRanOut:
        return [f"{stream}/{index} was not tiered within {TIERED_WITHIN_S:g} s"]
    return []
