"""The pages that tools make from the programs: configuration and errors are whole, in step, and say what a program says."""

from __future__ import annotations

import importlib.util
import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from rangelog_pd.settings import MemberSettings

ROOT = Path(__file__).resolve().parents[2]


def tool(name: str) -> ModuleType:
    """A program of tools/ as a module."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def texts(name: str) -> dict[str, Any]:
    """The hand-written part of a page."""
    return tomllib.loads((ROOT / "tools" / name).read_text())


@pytest.mark.parametrize("name", ["config_reference", "error_reference"])
def test_a_page_that_is_out_of_step_is_found(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """--check accepts what the tool has written, and refuses any other text, and none."""
    module = tool(name)
    assert module.main(["--check"]) == 0
    monkeypatch.setattr(module, "TARGET", tmp_path / "page.md")
    assert module.main(["--check"]) == 1
    assert module.main([]) == 0 and module.main(["--check"]) == 0
    module.TARGET.write_text(module.TARGET.read_text().replace("|", "/", 1))
    assert module.main(["--check"]) == 1


def test_a_setting_without_meaning_and_a_meaning_without_setting_are_errors() -> None:
    """Both are named with their process."""
    meanings = texts("config_meanings.toml")
    del meanings["pd"]["repack_concurrency"]
    meanings["broker"]["speed"] = "how fast"
    _, problems = tool("config_reference").page(meanings)
    assert problems == ["[pd] repack_concurrency: has no meaning", "[broker] speed: is no setting"]


def test_the_table_of_settings_has_what_the_classes_have() -> None:
    """Default, unit, bounds, flag and variable, in this order, of settings of each kind."""
    made, _ = tool("config_reference").page(texts("config_meanings.toml"))
    for row in (
        "| `segment_size_bytes` | 64 MiB | bytes | ≥ 16 MiB, ≤ 1 GiB | `--segment-size-bytes` | `RANGELOG_SERVER_SEGMENT",
        "| `pd` | required | list |  | `--pd` | `RANGELOG_BROKER_PD` |",
        "| `labels` | none | list |  | `--label` | `RANGELOG_SERVER_LABELS` |",
        "| `direct_io` | true | true, false |  |  | `RANGELOG_SERVER_DIRECT_IO` |",
        "| `server_dead_ms` | 5,000 | ms | ≥ 200 | `--server-dead-ms` | `RANGELOG_PD_SERVER_DEAD_MS` |",
        "| `tls_key` | none | path |  | `--tls-key` | `RANGELOG_PD_TLS_KEY` |",
    ):
        assert row in made
    assert all(f"`{key}`" in made for key in MemberSettings.model_fields)


def test_an_error_without_advice_and_advice_without_an_error_are_errors() -> None:
    """Both are named by code."""
    advice = texts("error_advice.toml")
    del advice["FENCED"]
    advice["LOST_KEYS"] = "look under the mat"
    _, problems = tool("error_reference").page(advice)
    assert problems == ["FENCED: has no advice", "LOST_KEYS: is no code"]


def test_the_table_of_errors_has_what_callers_see() -> None:
    """Depth, code and class; then, behind the text, both marks, gRPC status, HTTP status and exit code."""
    made, _ = tool("error_reference").page(texts("error_advice.toml"))
    for begins, ends in (
        ("| ↳ `APPEND_TIMEOUT`<br>`AppendTimeout` | ", " | retriable, outcome unknown | UNAVAILABLE 503 4 |"),
        ("| `STREAM_NOT_FOUND`<br>`StreamNotFound` | ", " |  | NOT_FOUND 404 3 |"),
        ("| ↳ `RIGHT_MISSING`<br>`RightMissing` | ", " |  | UNAUTHENTICATED 403 1 |"),
        ("| `FENCED`<br>`WriterFenced` | ", " |  | FAILED_PRECONDITION 409 5 |"),
    ):
        (row,) = (line for line in made.splitlines() if line.startswith(begins))
        assert row.endswith(ends), row
