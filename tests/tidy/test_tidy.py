"""The house rules that no linter checks: sizes, docstrings, words, and what must not be in the project."""

from __future__ import annotations

import ast
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCE_ROOTS = ("proto", "client", "pd", "range_server", "cli", "tools")
FILE_LINES_MAX = 500
FUNCTION_LINES_MAX = 60
FORBIDDEN_WORDS = re.compile(
    r"(?<![a-z])(topic|ledger|shard|broker|bookie|watermark|zookeeper)(?![a-z])", re.IGNORECASE
)
SPLITTER = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")


def tracked(*patterns: str) -> list[Path]:
    """Files that git knows or would add."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *patterns],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split("\n")
    return [ROOT / name for name in listed if name and (ROOT / name).is_file()]


def sources() -> list[Path]:
    """Our own code, without generated stubs."""
    return [
        path for path in tracked("*.py") if path.relative_to(ROOT).parts[0] in SOURCE_ROOTS and "_pb2" not in path.name
    ]


def _test_files() -> list[Path]:
    """All test files."""
    return tracked("tests/*.py")


def functions(tree: ast.AST) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Every function of a module."""
    return [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]


def test_files_and_functions_can_be_read_in_one_sitting() -> None:
    """No file and no function of ours grows beyond the bound."""
    long: list[str] = []
    for path in sources():
        text = path.read_text()
        if text.count("\n") > FILE_LINES_MAX:
            long.append(f"{path.relative_to(ROOT)}: {text.count(chr(10))} lines")
        for node in functions(ast.parse(text)):
            lines = (node.end_lineno or 0) - node.lineno
            if lines > FUNCTION_LINES_MAX:
                long.append(f"{path.relative_to(ROOT)}:{node.lineno} {node.name}: {lines} lines")
    assert not long, long


def test_modules_and_tests_say_what_they_are() -> None:
    """Each module has a docstring, and so has each test."""
    silent: list[str] = []
    for path in [*sources(), *_test_files()]:
        tree = ast.parse(path.read_text())
        if path.read_text().strip() and ast.get_docstring(tree) is None:
            silent.append(str(path.relative_to(ROOT)))
        if path.name.startswith("test_"):
            silent += [
                f"{path.relative_to(ROOT)}: {node.name}"
                for node in functions(tree)
                if node.name.startswith("test_") and ast.get_docstring(node) is None
            ]
    assert not silent, silent


def test_one_word_per_thing() -> None:
    """Names do not use the words that the glossary forbids."""
    wrong: list[str] = []
    for path in sources():
        for node in ast.walk(ast.parse(path.read_text())):
            name = getattr(node, "name", None) or getattr(node, "id", None) or getattr(node, "attr", None)
            if isinstance(name, str) and FORBIDDEN_WORDS.search("_".join(SPLITTER.findall(name))):
                wrong.append(f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 0)} {name}")
    assert not wrong, wrong


def test_nothing_unfinished_and_no_pickle() -> None:
    """No placeholder is left, and nothing imports pickle (the Raft library's names for it are cut off by name)."""
    found: list[str] = []
    for path in sources():
        text = path.read_text()
        found += [
            f"{path.relative_to(ROOT)}: {word}"
            for word in ("TODO", "FIXME", "XXX", "NotImplementedError")
            if word in text
        ]
        for node in ast.walk(ast.parse(text)):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            found += [
                f"{path.relative_to(ROOT)}: {name}"
                for name in names
                if name.split(".")[0] in ("pickle", "marshal", "shelve")
            ]
    assert not found, found


def test_no_machine_paths() -> None:
    """Nothing names a place on the machine it was written on."""
    pattern = re.compile(r"/(?:work|root)/(?!\.)")
    found = [
        str(path.relative_to(ROOT))
        for path in tracked()
        if path.suffix in {".py", ".md", ".toml", ".proto", ".sh", ""} and path.name != "test_tidy.py"
        and pattern.search(path.read_text(errors="ignore"))
    ]  # fmt: skip
    assert not found, found


def test_tests_do_not_sleep() -> None:
    """No test waits by the clock: conditions are polled with a deadline, by helpers."""
    sleeping: list[str] = []
    for path in _test_files():
        for node in functions(ast.parse(path.read_text())):
            if not node.name.startswith("test_"):
                continue
            body = [each for each in ast.iter_child_nodes(node) if isinstance(each, ast.Expr)]
            sleeping += [
                f"{path.relative_to(ROOT)}: {node.name}" for each in body if "time.sleep(" in ast.unparse(each)
            ]
    assert not sleeping, sleeping


@pytest.mark.parametrize("target", ["demo", "test"])
def test_the_readme_commands_exist(target: str) -> None:
    """What the README tells a newcomer to type is a target of the Makefile."""
    assert f"make {target}" in (ROOT / "README.md").read_text()
    assert f"\n{target}: " in (ROOT / "Makefile").read_text()
