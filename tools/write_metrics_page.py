"""Write docs/metrics.md, the list of all metrics, from the figures of the processes; or check it with --check."""

from __future__ import annotations

import importlib
import pathlib
import sys
from collections.abc import Sequence
from typing import Any

from rangelog_server_common.metrics.call_tally import CALL_FIGURES
from rangelog_server_common.metrics.endpoint import LOOP_FIGURES
from rangelog_server_common.metrics.exposition import own_figures
from rangelog_server_common.metrics.figures import Figure
from rangelog_server_common.quotas.figures import QUOTA_FIGURES

TARGET = pathlib.Path(__file__).resolve().parent.parent / "docs" / "metrics.md"


def figures_of(package: str) -> Sequence[Figure[Any]]:
    """Return the figures of one kind of process."""
    found: Sequence[Figure[Any]] = importlib.import_module(f"{package}.metrics").FIGURES
    return found


SECTIONS: Sequence[tuple[str, str, Sequence[Figure[Any]]]] = (
    ("Every process", "", (*own_figures("", "", []), *LOOP_FIGURES, *CALL_FIGURES, *QUOTA_FIGURES)),
    (
        "Placement driver",
        "What concerns the cluster as a whole, from `rangelog_pd_servers` on, comes from the leader alone.",
        figures_of("rangelog_pd"),
    ),
    ("Range server", "", figures_of("rangelog_server")),
    ("Broker", "", figures_of("rangelog_broker")),
)

HEAD = """# Metrics, one by one

This page is made from the programs by `python tools/write_metrics_page.py`. How they are served, probes, alerts and the
dashboard: [Operations](OPERATIONS.md#metrics). A histogram has `_bucket`, `_sum` and `_count`. Each process also exports
`process_…` (processor time, memory, open files) and `python_…` of the library. No label is the name of a stream, topic, group
or client.
"""


def page() -> str:
    """Return the page."""
    lines = [HEAD]
    for title, text, figures in SECTIONS:
        lines += [
            f"## {title}\n",
            *([f"{text}\n"] if text else []),
            "| metric | kind | labels | meaning |",
            "|---|---|---|---|",
        ]
        for each in figures:
            labels = ", ".join(f"`{label}`" for label in each.labels)
            lines.append(f"| `{each.name}` | {each.kind} | {labels} | {each.meaning} |")
        lines.append("")
    return "\n".join(lines)


def main(arguments: list[str]) -> int:
    """Return 0 when the page is written, or in step."""
    made = page()
    if "--check" not in arguments:
        TARGET.write_text(made)
        return 0
    if TARGET.exists() and TARGET.read_text() == made:
        return 0
    print("write_metrics_page: docs/metrics.md is out of step; run `python tools/write_metrics_page.py`")
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
