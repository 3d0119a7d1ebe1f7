"""What transactions have staged at a shard, over takeovers: nothing of a commit is lost, nothing is merged twice (T5)."""

from __future__ import annotations

import asyncio
from typing import Any
from unittest import mock

import pytest

from rangelog import Writer
from rangelog.errors import NotOwner, OutOfOrder, WriterFenced
from rangelog_broker.shards.finished import FinishedShards, PlacementRows
from rangelog_broker.shards.shard import OwnedShard
from rangelog_broker.shards.side_log import SideLog
from rangelog_broker.shards.staging import TransactionKey, run_of
from rangelog_broker.shards.transactional import STAGED_BYTES_MAX
from rangelog_core.batch_extension import Producer
from rangelog_core.ids import shard_stream_name
from rangelog_core.limits import MIB
from tests.support.owner_cluster import made_batch
from tests.support.waiting import until
from tests.unit.broker.shards.test_owned_shard import Bench, bench

pytestmark = pytest.mark.virtual

__all__ = ["bench"]
KEY = TransactionKey(7, 1)


async def stage(bench: Bench, owner: OwnedShard, sequence: int, value: bytes) -> None:
    """Stage a batch of the transaction, and wait for its ack."""
    producer, request = Producer(KEY.producer_id, 1, sequence), 1_000 + sequence
    owner.transactions.stage(KEY.number, "id", producer, made_batch(producer, value), bench.replies, request)
    await bench.replies.answer(request)


async def merge(bench: Bench, owner: OwnedShard) -> None:
    """Order the merge, as the coordinator's owner does."""
    client = bench.cluster.client()
    topics = client.metadata.pd
    await owner.merge(KEY, 0, FinishedShards(client, topics, PlacementRows(topics)))


async def test_a_deposed_owner_without_the_staged_batches_does_not_answer_that_they_are_merged(bench: Bench) -> None:
    """What was staged at the next owner is merged there, whoever was asked first."""
    first = await bench.open()
    second = await bench.open()
    await stage(bench, second, 0, b"staged")
    with pytest.raises(NotOwner):
        await merge(bench, first)
    await merge(bench, second)
    assert await bench.cluster.read(bench.topic_id, 0) == [b"staged"]


async def test_an_order_waits_for_the_rest_of_a_run_that_a_takeover_appends(bench: Bench) -> None:
    """A former owner died inside the run: the next one finishes it, and the repeated order adds nothing."""
    first = await bench.open()
    for sequence, value in enumerate((b"a", b"b", b"c")):
        await stage(bench, first, sequence, value)
    place, data = run_of(KEY, 0, first._side.staging.batches(KEY), 0)[0]
    await first._append_merged(place, data)
    finish = OwnedShard._finish_run

    async def finish_slowly(owner: OwnedShard, finished: FinishedShards) -> None:
        bench.cluster.hold_acks()
        await finish(owner, finished)

    with mock.patch.object(OwnedShard, "_finish_run", finish_slowly):
        second = await bench.open()
    merging = asyncio.create_task(merge(bench, second))
    for _ in range(10):
        await asyncio.sleep(0)
    bench.cluster.release_acks()
    await merging
    assert await bench.cluster.read(bench.topic_id, 0) == [b"a", b"b", b"c"]
    assert second.closed is None


async def test_nothing_goes_between_the_batches_of_a_run(bench: Bench) -> None:
    """A former owner died inside the run: the next one finishes it before it takes a producer's batch, unasked."""
    first = await bench.open()
    for sequence, value in enumerate((b"a", b"b", b"c")):
        await stage(bench, first, sequence, value)
    place, data = run_of(KEY, 0, first._side.staging.batches(KEY), 0)[0]
    await first._append_merged(place, data)
    second = await bench.open()
    await bench.replies.produce(second, Producer(8, 0, 0), b"x")
    assert await bench.cluster.read(bench.topic_id, 0) == [b"a", b"b", b"c", b"x"]


