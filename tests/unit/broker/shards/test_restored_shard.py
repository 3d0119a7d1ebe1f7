"""The state of a shard that was cut by a restore: its side log is lost, and perhaps the start of its log was trimmed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest

from rangelog_broker.shards.producer_table import Standing
from rangelog_broker.shards.restore import fold_log, restored_offset_of
from rangelog_broker.shards.state import ShardState
from rangelog_core.batch_extension import MergedFrom, Producer, Tag, encode_merged, encode_producer
from rangelog_core.errors import Corruption
from rangelog_proto.v1 import topic_pb2

P = 1 << 63
Batch = tuple[Any, dict[int, bytes]]


def sent(offset: int, sequence: int, producer_id: int = P) -> Batch:
    """A producer's batch of one record."""
    header = SimpleNamespace(base_offset=offset, count=1, max_timestamp_ms=1)
    return header, {Tag.PRODUCER: encode_producer(Producer(producer_id, 0, sequence))}


def merged(offset: int, number: int, sequence: int, follow: int) -> Batch:
    """A batch of transaction `number` of producer 1, staged at shard 0."""
    header = SimpleNamespace(base_offset=offset, count=1, max_timestamp_ms=1)
    return header, {Tag.TRANSACTION: encode_merged(MergedFrom(1, number, 0, sequence, follow))}


def fold(batches: list[Batch], end: int, cut: int | None, *, trimmed: int = 0) -> ShardState:
    """The state of a log that ends at `end`, without a snapshot."""
    state = ShardState.first({})

    async def headers(name: str, stream_id: int, start: int, last: int, _: object) -> AsyncIterator[list[Batch]]:
        assert start >= trimmed, "what is trimmed cannot be read"
        yield [each for each in batches if start <= each[0].base_offset < last]

    async def describe(name: str) -> Any:
        return SimpleNamespace(trim_offset=trimmed)

    client: Any = SimpleNamespace(
        internal=SimpleNamespace(batch_headers=headers), metadata=SimpleNamespace(describe_stream=describe)
    )
    asyncio.run(fold_log(client, state, (1, 0), 7, 0, end, cut))
    return state


def test_a_log_whose_start_is_trimmed_is_folded_from_there() -> None:
    """The first batch of a producer may be any; those that follow it follow."""
    batches = [sent(10, 5), sent(11, 6)]
    state = fold(batches, 12, 12, trimmed=10)
    assert state.table.find(Producer(P, 0, 6)).standing is Standing.HELD
    assert state.table.find(Producer(P, 0, 7)).standing is Standing.NEXT
    assert state.table.find(Producer(P, 0, 9)).standing is Standing.GAP
    with pytest.raises(Corruption):
        fold([sent(10, 5), sent(11, 7)], 12, 12, trimmed=10)


def test_behind_the_cut_a_producer_that_was_not_seen_begins_at_its_first_batch() -> None:
    """A gap there is damage, as it is in a shard that was never restored."""
    fold([sent(10, 5), sent(12, 0, P + 1)], 13, 12, trimmed=10)
    with pytest.raises(Corruption):
        fold([sent(10, 5), sent(12, 3, P + 1)], 13, 12, trimmed=10)
    with pytest.raises(Corruption):
        fold([sent(0, 5)], 1, None)


def test_a_run_that_the_cut_divides_keeps_nobody_from_going_on() -> None:
    """What was left of it is lost; the next batch is anybody's."""
    batches = [merged(0, 4, 0, 2), merged(1, 4, 1, 1)]
    assert fold(batches, 2, 2).merges.open_run is None
    fold([*batches, sent(2, 0)], 3, 2)
    with pytest.raises(Corruption):
        fold([*batches, sent(2, 0)], 3, None)


def test_transactions_are_numbered_anew_behind_the_cut() -> None:
    """Coordinators begin anew, with the same ids: a transaction of today is not taken for one that was merged before."""
    state = fold([merged(0, 9, 0, 0), merged(1, 1, 0, 0)], 2, 1)
    assert state.merges.snapshot() is not None
    with pytest.raises(Corruption):
        fold([merged(0, 9, 0, 0), merged(1, 1, 0, 0)], 2, None)


def test_a_shard_tells_whether_it_was_cut() -> None:
    """A cut at 0 is one."""
    assert restored_offset_of(topic_pb2.Shard()) is None
    assert restored_offset_of(topic_pb2.Shard(restored_offset=0)) == 0
