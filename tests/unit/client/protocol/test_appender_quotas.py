"""A writer over a quota: it waits for the longest delay, sends one batch after the other, and leaves no range for it."""

from __future__ import annotations

from rangelog.protocol.appender import (
    HOLD_CALM_MS,
    HOLD_MS_MAX,
    TICK_CALM_MS,
    Appender,
    AppenderPhase,
    Confirmed,
    OpenRange,
    Probe,
    SealRange,
    Send,
)
from rangelog.protocol.lag_limits import REPLICA_LAG_MS_MAX
from rangelog_core.batch import encode_batch, peek_header
from rangelog_core.ids import Incarnation, ReplicaId

A, B, C = (ReplicaId(name, Incarnation(1)) for name in "abc")


def opened() -> Appender:
    core = Appender(1, OpenRange(0, 0, 2, (A, B, C), 0.0, 1 << 30, 0), 0.0)
    for replica in (A, B, C):
        core.connected(0.0, 0, replica)
    core.effects()
    return core


def submit(core: Appender, now_ms: float) -> int:
    """One batch of one record; return its offset."""
    base = core.next_offset
    data = encode_batch(
        stream_id=1, range_index=core.range_index, epoch=1, base_offset=base, timestamps_ms=[1], values=[b"v"]
    )
    core.submit(now_ms, base, base + 1, data)
    return base


def sent(core: Appender) -> list[int]:
    """Offsets of batches that are sent to a replica now."""
    return [batch.base_offset for each in core.effects() if isinstance(each, Send) for batch in each.batches]


def ack(core: Appender, now_ms: float, end: int, holds_ms: tuple[float, float, float]) -> None:
    """All replicas ack, and say for how long to hold."""
    for replica, hold_ms in zip((A, B, C), holds_ms, strict=True):
        if hold_ms:
            core.throttled(now_ms, core.range_index, replica, hold_ms)
        core.acked(now_ms, core.range_index, replica, end)


def test_the_longest_delay_counts_not_the_sum() -> None:
    """Three replicas count the same bytes: what each of them asks to wait passes at once."""
    core = opened()
    submit(core, 0.0)
    assert sent(core) == [0]
    ack(core, 10.0, 1, (400.0, 900.0, 700.0))
    submit(core, 11.0)
    core.effects()
    core.tick(909.0)
    assert not sent(core)
    assert core.tick_after_ms(909.0) <= 1.0
    core.tick(910.0)
    assert sent(core) == [1]
    assert core.held_ms == 900.0


def test_one_batch_after_the_other_while_something_is_owed() -> None:
    """Each ack tells what is owed: what waits goes out in order, the next one after the ack and the delay."""
    core = opened()
    submit(core, 0.0)
    ack(core, 1.0, 1, (100.0, 100.0, 100.0))
    for _ in range(3):
        submit(core, 2.0)
    core.effects()
    core.tick(101.0)
    assert sent(core) == [1]
    core.tick(150.0)
    assert not sent(core)
    ack(core, 160.0, 2, (40.0, 40.0, 40.0))
    assert not sent(core)
    core.tick(200.0)
    assert sent(core) == [2]
    core.acked(260.0, 0, A, 3)
    core.acked(260.0, 0, B, 3)
    assert sent(core) == [3] and core.next_offset == 4 and not core.waits


def test_what_waited_goes_out_together_once_nobody_holds_off_any_more() -> None:
    """The quota was removed: the writer is as fast as before."""
    core = opened()
    submit(core, 0.0)
    ack(core, 1.0, 1, (100.0, 0.0, 0.0))
    for _ in range(5):
        submit(core, 2.0)
    core.effects()
    core.tick(101.0)
    assert sent(core) == [1]
    ack(core, 102.0 + HOLD_CALM_MS, 2, (0.0, 0.0, 0.0))
    assert sent(core) == [2, 3, 4, 5]
    submit(core, 103.0 + HOLD_CALM_MS)
    assert sent(core) == [6]


def test_a_replica_that_holds_off_is_not_slow() -> None:
    """It does not read for a while, by its quota: the range is neither probed nor sealed for that."""
    core = opened()
    submit(core, 0.0)
    submit(core, 0.0)
    for replica in (A, B, C):
        core.throttled(5.0, 0, replica, 5_000.0)
        core.acked(5.0, 0, replica, 1)
    core.effects()
    for now_ms in range(50, 5_000, 50):
        core.tick(float(now_ms))
        assert core.tick_after_ms(float(now_ms)) <= TICK_CALM_MS
    assert core.phase is AppenderPhase.OPEN and not core.should_leave(5_000.0)
    ack(core, 5_100.0, 2, (0.0, 0.0, 0.0))
    assert [each.confirm_offset for each in core.effects() if isinstance(each, Confirmed)] == [2]


def test_a_replica_that_is_dead_is_slow_although_others_hold_off() -> None:
    """A delay excuses only the replica that has told it."""
    core = opened()
    submit(core, 0.0)
    for replica in (A, B):
        core.throttled(5.0, 0, replica, 10_000.0)
        core.acked(5.0, 0, replica, 1)
    core.effects()
    core.tick(REPLICA_LAG_MS_MAX + 100.0)
    assert [each.exclude_servers for each in core.effects() if isinstance(each, Probe)] == [("c",)]


def test_a_replica_that_is_still_behind_after_its_delay_is_slow() -> None:
    """The delay moves the limit, and does not lift it."""
    core = opened()
    submit(core, 0.0)
    submit(core, 0.0)
    for replica in (A, B, C):
        core.throttled(5.0, 0, replica, 1_000.0)
        core.acked(5.0, 0, replica, 1)
    for replica in (A, B):
        core.acked(6.0, 0, replica, 2)
    core.effects()
    core.tick(1_004.0)
    assert not core.should_leave(1_004.0)
    core.tick(1_005.0 + REPLICA_LAG_MS_MAX + 1.0)
    assert core.should_leave(1_005.0 + REPLICA_LAG_MS_MAX + 1.0)


def test_what_waits_moves_to_the_next_range() -> None:
    """A range that is left for another reason: nothing is lost, order and offsets stay, and the delay as well."""
    core = opened()
    submit(core, 0.0)
    ack(core, 1.0, 1, (900.0, 900.0, 900.0))
    submit(core, 2.0)
    submit(core, 3.0)
    core.leave_wanted(4.0, 0)
    core.probed(5.0, possible=True)
    assert [each.end_offset for each in core.effects() if isinstance(each, SealRange)] == [1]
    core.sealed(6.0, 1, OpenRange(1, 1, 2, (A, B, C), 6.0, 1 << 30, 0))
    for replica in (A, B, C):
        core.connected(7.0, 1, replica)
    assert not sent(core) and core.next_offset == 3
    core.tick(901.0)
    (one,) = [each for each in core.effects() if isinstance(each, Send)]
    assert [batch.base_offset for batch in one.batches] == [1] and peek_header(one.batches[0].data).range_index == 1
    core.acked(950.0, 1, A, 2)
    core.acked(950.0, 1, B, 2)
    assert sent(core) == [2]


def test_a_server_that_asks_for_too_much() -> None:
    """No writer waits longer than the limit for one answer."""
    core = opened()
    submit(core, 0.0)
    core.throttled(0.0, 0, A, 1e12)
    ack(core, 0.0, 1, (0.0, 0.0, 0.0))
    submit(core, 1.0)
    core.effects()
    core.tick(HOLD_MS_MAX)
    assert sent(core) == [1]
