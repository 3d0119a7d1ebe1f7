"""The demo's parts that need no cluster: flights, ack log, timeline, report."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest

from rangelog_demo import ack_log, command, comparison, flights, report, report_parts, tiering, timeline, verify
from rangelog_proto.v1 import common_pb2
from tests.unit.workbench.demo.test_topic_scene import whole_outcome


def test_flights_are_all_there_in_timetable_order() -> None:
    """336,776 distinct flights by scheduled departure, keyed by carrier, numbers as numbers and NA as null."""
    found = flights.load_flights()
    assert len(found) == 336_776
    assert len({flight.value for flight in found}) == 336_776
    assert all(a.timestamp_ms <= b.timestamp_ms for a, b in itertools.pairwise(found))
    first = json.loads(found[0].value)
    assert (found[0].timestamp_ms, found[0].key) == (1_357_035_300_000, b"UA")  # 2013-01-01 05:15 in New York
    assert (first["flight"], first["dep_delay"], first["tailnum"]) == (1545, 2, "N14228")
    assert sum(b'"dep_time":null' in flight.value for flight in found) == 8_255


def test_spool_gives_back_the_flights(tmp_path: Path) -> None:
    """What a writer process reads is what was loaded."""
    some = [flights.Flight(1, b"UA", b'{"a":1}'), flights.Flight(2, b"", b"{}")]
    flights.write_spool(tmp_path / "spool", some)
    assert flights.read_spool(tmp_path / "spool") == some


def test_ack_log_keeps_what_was_noted(tmp_path: Path) -> None:
    """Slots are per flight; a submission without ack is told apart; the count reads cheaply while it is written."""
    path = tmp_path / "acks"
    assert ack_log.count_acks(path) == 0
    log = ack_log.AckLog(path, 4)
    log.submitted(1, 100)
    log.submitted(3, 200)
    log.acked(3, 250, 0, 2)
    assert ack_log.count_acks(path) == 1
    assert list(ack_log.read_acks(path)) == [
        ack_log.LoggedAck(1, 100, None, None),
        ack_log.LoggedAck(3, 200, 250, 0, 2),
    ]
    log.close()


MS = 1_000_000


def test_pause_is_put_down_to_the_kill_before_it() -> None:
    """A pause counts for the kill it spans or follows, not for the one after."""
    acks = [ack_log.LoggedAck(i, i * MS, i * MS + MS // 2, i) for i in range(1, 1000) if not 300 <= i < 500]
    kills = [timeline.Kill("a range server", "rs1", 299 * MS), timeline.Kill("the writer", "w", 800 * MS)]
    found = timeline.make_timeline(acks, kills)
    assert [round(kill.gap_ms) for kill in found.kills] == [201, 1]
    assert round(found.longest_gap_ms) == 201
    assert found.latency_p50_ms == 0.5
    assert found.acked == 799
    assert sum(bucket.acks_per_s / 10 for bucket in found.buckets) == pytest.approx(799)


def test_timeline_of_nothing() -> None:
    """No ack at all is no division by zero."""
    found = timeline.make_timeline([], [])
    assert (found.acked, found.longest_gap_ms, found.buckets) == (0, 0.0, [])


def test_report_is_one_page_without_references(tmp_path: Path) -> None:
    """The page holds plot, kills and checks, escapes what it shows, and loads nothing from elsewhere."""
    acks = [ack_log.LoggedAck(i, i * MS, i * MS + MS, i) for i in range(1, 2000)]
    kills = [timeline.Kill("the PD leader", "pd<2>", 500 * MS, 900 * MS)]
    data = report.ReportData(
        ok=False,
        last_line="demo: FAILED",
        timeline=timeline.make_timeline(acks, kills),
        checks=[report_parts.Check("read back", "2", "1", False)],
        steps=[report.Step("append", 1.0, "")],
        carriers=[report.CarrierRow("UA", 3, 1.5, 1.5, 0.0, 0.0)],
        machine="2 cores",
        pace="slowly",
    )
    report.write_report(tmp_path / "deep" / "r.html", data)
    page = (tmp_path / "deep" / "r.html").read_text()
    assert "<svg" in page
    assert "pd&lt;2&gt;" in page
    assert "demo: FAILED" in page
    for reference in ("src=", "<link", "<script", "url(http"):
        assert reference not in page


@pytest.mark.parametrize(
    ("ok", "flight_count", "explained"), [(True, 2099, True), (True, 1999, False), (False, 2099, False)]
)
def test_the_report_explains_acks_that_died_with_a_writer(ok: bool, flight_count: int, explained: bool) -> None:
    """Fewer acks than flights look like a loss: where all were read back the page says why they are not one."""
    acks = [ack_log.LoggedAck(i, i * MS, i * MS + MS, i) for i in range(1, 2000)]
    page = report.render(
        report.ReportData(
            ok=ok, last_line="", timeline=timeline.make_timeline(acks, []), checks=[], steps=[], carriers=[], machine="",
            pace="", flight_count=flight_count,
        )
    )  # fmt: skip
    assert ("100 of 2,099 acks died with the writer that was killed" in page) == explained
    assert ("acks died" in page) == explained


@pytest.mark.parametrize(
    ("order", "lost", "duplicated", "misordered"),
    [([0, 1, 2, 3], 0, 0, 0), ([0, 1, 3], 1, 0, 1), ([0, 1, 1, 2, 3], 0, 1, 2), ([1, 0, 2, 3], 0, 0, 2), ([], 4, 0, 0)],
)
def test_comparison_tells_loss_repeat_and_disorder_apart(
    order: list[int], lost: int, duplicated: int, misordered: int
) -> None:
    """Each kind of damage is counted as what it is, and only an intact log is ok."""
    some = [flights.Flight(i, b"UA", b"%d" % i) for i in range(4)]
    found = comparison.Comparison(some)
    for offset, index in enumerate(order):
        found.add(offset, index, b"UA", b"%d" % index)
    assert (found.lost, found.duplicated, found.misordered) == (lost, duplicated, misordered)
    assert found.ok == (order == [0, 1, 2, 3])


@pytest.mark.parametrize(("timestamp", "key", "value"), [(9, b"UA", b"0"), (0, None, b"0"), (0, b"UA", b"x")])
def test_comparison_notices_an_altered_record(timestamp: int, key: bytes | None, value: bytes) -> None:
    """Another timestamp, key or value is no match."""
    found = comparison.Comparison([flights.Flight(0, b"UA", b"0")])
    found.add(0, timestamp, key, value)
    assert found.altered == 1
    assert not found.ok


def test_last_line_is_what_scripts_expect() -> None:
    """The agreed line, word for word, and OK only while every check holds."""
    some = [flights.Flight(i, b"UA", b"%d" % i) for i in range(10)]
    acks = [ack_log.LoggedAck(i, i * MS, i * MS + MS, i) for i in range(10)]
    kills = [timeline.Kill(what, what, 5 * MS) for what in ("a range server", "the PD leader", "the writer")]
    outcome = command.DemoOutcome(total=10, appended=10, timeline=timeline.make_timeline(acks, kills), spark="yes")
    outcome.comparison = comparison.Comparison(some)
    for offset, flight in enumerate(some):
        outcome.comparison.add(offset, flight.timestamp_ms, flight.key, flight.value)
    outcome.sealed_end, outcome.tier_objects, outcome.dropped_ranges, outcome.parquet = 8, 3, 1, (3, 8, True)
    outcome.topic = whole_outcome()
    assert outcome.last_line == (
        "demo: OK appended=10 read=10 lost=0 duplicated=0 misordered=0 kills=3 "
        "longest_ack_gap_ms=1 spark_matches=yes tier_objects=3 "
        "topic_records=8 topic_lost=0 topic_duplicated=0 order_violations=0 broker_kills=2 "
        "longest_topic_gap_ms=12 table_matches=yes"
    )
    outcome.parquet = (3, 7, True)
    assert outcome.last_line.startswith("demo: FAILED appended=10 ")
    outcome.parquet, outcome.spark = (3, 8, True), "no"
    assert not outcome.ok
    outcome.spark, outcome.topic.counts = "yes", {}
    assert outcome.last_line.startswith("demo: FAILED appended=10 ")


def test_spark_and_pandas_must_agree_on_every_carrier() -> None:
    """Another count, another mean or a carrier too many is a mismatch; the last bits of a float are not."""
    pandas = {"AA": (2, 1.5, 0.25), "UA": (3, 2.0, 0.0)}
    same = {"AA": [2, 1.5 + 1e-15, 0.25], "UA": [3, 2.0, 0.0]}
    assert verify.answers_match(verify.join_answers(same, pandas))
    for carrier, answer in (
        ("AA", [1, 1.5, 0.25]),
        ("AA", [2, 1.6, 0.25]),
        ("AA", [2, 1.5, 0.3]),
        ("DL", [1, 1.0, 0.0]),
    ):
        assert not verify.answers_match(verify.join_answers(same | {carrier: answer}, pandas))
    assert not verify.answers_match([])


@pytest.mark.parametrize(
    ("ends", "older"),
    [([10], {0}), ([60, 100], {0}), ([40, 50, 100], {0, 1}), ([10, 20, 90, 100], {0, 1})],
    ids=["one range", "a long first range", "exactly half", "a long third range"],
)
def test_the_older_half_has_a_range_at_least(ends: list[int], older: set[int]) -> None:
    """However the kills divide the stream, one range is read from the object store alone."""
    sealed = [common_pb2.Range(index=index, end_offset=end) for index, end in enumerate(ends)]
    assert tiering.older_half(sealed) == older
