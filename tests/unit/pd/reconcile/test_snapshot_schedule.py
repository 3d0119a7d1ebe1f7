"""When a snapshot is written to the tier: soon after what matters, otherwise at an interval, and never too many bytes."""

from __future__ import annotations

from rangelog_core.limits import MIB
from rangelog_pd.reconcile.snapshot_schedule import SnapshotSchedule


def led(interval_ms: int = 300_000, soon_ms: int = 30_000) -> SnapshotSchedule:
    """A schedule of a leader whose term began at 0."""
    made = SnapshotSchedule(interval_ms, soon_ms)
    made.start_leading(0.0)
    return made


def test_an_urgent_change_is_written_soon_and_another_one_at_the_interval() -> None:
    """Nothing is written where nothing has changed."""
    schedule = led()
    assert not schedule.is_due(1e9, 0, 0)
    assert not schedule.is_due(29_999, 5, 5)
    assert schedule.is_due(30_000, 5, 5)
    assert not schedule.is_due(299_999, 5, 0)
    assert schedule.is_due(300_000, 5, 0)
    schedule.written(300_000, 5, 1, 1_000)
    assert not schedule.is_due(1e9, 5, 5)
    assert not schedule.is_due(300_001, 6, 0)
    assert schedule.is_due(600_000, 6, 0)


def test_a_large_state_is_written_less_often() -> None:
    """At most a MiB per second on the average."""
    schedule = led()
    schedule.written(0, 1, 1, 100 * MIB)
    assert not schedule.is_due(99_999, 2, 2)
    assert schedule.is_due(100_000, 2, 2)


def test_after_failures_it_is_tried_again_less_and_less_often() -> None:
    """The last error is kept until a snapshot is written, and a change of the leader starts anew."""
    schedule = led(soon_ms=100)
    waits = []
    now = 1_000.0
    for _ in range(9):
        assert schedule.is_due(now, 1, 1)
        schedule.failed(now, "away")
        later = now
        while not schedule.is_due(later, 1, 1):
            later += 1_000
        waits.append(later - now)
        now = later
    assert waits == [1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000, 60_000]
    assert schedule.last_error == "away"
    schedule.written(now, 1, 1, 1)
    assert not schedule.last_error
    schedule.failed(now, "away again")
    schedule.start_leading(now)
    assert (schedule.last_error, schedule.written_index) == ("", 0)


def test_an_interval_of_zero_writes_none() -> None:
    """So it is turned off."""
    assert not led(interval_ms=0).is_due(1e12, 9, 9)
