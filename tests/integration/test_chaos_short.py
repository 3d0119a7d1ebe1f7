"""The short form of `make chaos`: some kinds of faults, once each, on a real cluster under load; nothing acked is lost."""

from __future__ import annotations

import random
from pathlib import Path

import chaos_engine
import chaos_report
import pytest
from chaos_faults import REGISTRY

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


def test_the_gap_around_a_fault_is_the_longest_pause_that_reaches_into_it() -> None:
    """Pauses before and after the fault do not count; one that begins before it, or ends after it, does, in full."""
    acks_ns = [ms * 1_000_000 for ms in (0, 500, 600, 610, 900, 910, 5_000)]
    assert chaos_report.ack_gap_ms(acks_ns, 605_000_000, 905_000_000) == 290
    assert chaos_report.ack_gap_ms(acks_ns, 100_000_000, 200_000_000) == 500
    assert chaos_report.ack_gap_ms(acks_ns, 905_000_000, 1_000_000_000) == 4_090
    assert chaos_report.ack_gap_ms([], 0, 1) == 0


def test_every_kind_comes_as_often_as_asked() -> None:
    """The order is drawn, the numbers are not; the same seed gives the same order."""
    kinds = list(REGISTRY)
    order = chaos_engine.schedule(kinds, 5, random.Random(1))
    assert order == chaos_engine.schedule(kinds, 5, random.Random(1))
    assert min(order.count(kind) for kind in kinds) == 5
