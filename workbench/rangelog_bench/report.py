"""Measurements for people: tables (on a terminal and in Markdown), a plot, and the one line of a comparison.

Standard library only, but for the plot.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from rangelog_bench import measurement as m
from rangelog_bench.anchors import anchor_line
from rangelog_bench.measurement import Measurement
from rangelog_bench.topics.report import target_rows

Row = list[str]
REFERENCE = ("nats-jetstream", "sync always")
"""The peer that the line's ratios are against: system and setting."""
OURS = "rangelog"
BEFORE = "rangelog before"
"""An earlier commit of it, measured beside it."""

_RATES = (m.APPEND, m.PRODUCERS, m.PRODUCERS_KEYED, m.CATCHUP, m.CATCHUP_ARROW)
_TITLES = {
    m.APPEND: "Appended flat out, records/s (MB/s)",
    m.PRODUCERS: "100 producers of one topic with 8 shards, records/s (MB/s)",
    m.PRODUCERS_KEYED: "The same, records with keys, records/s (MB/s)",
    m.CATCHUP: "Read from the start, records/s (MB/s)",
    m.CATCHUP_ARROW: "Read from the start as Arrow, records/s (MB/s)",
    m.LATENCY: "One in flight, ms: p50 / p99 / p99.9",
    m.OPEN_LOOP: "Open loop at a fixed rate, ms: p50 / p99 / p99.9",
    m.TAIL: "Append due until a reader has it, ms: p50 / p99 / p99.9",
}
_WIDTH = 120
_GAPS = {
    m.GAP_SERVER: "longest gap between acks, a server killed",
    m.GAP_PD: "longest gap between acks, the leading placement driver killed",
    m.TAKEOVER: "second writer, from its start to its first ack",
    m.END_BUSY: "asking for the end while the log is appended to",
    m.END_IDLE: "asking for the end while the writer rests",
}


def show_rate(value: float) -> str:
    """A rate for a table: 3 digits."""
    if value >= 1e6:
        return f"{value / 1e6:.2f}M"
    if value >= 1e3:
        return f"{value / 1e3:.3g}k" if value < 999_500 else "1.00M"
    return f"{value:.0f}"


def show_value(each: Measurement) -> str:
    """Return a figure with its important details."""
    details = each.details
    if each.unit == m.RECORDS_PER_S:
        return (
            f"{show_rate(each.value)} ({details['mb_per_s']:.3g})" if "mb_per_s" in details else show_rate(each.value)
        )
    if each.unit == m.PER_S:
        return show_rate(each.value)
    if each.unit == m.MS and "p99.9" in details:
        return " / ".join(f"{details[name]:.3g}" for name in ("p50", "p99", "p99.9"))
    return f"{each.value:.4g} {each.unit}"


def tables(results: Sequence[Measurement]) -> list[tuple[str, list[Row]]]:
    """(title, rows with the heading first) for everything that was measured."""
    found: list[tuple[str, list[Row]]] = []
    for metric, title in _TITLES.items():
        mine = [each for each in results if each.metric == metric]
        if mine:
            found.append((title, _by_size(mine)))
    versions = [name for name in (OURS, BEFORE) if any(each.system == name for each in results)]
    alone = [(name, [each for each in results if each.system == name]) for name in versions]
    for title, rows in (
        ("Failover, ms", _gap_rows(results)),
        *((f"Many streams open at once, 1 KiB: {name}", _stream_rows(mine)) for name, mine in alone),
        *((f"Read from the tier, MB/s: {name}", _cold_rows(mine)) for name, mine in alone),
        *((f"Topics, groups, journals and tables: {name}", target_rows(mine)) for name, mine in alone),
        ("Processor time of all processes, s per GB", _cpu_rows(results)),
        ("Now against before (above 1: more records, or a longer time)", _change_rows(results)),
    ):
        if len(rows) > 1:
            found.append((title, rows))
    return found


def markdown(results: Sequence[Measurement]) -> str:
    """All tables as Markdown."""
    parts: list[str] = []
    for title, (heading, *rows) in tables(results):
        lines = [f"| {' | '.join(heading)} |", f"|{'---|' * len(heading)}"]
        lines += [f"| {' | '.join(row)} |" for row in rows]
        parts.append(f"**{title}**\n\n" + "\n".join(lines) + "\n")
    return "\n".join(parts)


