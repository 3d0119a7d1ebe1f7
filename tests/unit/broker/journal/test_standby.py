"""A warm standby: it has read what the owner wrote, and takes over with the newest state."""

from __future__ import annotations

import asyncio

import pytest

from rangelog import Client, StreamConfig
from rangelog.errors import WriterFenced
from rangelog.testing import FakeCluster
from rangelog_broker.journal.journal import Journal
from rangelog_broker.journal.owner import OwnerLimits
from rangelog_broker.journal.standby import Standby
from tests.support.journal_machines import Chain
from tests.support.waiting import until

pytestmark = pytest.mark.virtual

NAME = "orders"


async def filled(client: Client, count: int, **options: object) -> Journal[Chain]:
    await client.create_stream(NAME, StreamConfig(range_size_bytes_max=64 * 1024))
    journal = await Journal.open(client, NAME, Chain, **options)  # type: ignore[arg-type]
    for number in range(count):
        await journal.propose_own(b"%d" % number + b"." * 1000)
    return journal


def count_of(standby: Standby[Chain]) -> int:
    return standby.machine.count if standby.machine is not None else -1


async def test_it_takes_over_with_the_newest_state() -> None:
    """What the owner wrote after the standby's last look is there, and the owner is deposed."""
    async with FakeCluster().client() as client:
        journal = await filled(client, 20)
        standby = Standby(client, NAME, Chain)
        standby.start()
        await until(lambda: count_of(standby) == 20)
        last = asyncio.create_task(journal.propose_own(b"last"))
        await last
        second = await standby.take_over()
        assert await second.read(lambda machine: machine.count) == 21
        with pytest.raises(WriterFenced):
            await journal.propose_own(b"more")
        await second.close()
        await journal.close()


async def test_it_begins_with_the_snapshot_of_a_trimmed_journal() -> None:
    """And one that was overtaken by a trim begins anew."""
    async with FakeCluster().client() as client:
        journal = await filled(client, 300, limits=OwnerLimits(snapshot_entries=40))
        assert (await client.describe_stream(NAME)).trim_offset > 0
        standby = Standby(client, NAME, Chain)
        standby.start()
        await until(lambda: count_of(standby) == 300)
        await standby.close()
        await standby.close()
        for number in range(300):
            await journal.propose_own(b"%d" % number + b"." * 1000)
        assert (await client.describe_stream(NAME)).trim_offset > standby.next_offset
        standby.start()
        await until(lambda: count_of(standby) == 600)
        second = await standby.take_over()
        assert await second.read(lambda machine: machine.count) == 600
        await second.close()
        await journal.close()


async def test_a_takeover_without_a_look_reads_all() -> None:
    """A standby that was just started is as good as none."""
    async with FakeCluster().client() as client:
        journal = await filled(client, 5)
        standby = Standby(client, NAME, Chain)
        standby.start()
        second = await standby.take_over()
        assert await second.read(lambda machine: machine.count) == 5
        await second.close()
        await journal.close()
