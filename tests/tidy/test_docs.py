"""What the documentation site must hold: every public name, and no link that leads out of it."""

from __future__ import annotations

import ast
import doctest
import importlib
import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

import rangelog

ROOT = Path(__file__).resolve().parents[2]


def site_hooks() -> ModuleType:
    """The module of the site's hooks."""
    spec = importlib.util.spec_from_file_location("docs_site", ROOT / "tools" / "docs_site.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def documented() -> set[str]:
    """The names that the API pages take from the docstrings."""
    pages = sorted((ROOT / "docs" / "api").glob("*.md"))
    return {name for page in pages for name in re.findall(r"^::: (\S+)$", page.read_text(), re.MULTILINE)}


def test_each_public_name_of_the_client_is_in_the_api_reference() -> None:
    """What `rangelog` exports is on an API page: by itself, with its module, or with the module that defines it."""
    names = documented()
    errors = ast.parse((ROOT / "core" / "rangelog_core" / "errors.py").read_text())
    covered = {node.name for node in errors.body if isinstance(node, ast.ClassDef)}
    assert "rangelog_core.errors" in names
    missing = {name for name in rangelog.__all__ if f"rangelog.{name}" not in names} - covered
    assert not missing, missing


def test_each_module_of_the_core_is_in_the_api_reference() -> None:
    """Every module of `rangelog_core` is public, so every one is on an API page."""
    folder = ROOT / "core"
    modules = {
        ".".join(path.relative_to(folder).with_suffix("").parts)
        for path in (folder / "rangelog_core").rglob("*.py")
        if path.name != "__init__.py"
    }
    assert len(modules) > 15
    assert modules <= documented(), modules - documented()


def test_the_readme_is_a_page() -> None:
    """Links from the README into docs/ work from the page that the site makes of it."""
    readme = "see [it](docs/A.md#b), [that](https://b), [this](#c) and [more](examples/README.md)"
    expected = "see [it](A.md#b), [that](https://b), [this](#c) and [more](../examples/README.md)"
    assert site_hooks().overview(readme) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[bench](../bench/README.md)", "`bench`"),
        ("[`bench`](../bench/README.md#x)", "`bench`"),
        ("[words](GLOSSARY.md)", "[words](GLOSSARY.md)"),
        ("[site](https://example.org)", "[site](https://example.org)"),
        ("[below](#below)", "[below](#below)"),
        ("[gone](../no/such.md)", "[gone](../no/such.md)"),
    ],
)
def test_links_out_of_the_pages_become_text(text: str, expected: str) -> None:
    """A file outside docs/ is named without a link; a broken link stays, so that the build reports it."""
    assert site_hooks().without_outer_links(text, "PERFORMANCE.md") == expected


@pytest.mark.parametrize("name", ["batch_extension", "net.home_loop", "record", "stream_config"])
def test_the_examples_of_the_core_give_what_they_show(name: str) -> None:
    """Examples in docstrings run as they are printed."""
    results = doctest.testmod(importlib.import_module(f"rangelog_core.{name}"))
    assert results.attempted and not results.failed


def test_the_example_of_capacity_planning_prints_what_it_shows(capsys: pytest.CaptureFixture[str]) -> None:
    """The program of the page runs, and its figures are those below it."""
    page = (ROOT / "docs" / "capacity.md").read_text()
    (program, shown) = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", page, re.DOTALL)[0]
    exec(compile(program, "capacity.md", "exec"), {})
    assert capsys.readouterr().out == shown
