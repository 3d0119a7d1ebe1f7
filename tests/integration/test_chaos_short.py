"""The short form of `make chaos`: some kinds of faults, once each, on a real cluster under load; nothing acked is lost."""

from __future__ import annotations

from pathlib import Path

import chaos_engine
import pytest

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]

KINDS = (
    "range-server-killed",
    "pd-leader-killed",
    "everything-killed",
    "writer-paused",
    "range-server-cut-off",
    "flush-fails",
    "disk-lost",
)
SEED = 20
EACH_KIND_EVERYWHERE = 5
"""The others need a network namespace or strace."""


def test_nothing_acked_is_lost_under_faults(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Kills, a pause with a takeover, a partition, a failing flush and a lost disk: all acked is read back, once, in order."""
    said: list[str] = []
    result = chaos_engine.run(tmp_path / "run", KINDS, 1, SEED, said.append)
    with capsys.disabled():
        print(f"\n{result.last_line}")
    assert result.clean, "\n".join([*said, result.text])
    assert result.figures["faults"] >= EACH_KIND_EVERYWHERE, said
    assert result.figures["acked"] == result.figures["final"] - result.figures["unknown_found"]
    assert result.figures["read"] > 0
    assert result.figures["takeovers"] == 1
