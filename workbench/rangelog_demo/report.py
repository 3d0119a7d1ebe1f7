"""The demo's report: one HTML page without outside references, with a plot of the appends and every check's result."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rangelog_demo.plot import plot_svg
from rangelog_demo.report_parts import STYLE, Check, checks_table, kills_table, table, tile
from rangelog_demo.timeline import Timeline


@dataclass(frozen=True)
class CarrierRow:
    """The answer of both engines for one carrier."""

    carrier: str
    flights: int
    mean_delay_spark: float
    mean_delay_pandas: float
    cancelled_share_spark: float
    cancelled_share_pandas: float


@dataclass(frozen=True)
class Step:
    """One part of the demo and how long it took."""

    name: str
    seconds: float
    note: str


@dataclass(frozen=True)
class ReportData:
    """The data of the report's page."""

    ok: bool
    last_line: str
    timeline: Timeline
    checks: Sequence[Check]
    steps: Sequence[Step]
    carriers: Sequence[CarrierRow]
    machine: str
    pace: str
    flight_count: int = 0
    """How many flights were to be appended."""
    more_sections: Sequence[str] = ()
    """Sections of HTML, between the results of the first scene and the times."""


def write_report(path: Path, data: ReportData) -> None:
    """Write the page (folders are made)."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(render(data), encoding="utf-8")


def render(data: ReportData) -> str:
    """The page as text."""
    timeline = data.timeline
    gap = f"{timeline.longest_gap_ms:,.0f} ms"
    tiles = [
        (f"{timeline.acked:,}", "acks seen by the writers"),
        (f"{timeline.acked / timeline.duration_s:,.0f}/s" if timeline.duration_s else "–", "mean, kills included"),
        (f"{timeline.latency_p50_ms:,.1f} ms", "median ack latency, pipelined"),
        (f"{timeline.latency_p99_ms:,.1f} ms", "99th percentile"),
        (gap, "longest pause between acks"),
    ]
    verdict = "Every flight is there, once, in order." if data.ok else "Something did not hold."
    sections = [
        (
            f'<header class="{"ok" if data.ok else "bad"}"><h1>rangelog demo</h1><p class="verdict">{verdict}</p>'
            f'<p class="sub">{html.escape(data.machine)}</p></header>'
        ),
        '<section class="tiles">' + "".join(tile(value, label) for value, label in tiles) + "</section>",
        _unseen_acks(data),
        (
            f"<section><h2>Appending through three kills</h2><p>{html.escape(data.pace)}</p>"
            f"<figure>{plot_svg(timeline)}</figure>{kills_table(timeline)}</section>"
        ),
        f"<section><h2>What was checked</h2>{checks_table(data.checks)}</section>",
        _carriers(data.carriers),
        *data.more_sections,
        f"<section><h2>Where the time went</h2>{_steps(data.steps)}</section>",
        f"<section><h2>The last line</h2><pre>{html.escape(data.last_line)}</pre></section>",
    ]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>rangelog demo</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{STYLE}</style></head><body><main>{''.join(sections)}</main></body></html>\n"
    )


def _unseen_acks(data: ReportData) -> str:
    """Why the first figure may be below the number of flights: a killed writer takes acks along."""
    unseen = data.flight_count - data.timeline.acked
    if unseen <= 0 or not data.ok:
        return ""
    every = f"{data.flight_count:,}"
    return (
        f"<section><p>{unseen:,} of {every} acks died with the writer that was killed: it had not noted them yet. The flights "
        f"themselves were on disk, and the next writer went on behind them: all {every} were read back.</p></section>"
    )


def _carriers(carriers: Sequence[CarrierRow]) -> str:
    if not carriers:
        return ""
    rows = [
        (
            row.carrier,
            f"{row.flights:,}",
            f"{row.mean_delay_spark:.4f}",
            f"{row.mean_delay_pandas:.4f}",
            f"{row.cancelled_share_spark:.4%}",
            f"{row.cancelled_share_pandas:.4%}",
        )
        for row in carriers
    ]
    head = ("carrier", "flights", "mean delay, Spark", "mean delay, pandas", "cancelled, Spark", "cancelled, pandas")
    return (
        "<section><h2>The same question to Spark and to pandas</h2>"
        "<p>Mean departure delay in minutes and share of cancelled flights: Spark SQL over the stream, hot and tiered "
        f"ranges in one plan; pandas over the CSV file.</p>{table(head, rows, numbers_from=1)}</section>"
    )


def _steps(steps: Sequence[Step]) -> str:
    return table(("step", "seconds", ""), [(step.name, f"{step.seconds:.1f}", step.note) for step in steps])
