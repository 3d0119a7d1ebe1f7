"""`rangelog bench --topics`: which measurements are chosen, and the table beside its targets."""

from __future__ import annotations

import pytest

from rangelog_bench import measurement as m
from rangelog_bench.command import NAMES, choose
from rangelog_bench.measurement import Measurement
from rangelog_bench.report import tables
from rangelog_bench.topics.report import TARGETS, target_rows
from rangelog_bench.topics.round import TOPICS
from rangelog_core.errors import InvalidArgument


def _measured(metric: str, value: float, **details: object) -> Measurement:
    return Measurement("rangelog", "flushed on 2 of 3", metric, 1024, value, m.MS, dict(details))


def test_topics_are_measured_on_request_only() -> None:
    """Without the flag nothing of topics is measured, with it nothing else."""
    assert choose([], topics=False, own_cluster=True) == list(NAMES)
    assert choose([], topics=True, own_cluster=True) == list(TOPICS)
    assert not set(NAMES) & set(TOPICS)


def test_single_measurements_are_chosen_by_name() -> None:
    """--only takes the names of both kinds, in the order of the tables."""
    assert choose(["table", "producers"], topics=True, own_cluster=True) == ["producers", "table"]
    assert choose(["split", "latency"], topics=False, own_cluster=True) == ["latency", "split"]


@pytest.mark.parametrize(
    ("only", "topics", "own_cluster"),
    [(["nothing"], True, True), (["latency"], True, True), (["table"], False, False), ([], True, False)],
)
def test_what_cannot_be_measured_is_refused(only: list[str], topics: bool, own_cluster: bool) -> None:
    """An unknown name, one of the other kind, and topics of a cluster that is not the benchmark's own."""
    with pytest.raises(InvalidArgument):
        choose(only, topics=topics, own_cluster=own_cluster)


def test_a_table_sets_each_figure_beside_its_target() -> None:
    """Rates are to be at least the target, times at most; what was not measured has no row."""
    found = [
        _measured(m.BROKER_GAP, 120.0, p50=120.0, max=620.0, shards=100, runs=[120.0]),
        _measured(m.TABLE_GET, 25_000.0, runs=[24_000.0, 26_000.0]),
    ]
    _, *rows = target_rows(found)
    assert [row[1:4] for row in rows] == [
        ["120 ms", "≤ 150 ms", "yes"],
        ["620 ms", "≤ 500 ms", "no"],
        ["25,000", "≥ 20,000", "yes"],
    ]
    assert rows[0][0] == "broker killed, 100 shards: longest ack gap of a shard, p50"
    assert ("Topics, groups, journals and tables: rangelog", [_, *rows]) in tables(found)


def test_every_target_is_of_a_metric_of_its_own() -> None:
    """No two rows of the table compare the same figure."""
    assert len({(target.metric, target.detail) for target in TARGETS}) == len(TARGETS)
