"""The lag limits of a client's writers, as arguments or the environment name them."""

from __future__ import annotations

import os
from collections.abc import Mapping

from rangelog.protocol.lag_limits import REPLICA_LAG_MS_MAX, REPLICA_LAG_MS_MIN, LagLimits
from rangelog_core.errors import ConfigInvalid

LAG_MS_MIN_ENV, LAG_MS_MAX_ENV = "RANGELOG_REPLICA_LAG_MS_MIN", "RANGELOG_REPLICA_LAG_MS_MAX"


def chosen_lag_limits(ms_min: float | None, ms_max: float | None, env: Mapping[str, str] | None = None) -> LagLimits:
    """Return the limits that are given, those of the environment in place of None, else the defaults.

    Raises InvalidArgument for limits that are not valid, ConfigInvalid where a variable is no number.
    """
    env = os.environ if env is None else env
    return LagLimits(
        _number(env, LAG_MS_MIN_ENV, REPLICA_LAG_MS_MIN) if ms_min is None else ms_min,
        _number(env, LAG_MS_MAX_ENV, REPLICA_LAG_MS_MAX) if ms_max is None else ms_max,
    )


def _number(env: Mapping[str, str], name: str, default: float) -> float:
    text = env.get(name)
    try:
        return float(text) if text else default
    except ValueError:
        raise ConfigInvalid(f"{name} is a number of milliseconds, not {text!r:.100}") from None