def print_tables(results: Sequence[Measurement]) -> None:
    """All tables on the terminal."""
    from rich.console import Console
    from rich.table import Table

    console = Console()
    if not console.is_terminal:
        console.width = _WIDTH
    for title, (heading, *rows) in tables(results):
        table = Table(title=title, title_justify="left", title_style="bold")
        for number, name in enumerate(heading):
            table.add_column(name, justify="left" if number == 0 else "right")
        for row in rows:
            table.add_row(*row)
        console.print(table)


def comparison(results: Sequence[Measurement]) -> str:
    """Return the last lines of a comparison: that of the anchors, if any was measured, and the summary line."""
    return "\n".join(filter(None, (anchor_line(results, OURS), summary_line(results))))


def summary_line(results: Sequence[Measurement]) -> str:
    """The last line of a comparison: ratios to the reference (below 1 is better for latencies), and our gaps in ms.

    `-` for what was not measured.
    """
    found = {(each.system, each.setting, each.metric, each.record_size): each for each in results}

    def ratio(metric: str, size: int, detail: str | None = None) -> str:
        ours = [each for each in results if (each.system, each.metric, each.record_size) == (OURS, metric, size)]
        theirs = found.get((*REFERENCE, metric, size))
        if not ours or theirs is None:
            return "-"
        mine, other = ((each.details[detail] if detail else each.value) for each in (ours[0], theirs))
        return f"{mine / other:.2f}" if other else "-"

    def gap(metric: str) -> str:
        ours = [each for each in results if each.system == OURS and each.metric == metric]
        return f"{ours[0].value:.0f}" if ours else "-"

    fields = {
        "append_1k": ratio(m.APPEND, 1024),
        "append_100": ratio(m.APPEND, 100),
        "append_16k": ratio(m.APPEND, 16384),
        "latency_p50": ratio(m.LATENCY, 1024, "p50"),
        "latency_p999": ratio(m.LATENCY, 1024, "p99.9"),
        "tail_p50": ratio(m.TAIL, 1024, "p50"),
        "catchup_1k": ratio(m.CATCHUP, 1024),
        "gap_server_ms": gap(m.GAP_SERVER),
        "gap_pd_ms": gap(m.GAP_PD),
        "takeover_ms": gap(m.TAKEOVER),
    }
    return "bench: " + " ".join(f"{name}={value}" for name, value in fields.items())


def plot(results: Sequence[Measurement], path: Path) -> bool:
    """Draw bars of rates and latencies; False when matplotlib is not installed or there is nothing to draw."""
    try:
        import matplotlib as mpl
    except ImportError:
        return False
    mpl.use("Agg")
    import matplotlib.pyplot as plt

    panels = [metric for metric in _TITLES if any(each.metric == metric for each in results)]
    if not panels:
        return False
    figure, axes = plt.subplots(len(panels), 1, figsize=(9, 2.6 * len(panels)), squeeze=False)
    for axis, metric in zip(axes[:, 0], panels, strict=True):
        mine = [each for each in results if each.metric == metric]
        labels = [f"{_label(each)}, {each.record_size} B" for each in mine]
        axis.barh(labels, [each.value for each in mine], color=["C0" if each.system == OURS else "C7" for each in mine])
        if metric not in _RATES:
            axis.barh(labels, [each.details["p99"] for each in mine], color="none", edgecolor="C3", linewidth=0.8)
        axis.set_title(_TITLES[metric] if metric in _RATES else f"{_TITLES[metric].split(':')[0]} p50 (outline: p99)")
        axis.set_xscale("log")
        axis.invert_yaxis()
        axis.tick_params(labelsize=7)
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    plt.close(figure)
    return True


# ---- rows


def _label(each: Measurement) -> str:
    return f"{each.system}, {each.setting}"


def _pivot(
    mine: Sequence[Measurement], column: Callable[[Measurement], str], show: Callable[[Measurement], str]
) -> list[Row]:
    columns = list(dict.fromkeys(column(each) for each in mine))
    cells = {(_label(each), column(each)): show(each) for each in mine}
    labels = list(dict.fromkeys(_label(each) for each in mine))
    return [["system", *columns], *([label, *(cells.get((label, name), "–") for name in columns)] for label in labels)]


