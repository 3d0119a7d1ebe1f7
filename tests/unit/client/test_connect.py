"""The options of `rangelog.connect`: what they set, and what is refused before anything is made."""

from __future__ import annotations

from typing import Any

import pytest

import rangelog
import rangelog.sync
from rangelog.protocol.lag_limits import LAG_LIMITS, LagLimits
from rangelog.testing import FakeCluster
from rangelog_core.errors import InvalidArgument
from rangelog_core.limits import APPENDS_BYTES_MAX, BUDGET_BYTES_MIN, FETCHES_BYTES_MAX, MIB


async def test_budgets_are_options() -> None:
    """All writers of a client share one, all readers the other."""
    async with await rangelog.connect("h:1", appends_bytes_max=2 * MIB, fetches_bytes_max=3 * MIB) as client:
        assert client.connections.appends.bytes_max == 2 * MIB
        assert client.connections.fetches.bytes_max == 3 * MIB
    async with await rangelog.connect("h:1") as client:
        assert client.connections.appends.bytes_max == APPENDS_BYTES_MAX
        assert client.connections.fetches.bytes_max == FETCHES_BYTES_MAX


@pytest.mark.parametrize("name", ["appends_bytes_max", "fetches_bytes_max"])
@pytest.mark.parametrize("size_bytes", [0, -1, BUDGET_BYTES_MIN - 1, 1e9, True, "1"])
async def test_a_budget_that_is_none(name: str, size_bytes: Any) -> None:
    """The message names the option and the least value; the blocking client refuses it too."""
    with pytest.raises(InvalidArgument, match=f"{name} must be .* from {BUDGET_BYTES_MIN} up"):
        await rangelog.connect("h:1", **{name: size_bytes})
    with pytest.raises(InvalidArgument, match=name):
        rangelog.sync.connect("h:1", **{name: size_bytes})


async def test_lag_limits_are_options(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the environment count where none are given; bad ones are refused."""
    async with await rangelog.connect("h:1") as client:
        assert client.internal.lag_limits == LAG_LIMITS
    monkeypatch.setenv("RANGELOG_REPLICA_LAG_MS_MAX", "60000")
    async with await rangelog.connect("h:1", replica_lag_ms_min=1_000) as client:
        assert client.internal.lag_limits == LagLimits(1_000, 60_000)
    with pytest.raises(InvalidArgument, match="replica_lag_ms_min"):
        await rangelog.connect("h:1", replica_lag_ms_min=0)
    with pytest.raises(InvalidArgument, match="replica_lag_ms_min must not be more"):
        rangelog.sync.connect("h:1", replica_lag_ms_min=3_000, replica_lag_ms_max=2_000)


async def test_a_writers_appender_goes_by_them() -> None:
    """They reach the core, which decides: test_lag_limits.py."""
    with FakeCluster() as cluster:
        async with cluster.client() as client:
            await client.create_stream("s")
            client.internal.lag_limits = limits = LagLimits(60_000, 60_000)
            async with client.writer("s") as writer:
                assert writer._running().core._lag_limits is limits
