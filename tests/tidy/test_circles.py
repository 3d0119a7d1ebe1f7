"""No module imports itself through others: the house has floors."""

from __future__ import annotations

import tomllib
from graphlib import TopologicalSorter
from pathlib import Path

import grimp

ROOT = Path(__file__).resolve().parents[2]


def test_no_circle_of_imports() -> None:
    """The imports of all modules, those inside functions too, have an order; a circle is named by the error."""
    packages = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["root_packages"]
    graph = grimp.build_graph(*packages, exclude_type_checking_imports=True, cache_dir=None)
    imported = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    assert len(tuple(TopologicalSorter(imported).static_order())) >= 900
