"""The parts that the sections of the demo's report are made of: checks, tables, tiles. Text in, escaped HTML out."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass

from rangelog_demo.timeline import Kill, Timeline


@dataclass(frozen=True)
class Check:
    """One check: the expected and the found value."""

    name: str
    expected: str
    found: str
    ok: bool


def tile(value: str, label: str) -> str:
    """A figure with what it is."""
    return f'<div class="tile"><b>{html.escape(value)}</b><span>{html.escape(label)}</span></div>'


def kills_table(timeline: Timeline) -> str:
    """The kills of a timeline, with the pauses after them."""
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
    return table(("killed with kill -9", "process", "at", "longest pause after it", "back"), rows)


def _back(kill: Kill) -> str:
    if kill.replaced_by:
        return kill.replaced_by
    if kill.restarted_ns is None:
        return "–"
    return f"after {(kill.restarted_ns - kill.killed_ns) / 1e9:.2f} s"


def checks_table(checks: Sequence[Check]) -> str:
    """All checks, with the expected and the found values."""
    rows = "".join(
        f'<tr><td class="mark {"ok" if check.ok else "bad"}">{"✓" if check.ok else "✗"}</td>'
        f"<td>{html.escape(check.name)}</td><td>{html.escape(check.expected)}</td><td>{html.escape(check.found)}</td></tr>"
        for check in checks
    )
    return f"<table><thead><tr><th></th><th>check</th><th>expected</th><th>found</th></tr></thead><tbody>{rows}</tbody></table>"


def table(head: Sequence[str], rows: Sequence[Sequence[str]], *, numbers_from: int = 99) -> str:
    """A table; columns from `numbers_from` on are aligned to the right."""
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


STYLE = """
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
@media (max-width: 760px) { figure { overflow-x: auto; } figure svg { min-width: 760px; } }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th { text-align: left; font-weight: 600; color: #6b7785; font-size: 13px; }
th, td { padding: 6px 12px 6px 0; border-bottom: 1px solid #eef1f4; vertical-align: top; }
tbody tr:last-child td { border-bottom: 0; }
.number { text-align: right; }
.mark { width: 1.4em; font-weight: 700; } .mark.ok { color: #2f8f6b; } .mark.bad { color: #c0392b; }
pre { margin: 0; white-space: pre-wrap; overflow-wrap: anywhere; font: 13px/1.5 ui-monospace, "DejaVu Sans Mono", monospace; }
"""
