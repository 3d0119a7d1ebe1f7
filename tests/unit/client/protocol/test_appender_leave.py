"""A writer is asked to leave a range, since the next one can have more replicas."""

from __future__ import annotations

from rangelog.protocol.appender import ROLL_RETRY_MS, Appender, AppenderPhase, Confirmed, OpenRange, Probe, SealRange
from rangelog_core.batch import encode_batch
from rangelog_core.ids import Incarnation, ReplicaId

A, B, C = (ReplicaId(name, Incarnation(1)) for name in "abc")


def opened() -> Appender:
    """A writer on two replicas, both connected, at time 0."""
    core = Appender(1, OpenRange(0, 0, 2, (A, B), 0.0, 1 << 30, 0), 0.0)
    for replica in (A, B):
        core.connected(0.0, 0, replica)
    core.effects()
    return core


def submit(core: Appender, now_ms: float) -> None:
    """One record."""
    base = core.next_offset
    data = encode_batch(
        stream_id=1, range_index=core.range_index, epoch=1, base_offset=base, timestamps_ms=[1], values=[b"v"]
    )
    core.submit(now_ms, base, base + 1, data)


def test_it_leaves_and_shuns_nobody() -> None:
    """The old range gives acks until it is frozen; the next one may have the same servers and more."""
    core = opened()
    core.leave_wanted(10.0, 0)
    assert core.effects() == [Probe((), False, 2)]
    submit(core, 20.0)
    core.effects()
    for replica in (A, B):
        core.acked(30.0, 0, replica, 1)
    assert Confirmed(1) in core.effects()
    core.probed(40.0, possible=True)
    assert core.effects() == [SealRange(0, 1, (), False)]
    core.sealed(50.0, 1, OpenRange(1, 1, 2, (A, B, C), 50.0, 1 << 30, 0))
    core.effects()
    core.tick(50.0 + 2 * ROLL_RETRY_MS)
    assert core.effects() == (), "once"
    assert not core.should_leave(60.0)


def test_an_empty_range_is_left_as_well() -> None:
    """Else a journal that nobody writes to would have two copies of its next record."""
    core = opened()
    core.leave_wanted(10.0, 0)
    core.effects()
    core.probed(20.0, possible=True)
    assert core.effects() == [SealRange(0, 0, (), False)]


def test_a_question_about_another_range_is_none() -> None:
    """It came late: the writer has left that range."""
    core = opened()
    core.leave_wanted(10.0, 1)
    assert core.effects() == ()
    core.tick(10_000.0)
    assert core.effects() == ()


def test_it_tries_again_where_there_was_no_placement() -> None:
    """The range goes on meanwhile."""
    core = opened()
    core.leave_wanted(10.0, 0)
    core.effects()
    core.probed(20.0, possible=False)
    assert core.phase is AppenderPhase.OPEN
    core.tick(20.0 + ROLL_RETRY_MS / 2)
    assert core.effects() == ()
    core.tick(20.0 + ROLL_RETRY_MS)
    assert core.effects() == [Probe((), False, 2)]
    core.probed(2_000.0, possible=True)
    core.effects()
    core.seal_refused(2_100.0)
    core.tick(2_100.0 + ROLL_RETRY_MS)
    assert core.effects() == [Probe((), False, 2)]


def test_an_ended_writer_is_not_asked() -> None:
    """Nothing is done for it."""
    core = opened()
    core.fail(RuntimeError("gone"))  # type: ignore[arg-type]
    core.effects()
    core.leave_wanted(10.0, 0)
    assert core.effects() == ()
