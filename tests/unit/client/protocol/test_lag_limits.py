"""The limits of a replica's lag: which are refused, where they come from, and that a writer goes by those it is given."""

from __future__ import annotations

import math
from typing import Any

import pytest

from rangelog._lag_settings import chosen_lag_limits
from rangelog.protocol.appender import Appender, OpenRange, Probe
from rangelog.protocol.lag_limits import LAG_LIMITS, LagLimits
from rangelog_core.batch import encode_batch
from rangelog_core.errors import ConfigInvalid, InvalidArgument
from rangelog_core.ids import Incarnation, ReplicaId

REPLICAS = tuple(ReplicaId(name, Incarnation(1)) for name in "abc")


def left_at_ms(limits: LagLimits, until_ms: float) -> float | None:
    """A batch that c of a, b and c never holds; return when the writer wants to leave the range, None: not until then."""
    core = Appender(1, OpenRange(0, 0, 2, REPLICAS, 0.0, 1 << 30, 0), 0.0, lag_limits=limits)
    for replica in REPLICAS:
        core.connected(0.0, 0, replica)
    data = encode_batch(stream_id=1, range_index=0, epoch=1, base_offset=0, timestamps_ms=[1], values=[b"v"])
    core.submit(0.0, 0, 1, data)
    for replica in REPLICAS[:2]:
        core.acked(1.0, 0, replica, 1)
    for now_ms in range(50, int(until_ms) + 1, 50):
        core.tick(now_ms)
        if any(isinstance(effect, Probe) for effect in core.effects()):
            return now_ms
    return None


def test_a_silent_replica_is_kept_as_long_as_the_limits_say() -> None:
    """Five seconds of silence: with limits of a minute the replica stays, with the defaults it is left within two seconds."""
    assert left_at_ms(LagLimits(60_000, 60_000), 5_000) is None
    left_ms = left_at_ms(LAG_LIMITS, 5_000)
    assert left_ms is not None and left_ms <= 2_000


@pytest.mark.parametrize("value", [0, -1.0, 9.9, 600_001, math.nan, math.inf, True, "500"])
@pytest.mark.parametrize("name", ["ms_min", "ms_max"])
def test_limits_out_of_bounds_are_refused_by_name(name: str, value: Any) -> None:
    """Before anything is made."""
    with pytest.raises(InvalidArgument, match=f"replica_lag_{name} must be from 10 to 600,000 ms"):
        LagLimits(**({"ms_min": 10, "ms_max": 600_000} | {name: value}))


def test_the_least_is_not_above_the_most() -> None:
    """Equal ones are a fixed limit."""
    assert LagLimits(700, 700).allowed_ms(1.0) == 700
    with pytest.raises(InvalidArgument, match="replica_lag_ms_min must not be more than replica_lag_ms_max"):
        LagLimits(701, 700)


def test_arguments_come_before_the_environment_and_it_before_the_defaults() -> None:
    """Each limit by itself. What is no number is named."""
    env = {"RANGELOG_REPLICA_LAG_MS_MIN": "1000", "RANGELOG_REPLICA_LAG_MS_MAX": "3000"}
    assert chosen_lag_limits(None, None, {}) == LAG_LIMITS
    assert chosen_lag_limits(None, None, env) == LagLimits(1_000, 3_000)
    assert chosen_lag_limits(None, 9_000, env) == LagLimits(1_000, 9_000)
    assert chosen_lag_limits(20, None, {}) == LagLimits(20, 2_000)
    with pytest.raises(ConfigInvalid, match="RANGELOG_REPLICA_LAG_MS_MIN is a number of milliseconds, not 'soon'"):
        chosen_lag_limits(None, None, {"RANGELOG_REPLICA_LAG_MS_MIN": "soon"})
    with pytest.raises(InvalidArgument, match="replica_lag_ms_max"):
        chosen_lag_limits(None, None, {"RANGELOG_REPLICA_LAG_MS_MAX": "nan"})
