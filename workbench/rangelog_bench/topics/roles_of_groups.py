"""A client process that is a member of a group."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any

from rangelog import Client, GroupListener, ShardOfTopic
from rangelog_bench.topics.roles import Orders, answer


class _Listener(GroupListener):
    async def gained(self, shards: Sequence[ShardOfTopic]) -> None:
        answer({"gained": [each.shard_id for each in shards], "at_s": time.perf_counter()})

    async def lost(self, shards: Sequence[ShardOfTopic]) -> None:
        answer({"lost": [each.shard_id for each in shards]})

    async def releasing(self, shards: Sequence[ShardOfTopic]) -> None:
        answer({"lost": [each.shard_id for each in shards]})


async def be_member(client: Client, settings: dict[str, Any], orders: Orders) -> None:
    """Join a `group` that reads a `topic`, and answer with the shards that come and go, until killed."""
    answer({})
    member = client.group(
        settings["group"], settings["topic"], member_id=settings["member"], session_s=settings["session_s"],
        auto_commit_s=0.2, listener=_Listener(),
    )  # fmt: skip

    async def read() -> None:
        async with member:
            async for _ in member.chunks():
                pass

    reading = asyncio.create_task(read())
    waiting = asyncio.create_task(orders.next())
    await asyncio.wait([reading, waiting], return_when=asyncio.FIRST_COMPLETED)
    if reading.done():
        await reading
