"""The demo's report: one HTML page without outside references, with a plot of the appends and every check's result."""

from __future__ import annotations

import html
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rangelog_cli.demo.timeline import Kill, Timeline

_INK, _MUTED, _LINE = "#1f2933", "#6b7785", "#e3e8ee"
_ACKS, _P50, _P99 = "#2563a8", "#2f8f6b", "#d98324"
_KILL = "#c0392b"


@dataclass(frozen=True)
class Check:
    """One check: the expected and the found value."""

    name: str
    expected: str
    found: str
    ok: bool


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
        '<section class="tiles">' + "".join(_tile(value, label) for value, label in tiles) + "</section>",
        (
            f"<section><h2>Appending through three kills</h2><p>{html.escape(data.pace)}</p>"
            f"<figure>{plot_svg(timeline)}</figure>{_kills(timeline)}</section>"
        ),
        f"<section><h2>What was checked</h2>{_checks(data.checks)}</section>",
        _carriers(data.carriers),
        f"<section><h2>Where the time went</h2>{_steps(data.steps)}</section>",
        f"<section><h2>The last line</h2><pre>{html.escape(data.last_line)}</pre></section>",
    ]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>rangelog demo</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{_STYLE}</style></head><body><main>{''.join(sections)}</main></body></html>\n"
    )


