"""What a broker exports, and when it is ready."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from rangelog_broker.metrics import FIGURES, SILENCE_S_MAX, BrokerFacts, problems
from rangelog_broker.shards.tail import FetchMemory
from rangelog_broker.verbs.counts import ConsumeCounts, FetchCounts, ProduceCounts, ReadCounts, SendCounts


def facts(answered_s: float | None) -> BrokerFacts:
    """A broker at second 100."""
    port: Any = SimpleNamespace(counts=ProduceCounts(), connections={}, loop=SimpleNamespace(time=lambda: 100.0))
    registration: Any = SimpleNamespace(answered_s=answered_s, heartbeats=4, heartbeat_failures=1)
    host: Any = SimpleNamespace(assigned_count=3, opened_count=5, failures={"UNAVAILABLE": 2})
    fetches: Any = SimpleNamespace(counts=FetchCounts(), waiting_count=1, memory=FetchMemory(10))
    sends: Any = SimpleNamespace(counts=SendCounts(), topic_count=1)
    reads: Any = SimpleNamespace(counts=ReadCounts(), waiting_count=1, follow_count=1)
    consumes: Any = SimpleNamespace(counts=ConsumeCounts(commits=4), consumer_count=3)
    desk: Any = SimpleNamespace(fetches=fetches, sends=sends, reads=reads, consumes=consumes)
    return BrokerFacts(port, desk, SimpleNamespace(open_count=2), SimpleNamespace(open_count=1), host, registration)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("answered_s", "reason"),
    [(None, "not registered"), (100 - SILENCE_S_MAX, ""), (99 - SILENCE_S_MAX, "no placement driver has answered")],
)
def test_ready(answered_s: float | None, reason: str) -> None:
    """While a placement driver answers; for longer it counts as lost."""
    found = problems(facts(answered_s))
    assert reason in found[0] if reason else not found, found


def test_every_figure_is_read() -> None:
    """Also before the first answer of a placement driver."""
    found = {figure.name: figure.read(facts(None)) for figure in FIGURES}
    assert found["rangelog_broker_heartbeat_silence_seconds"] is None
    assert found["rangelog_broker_assigned"] == 3 and found["rangelog_broker_opening_failures_total"] == {
        "UNAVAILABLE": 2
    }
