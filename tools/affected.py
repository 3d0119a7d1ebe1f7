"""The tests of the gate that a change needs, by the import graph: for a developer's next look. The gate itself runs all.

    python tools/affected.py              what differs from HEAD, new files included; runs the tests
    python tools/affected.py BASE         what differs from the commit BASE
    python tools/affected.py BASE --list  names the files alone

A test file is needed if it, a conftest above it, or a module that it imports, directly or through others, has changed; tests
of real processes also if a command that they start imports what has changed. A change that no import shows (the Makefile,
pins, a .proto file) needs all; one of a page needs `make check`, which is always due.
"""

from __future__ import annotations

import subprocess
import sys
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

ROOT = Path(__file__).resolve().parents[1]
GATE = "not long and not release and not measure"
STARTED = {
    "rangelog_cli.main": ("tests/integration", "tests/spark"),
    "pdctl.main": ("tests/integration",),
    "rangelog_bench.command_line": ("tests/integration",),
    "rangelog_demo.command_line": ("tests/integration",),
    "rangelog.spark.command_line": ("tests/spark",),
}
"""Command → tests that start it as a process."""
EVERYTHING = ("Makefile", "pyproject.toml", "requirements.lock", "hatch_build.py", "proto/", ".ci/")
FOLDERS = {"helm/": "tests/unit/deploy", "deploy/": "tests/tidy", "examples/": "tests/integration"}


class Graph(Protocol):
    """What is asked of the import graph (grimp's)."""

    @property
    def modules(self) -> set[str]:
        """All of them, by their dotted names."""

    def find_downstream_modules(self, module: str) -> set[str]:
        """Return all that import a module, directly or through others."""


def module_of(path: str) -> str:
    """Return the dotted name of a file: tests by their place, packages by the part below their folder."""
    parts = Path(path).with_suffix("").parts
    if parts[0] != "tests":
        parts = parts[1:]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def affected(changed: Iterable[str], graph: Graph, files: Iterable[str]) -> list[str]:
    """Return the test files of `files` that the changed files need, in order. Paths are relative to the root, with slashes."""
    changed = list(changed)
    tests = [each for each in files if Path(each).name.startswith("test_")]
    if any(path.startswith(EVERYTHING) for path in changed):
        return tests
    needed = {path for path in changed if path in tests}
    folders = {folder for path in changed for start, folder in FOLDERS.items() if path.startswith(start)}
    for path in changed:
        if not path.endswith(".py"):
            folders.add(path.rpartition("/")[0] if path.startswith("tests/") and path.count("/") > 1 else "")
            continue
        module = module_of(path)
        reached = {module} | (graph.find_downstream_modules(module) if module in graph.modules else set())
        needed |= {test for test in tests if module_of(test) in reached}
        folders |= {each.removesuffix(".conftest").replace(".", "/") for each in reached if each.endswith(".conftest")}
        folders |= {folder for command, started in STARTED.items() if command in reached for folder in started}
    return [test for test in tests if test in needed or any(test.startswith(f"{each}/") for each in folders if each)]


def _git(*words: str) -> list[str]:
    run = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True)
    return [line for line in run.stdout.splitlines() if line]


def import_graph() -> Graph:
    """Return the graph of our packages and their tests."""
    import grimp

    sys.path.insert(0, str(ROOT))
    config = tomllib.loads((ROOT / "pyproject.toml").read_text())
    graph: Graph = grimp.build_graph(*config["tool"]["importlinter"]["root_packages"], "tests", cache_dir=None)
    return graph


def main(words: list[str]) -> int:
    """Run them; the exit code is 1 where one fails, 2 for a base that git does not know."""
    names_alone = "--list" in words
    base = next((word for word in words if not word.startswith("-")), "HEAD")
    try:
        changed = _git("diff", "--name-only", base) + _git("ls-files", "--others", "--exclude-standard")
    except subprocess.CalledProcessError as error:
        print(f"affected: {error.stderr.strip()}: give a commit of this repository", file=sys.stderr)
        return 2
    files = affected(changed, import_graph(), sorted({*_git("ls-files", "tests"), *changed} - {""}))
    if names_alone:
        print("\n".join(files))
        return 0
    print(f"affected: {len(files)} test files by {len(changed)} changed files; then: make check", flush=True)
    failed = False
    for marked, workers in (("not alone", ("-n", "2", "--dist", "loadfile")), ("alone", ())):
        command = [sys.executable, "-m", "pytest", "-q", *workers, "-m", f"{marked} and {GATE}", *files]
        failed |= bool(files) and subprocess.run(command, cwd=ROOT, check=False).returncode not in (0, 5)  # 5: none
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
