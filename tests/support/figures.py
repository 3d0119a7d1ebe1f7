"""Where the suites put what they counted: one JSON file each in build/reliability, from which the table is made."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "build" / "reliability"
KEPT = Path("docs") / "reliability"
"""Figures that are committed."""


def publish(suite: str, figures: dict[str, Any]) -> Path:
    """Replace the suite's file: `{suite, command, commit, at, machine, figures}`. Figures are numbers, or dicts of them."""
    path = FOLDER / f"{suite}.json"
    entry = {
        "suite": suite,
        "command": _command(),
        "commit": commit(),
        "at": now(),
        "machine": machine(),
        "figures": figures,
    }
    replace(path, json.dumps(entry, indent=2, sort_keys=True) + "\n")
    return path


def replace(path: Path, text: str) -> None:
    """Write the file whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_suffix(f".{os.getpid()}")
    aside.write_text(text)
    aside.replace(path)


def now() -> str:
    """The time as figures have it."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def machine() -> str:
    """What counted."""
    return f"{os.cpu_count()} cores, {platform.system()}, Python {platform.python_version()}"


def git(tree: Path, *words: str) -> str:
    """What a git command prints. Raises CalledProcessError where it fails."""
    return subprocess.run(
        ["git", *words], cwd=tree, capture_output=True, text=True, check=True, timeout=60
    ).stdout.strip()


def commit(tree: Path = ROOT) -> str:
    """What is checked out."""
    try:
        return git(tree, "rev-parse", "--short=10", "HEAD")
    except subprocess.CalledProcessError:
        return "unknown"


def _command() -> str:
    if sys.argv[0] == "-c":  # a worker of pytest: what it was begun with, the others do not know
        return f"python -m pytest {os.environ.get('PYTEST_CURRENT_TEST', 'tests').partition('::')[0]}"
    return " ".join(["python", *[_relative(word) for word in sys.argv]])


def _relative(word: str) -> str:
    if word.endswith("/pytest/__main__.py"):
        return "-m pytest"
    return word.replace(f"{ROOT}/", "")
