"""A consumer with a cursor on a real cluster: what it has not read outlives its age, its own death and a placement driver's."""

from __future__ import annotations

import asyncio
import json

import pytest

import rangelog
from rangelog import StreamConfig
from rangelog_cli.local.processes import Cluster
from tests.integration.helpers.pdctl_command import Pdctl
from tests.support.leader import leader_of
from tests.support.waiting import eventually, until

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]

SOON_S = 60.0
RECORDS, READ_FIRST = 300, 120
CONFIG = StreamConfig(range_age_seconds=0.3, retention_seconds=0.5, cursor_retention="keep_and_trim", tiered=False)


async def trim_offset(client: rangelog.Client) -> int:
    return (await client.describe_stream("flights")).trim_offset


async def write_over_several_ranges(client: rangelog.Client) -> None:
    """A range is sealed at its age, so the records come over a longer time; by two writers, as one stays with a slow server."""
    for part in (range(READ_FIRST // 2), range(READ_FIRST // 2, RECORDS)):
        async with client.writer("flights") as writer:
            for number in part:
                await writer.append(b"%d" % number)
                await asyncio.sleep(0.01)


async def consume(cluster: Cluster, count: int) -> list[int]:
    """One consumer: reads from the cursor, commits, and is gone."""
    found: list[int] = []
    async with await rangelog.connect(cluster.connect_string) as client:
        reader = client.reader("flights", cursor="billing", follow=True)
        async with asyncio.timeout(SOON_S):
            async for record in reader:
                assert record.value == b"%d" % record.offset
                found.append(record.offset)
                if len(found) == count:
                    break
        await reader.commit()
    return found


async def test_what_a_consumer_has_not_read_is_kept_until_it_has(cluster: Cluster) -> None:
    """Over its age, and over a leader that is killed; it is shown meanwhile, and goes once it is committed."""
    pdctl = Pdctl(cluster)

    def is_shown() -> bool:
        tasks = json.loads(pdctl("task", "list", "-o", "json").stdout or b"[]")
        return any(each["kind"] == "retain-stream" and "'billing'" in each["detail"] for each in tasks)

    async with await rangelog.connect(cluster.connect_string) as client:
        await client.create_stream("flights", CONFIG)
        await client.cursors("flights").set("billing", 0)
        await write_over_several_ranges(client)
        await client.seal_stream("flights")
        assert await consume(cluster, READ_FIRST) == list(range(READ_FIRST))
        await asyncio.to_thread(eventually, is_shown, "the cursor is not shown as a reason")
        leader = await asyncio.to_thread(leader_of, cluster)
        cluster.kill(leader)
        await asyncio.to_thread(eventually, is_shown, "the cursor is not shown as a reason")
        trimmed = await trim_offset(client)
        assert 0 < trimmed <= READ_FIRST, "whole ranges that the consumer has passed, and no more"
        cursor = await client.cursors("flights").get("billing")
        assert cursor is not None and cursor.offset == READ_FIRST and not cursor.expired
        assert await consume(cluster, RECORDS - READ_FIRST) == list(range(READ_FIRST, RECORDS))

        async def all_trimmed() -> bool:
            return await trim_offset(client) == RECORDS

        await until(all_trimmed, "what is committed is not trimmed")
        await asyncio.to_thread(eventually, lambda: not is_shown(), "the cursor is shown as a reason still")
        cluster.start_member(leader)
