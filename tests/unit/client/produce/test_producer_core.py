"""The producer's core on its own: records for one shard only, sealed topics, which connections it wants, what it numbers."""

from __future__ import annotations

import pytest

from rangelog._produce.core import (
    EPOCH_MINUTES,
    WINDOW,
    AskFor,
    MappedShard,
    ProducerCore,
    RecordsAcked,
    RecordsRefused,
    SendBatch,
)
from rangelog_core.errors import ProducerFenced, ShardEnded, ShardNotFound, TopicStateForbids

HALF, WHOLE = 8, 16
END = WHOLE
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


def _dated(now: int) -> ProducerCore:
    core = ProducerCore(batch_bytes_max=100, batch_records_max=1, epoch=now, dated=True)
    core.mapped(1, [MappedShard(0, 0, END, False, ()), MappedShard(1, END, 2 * END, False, ())])
    for shard_id in (0, 1):
        core.connected(shard_id)
    return core


def _appended(core: ProducerCore, position: int, records: int = 1) -> list[tuple[int, tuple[int, int]]]:
    for _ in range(records):
        core.append(position, 1)
    core.flush()
    return _identities(core)


def _identities(core: ProducerCore) -> list[tuple[int, tuple[int, int]]]:
    """The numbers of the batches that are sent: in the core, and (epoch, sequence)."""
    sent = [each for each in core.effects() if isinstance(each, SendBatch)]
    return [(each.sequence, core.identity(each.shard_id, each.sequence)) for each in sent]


def test_a_dated_epoch_begins_anew_where_a_shard_was_left_alone() -> None:
    """Once nothing of it is in doubt; each shard's by itself, and never back."""
    core = _dated(100)
    assert _appended(core, 0, 2) == [(0, (100, 0)), (1, (100, 1))]
    core.epoch = 100 + EPOCH_MINUTES
    assert _appended(core, 0) == [(2, (100, 2))], "two are in doubt"
    assert _appended(core, END) == [(0, (820, 0))]
    for sequence in range(3):
        core.acked(0, sequence, sequence)
    core.epoch = 90
    assert _appended(core, 0) == [(3, (100, 3))]
    core.acked(0, 3, 3)
    core.epoch = 100 + EPOCH_MINUTES
    assert _appended(core, 0, 2) == [(4, (820, 0)), (5, (820, 1))]


def test_what_an_owner_refuses_as_of_a_forgotten_epoch_is_numbered_anew() -> None:
    """But not where it was sent before, or something before it has no answer; nor for a producer with a name."""
    core = _dated(100)
    _appended(core, 0, 3)
    core.acked(0, 0, 0)
    assert not core.begin_anew(0, 2, 150), "what becomes of 1?"
    assert not core.begin_anew(0, 1, 100)
    assert core.begin_anew(0, 1, 150)
    assert _identities(core) == [(1, (150, 0)), (2, (150, 1))]
    core.disconnected(0)
    core.connected(0)
    assert _identities(core) == [(1, (150, 0)), (2, (150, 1))]
    assert not core.begin_anew(0, 1, 160), "it was sent twice"
    named = ProducerCore(batch_bytes_max=100, batch_records_max=1, epoch=100)
    named.mapped(1, [MappedShard(0, 0, END, False, ())])
    named.connected(0)
    _appended(named, 0)
    assert not named.begin_anew(0, 0, 150)
