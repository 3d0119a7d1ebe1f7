"""The producer's core on its own: records for one shard only, sealed topics, which connections it wants, what it numbers."""

from __future__ import annotations

import pytest

from rangelog._produce.core import WINDOW, AskFor, MappedShard, ProducerCore, RecordsAcked, RecordsRefused, SendBatch
from rangelog_core.errors import ProducerFenced, ShardEnded, ShardNotFound, TopicStateForbids

HALF, WHOLE = 8, 16
PARENT = MappedShard(0, 0, WHOLE, False, ())
SPLIT = [PARENT._replace(ended=True), MappedShard(1, 0, HALF, False, (0,)), MappedShard(2, HALF, WHOLE, False, (0,))]


def mapped_core(shards: list[MappedShard], *, connected: bool = True) -> ProducerCore:
    core = ProducerCore(batch_bytes_max=100, batch_records_max=100)
    core.mapped(1, shards)
    for shard in shards if connected else ():
        core.connected(shard.shard_id)
    return core


def test_a_record_for_one_shard_only_goes_there_whatever_its_position() -> None:
    """A shard that has ended, or that never was, is refused before anything is kept."""
    core = mapped_core([*SPLIT])
    assert core.append(HALF, 1, shard_id=1) == 0
    with pytest.raises(ShardEnded):
        core.append(0, 1, shard_id=0)
    with pytest.raises(ShardNotFound):
        core.append(0, 1, shard_id=3)
    assert core.append(0, 1) == 1, "a refused record has no place"
    core.flush()
    assert core.effects() == [SendBatch(1, 0, [0, 1])]


def test_what_was_for_a_shard_that_ended_is_refused_and_the_rest_goes_on() -> None:
    """Queued records at once, a batch in doubt when the shard's answer is no; what the shard holds is acked."""
    core = mapped_core([PARENT])
    core.append(0, 1, shard_id=0)
    core.append(0, 1)
    core.flush()
    core.append(0, 1, shard_id=0)
    core.append(HALF, 1)
    core.flush()
    core.batches_in_flight_max = 0
    core.append(HALF, 1, shard_id=0)
    core.flush()
    core.batches_in_flight_max = WINDOW
    core.effects()
    core.mapped(2, SPLIT)
    core.connected(1)
    core.connected(2)
    asked, refused = core.effects()
    assert isinstance(refused, RecordsRefused) and refused.orders == [4] and isinstance(refused.error, ShardEnded)
    assert asked == AskFor(0, 0)
    core.answered(0, 0, 7)
    core.answered(0, 1, None)
    effects = core.effects()
    assert RecordsAcked(0, 7, [0, 1]) in effects and SendBatch(2, 0, [3]) in effects
    assert [each.orders for each in effects if isinstance(each, RecordsRefused)] == [[2]]


def test_a_topic_that_is_sealed_takes_nothing() -> None:
    """Keys whose shard has ended without a successor are refused, while others still have theirs."""
    core = mapped_core(SPLIT[1:], connected=False)
    core.append(HALF, 1)
    core.mapped(2, [SPLIT[1], SPLIT[2]._replace(ended=True)])
    (refused,) = core.effects()
    assert isinstance(refused, RecordsRefused) and isinstance(refused.error, TopicStateForbids)
    with pytest.raises(TopicStateForbids):
        core.append(WHOLE - 1, 1)
    core.append(0, 1)
    core.mapped(3, [each._replace(ended=True) for each in SPLIT])
    assert len(core.effects()) == 1 and core.queued_count == 0
    with pytest.raises(TopicStateForbids):
        core.append(0, 1)


def test_a_connection_is_wanted_while_something_waits_for_it() -> None:
    """By the first record, again once the connection is lost, and no more when the shard has ended."""
    core = mapped_core([PARENT], connected=False)
    assert not core.take_wanted()
    core.append(0, 1)
    core.flush()
    assert core.take_wanted() == [0] and not core.take_wanted()
    core.connected(0)
    assert core.effects() == [SendBatch(0, 0, [0])]
    core.disconnected(0)
    assert core.take_wanted() == [0]
    core.connected(0)
    core.acked(0, 0, 0)
    core.disconnected(0)
    assert not core.take_wanted(), "nothing waits"
    core.append(HALF, 1)
    core.flush()
    core.mapped(2, SPLIT)
    assert core.take_wanted() == [2]


def test_fewer_batches_in_flight_make_larger_ones() -> None:
    """The bound is the runtime's to lower; what waits is sent when an ack makes room."""
    core = mapped_core([PARENT])
    core.batches_in_flight_max = 1
    for _ in range(3):
        core.append(0, 1)
        core.flush()
    assert core.effects() == [SendBatch(0, 0, [0])] and not core.takes_more(0)
    assert core.waiting() == [1, 2]
    core.acked(0, 0, 0)
    assert core.effects()[-1] == SendBatch(0, 1, [1, 2])
    core.acked(0, 1, 1)
    assert core.takes_more(0)


def test_a_fenced_producer_sends_nothing_more() -> None:
    """Neither what waits nor what has no outcome, whatever connects."""
    core = mapped_core([PARENT])
    core.append(0, 1)
    core.flush()
    core.effects()
    core.fenced(ProducerFenced("later", epoch=2))
    core.disconnected(0)
    core.connected(0)
    assert not core.effects()
    with pytest.raises(ProducerFenced):
        core.append(0, 1)
