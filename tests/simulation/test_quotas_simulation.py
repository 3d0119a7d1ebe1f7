"""A writer over its quota in a simulated cluster: it keeps to the figure, leaves no range for it, loses nothing."""

from __future__ import annotations

import pytest

from tests.simulation.virtual_quotas import MEASURED_S, keeps_to_quota


@pytest.mark.parametrize("seed", [3, 5, 6])
def test_a_writer_keeps_to_its_quota(seed: int) -> None:
    """Three replicas hold the same writer off, each by its own count and at its own speed: the longest delay counts."""
    kept = keeps_to_quota(seed)
    assert 0.9 <= kept.part <= 1.05, kept
    assert kept.ranges <= 1 + kept.refused, kept
    assert kept.read == kept.appended > 0
    assert 0.5 * MEASURED_S < kept.held_s <= 1.3 * MEASURED_S, kept
