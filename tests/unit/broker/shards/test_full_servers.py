"""Owners whose range servers have no room: who waits is told at once, what was taken is there once when there is room."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

import pytest

from rangelog.errors import OutOfOrder, StorageFull
from rangelog_broker.journal.journal import Journal
from rangelog_core.batch_extension import Producer
from tests.support.journal_machines import Chain, link
from tests.support.owner_cluster import made_batch
from tests.unit.broker.shards.test_owned_shard import Bench, bench
from tests.unit.broker.shards.test_staged_shard import KEY, merge

pytestmark = pytest.mark.virtual

__all__ = ["bench"]
WORDS = "no room at rs1, rs2, and too few other range servers"
AT_ONCE_S = 5.0


async def refused(waits: Awaitable[object], *, unknown: bool | None = None) -> None:
    """It fails as soon as the servers say so, with their names."""
    began_s = asyncio.get_running_loop().time()
    with pytest.raises(StorageFull, match=WORDS) as told:
        await waits
    assert asyncio.get_running_loop().time() < began_s + AT_ONCE_S
    assert unknown is None or told.value.outcome_unknown == unknown


async def test_batches_of_a_shard(bench: Bench) -> None:
    """In flight: refused, and acked when sent again; new ones and those behind are not taken. One of three may be full."""
    owner = await bench.open()
    bench.cluster.fill("rs1")
    assert await bench.replies.produce(owner, Producer(7, 0, 0)) == 0
    bench.cluster.fill("rs1", "rs2")
    sent = [bench.replies.send(owner, Producer(7, 0, number)) for number in (1, 2)]
    for request in sent:
        await refused(bench.replies.answer(request))
    for number in (3, 4):
        with pytest.raises(StorageFull, match=WORDS):
            bench.replies.send(owner, Producer(7, 0, number))
    assert await bench.replies.produce(owner, Producer(7, 0, 0)) == 0, "it is acked"
    again = [bench.replies.send(owner, Producer(7, 0, number)) for number in (1, 2)]
    bench.cluster.fill()
    assert [await bench.replies.answer(request) for request in again] == [1, 2]
    with pytest.raises(OutOfOrder):
        bench.replies.send(owner, Producer(7, 0, 4))
    assert await bench.replies.produce(owner, Producer(7, 0, 3)) == 3
    assert owner.closed is None
    assert await bench.cluster.read(bench.topic_id, 0) == [b"0", b"1", b"2", b"3"]


async def test_batches_that_are_staged(bench: Bench) -> None:
    """The same beside the log; what is merged is there once, in order."""
    owner = await bench.open()

    def stage(sequence: int) -> int:
        request = 1_000 + len(bench.replies.acks) + len(bench.replies.errors) + sequence * 100
        producer = Producer(KEY.producer_id, 1, sequence)
        data = made_batch(producer, b"%d" % sequence)
        owner.transactions.stage(KEY.number, "id", producer, data, bench.replies, request)
        return request

    await bench.replies.answer(stage(0))
    bench.cluster.fill("rs1", "rs2")
    await refused(bench.replies.answer(stage(1)))
    for sequence in (2, 3):
        with pytest.raises(StorageFull, match=WORDS):
            stage(sequence)
    again = stage(1)
    for _ in range(100):
        await asyncio.sleep(0)
    assert again not in bench.replies.acks, "it is not staged yet"
    bench.cluster.fill()
    await bench.replies.answer(again)
    await bench.replies.answer(stage(2))
    await merge(bench, owner)
    assert await bench.cluster.read(bench.topic_id, 0) == [b"0", b"1", b"2"]


async def test_commands_and_reads_of_a_journal(bench: Bench) -> None:
    """In flight: unknown, and applied once; new ones certainly not; reads are not proved."""
    client = bench.cluster.client()
    await client.create_stream("j")
    journal = await Journal.open(client, "j", Chain)
    session = await journal.open_session()
    await journal.propose(session, 0, b"a")
    bench.cluster.fill("rs1", "rs2")
    reading = asyncio.create_task(journal.read(lambda machine: machine.count))
    many = asyncio.create_task(journal.propose_all(session, [(1, b"b"), (2, b"c")]))
    own = asyncio.create_task(journal.propose_own(b"d"))
    await refused(many, unknown=True)
    await refused(own, unknown=True)
    await refused(reading, unknown=False)
    await refused(journal.propose(session, 3, b"e"), unknown=False)
    await refused(journal.propose_all(session, [(3, b"e")]), unknown=False)
    await refused(journal.read(lambda machine: machine.count), unknown=False)
    await refused(journal.open_session(), unknown=False)
    await refused(journal.propose_own(b"e"), unknown=False)
    assert link(await journal.propose(session, 0, b"a")).count == 1, "its result is known"
    again = asyncio.create_task(journal.propose(session, 2, b"c"))
    bench.cluster.fill()
    assert link(await again).count == 3
    assert await journal.read(lambda machine: machine.count) == 4
    assert link(await journal.propose(session, 3, b"e")).count == 5
    await journal.close()