async def test_what_is_staged_between_the_two_fences_of_a_takeover_is_not_lost(bench: Bench) -> None:
    """The side log is created while the next owner claims the shard: it reads it all the same."""
    first = await bench.open()
    opened, call, name = asyncio.Event(), bench.cluster.call, shard_stream_name(bench.topic_id, 0)
    asked = asyncio.Event()

    async def late(method: str, request: Any) -> Any:
        if method == "OpenWriter" and request.name == name:
            asked.set()
            await opened.wait()
        return await call(method, request)

    with mock.patch.object(bench.cluster, "call", late):
        opening = asyncio.create_task(bench.open())
        await asked.wait()
        for _ in range(100):  # the side log is asked for meanwhile, and there is none
            await asyncio.sleep(0)
        await stage(bench, first, 0, b"staged")
        opened.set()
        second = await opening
    await merge(bench, second)
    assert await bench.cluster.read(bench.topic_id, 0) == [b"staged"]


async def test_a_deposed_owner_that_opens_the_side_log_late_stages_nothing(bench: Bench) -> None:
    """The next owner has read the side log by then, and would not find what is staged there afterwards."""
    first = await bench.open()
    await stage(bench, first, 0, b"staged")
    await first.close()
    open_side, open_writer = SideLog.open, Writer.open
    asked, opened, go_on = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def late(side: SideLog) -> None:
        if not asked.is_set():
            asked.set()
            await go_on.wait()
        await open_side(side)

    async def noted(writer: Writer) -> None:
        await open_writer(writer)
        opened.set()

    with mock.patch.object(SideLog, "open", late), mock.patch.object(Writer, "open", noted):
        deposed = asyncio.create_task(bench.open())
        await asked.wait()
        await opened.wait()
        second = await bench.open()
        go_on.set()
        with pytest.raises(NotOwner):
            await deposed
    await merge(bench, second)
    assert await bench.cluster.read(bench.topic_id, 0) == [b"staged"]


async def test_an_owner_that_hears_of_its_lost_side_log_between_two_batches_ends(bench: Bench) -> None:
    """A deposed owner created it anew meanwhile: who stages next is sent away, and the next owner opens it again."""
    first = await bench.open()
    await stage(bench, first, 0, b"staged")
    other = bench.cluster.client().internal.writer(first._side.name)
    await other.open()
    await other.close(flush=False)
    assert first._side._writer is not None
    with pytest.raises(WriterFenced):
        await first._side._writer.append(b"")
    with pytest.raises(NotOwner):
        await stage(bench, first, 1, b"more")
    assert first.closed is not None
    second = await bench.open()
    await stage(bench, second, 1, b"more")
    await merge(bench, second)
    assert await bench.cluster.read(bench.topic_id, 0) == [b"staged", b"more"]


async def test_a_run_of_all_that_may_be_staged_is_merged_by_one_owner(bench: Bench) -> None:
    """The run is appended in one piece; its size costs no takeover."""
    owner = await bench.open()
    value = b"v" * (MIB - 1_000)
    count = STAGED_BYTES_MAX // MIB
    for sequence in range(count):
        await stage(bench, owner, sequence, value)
    await merge(bench, owner)
    assert owner.closed is None
    assert len(await bench.cluster.read(bench.topic_id, 0)) == count


async def test_a_deposed_owner_that_misses_what_is_staged_ends(bench: Bench) -> None:
    """Its successor has it."""
    first = await bench.open()
    await stage(bench, first, 0, b"a")
    second = await bench.open()
    await stage(bench, second, 1, b"b")
    with pytest.raises(OutOfOrder):
        await stage(bench, first, 2, b"c")
    await until(lambda: first.closed is not None)
    await stage(bench, second, 2, b"c")
    await merge(bench, second)
    assert await bench.cluster.read(bench.topic_id, 0) == [b"a", b"b", b"c"]
