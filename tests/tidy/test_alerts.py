"""The alert rules, their runbook and the dashboard: expressions that parse, over metrics that a process exports."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy" / "prometheus"
RULES = yaml.safe_load((DEPLOY / "rules.yml").read_text())["groups"][0]["rules"]
DASHBOARD = json.loads((ROOT / "deploy" / "grafana" / "rangelog.json").read_text())
OF_OTHERS = {"up", "process_cpu_seconds_total", "process_max_fds", "process_open_fds"}
"""Made by Prometheus itself, or by its client library."""


def exported() -> dict[str, tuple[str, ...]]:
    """All names of series with the labels that each has, by the figures of the processes."""
    spec = importlib.util.spec_from_file_location("write_metrics_page", ROOT / "tools" / "write_metrics_page.py")
    assert spec is not None and spec.loader is not None
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    found: dict[str, tuple[str, ...]] = {}
    for _, _, figures in tool.SECTIONS:
        for each in figures:
            if each.kind == "histogram":
                found |= {f"{each.name}{end}": each.labels for end in ("_sum", "_count")}
                found[f"{each.name}_bucket"] = (*each.labels, "le")
            else:
                found[each.name] = each.labels
    return found


def selectors(expression: Any) -> Iterator[tuple[str, list[str]]]:
    """Yield the name of each metric in an expression, and the labels that it is selected by."""
    if isinstance(expression, promql_parser.VectorSelector):
        yield expression.name or "", [each.name for each in expression.matchers.matchers]
    for field in ("expr", "lhs", "rhs", "param", "vector_selector", "vs"):
        inner = getattr(expression, field, None)
        if inner is not None:
            yield from selectors(inner)
    for argument in getattr(expression, "args", None) or ():
        yield from selectors(argument)


def check_expression(text: str) -> None:
    """Parse, and look each metric up."""
    known = exported()
    parsed = list(selectors(promql_parser.parse(text.replace("$__rate_interval", "5m"))))
    names = set(re.findall(r"\b(?:rangelog|process)_[a-z_]+", text))
    assert names <= {name for name, _ in parsed}, "a metric was not found by the walk over the expression"
    for name, labels in parsed:
        assert name in known or name in OF_OTHERS, name
        assert set(labels) <= {*known.get(name, ()), "job", "name", "role", "instance"}, (name, labels)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: str(rule["alert"]))
def test_an_alert(rule: dict[str, Any]) -> None:
    """It parses, asks for what is exported, and says what to do."""
    check_expression(rule["expr"])
    assert rule["labels"]["severity"] in ("critical", "warning", "info")
    page, _, anchor = rule["annotations"]["runbook"].partition("#")
    headings = re.findall(r"^## (\w+)$", (ROOT / page).read_text(), re.MULTILINE)
    assert anchor in [heading.lower() for heading in headings]
    labels = re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"])
    known = exported()
    by = re.search(r"\bby \(([^)]*)\)", rule["expr"])
    for label in labels:
        given = {"name", "role", "instance"}.union(*(known.get(name, ()) for name in known if name in rule["expr"]))
        assert label in (by[1] if by else given), label


def test_the_runbook_has_no_other_section() -> None:
    """Nor does it explain an alert that is gone."""
    headings = re.findall(r"^## (\w+)$", (ROOT / "docs" / "runbook.md").read_text(), re.MULTILINE)
    assert [f"Rangelog{each}" for each in headings] == [rule["alert"] for rule in RULES]


@pytest.mark.parametrize("panel", DASHBOARD["panels"], ids=lambda panel: str(panel["title"]))
def test_a_panel(panel: dict[str, Any]) -> None:
    """All its expressions parse and ask for what is exported."""
    assert panel["targets"]
    for target in panel["targets"]:
        check_expression(target["expr"])


def test_wrong_expressions_are_found() -> None:
    """A metric that nobody exports, inside a function too; a label that it has not; no PromQL."""
    for wrong in (
        "rate(rangelog_pd_nothing_total[5m])",
        "max(rangelog_pd_streams) / sum(rangelog_none_bytes)",
        'rangelog_pd_streams{stream="s"}',
    ):
        with pytest.raises(AssertionError):
            check_expression(wrong)
    with pytest.raises(ValueError, match="unclosed left parenthesis"):
        check_expression("max(")


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
@pytest.mark.parametrize(
    "arguments", ["check rules rules.yml", "check config prometheus.yml", "test rules rules_test.yml"]
)
def test_promtool(arguments: str) -> None:
    """The rules' own tests, and the configuration, by the tool of Prometheus."""
    done = subprocess.run(["promtool", *arguments.split()], cwd=DEPLOY, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
