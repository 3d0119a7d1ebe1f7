"""What the tests of the placement drivers' client share."""

from __future__ import annotations

import pytest

from rangelog_core.net import pd_client
from tests.support.call_clock import CallClock


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> CallClock:
    """The clock of every client of the test."""
    made = CallClock()
    monkeypatch.setattr(pd_client, "time", made)
    monkeypatch.setattr(pd_client, "_pause", made.pause)
    return made
