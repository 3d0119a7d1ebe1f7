"""The instructions of a Dockerfile, for tests: continuation lines joined, comments left out."""

from __future__ import annotations

from pathlib import Path


def instructions(path: Path) -> list[tuple[str, str]]:
    """Return (name, text) of each."""
    lines = [line for line in path.read_text().splitlines() if line.strip() and not line.startswith("#")]
    joined = "\n".join(lines).replace("\\\n", " ")
    return [(name, text.strip()) for name, _, text in (line.partition(" ") for line in joined.split("\n"))]
