"""The names of metrics, and the page that lists them."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
UNITS = ("_seconds", "_bytes", "_total", "_ratio", "_info")
LABELS = {
    "role",
    "name",
    "version",
    "method",
    "code",
    "action",
    "kind",
    "result",
    "health",
    "server",
    "state",
    "source",
}
"""All have few values. A stream, a topic, a group or a client is none of them."""


def tool() -> Any:
    """tools/write_metrics_page.py as a module."""
    spec = importlib.util.spec_from_file_location("write_metrics_page", ROOT / "tools" / "write_metrics_page.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_in_step() -> None:
    """Each metric is explained where users look."""
    assert tool().main(["--check"]) == 0


def test_names_follow_the_conventions() -> None:
    """Counters end in _total, durations in seconds; each name is there once, and begins with its process."""
    names: dict[str, str] = {}
    for title, _, figures in tool().SECTIONS:
        prefix = {"Placement driver": "rangelog_pd_", "Range server": "rangelog_server_", "Broker": "rangelog_broker_"}
        for each in figures:
            assert each.name not in names, each.name
            names[each.name] = title
            assert each.name.startswith(prefix.get(title, "rangelog_"))
            assert (each.kind == "counter") == each.name.endswith("_total"), each.name
            assert each.kind != "histogram" or each.name.endswith("_seconds"), each.name
            assert set(each.labels) <= LABELS, each.labels
            assert each.meaning.endswith("."), each.name
            if "duration" in each.name or "age" in each.name.split("_") or "lag" in each.name.split("_"):
                assert each.name.endswith(UNITS), each.name
    assert len(names) > 60
