"""Hundreds of followers on one client whose event loop is kept busy: its connections go on answering."""

from __future__ import annotations

import asyncio
import operator
import time

import pytest

import rangelog
from rangelog_cli.local.processes import Cluster
from rangelog_core.net.data_connection import replica_id
from rangelog_core.net.replica_client import ReplicaClient, range_key
from tests.support.waiting import until_arrived

pytestmark = [pytest.mark.integration, pytest.mark.alone, pytest.mark.timeout(60)]

FOLLOWERS = 600
BUSY_S = 1.5
RECORD = b"x" * 16_384
RECORDS = 6
"""For all followers together more than a server keeps for a connection that is not read."""


def stand_still() -> None:
    """What an application does that computes on its event loop: the fault of this test."""
    time.sleep(BUSY_S)


async def test_every_server_still_answers_on_these_connections(cluster: Cluster) -> None:
    """The loop stands still three times while a writer elsewhere appends; then each server answers a fetch at once."""
    positions = [0] * FOLLOWERS
    async with await rangelog.connect(cluster.connect_string) as client:
        await client.create_stream("s")

        async def follow(number: int) -> None:
            async for record in client.reader("s", follow=True):
                positions[number] = record.offset + 1

        with rangelog.sync.connect(cluster.connect_string) as other, other.writer("s") as writer:
            writer.append(b"first")
            first_range = (await client._metadata.ranges("s", 0))[1][0]
            connections = [
                await client._connections.get(replica_id(each.server, each.incarnation), each.data_address)
                for each in first_range.replicas
            ]
            followers = [asyncio.create_task(follow(number)) for number in range(FOLLOWERS)]
            await until_arrived(lambda: min(positions), 1, "each has the first record")
            for round_number in range(1, 4):
                acks = [writer.submit(RECORD) for _ in range(RECORDS)]
                stand_still()
                assert [ack.result().offset + 1 for ack in acks][-1] == 1 + round_number * RECORDS
                before = sum(positions)
                await until_arrived(lambda: sum(positions), before, "one has more records", by=operator.gt)
            end = 1 + 3 * RECORDS
            key = range_key(first_range)
            async with asyncio.timeout(20):  # two of three are enough for the ack
                answers = []
                while [answer.durable_offset for answer in answers] != [end] * 3:
                    answers = [await ReplicaClient(each, key).fetch(0, bytes_max=0) for each in connections]
            await until_arrived(lambda: min(positions), end, "each has all records")
            assert [each.closed for each in connections] == [None] * 3  # nobody had to connect anew
            for task in followers:
                task.cancel()
            await asyncio.wait(followers)
    for name, server in cluster.range_servers.items():
        assert "RecursionError" not in server.log_path.read_text(), name
