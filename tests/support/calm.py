"""Calm time-outs for tests of real processes: a stall of the machine for a second makes no other history.

A test whose subject is a short time-out, or which waits for what one brings, has the marker `hasty`: its cluster and its
writers have production's, whatever other tests of the process have set. Elections keep production's times: with longer ones a
group of three starts later.
"""

from __future__ import annotations

import pytest

from rangelog._lag_settings import LAG_MS_MAX_ENV, LAG_MS_MIN_ENV

_LAG_MS = str(60_000)
CALM_WRITERS = {LAG_MS_MIN_ENV: _LAG_MS, LAG_MS_MAX_ENV: _LAG_MS}
"""Of programs, the test's own process and its commands among them."""

CALM = {
    "RANGELOG_PD_SERVER_SUSPECT_MS": str(60_000),
    "RANGELOG_PD_SERVER_DEAD_MS": str(90_000),
    "RANGELOG_BROKER_REPLICA_LAG_MS_MIN": _LAG_MS,
    "RANGELOG_BROKER_REPLICA_LAG_MS_MAX": _LAG_MS,
    **CALM_WRITERS,
}
"""Of a cluster's processes."""


def set_patience(patch: pytest.MonkeyPatch, *, hasty: bool) -> None:
    """Set the environment of this process and of its children: writers are as patient as `CALM_WRITERS`, or as production's.

    Spark's tests set it for the rest of their session. A hasty test of the same worker removes it: with limits of 60 s its
    writer waits for a server that stands still longer than the test does.
    """
    for name, value in CALM_WRITERS.items():
        if hasty:
            patch.delenv(name, raising=False)
        else:
            patch.setenv(name, value)
