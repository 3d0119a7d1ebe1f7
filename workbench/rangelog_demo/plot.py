"""The demo's plot: acks per second above ack latency, over the same time, with a line at each kill and each mark."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from rangelog_demo.timeline import Timeline

_MUTED, _LINE = "#6b7785", "#e3e8ee"
_ACKS, _P50, _P99 = "#2563a8", "#2f8f6b", "#d98324"
_KILL, _MARK = "#c0392b", "#7b5ea7"


class Mark(NamedTuple):
    """Something else than a kill that happened meanwhile. The time is CLOCK_MONOTONIC in ns."""

    label: str
    at_ns: int


def plot_svg(timeline: Timeline, marks: Sequence[Mark] = ()) -> str:
    """The plot as SVG: see the module."""
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
            at_s = (kill.killed_ns - timeline.start_ns) / 1e9
            _draw_line((rate, latency), at_s, _KILL, f"kill -9 {kill.what}\n{kill.gap_ms:,.0f} ms pause", top=1.0)
        for mark in marks:
            _draw_line((rate, latency), (mark.at_ns - timeline.start_ns) / 1e9, _MARK, mark.label, top=0.16)
        target = io.StringIO()
        figure.savefig(target, format="svg", metadata={"Date": None})
        pyplot.close(figure)
    text = target.getvalue()
    return text[text.index("<svg") :]


def _draw_line(plots: Sequence[Any], at_s: float, color: str, label: str, *, top: float) -> None:
    """A line through all plots, with a label in the first one below the share `top` of its height."""
    for axes in plots:
        axes.axvline(at_s, color=color, linewidth=1.1, linestyle=(0, (4, 3)))
    plots[0].annotate(
        label,
        (at_s, top),
        xycoords=("data", "axes fraction"), xytext=(5, -3), textcoords="offset points",
        ha="left", va="top", color=color, fontsize=8.5,
        bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.85, "pad": 1.5},
    )  # fmt: skip


def _decades(timeline: Timeline) -> tuple[float, float]:
    """Whole powers of ten around the latencies, with room for the legend above."""
    low = min((bucket.latency_p50_ms for bucket in timeline.buckets if bucket.latency_p50_ms), default=1.0)
    high = max((bucket.latency_p99_ms for bucket in timeline.buckets if bucket.latency_p99_ms), default=1.0)
    return 10 ** math.floor(math.log10(low)), 10 ** math.ceil(math.log10(high)) * 3
