"""Figures of `rangelog bench`: exact percentiles, medians over rounds, lines of JSON, and the line that compares."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path

import pytest

from rangelog_bench import measurement as m
from rangelog_bench.measurement import Measurement, latency_details, medians, percentile, read_lines
from rangelog_bench.report import BEFORE, OURS, REFERENCE, markdown, show_rate, summary_line, tables

ROOT = Path(__file__).resolve().parents[4]


def figure(system: str, setting: str, metric: str, size: int, value: float, **details: float) -> Measurement:
    """A measurement in ms or records/s."""
    latency = metric in (m.LATENCY, m.TAIL, m.OPEN_LOOP, m.GAP_SERVER, m.GAP_PD, m.TAKEOVER)
    return Measurement(system, setting, metric, size, value, m.MS if latency else m.RECORDS_PER_S, dict(details))


@pytest.mark.parametrize(("percent", "expected"), [(50, 500), (90, 900), (99, 990), (99.9, 999), (100, 1000), (0, 1)])
def test_percentiles_are_exact(percent: float, expected: int) -> None:
    """Of 1 to 1000, p percent is the value that p percent of the values do not exceed."""
    assert percentile(range(1, 1001), percent) == expected


def test_a_single_stall_shows_in_the_highest_percentile_only() -> None:
    """One latency of 1 s among 999 of 1 ms is the maximum and no percentile below."""
    latencies = [0.001] * 999 + [1.0]
    random.Random(7).shuffle(latencies)
    found = latency_details(latencies)
    assert (found["p50"], found["p99"], found["p99.9"], found["max"]) == (1.0, 1.0, 1.0, 1000.0)
    assert found["count"] == 1000


def test_no_latency_is_an_error() -> None:
    """Nothing measured is told, not shown as zero."""
    with pytest.raises(ValueError, match="nothing was measured"):
        latency_details([])


def test_a_line_of_json_gives_the_measurement_back() -> None:
    """What is written is one line with the agreed fields, and reads back equal."""
    each = Measurement(
        "rangelog", "flushed", m.APPEND, 1024, 1.5, m.RECORDS_PER_S, {"mb_per_s": 2, "cpu_s": {"rs1": 1}}
    )
    line = each.to_json()
    assert "\n" not in line
    assert json.loads(line)["mb_per_s"] == 2
    assert read_lines(line + "\n\n") == [each]


@pytest.mark.parametrize("line", ["{}", "[]", "1", '{"system": "x"}', "not json"])
def test_other_lines_are_refused(line: str) -> None:
    """A line that is no measurement is an error that shows it."""
    with pytest.raises(ValueError):
        read_lines(line)


def test_rounds_become_medians_with_their_runs() -> None:
    """Value and details are medians over the rounds, nested ones too, and the runs are kept in order."""
    rounds = [
        Measurement("a", "s", m.APPEND, 1024, value, m.RECORDS_PER_S, {"mb_per_s": value / 10, "cpu_s": {"x": value}})
        for value in (30.0, 10.0, 20.0)
    ]
    other = figure("b", "s", m.APPEND, 1024, 5)
    found = medians([rounds[0], other, *rounds[1:]])
    assert [each.system for each in found] == ["a", "b"]
    assert found[0].value == 20.0
    assert found[0].details == {"mb_per_s": 2.0, "cpu_s": {"x": 20.0}, "runs": [30.0, 10.0, 20.0]}


def test_medians_of_medians_keep_all_runs() -> None:
    """Rounds that went through `medians` one by one count as the rounds they are."""
    singles = [medians([figure("a", "s", m.TAKEOVER, 1024, value)])[0] for value in (3.0, 1.0, 2.0)]
    assert medians(singles)[0].details["runs"] == [3.0, 1.0, 2.0]
    assert medians(singles)[0].value == 2.0


def comparison() -> list[Measurement]:
    """Ours and the reference's, all that the line needs."""
    theirs = [
        figure(*REFERENCE, m.APPEND, 1024, 100),
        figure(*REFERENCE, m.APPEND, 100, 100),
        figure(*REFERENCE, m.APPEND, 16384, 100),
        figure(*REFERENCE, m.LATENCY, 1024, 2.0, **{"p50": 2.0, "p99": 4, "p99.9": 8.0}),
        figure(*REFERENCE, m.TAIL, 1024, 2.0, **{"p50": 2.0, "p99": 4, "p99.9": 8.0}),
        figure(*REFERENCE, m.CATCHUP, 1024, 100),
    ]
    ours = [
        figure(OURS, "flushed", m.APPEND, 1024, 600),
        figure(OURS, "flushed", m.APPEND, 100, 700),
        figure(OURS, "flushed", m.APPEND, 16384, 250),
        figure(OURS, "flushed", m.LATENCY, 1024, 1.0, **{"p50": 1.0, "p99": 1.5, "p99.9": 2.0}),
        figure(OURS, "flushed", m.TAIL, 1024, 0.5, **{"p50": 0.5, "p99": 1, "p99.9": 1}),
        figure(OURS, "flushed", m.CATCHUP, 1024, 460),
        figure(OURS, "flushed", m.GAP_SERVER, 1024, 31.4),
        figure(OURS, "flushed", m.GAP_PD, 1024, 1.6),
        figure(OURS, "flushed", m.TAKEOVER, 1024, 99.7),
    ]
    return theirs + ours


