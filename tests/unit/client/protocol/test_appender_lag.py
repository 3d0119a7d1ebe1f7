"""When a replica counts as slow: by what confirms take, within bounds. Time is told, nothing waits."""

from __future__ import annotations

import pytest

from rangelog.protocol.appender import (
    ROLL_RETRY_MS,
    TICK_BUSY_MS,
    TICK_CALM_MS,
    Appender,
    OpenRange,
    Probe,
)
from rangelog.protocol.lag_limits import REPLICA_LAG_MS_MIN
from rangelog_core.batch import encode_batch
from rangelog_core.ids import Incarnation, ReplicaId
from rangelog_core.limits import REPLICA_LAG_BYTES_MAX

A, B, C = (ReplicaId(name, Incarnation(1)) for name in "abc")


def opened() -> Appender:
    """A writer on three replicas, all connected, at time 0."""
    core = Appender(1, OpenRange(0, 0, 2, (A, B, C), 0.0, 1 << 30, 0), 0.0)
    for replica in (A, B, C):
        core.connected(0.0, 0, replica)
    core.effects()
    return core


def submit(core: Appender, now_ms: float) -> int:
    """One record; return where it ends."""
    base = core.next_offset
    data = encode_batch(stream_id=1, range_index=0, epoch=1, base_offset=base, timestamps_ms=[1], values=[b"v"])
    core.submit(now_ms, base, base + 1, data)
    return base + 1


def left_after(core: Appender, now_ms: float) -> float:
    """Tick until the writer wants to leave the range; return when that was."""
    while now_ms < 60_000:
        now_ms += 50
        core.tick(now_ms)
        probes = [effect for effect in core.effects() if isinstance(effect, Probe)]
        if probes:
            assert probes[0].exclude_servers == ("c",)
            return now_ms
    raise AssertionError("the slow replica was never noticed")


@pytest.mark.parametrize(
    ("latency_ms", "noticed_ms"),
    [(1.0, 500), (20.0, 500), (100.0, 1_000), (150.0, 1_500), (700.0, 2_000)],
)
def test_a_silent_replica_is_noticed_by_what_the_others_take(latency_ms: float, noticed_ms: float) -> None:
    """Ten times the latency of late, not below half a second, not above two."""
    core = opened()
    now = 0.0
    for _ in range(5):
        end = submit(core, now)
        now += latency_ms
        for replica in (A, B, C):
            core.acked(now, 0, replica, end)
    end = submit(core, now)  # c is silent from here on
    for replica in (A, B):
        core.acked(now + latency_ms, 0, replica, end)
    assert noticed_ms <= left_after(core, now) - now <= noticed_ms + 100


def test_a_slow_confirm_is_forgotten_in_time() -> None:
    """One pause of 150 ms widens the bound; some hundred quick confirms later it is back at its least."""
    core = opened()
    now = 0.0
    for latency_ms in [150.0] + [1.0] * 300:
        end = submit(core, now)
        now += latency_ms
        for replica in (A, B, C):
            core.acked(now, 0, replica, end)
    end = submit(core, now)
    for replica in (A, B):
        core.acked(now + 1, 0, replica, end)
    assert left_after(core, now) - now <= 600


def test_before_the_first_confirm_the_bound_is_wide() -> None:
    """Nothing is known yet of this range: two seconds."""
    core = opened()
    submit(core, 0.0)
    for replica in (A, B):
        core.acked(1_900.0, 0, replica, 0)
    now = 0.0
    while now < 1_950:
        now += 50
        core.tick(now)
        assert not [effect for effect in core.effects() if isinstance(effect, Probe)]


def test_ticks_are_due_when_something_could_be_late() -> None:
    """Nothing is waited for: rarely. A replica is: when it would be late. Trouble: when there may be a better place."""
    core = opened()
    assert core.tick_after_ms(0.0) == TICK_CALM_MS
    end = submit(core, 0.0)
    assert core.tick_after_ms(0.0) == TICK_CALM_MS  # nothing is known of how long confirms take: late after two seconds
    for replica in (A, B):
        core.acked(1.0, 0, replica, end)
    assert core.tick_after_ms(1.0) == REPLICA_LAG_MS_MIN - 1.0  # c still lacks it, since 0.0
    assert core.tick_after_ms(490.0) == TICK_BUSY_MS
    core.acked(491.0, 0, C, end)
    assert core.tick_after_ms(491.0) == TICK_CALM_MS
    core.disconnected(500.0, 0, C)
    assert core.tick_after_ms(500.0) == TICK_CALM_MS  # the placement driver was asked
    core.effects()
    core.probed(501.0, possible=False)
    assert core.tick_after_ms(801.0) == ROLL_RETRY_MS - 300.0  # the trouble is still there, and a better place may come
    core.tick(501.0 + ROLL_RETRY_MS)
    assert [type(effect) for effect in core.effects()] == [Probe]
    core.probed(501.0 + ROLL_RETRY_MS, possible=False)
    core.connected(510.0, 0, C)
    assert core.tick_after_ms(510.0) == TICK_CALM_MS


def test_ticks_are_due_soon_when_much_is_kept_for_a_replica() -> None:
    """A replica that lacks more than the limit is found long before it is late."""
    core = opened()
    data = bytes(8 << 20)
    for base in range(REPLICA_LAG_BYTES_MAX // len(data) + 1):
        assert core.holds_much == (base * len(data) > REPLICA_LAG_BYTES_MAX // 2)
        core.submit(float(base), base, base + 1, data)
        for replica in (A, B):
            core.acked(float(base), 0, replica, base + 1)
    assert core.tick_after_ms(20.0) == TICK_BUSY_MS
    core.effects()
    core.tick(20.0)
    assert any(isinstance(effect, Probe) for effect in core.effects())


@pytest.mark.parametrize("was_connected", [True, False])
def test_a_slow_replica_that_is_connected_again_is_wanted_back(was_connected: bool) -> None:
    """With no fourth server the range goes on with two; once the third is there again, the next range has all three."""
    core = opened()
    if not was_connected:
        core.disconnected(0.0, 0, C)
        core.probed(0.0, possible=False)
    end = submit(core, 0.0)
    for replica in (A, B):
        core.acked(1.0, 0, replica, end)
    core.effects()
    now = left_after(core, 0.0)
    core.probed(now, possible=False)
    if was_connected:
        core.disconnected(now, 0, C)
    core.connected(now + 5_000, 0, C)
    core.tick(now + 5_000)
    assert [effect for effect in core.effects() if isinstance(effect, Probe)] == [Probe(("c",), False, 2)]


def test_a_slow_replica_that_stays_away_is_not_waited_for() -> None:
    """The range is left for a place with three sound servers only: one that has moved since is not there yet."""
    core = opened()
    end = submit(core, 0.0)
    for replica in (A, B):
        core.acked(1.0, 0, replica, end)
    now = left_after(core, 0.0)
    core.probed(now, possible=False)
    core.tick(now + 5_000)
    assert [effect for effect in core.effects() if isinstance(effect, Probe)] == [Probe(("c",), True, 3)]
