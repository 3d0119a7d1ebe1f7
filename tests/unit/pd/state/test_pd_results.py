"""First results of commands: kept as long as anybody repeats a request, and bounded."""

from __future__ import annotations

from typing import Any

import pytest

from rangelog_core.errors import Overloaded
from rangelog_pd.state import results
from rangelog_pd.state.results import (
    RESULTS_AGE_MS_MAX,
    RESULTS_AGE_MS_MIN,
    RESULTS_BYTES_MAX,
    RESULTS_KEPT_MIN,
    RESULTS_USUAL,
    Results,
)
from rangelog_pd.state.versions import FEATURE_LEVEL
from rangelog_proto.v1 import pd_state_pb2


def fill(kept: Results, count: int, now_ms: int, *, size: int = 10) -> None:
    """As many results, all of one moment."""
    for number in range(count):
        kept.keep(f"r{now_ms}-{number}", now_ms, b"x" * size)


def test_at_full_rate_a_result_outlives_its_clients_repeats(pd: Any) -> None:
    """27,000 commands in a second, and then a repeat: it gets its first answer, and is not done twice."""
    pd.create_stream()
    first = pd.open_writer(request_id="a")
    later = pd_state_pb2.Command(version=FEATURE_LEVEL, now_ms=pd.wall_ms)
    later.open_writer.name = "s"
    for number in range(27_000):
        later.request_id = f"b{number}"
        pd.machine.apply(number, later.SerializeToString())
    pd.pass_ms(1_000)
    assert pd.open_writer(request_id="a") == first
    assert pd.state.streams[1].epoch == 27_001


def test_beyond_the_usual_number_only_the_young_are_kept() -> None:
    """Many results go once nobody repeats them any more; few stay for ten minutes."""
    kept = Results()
    fill(kept, RESULTS_USUAL + 500, 0)
    kept.has_room(RESULTS_AGE_MS_MIN - 1)
    assert len(kept) == RESULTS_USUAL + 500
    kept.has_room(RESULTS_AGE_MS_MIN)
    assert len(kept) == RESULTS_USUAL - 1
    kept.has_room(RESULTS_AGE_MS_MAX - 1)
    assert len(kept) == RESULTS_USUAL - 1
    kept.has_room(RESULTS_AGE_MS_MAX)
    assert len(kept) == RESULTS_KEPT_MIN


def test_after_a_step_of_time_the_last_ones_are_kept() -> None:
    """Time that steps forward by days makes nobody's answer of a second ago be forgotten."""
    kept = Results()
    fill(kept, RESULTS_KEPT_MIN, 0)
    kept.has_room(7 * 86_400_000)
    assert len(kept) == RESULTS_KEPT_MIN


def test_without_room_a_new_command_is_refused_and_may_come_again(pd: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Full of young results: Overloaded, nothing is done or kept; repeats are answered; a minute later it is done."""
    monkeypatch.setattr(results, "RESULTS_MAX", 3)
    monkeypatch.setattr(results, "RESULTS_USUAL", 2)
    monkeypatch.setattr(results, "RESULTS_KEPT_MIN", 1)
    pd.create_stream(request_id="a")
    first = pd.open_writer(request_id="b")
    pd.open_writer(request_id="c")
    for _ in range(2):
        with pytest.raises(Overloaded):
            pd.open_writer(request_id="d")
    assert pd.state.streams[1].epoch == 2
    assert pd.open_writer(request_id="b") == first
    pd.beat("rs1", log_end=5)
    assert pd.reconcile() == ["mark_log_ends"], "the leader's own commands need no room"
    pd.reload()
    pd.pass_ms(RESULTS_AGE_MS_MIN)
    assert pd.open_writer(request_id="d").stream.epoch == 3


def test_bytes_are_bounded_like_the_count() -> None:
    """Large results fill the room as well, and give it back when they are forgotten."""
    kept = Results()
    size = 40 * 1024
    fill(kept, RESULTS_BYTES_MAX // size, 0, size=size)
    fill(kept, 10, 1, size=size)
    assert not kept.has_room(RESULTS_AGE_MS_MIN - 1)
    assert kept.has_room(RESULTS_AGE_MS_MIN)
    assert Results(kept).has_room(RESULTS_AGE_MS_MIN)
    assert list(Results(kept)) == list(kept)