def test_the_last_line_has_the_agreed_form() -> None:
    """Seven ratios to the reference of the same run and three gaps in ms."""
    assert summary_line(comparison()) == (
        "bench: append_1k=6.00 append_100=7.00 append_16k=2.50 latency_p50=0.50 latency_p999=0.25 tail_p50=0.25 "
        "catchup_1k=4.60 gap_server_ms=31 gap_pd_ms=2 takeover_ms=100"
    )


def test_an_earlier_commit_beside_ours_becomes_a_table_of_ratios() -> None:
    """Each figure of both is one row; what only one of them measured is left out."""
    earlier = [figure(BEFORE, "flushed", m.APPEND, 1024, 300), figure(BEFORE, "flushed", m.END_IDLE, 1024, 3.0)]
    found = dict(tables([*comparison(), *earlier]))
    (rows,) = [rows for title, rows in found.items() if title.startswith("Now against before")]
    assert rows[1:] == [[m.APPEND, "1024 B", "300", "600", "2.00"]]
    assert not any(title.startswith("Now against before") for title, _ in tables(comparison()))


def test_what_was_not_measured_is_a_dash() -> None:
    """Without the reference there are no ratios, and our own gaps stay."""
    ours = [each for each in comparison() if each.system == OURS]
    assert summary_line(ours).endswith("catchup_1k=- gap_server_ms=31 gap_pd_ms=2 takeover_ms=100")
    assert summary_line([]).count("=-") == 10


def test_a_cold_read_is_called_a_repeated_one_only_where_it_was() -> None:
    """Results of before the first time was told apart keep their plain names."""
    read = [figure("rangelog", "s", metric, 1024, 1.0, mb_per_s=100.0) for metric in (m.COLD_GET, m.COLD)]
    assert "as records |" in markdown(read)
    first = figure("rangelog", "s", m.COLD_FIRST, 1024, 1.0, mb_per_s=50.0)
    shown = markdown([*read, first])
    assert "as records, again | 100 | 1.00" in shown
    assert "the first time in a process | 50 | 0.50" in shown


def test_tables_show_every_system_once_a_metric() -> None:
    """Each title has a row for each system that was measured, sizes in order, and dashes where nothing was."""
    found = dict(tables(comparison()))
    heading, *rows = next(rows for title, rows in found.items() if title.startswith("Appended"))
    assert heading == ["system", "100 B", "1024 B", "16384 B"]
    assert len(rows) == 2
    text = markdown(comparison())
    assert "| longest gap between acks, a server killed | rangelog, flushed | 31 |" in text
    assert all(line.count("|") == lines[0].count("|") for lines in _blocks(text) for line in lines)


def _blocks(text: str) -> list[list[str]]:
    blocks = [[line for line in block.splitlines() if line.startswith("|")] for block in text.split("**\n\n")]
    return [block for block in blocks if block]


@pytest.mark.parametrize(
    ("value", "text"), [(12.4, "12"), (1234, "1.23k"), (98_765, "98.8k"), (999_600, "1.00M"), (2.5e6, "2.50M")]
)
def test_rates_have_three_digits(value: float, text: str) -> None:
    """A rate is as precise as its measurement is."""
    assert show_rate(value) == text


def test_what_the_peers_import_needs_nothing_but_the_standard_library() -> None:
    """The workload imports in a Python that sees no installed package at all."""
    code = f"import sys; sys.path.insert(0, {str(ROOT / 'workbench')!r}); import rangelog_bench.workload"
    done = subprocess.run([sys.executable, "-S", "-I", "-c", code], capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done.stderr
