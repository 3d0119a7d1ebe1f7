"""Kafka and BookKeeper in `make bench`: the line that compares with them, and what a run of their scripts gives."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from rangelog_bench import measurement as m
from rangelog_bench.anchors import (
    BOOKKEEPER,
    BOOKKEEPER_FLUSH_WHEN_IDLE,
    COMPARED,
    KAFKA,
    KAFKA_FLUSHED,
    Anchor,
    anchor_line,
    ratio,
)
from rangelog_bench.measurement import Measurement
from rangelog_bench.report import OURS, comparison, markdown, summary_line

ROOT = Path(__file__).resolve().parents[4]
PEERS = ROOT / "bench" / "peers"


def figures(anchor: Anchor, rate: float, latency_ms: float, gap_ms: float) -> list[Measurement]:
    """All that the line needs of a system."""

    def rated(metric: str, size: int, value: float) -> Measurement:
        return Measurement(anchor.system, anchor.setting, metric, size, value, m.RECORDS_PER_S, {"mb_per_s": 1.0})

    percentiles = {"p50": latency_ms, "p99": 10 * latency_ms, "p99.9": 100 * latency_ms}
    return [
        rated(m.APPEND, 1024, rate),
        rated(m.CATCHUP, 100, 8 * rate),
        rated(m.CATCHUP, 1024, 4 * rate),
        rated(m.CATCHUP, 16384, rate),
        Measurement(anchor.system, anchor.setting, m.LATENCY, 1024, latency_ms, m.MS, percentiles),
        Measurement(anchor.system, anchor.setting, m.GAP_SERVER, 1024, gap_ms, m.MS),
    ]


US = figures(Anchor(OURS, "flushed"), 1000, 0.5, 20)


def fields(line: str) -> dict[str, str]:
    """The line's fields."""
    name, _, rest = line.partition(": ")
    assert name == "anchors"
    return dict(field.split("=") for field in rest.split(" "))


def test_the_line_has_the_agreed_form() -> None:
    """Seven ratios to each of three: appends, latencies, reads by size and the gap."""
    theirs = figures(KAFKA, 500, 1.0, 10_000) + figures(KAFKA_FLUSHED, 100, 5.0, 8_000)
    line = anchor_line([*US, *theirs, *figures(BOOKKEEPER, 250, 2.0, 40)], OURS)
    assert line == (
        "anchors: kafka_append_1k=2.00 kafka_latency_p50=0.50 kafka_latency_p99=0.50 "
        "kafka_catchup_100=2.00 kafka_catchup_1k=2.00 kafka_catchup_16k=2.00 kafka_gap=0.002 "
        "kafka_flushed_append_1k=10.00 kafka_flushed_latency_p50=0.10 kafka_flushed_latency_p99=0.10 "
        "kafka_flushed_catchup_100=10.00 kafka_flushed_catchup_1k=10.00 kafka_flushed_catchup_16k=10.00 "
        "kafka_flushed_gap=0.0025 "
        "bookkeeper_append_1k=4.00 bookkeeper_latency_p50=0.25 bookkeeper_latency_p99=0.25 "
        "bookkeeper_catchup_100=4.00 bookkeeper_catchup_1k=4.00 bookkeeper_catchup_16k=4.00 bookkeeper_gap=0.50"
    )


def test_settings_are_not_mixed_up() -> None:
    """The two settings of one system are compared apart, and a setting that is not compared counts for none."""
    line = anchor_line([*US, *figures(KAFKA_FLUSHED, 100, 5.0, 8_000)], OURS)
    assert {value for name, value in fields(line).items() if not name.startswith("kafka_flushed")} == {"-"}
    assert anchor_line([*US, *figures(BOOKKEEPER_FLUSH_WHEN_IDLE, 1, 1, 1)], OURS) == ""


def test_without_them_there_is_no_line_and_the_last_line_is_the_same() -> None:
    """A run without Kafka and BookKeeper ends as before, and one with them has the same summary."""
    assert anchor_line(US, OURS) == ""
    assert comparison(US) == summary_line(US)
    with_kafka = [*US, *figures(KAFKA, 500, 1.0, 10_000)]
    assert comparison(with_kafka).splitlines() == [anchor_line(with_kafka, OURS), summary_line(US)]


def test_what_is_missing_or_nought_is_a_dash() -> None:
    """Neither a figure that was not measured nor one of 0 is divided by."""
    line = anchor_line([*US[:-1], *figures(KAFKA, 0, 1.0, 10_000)], OURS)
    found = fields(line)
    assert (found["kafka_append_1k"], found["kafka_gap"], found["kafka_latency_p50"]) == ("-", "-", "0.50")


@pytest.mark.parametrize(("mine", "theirs", "text"), [(1, 3, "0.33"), (15, 10_000, "0.0015"), (100, 8, "12.50")])
def test_small_ratios_keep_two_digits(mine: float, theirs: float, text: str) -> None:
    """A gap that is a thousandth is not shown as nothing."""
    assert ratio(*(Measurement("a", "b", m.GAP_SERVER, 1, value, m.MS) for value in (mine, theirs))) == text


def test_the_tables_name_the_client_and_show_both_settings_of_kafka() -> None:
    """A reader of the table sees which client was measured, in a row for each setting."""
    text = markdown([*figures(KAFKA, 1, 1, 1), *figures(KAFKA_FLUSHED, 1, 1, 1), *figures(BOOKKEEPER, 1, 1, 1)])
    assert "| kafka, page cache, Java client |" in text
    assert "| kafka, flush on every append, Java client |" in text
    assert "| bookkeeper, flushed on 2 of 3, Java client |" in text


def test_jars_are_pinned_by_checksum() -> None:
    """Each peer in Java has exact versions and a SHA-256 for every jar."""
    for peer, fewest in (("kafka", 20), ("bookkeeper", 20), ("spark-kafka", 4)):
        versions = re.findall(r"<version>(.*?)</version>", (PEERS / "java" / peer / "pom.xml").read_text())
        assert all(re.fullmatch(r"[\d.]+", version) for version in versions)
        lines = (PEERS / "java" / peer / "jars.sha256").read_text().splitlines()
        assert len(lines) >= fewest
        assert all(re.fullmatch(r"[0-9a-f]{64} [ *][\w.+-]+\.jar", line) for line in lines)


def test_every_compared_anchor_is_a_system_of_make_bench() -> None:
    """What the line compares with is what `make bench` starts, by the same name of the setting."""
    listed = subprocess.run(
        [sys.executable, "-c", "import side_by_side; print(side_by_side.PEER_COMMANDS)"],
        cwd=ROOT / "bench", capture_output=True, text=True, timeout=30,
    )  # fmt: skip
    assert listed.returncode == 0, listed.stderr
    assert all(repr(anchor.setting) in listed.stdout for anchor in COMPARED.values())
