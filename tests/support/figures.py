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


def publish(suite: str, figures: dict[str, Any]) -> Path:
    """Replace the suite's file: `{suite, command, commit, at, machine, figures}`. Figures are numbers, or dicts of them."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    path = FOLDER / f"{suite}.json"
    entry = {
        "suite": suite,
        "command": _command(),
        "commit": _commit(),
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": f"{os.cpu_count()} cores, {platform.system()}, Python {platform.python_version()}",
        "figures": figures,
    }
    aside = path.with_suffix(f".{os.getpid()}")
    aside.write_text(json.dumps(entry, indent=2, sort_keys=True) + "\n")
    aside.replace(path)
    return path


def _command() -> str:
    if sys.argv[0] == "-c":  # a worker of pytest: what it was begun with, the others do not know
        return f"python -m pytest {os.environ.get('PYTEST_CURRENT_TEST', 'tests').partition('::')[0]}"
    return " ".join(["python", *[_relative(word) for word in sys.argv]])


def _relative(word: str) -> str:
    if word.endswith("/pytest/__main__.py"):
        return "-m pytest"
    return word.replace(f"{ROOT}/", "")


def _commit() -> str:
    asked = subprocess.run(
        ["git", "rev-parse", "--short=10", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False, timeout=10
    )
    return asked.stdout.strip() or "unknown"
