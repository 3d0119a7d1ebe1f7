"""Each test outside of the gate is found from what it guards: tests/README.md names its file in the column of its target."""

from __future__ import annotations

import ast
import functools
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TARGETS = ("long", "release", "measure")
HEAD = "| you change | `make long` | `make release` | `make measure` |"


def targets_in(node: ast.AST) -> list[str]:
    """The markers of targets that a piece of source has: of `pytest.mark.long` it is `long`."""
    return [each.attr for each in ast.walk(node) if isinstance(each, ast.Attribute) and is_target(each)]


def is_target(node: ast.Attribute) -> bool:
    return node.attr in TARGETS and isinstance(node.value, ast.Attribute) and node.value.attr == "mark"


def parts_of(tree: ast.Module) -> Iterator[tuple[str, ast.AST]]:
    """What marks the whole module, each test's decorators, and other places of markers, each with its name."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            for each in node.decorator_list:
                yield node.name, each
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            yield node.targets[0].id, node


def parameters_in(node: ast.AST) -> list[ast.Call]:
    """The calls of `pytest.param`: each is a test of its own."""
    return [
        each
        for each in ast.walk(node)
        if isinstance(each, ast.Call) and isinstance(each.func, ast.Attribute) and each.func.attr == "param"
    ]


def twice(tree: ast.Module) -> list[str]:
    """Which tests, by their names or `pytestmark`, have more than one target."""
    found, whole, parts = [], 0, Counter[str]()
    for name, node in parts_of(tree):
        parameters = parameters_in(node)
        own = targets_in(node)
        if any(len(targets_in(each)) > 1 for each in parameters):
            found.append(name)
        inner = sum(len(targets_in(each)) for each in parameters)
        parts[name] += len(own) - inner + bool(inner)
        whole += (len(own) - inner) if name == "pytestmark" else 0
    found += [name for name, count in parts.items() if count > 1 or (whole and count and name != "pytestmark")]
    return sorted(set(found))


@functools.cache
def trees() -> dict[str, ast.Module]:
    """Each file of tests that has a marker of a target, or names one, by its path below tests/."""
    folder, marker = ROOT / "tests", re.compile(rf"mark\.({'|'.join(TARGETS)})\b")
    texts = {str(path.relative_to(folder)): path.read_text() for path in sorted(folder.rglob("test_*.py"))}
    return {name: ast.parse(text) for name, text in texts.items() if marker.search(text)}


@functools.cache
def rows() -> list[list[str]]:
    """The cells of the table, without its head."""
    text = (ROOT / "tests" / "README.md").read_text()
    lines = text.partition(HEAD + "\n")[2].partition("\n\n")[0].splitlines()[1:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


@pytest.mark.parametrize("target", TARGETS)
def test_the_table_names_every_file_of_a_target_and_no_other(target: str) -> None:
    """A file with a marker is in its column, and a file in the column exists and has the marker."""
    column = 1 + TARGETS.index(target)
    named = {name for row in rows() for name in re.findall(r"`([^`]+)`", row[column])}
    marked = {name for name, tree in trees().items() if target in targets_in(tree)}
    assert len(marked) > 3
    assert named == marked, f"missing {sorted(marked - named)}, too many {sorted(named - marked)}"


def test_the_paths_of_the_product_exist() -> None:
    """What a row is for is a file or a folder."""
    paths = [path for row in rows() for path in re.findall(r"`([^`]+)`", row[0])]
    assert len(paths) > 20
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_a_test_has_one_target_at_most() -> None:
    """Else it runs in two, and neither is where the table says."""
    found = {name: names for name, tree in trees().items() if (names := twice(tree))}
    assert not found, found


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("@pytest.mark.long\ndef test_a(): ...", []),
        ("@pytest.mark.long\n@pytest.mark.measure\ndef test_a(): ...", ["test_a"]),
        ("pytestmark = [pytest.mark.long]\n@pytest.mark.measure\ndef test_a(): ...", ["test_a"]),
        ("pytestmark = [pytest.mark.long, pytest.mark.release]", ["pytestmark"]),
        ("X = [pytest.param(1, marks=pytest.mark.long), pytest.param(2, marks=pytest.mark.measure)]", []),
        ("X = [pytest.param(1, marks=[pytest.mark.long, pytest.mark.measure])]", ["X"]),
    ],
)
def test_two_targets_are_found(source: str, expected: list[str]) -> None:
    """On a test, on a parameter, and between a module and what is in it."""
    assert twice(ast.parse(source)) == expected
