"""The rows of build/chance.jsonl: which tests of a run were tried again. Needs the standard library alone."""

from __future__ import annotations

import json
from pathlib import Path

RUN_ENV = "RANGELOG_TEST_RUN"
"""Names a run of several commands, whose rows count together."""


def rows_of(folder: Path, run: str) -> list[dict[str, object]]:
    """Return the rows of one run, in order."""
    path = folder / "chance.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    return [row for row in rows if row["run"] == run]


def summary(rows: list[dict[str, object]]) -> str:
    """Return the line that ends a run."""
    names = ",".join(str(row["test"]).rpartition("/")[2] for row in rows)
    return f"chance: tried_again={len(rows)} passed={sum(bool(row['passed']) for row in rows)} names={names or '-'}"
