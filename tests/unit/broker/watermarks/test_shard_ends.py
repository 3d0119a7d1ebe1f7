"""How often replicas are asked for the ends of shards that notes name."""

from __future__ import annotations

import asyncio

import pytest

from rangelog._read.proof import ProvedEnd
from rangelog_broker.watermarks.shard_ends import PAUSE_S_MAX, QUESTIONS_PER_S, ShardEnds
from rangelog_proto.v1 import watermark_pb2

pytestmark = pytest.mark.virtual
SHARDS = 800
SECONDS = 30


async def test_notes_of_a_topic_of_many_shards_ask_at_a_bounded_rate() -> None:
    """All shards grow and are named all the time: the questions of a second are bounded, and a note waits a bounded time."""
    loop, asked, waited_s = asyncio.get_running_loop(), 0, 0.0

    async def find_end(name: str) -> ProvedEnd:
        nonlocal asked
        asked += 1
        await asyncio.sleep(0.005)
        return ProvedEnd(int(loop.time() * 1000), exact=True)

    ends = ShardEnds(find_end, 1.0)
    until_s = loop.time() + SECONDS
    while loop.time() < until_s:
        began_s = loop.time()
        noted = [watermark_pb2.NotedPosition(shard_id=each, offset=int(began_s * 1000)) for each in range(SHARDS)]
        await ends.check(1, noted)
        waited_s = max(waited_s, loop.time() - began_s)
        await asyncio.sleep(0.05)
    ends.close()
    assert SHARDS < asked <= SHARDS + 1.5 * SECONDS * QUESTIONS_PER_S
    assert waited_s < PAUSE_S_MAX
