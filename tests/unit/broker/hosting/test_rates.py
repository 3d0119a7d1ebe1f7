"""Moving averages of a shard's load, and which loads are reported."""

from __future__ import annotations

import pytest

from rangelog_broker.hosting.load_report import LoadReport
from rangelog_broker.hosting.rates import MovingRates, decay, rounded
from rangelog_proto.v1 import broker_pb2


def run(rates: MovingRates, events_per_s: int, seconds: int, *, total: int = 0, minute_s: float = 60.0) -> int:
    """Count once a second; return the counter."""
    each = decay(1.0, minute_s)
    for _ in range(seconds):
        total += events_per_s
        rates.count(total, total * 100, each)
    return total


def test_the_averages_near_a_constant_rate_each_in_its_window() -> None:
    """After its own window an average is at 63 % of the rate; the shorter ones are nearer to it."""
    rates = MovingRates()
    run(rates, 1_000, 300)
    averages = rates.events_averages
    assert averages[1] == pytest.approx(632, rel=0.04)
    assert averages == sorted(averages, reverse=True)
    assert rates.bytes_averages[1] == pytest.approx(63_200, rel=0.04)
    run(rates, 1_000, 7_200, total=300_000)
    assert all(each == pytest.approx(1_000, rel=0.04) for each in rates.events_averages)


def test_a_shard_is_mature_after_twice_the_longest_window_and_no_earlier() -> None:
    """Before that a low average may only mean that the owner is new."""
    rates = MovingRates()
    total = run(rates, 100, 2_399)
    assert not rates.mature
    assert rates.events_averages[3] < 90
    run(rates, 100, 1, total=total)
    assert rates.mature
    assert rates.events_averages == [100, 100, 100, 100]


def test_a_shorter_minute_shortens_all_windows() -> None:
    """Tests and the demonstration run hours in seconds."""
    rates = MovingRates()
    run(rates, 1_000, 30, minute_s=0.1)
    assert rates.mature
    assert all(each == pytest.approx(1_000, rel=0.04) for each in rates.events_averages)


def test_counters_of_another_opening_are_no_negative_rate() -> None:
    """A shard that is opened again counts from 0."""
    rates = MovingRates()
    run(rates, 500, 10)
    rates.count(0, 0, decay(1.0))
    assert rates.events_per_s == rates.bytes_per_s == 0
    assert all(each >= 0 for each in rates.events_averages)


@pytest.mark.parametrize("rate", [0.0, 0.49, 1.0, 31.5, 64.0, 1e3, 123_456.0, 9e15])
def test_a_rounded_rate_is_near(rate: float) -> None:
    """Within 3 %, or half an event."""
    assert rounded(rate) == pytest.approx(rate, rel=0.03, abs=0.5)


def load(shard_id: int, events: int) -> broker_pb2.ShardLoad:
    return broker_pb2.ShardLoad(topic_id=1, shard_id=shard_id, events_per_s=events)


def test_only_changed_loads_are_reported_once_all_are_known() -> None:
    """A shard that is closed, or idle again, is reported as 0 once."""
    report = LoadReport()
    both = {(1, 0): load(0, 5), (1, 1): load(1, 7)}
    assert report.next(both) == (list(both.values()), True)
    report.answered()
    assert report.next({(1, 0): load(0, 5), (1, 1): load(1, 8)}) == ([load(1, 8)], False)
    report.answered()
    assert report.next({(1, 0): load(0, 5)}) == ([load(1, 0)], False)
    report.answered()
    assert report.next({(1, 0): load(0, 5)}) == ([], False)


def test_after_a_heartbeat_without_an_answer_all_loads_are_reported() -> None:
    """It may have arrived, or not."""
    report = LoadReport()
    report.next({(1, 0): load(0, 5)})
    report.answered()
    report.next({(1, 0): load(0, 6)})
    report.forget()
    assert report.next({(1, 0): load(0, 6)}) == ([load(0, 6)], True)