def _by_size(mine: Sequence[Measurement]) -> list[Row]:
    ordered = sorted(mine, key=lambda each: each.record_size)
    order = {_label(each): number for number, each in reversed(list(enumerate(mine)))}
    heading, *rows = _pivot(ordered, lambda each: f"{each.record_size} B", show_value)
    return [heading, *sorted(rows, key=lambda row: order[row[0]])]


def _gap_rows(results: Sequence[Measurement]) -> list[Row]:
    rows = [["what", "system", "median", "runs", "usual p99.9"]]
    for metric, what in _GAPS.items():
        for each in results:
            if each.metric == metric:
                runs = ", ".join(f"{run:.0f}" for run in each.details.get("runs", []))
                usual = each.details.get("usual_p99.9")
                rows.append([what, _label(each), f"{each.value:.0f}", runs, "–" if usual is None else f"{usual:.2g}"])
    return rows


def _stream_rows(results: Sequence[Measurement]) -> list[Row]:
    rows = [
        [
            "streams",
            "records/s (MB/s)",
            "of one stream",
            "one in flight each, appends/s",
            "client KB each",
            "servers KB each",
            "open all, s",
            "cores when idle",
        ]
    ]
    one = next((each.value for each in results if each.metric == f"{m.STREAMS}_1"), 0.0)
    for each in results:
        if each.metric.startswith(f"{m.STREAMS}_"):
            details = each.details
            rows.append(
                [
                    each.metric.rpartition("_")[2],
                    show_value(each),
                    f"{100 * each.value / one:.0f} %" if one else "–",
                    f"{details['waiting_per_s']:,.0f}" if "waiting_per_s" in details else "–",
                    *(
                        f"{details[name]:.3g}" if name in details else "–"
                        for name in ("client_kb_per_stream", "servers_kb_per_stream", "open_s")
                    ),
                    f"{details['idle_cores']:.2f}",
                ]
            )
    return rows


def _cold_rows(results: Sequence[Measurement]) -> list[Row]:
    rows = [["what", "MB/s", "of the plain GETs"]]
    found = {each.metric: each for each in results}
    whole = found.get(m.COLD_GET)
    again = ", again" if m.COLD_FIRST in found else ""
    names = {
        m.COLD_GET: "plain GETs of the objects",
        m.COLD_FIRST: "as records, the first time in a process",
        m.COLD: f"as records{again}",
        m.COLD_ARROW: f"as Arrow{again}",
    }
    for metric, what in names.items():
        if metric in found and whole is not None:
            rate = found[metric].details["mb_per_s"]
            rows.append([what, f"{rate:.4g}", f"{rate / whole.details['mb_per_s']:.2f}"])
    return rows


def _change_rows(results: Sequence[Measurement]) -> list[Row]:
    """Every figure of both commits, and the ratio of now to before."""
    rows = [["what", "record", "before", "now", "ratio"]]
    before = {(each.metric, each.record_size): each for each in results if each.system == BEFORE}
    for each in results:
        old = before.get((each.metric, each.record_size)) if each.system == OURS else None
        if old is None or not old.value:
            continue
        cells = [
            show_rate(one.value) if one.unit == m.RECORDS_PER_S else f"{one.value:.3g} {one.unit}"
            for one in (old, each)
        ]
        rows.append([each.metric, f"{each.record_size} B", *cells, f"{each.value / old.value:.2f}"])
    return rows


def _cpu_rows(results: Sequence[Measurement]) -> list[Row]:
    mine = [each for each in results if each.metric == m.APPEND and "cpu_s_per_gb" in each.details]
    return _by_size_cpu(mine) if mine else []


def _by_size_cpu(mine: Sequence[Measurement]) -> list[Row]:
    return _pivot(mine, lambda each: f"append {each.record_size} B", _show_cpu)


def _show_cpu(each: Measurement) -> str:
    per_gb = each.details["cpu_s_per_gb"]
    used = each.details.get("cpu_s", {})
    total = sum(used.values())
    share = f" ({100 * used.get('client', 0) / total:.0f} % client)" if total else ""
    return f"{per_gb:.3g}{share}"