def plot_svg(timeline: Timeline) -> str:
    """Acks per second above ack latency, over the same time, with a line at each kill."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot
    from matplotlib.ticker import FuncFormatter, NullFormatter

    style: Any = {"font.family": "DejaVu Sans", "font.size": 9, "svg.fonttype": "path", "svg.hashsalt": "rangelog"}
    with pyplot.rc_context(style):
        figure, (rate, latency) = pyplot.subplots(
            2, 1, sharex=True, figsize=(10, 5.6), height_ratios=(3, 2), layout="constrained"
        )
        times = [bucket.start_s for bucket in timeline.buckets]
        rates = [bucket.acks_per_s for bucket in timeline.buckets]
        rate.fill_between(times, rates, step="post", color=_ACKS, alpha=0.18, linewidth=0)
        rate.step(times, rates, where="post", color=_ACKS, linewidth=1.2)
        rate.set_ylabel("acks per second")
        rate.set_ylim(0, max(rates, default=1.0) * 1.22)
        rate.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
        for label, color, values in (
            ("median", _P50, [bucket.latency_p50_ms for bucket in timeline.buckets]),
            ("99th percentile", _P99, [bucket.latency_p99_ms for bucket in timeline.buckets]),
        ):
            known = [float("nan") if value is None else value for value in values]
            latency.plot(times, known, color=color, linewidth=1.3, label=label)
        latency.set_yscale("log")
        latency.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        latency.yaxis.set_minor_formatter(NullFormatter())
        latency.set_ylim(*_decades(timeline))
        latency.set_ylabel("ack latency, ms (log)")
        latency.set_xlabel("seconds since the first ack")
        latency.legend(loc="upper right", frameon=False, ncols=2)
        for axes in (rate, latency):
            axes.grid(axis="y", color=_LINE, linewidth=0.8)
            axes.set_axisbelow(True)
            axes.spines[["top", "right"]].set_visible(False)
            axes.spines[["left", "bottom"]].set_color(_LINE)
            axes.tick_params(colors=_MUTED, length=3)
            axes.margins(x=0.01)
            for kill in timeline.kills:
                axes.axvline(
                    (kill.killed_ns - timeline.start_ns) / 1e9, color=_KILL, linewidth=1.1, linestyle=(0, (4, 3))
                )
        for kill in timeline.kills:
            rate.annotate(
                f"kill -9 {kill.what}\n{kill.gap_ms:,.0f} ms pause",
                ((kill.killed_ns - timeline.start_ns) / 1e9, 1.0),
                xycoords=("data", "axes fraction"), xytext=(5, -3), textcoords="offset points",
                ha="left", va="top", color=_KILL, fontsize=8.5,
                bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.85, "pad": 1.5},
            )  # fmt: skip
        target = io.StringIO()
        figure.savefig(target, format="svg", metadata={"Date": None})
        pyplot.close(figure)
    text = target.getvalue()
    return text[text.index("<svg") :]


def _decades(timeline: Timeline) -> tuple[float, float]:
    """Whole powers of ten around the latencies, with room for the legend above."""
    low = min((bucket.latency_p50_ms for bucket in timeline.buckets if bucket.latency_p50_ms), default=1.0)
    high = max((bucket.latency_p99_ms for bucket in timeline.buckets if bucket.latency_p99_ms), default=1.0)
    return 10 ** math.floor(math.log10(low)), 10 ** math.ceil(math.log10(high)) * 3


def _tile(value: str, label: str) -> str:
    return f'<div class="tile"><b>{html.escape(value)}</b><span>{html.escape(label)}</span></div>'


def _kills(timeline: Timeline) -> str:
    rows = [
        (
            kill.what,
            kill.process,
            f"{(kill.killed_ns - timeline.start_ns) / 1e9:.2f} s",
            f"{kill.gap_ms:,.0f} ms",
            _back(kill),
        )
        for kill in timeline.kills
    ]
    return _table(("killed with kill -9", "process", "at", "longest pause after it", "back"), rows)


def _back(kill: Kill) -> str:
    if kill.replaced_by:
        return kill.replaced_by
    if kill.restarted_ns is None:
        return "–"
    return f"after {(kill.restarted_ns - kill.killed_ns) / 1e9:.2f} s"


def _checks(checks: Sequence[Check]) -> str:
    rows = "".join(
        f'<tr><td class="mark {"ok" if check.ok else "bad"}">{"✓" if check.ok else "✗"}</td>'
        f"<td>{html.escape(check.name)}</td><td>{html.escape(check.expected)}</td><td>{html.escape(check.found)}</td></tr>"
        for check in checks
    )
    return f"<table><thead><tr><th></th><th>check</th><th>expected</th><th>found</th></tr></thead><tbody>{rows}</tbody></table>"


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
        f"ranges in one plan; pandas over the CSV file.</p>{_table(head, rows, numbers_from=1)}</section>"
    )


def _steps(steps: Sequence[Step]) -> str:
    return _table(("step", "seconds", ""), [(step.name, f"{step.seconds:.1f}", step.note) for step in steps])


def _table(head: Sequence[str], rows: Sequence[Sequence[str]], *, numbers_from: int = 99) -> str:
    top = "".join(f"<th{_align(i, numbers_from)}>{html.escape(text)}</th>" for i, text in enumerate(head))
    body = "".join(
        "<tr>"
        + "".join(f"<td{_align(i, numbers_from)}>{html.escape(text)}</td>" for i, text in enumerate(row))
        + "</tr>"
        for row in rows
    )
    return f"<table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>"


def _align(column: int, numbers_from: int) -> str:
    return ' class="number"' if column >= numbers_from else ""


_STYLE = """
:root { color-scheme: light; }
body { margin: 0; background: #f5f7f9; color: #1f2933; font: 15px/1.5 system-ui, "Segoe UI", "DejaVu Sans", sans-serif; }
main { max-width: 1020px; margin: 0 auto; padding: 28px 20px 60px; }
header { border-left: 6px solid #2f8f6b; padding: 2px 0 2px 18px; margin-bottom: 22px; }
header.bad { border-color: #c0392b; }
h1 { font-size: 26px; margin: 0; letter-spacing: -0.01em; }
h2 { font-size: 17px; margin: 0 0 12px; }
.verdict { font-size: 18px; margin: 4px 0 0; } header.ok .verdict { color: #247453; } header.bad .verdict { color: #c0392b; }
.sub, section p { color: #6b7785; margin: 2px 0 0; } section p { margin-bottom: 12px; }
section, .tile { background: #fff; border: 1px solid #e3e8ee; border-radius: 8px; }
section { padding: 18px 20px; margin-bottom: 18px; overflow-x: auto; }
section.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(165px, 1fr)); gap: 12px; }
section.tiles { padding: 0; border: 0; background: none; }
.tile { padding: 12px 16px; }
.tile b { display: block; font-size: 21px; font-weight: 600; } .tile span { color: #6b7785; font-size: 13px; }
figure { margin: 0 0 14px; } figure svg { width: 100%; height: auto; display: block; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th { text-align: left; font-weight: 600; color: #6b7785; font-size: 13px; }
th, td { padding: 6px 12px 6px 0; border-bottom: 1px solid #eef1f4; vertical-align: top; }
tbody tr:last-child td { border-bottom: 0; }
.number { text-align: right; }
.mark { width: 1.4em; font-weight: 700; } .mark.ok { color: #2f8f6b; } .mark.bad { color: #c0392b; }
pre { margin: 0; white-space: pre-wrap; overflow-wrap: anywhere; font: 13px/1.5 ui-monospace, "DejaVu Sans Mono", monospace; }
"""
