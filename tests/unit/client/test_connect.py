"""The options of `rangelog.connect`: what they set, and what is refused before anything is made."""

from __future__ import annotations

from typing import Any

import pytest

import rangelog
import rangelog.sync
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
