"""tools/affected.py chooses the tests that a change needs: too many at times, never too few."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
FILES = [
    "tests/integration/test_pdctl.py", "tests/spark/test_batch.py", "tests/unit/core/test_batch.py",
    "tests/unit/pd/conftest.py", "tests/unit/pd/test_topics.py", "tests/unit/deploy/test_chart.py",
]  # fmt: skip
IMPORTED_BY = {
    "rangelog_core.batch": {"tests.unit.core.test_batch", "rangelog_cli.main"},
    "rangelog_pd.state.topics": {"tests.unit.pd.conftest"},
    "pdctl.nouns": {"pdctl.main"},
    "rangelog_jobs.report": {"rangelog.spark.command_line"},
}


class _Graph:
    def __init__(self) -> None:
        self.modules = set(IMPORTED_BY)

    def find_downstream_modules(self, module: str) -> set[str]:
        return IMPORTED_BY[module]


@pytest.fixture
def tool() -> ModuleType:
    """The program as a module."""
    spec = importlib.util.spec_from_file_location("affected", ROOT / "tools" / "affected.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("changed", "needed"),
    [
        (
            "core/rangelog_core/batch.py",
            ["integration/test_pdctl.py", "spark/test_batch.py", "unit/core/test_batch.py"],
        ),
        ("pd/rangelog_pd/state/topics.py", ["unit/pd/test_topics.py"]),  # by the conftest of its folder
        ("ctl/pdctl/nouns.py", ["integration/test_pdctl.py"]),
        ("jobs/rangelog_jobs/report.py", ["spark/test_batch.py"]),
        ("tests/unit/core/test_batch.py", ["unit/core/test_batch.py"]),
        ("tests/unit/pd/golden.bin", ["unit/pd/test_topics.py"]),
        ("helm/rangelog/values.yaml", ["unit/deploy/test_chart.py"]),
        ("docs/topics.md", []),
        ("core/rangelog_core/not_imported_yet.py", []),
    ],
)
def test_what_a_changed_file_needs(tool: ModuleType, changed: str, needed: list[str]) -> None:
    """By imports, by the conftest of a folder, by the command that a process runs."""
    assert tool.affected([changed], _Graph(), FILES) == [f"tests/{each}" for each in needed]


@pytest.mark.parametrize("changed", ["Makefile", "pyproject.toml", "proto/rangelog/v1/pd.proto", ".ci/run"])
def test_what_no_import_shows_needs_all(tool: ModuleType, changed: str) -> None:
    """Pins, the wire, the gate itself."""
    assert tool.affected([changed], _Graph(), FILES) == [each for each in FILES if "conftest" not in each]


def test_the_commands_are_there(tool: ModuleType) -> None:
    """The real graph has the commands that tests start, and a change of a core reaches its own tests and theirs."""
    graph = tool.import_graph()
    assert set(tool.STARTED) <= graph.modules
    files = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "tests").rglob("test_*.py"))
    needed = tool.affected(["broker/rangelog_broker/groups/group.py"], graph, files)
    assert {"tests/unit/broker/groups/test_group_walks.py", "tests/integration/test_topics.py"} <= set(needed)
    assert "tests/unit/range_server/wal/test_block_writer.py" not in needed
