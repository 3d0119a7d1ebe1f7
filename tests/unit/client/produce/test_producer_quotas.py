"""A producer that is over a quota: nothing is numbered while it is held off, then one batch after the other."""

from __future__ import annotations

from rangelog._produce.core import MappedShard, ProducerCore, SendBatch

END = 1 << 128


def linked() -> ProducerCore:
    core = ProducerCore(batch_bytes_max=100, batch_records_max=1)
    core.mapped(1, [MappedShard(0, 0, END, False, ())])
    core.connected(0)
    return core


def sent(core: ProducerCore) -> list[int]:
    """Sequences of batches that go out now."""
    return [each.sequence for each in core.effects() if isinstance(each, SendBatch)]


def append(core: ProducerCore, count: int) -> None:
    for _ in range(count):
        core.append(5, 50)
    core.flush()


def test_nothing_is_sent_while_it_is_held_off_and_then_one_by_one() -> None:
    """Each ack tells what is owed; one that holds nothing off ends the pace."""
    core = linked()
    append(core, 2)
    assert sent(core) == [0, 1]
    core.hold(0)
    core.acked(0, 0, 0)
    append(core, 10)
    core.acked(0, 1, 1)
    assert not sent(core)
    core.release(0)
    assert sent(core) == [2]
    core.hold(0)
    core.acked(0, 2, 2)
    assert not sent(core)
    core.release(0)
    assert sent(core) == [3]
    core.acked(0, 3, 3)
    assert sent(core) == [4, 5, 6, 7, 8]


def test_another_shard_goes_on() -> None:
    """A quota of one owner's is no business of the others'."""
    core = ProducerCore(batch_bytes_max=100, batch_records_max=1)
    core.mapped(1, [MappedShard(0, 0, 10, False, ()), MappedShard(1, 10, END, False, ())])
    core.connected(0)
    core.connected(1)
    core.append(5, 50)
    core.append(15, 50)
    core.flush()
    assert len(sent(core)) == 2
    core.hold(0)
    core.append(5, 50)
    core.append(15, 50)
    core.flush()
    assert [each.shard_id for each in core.effects() if isinstance(each, SendBatch)] == [1]


def test_a_shard_that_ends_while_it_is_held_off() -> None:
    """What waits goes to its successor at once; a release that comes later does nothing."""
    core = linked()
    append(core, 1)
    assert sent(core) == [0]
    core.hold(0)
    append(core, 1)
    core.acked(0, 0, 0)
    core.mapped(2, [MappedShard(0, 0, END, True, ()), MappedShard(1, 0, END, False, (0,))])
    core.connected(1)
    assert sent(core) == [0]
    core.release(0)
    assert not sent(core)
