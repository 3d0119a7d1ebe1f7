"""Seeds that no run has seen before: they follow from the commit that they judge."""

from __future__ import annotations

import subprocess
from pathlib import Path

FRESH_FROM, FRESH_TO = 10**6, 10**12
"""They lie in between."""


def commit_id() -> str:
    """What is checked out here."""
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def fresh_seed(commit: str) -> int:
    """A first seed that belongs to a commit, far from those that are run by hand, and from those of other commits."""
    return FRESH_FROM + int(commit[:12], 16) % (FRESH_TO - FRESH_FROM)
